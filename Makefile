# One command each: every target does its own set-up. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 3
QUICK_WORKERS ?= 4
LOCKS := $(addprefix systemd/debian/locks/,agent.txt trimtab.txt portal.txt)
SEEDS ?= 0-199
EXISTING ?= 0-399
DAYS ?= 0-19
HOSTS ?= 3
SCENE ?= jobs

# The logs and traces that some tests and experiments replay; docs/appendix/data.md says where the originals come from.
TRIMTAB_DATA ?= $(realpath $(CURDIR)/../shared/data)
ifneq ($(strip $(TRIMTAB_DATA)),)
export TRIMTAB_DATA
endif

# Bytecode is kept, wherever this runs: without it every worker compiles all tests anew, and every process all modules.
unexport PYTHONDONTWRITEBYTECODE

# The first Python that is new enough and runs (a version manager's shim may exist and refuse to).
define find_python
python=""; \
for candidate in $${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14; do \
  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$candidate"; break; fi; \
done
endef

define apt_install
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  echo "installing $(1) with apt-get" >&2; \
  DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2; \
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >&2; \
fi
endef

.PHONY: help setup run lab test quick check accept full seeds bench coverage docs deb lock reference format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv and install Trimtab with its tools into it (again only when what it needs changed)

$(STAMP): setup.cfg pyproject.toml $(LOCKS)
	@$(find_python); \
	if [ -z "$$python" ]; then $(call apt_install,python3 python3-venv); $(find_python); fi; \
	if [ -z "$$python" ]; then \
	  echo "Trimtab needs Python 3.11 or newer: install it, or name one that you have: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then $(call apt_install,python3-venv); fi; \
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$python has no venv module: as root, apt-get install python3-venv" >&2; exit 1; \
	  fi; \
	  "$$python" -m venv --clear $(VENV); \
	fi; \
	sed -n 's/^\([^ \#]*==[^ ]*\).*/\1/p' $(LOCKS) | sort -u >$(VENV)/versions.txt; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)/versions.txt \
	  --editable '.[dev,plots,portal]'; \
	touch $@

run: setup ## Watch three simulated clusters of 25 nodes work through 200 jobs each; the report lands in out/run/
	$(BIN)/trimtab sim run --seeds 0-2 --output-folder out/run

lab: setup ## As root: watch jobs and a web application on HOSTS=3 hosts with QEMU on this machine; SCENE=ha, adopt, moves: VMs made before; all: every scene; LAB_JSON=FILE: the table
	$(BIN)/python -m tests.lab --hosts $(HOSTS) --scene $(SCENE)

test: setup ## Run every test but those of `make check`, `make accept` and `make full` (5 minutes)
	$(BIN)/python -m pytest -p no:rerunfailures -n $(WORKERS) --dist worksteal -m "not full and not accept" \
	  --ignore tests/architecture tests

quick: setup ## What of `make test` needs neither root nor a broker (a minute)
	$(BIN)/python -m pytest -p no:rerunfailures -n $(QUICK_WORKERS) --dist worksteal -m "not full and not accept" \
	  --ignore tests/architecture --ignore tests/integration --ignore tests/lab --ignore tests/browser \
	  --ignore tests/security --ignore tests/conformance/test_process.py tests

check: setup docs ## Lint, formatting, types, import contracts, the documentation site and the architecture tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks systemd/debian/lock.py
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -p no:rerunfailures -m "not full" tests/architecture

accept: setup ## Twenty fault seeds of each kind, a lab in small, what of the experiments is deterministic (10 minutes)
	$(BIN)/trimtab sim faults --seeds 0-19
	$(BIN)/trimtab sim faults --environments --seeds 0-19
	$(BIN)/trimtab sim faults --existing-vms --seeds 0-19
	$(BIN)/python -m pytest -p no:rerunfailures -n $(WORKERS) --dist worksteal -m "accept and not alone" tests
	$(BIN)/python -m pytest -p no:rerunfailures -m "accept and alone" tests

full: setup ## Everything, in parts that run one after another (hours); `make full-NAME` runs one part: see CONTRIBUTING.md
	$(BIN)/python -m tests.full

full-%: setup
	$(BIN)/python -m tests.full $*

seeds: setup ## The fault seeds: SEEDS=0-199 of two hours without and with environments, EXISTING=0-399 with adopted VMs, DAYS=0-19 of a day
	$(BIN)/trimtab sim faults --seeds $(SEEDS)
	$(BIN)/trimtab sim faults --environments --seeds $(SEEDS)
	$(BIN)/trimtab sim faults --existing-vms --seeds $(EXISTING)
	$(BIN)/trimtab sim faults --environments --hours 24 --seeds $(DAYS)

bench: setup ## Measure speeds beside a plain baseline
	$(BIN)/python -m benchmarks

coverage: setup ## Run the tests and say which lines none of them reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -p no:rerunfailures -m "not full and not accept" tests
	$(BIN)/coverage report

docs: setup ## Build the documentation site into out/docs/; a warning or a broken link is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going -q -b dirhtml docs out/docs
	@echo "out/docs/index.html"

deb: setup ## Build the Debian package into out/deb/
	systemd/debian/build out/deb

lock: setup ## Write again which versions, with which hashes, the Debian package has of others (systemd/debian/locks)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[lock]'
	$(BIN)/python systemd/debian/lock.py

reference: setup ## Write the generated reference pages again
	$(BIN)/python -m tests.support.reference_pages docs/reference examples/reference
	$(BIN)/python -m daemons.cli.code_pages docs/reference

format: setup ## Put the formatting right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove everything that the other targets made, as root what interrupted labs have left, too
	@if [ "$$(id -u)" = 0 ] && [ -x $(BIN)/python ]; then \
	  $(BIN)/python -m tests.lab.remains || echo "what interrupted labs have left could not be removed" >&2; \
	fi
	rm -rf $(VENV) out build *.egg-info .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
