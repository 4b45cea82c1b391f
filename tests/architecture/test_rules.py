"""The tree keeps every architecture rule, and every rule finds what is planted against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.architecture import code_rules, import_rules
from tests.architecture.sources import PACKAGES, ROOT, Source, tree_sources, unreadable

Rule = Callable[[Source], list[str]]
RULES: tuple[Rule, ...] = (*import_rules.RULES, *code_rules.RULES)

# Rule, file, text: each text breaks the rule once.
PLANTED: tuple[tuple[Rule, str, str], ...] = (
    (import_rules.absolute, "shared/protocol/codec.py", "from . import model\n"),
    (import_rules.absolute, "daemons/cli/main.py", "from ..policies import placement\n"),
    (import_rules.tests_stay_outside, "sim_backend/loop/closed_loop.py", "from tests.unit import helpers\n"),
    (import_rules.tests_stay_outside, "daemons/x.py", "import importlib\nimportlib.import_module('benchmarks.x')\n"),
    (import_rules.no_io_builtins, "daemons/controller/core/controller.py", "def f():\n    print('here')\n"),
    (import_rules.no_io_builtins, "daemons/planning/order.py", "text = open('plan').read()\n"),
    (import_rules.declared_dependencies, "shared/protocol/codec.py", "import requests\n"),
    (import_rules.declared_dependencies, "sim_backend/conformance/bus_checks.py", "import pytest\n"),
    (code_rules.wall_clock, "shared/runtime/logs.py", "import time\n"),
    (code_rules.wall_clock, "benchmarks/replay.py", "from time import perf_counter\n"),
    (code_rules.wall_clock, "shared/runtime/logs.py", "import datetime as dt\nnow = dt.datetime.now(dt.UTC)\n"),
    (code_rules.wall_clock, "daemons/report/html.py", "from datetime import date\ntoday = date.today()\n"),
    (code_rules.wall_clock, "daemons/report/html.py", "from datetime import datetime\nnow = datetime.utcnow()\n"),
    (code_rules.global_chance, "sim_backend/replay/workloads.py", "import random\nx = random.random()\n"),
    (code_rules.global_chance, "sim_backend/replay/workloads.py", "import random\ndraw = random.choice\n"),
    (code_rules.global_chance, "sim_backend/replay/workloads.py", "from random import shuffle\n"),
    (code_rules.global_chance, "sim_backend/replay/workloads.py", "import random\nrng = random.Random()\n"),
    (code_rules.global_chance, "sim_backend/replay/workloads.py", "import random\nrng = random.SystemRandom(1)\n"),
    (code_rules.global_chance, "tests/unit/test_x.py", "import numpy as np\nx = np.random.normal(0, 1)\n"),
    (code_rules.global_chance, "tests/unit/test_x.py", "import numpy as np\nnp.random.seed(1)\n"),
    (code_rules.global_chance, "tests/unit/test_x.py", "import numpy as np\nrng = np.random.default_rng()\n"),
    (code_rules.global_chance, "tests/unit/test_x.py", "import numpy as np\nrng = np.random.default_rng(None)\n"),
    (code_rules.global_chance, "tests/unit/test_x.py", "from numpy import random as r\nx = r.rand(3)\n"),
    (code_rules.swallowed_errors, "shared/protocol/codec.py", "try:\n    x = 1\nexcept:\n    raise\n"),
    (code_rules.swallowed_errors, "shared/protocol/codec.py", "try:\n    x = 1\nexcept Exception:\n    pass\n"),
    (
        code_rules.swallowed_errors,
        "shared/protocol/codec.py",
        "try:\n    x = 1\nexcept (OSError, BaseException):\n    ...\n",
    ),
    (
        code_rules.swallowed_errors,
        "shared/protocol/codec.py",
        "from contextlib import suppress\nwith suppress(Exception):\n    x = 1\n",
    ),
    (
        code_rules.patched_code,
        "tests/unit/test_x.py",
        "from unittest.mock import patch\npatch('shared.base.clock.time')\n",
    ),
    (
        code_rules.patched_code,
        "tests/unit/test_x.py",
        "from unittest import mock\nmock.patch('agents.core.agent.Agent')\n",
    ),
    (
        code_rules.patched_code,
        "tests/unit/test_x.py",
        "from unittest.mock import patch\nfrom shared import clock\npatch.object(clock, 'now')\n",
    ),
    (
        code_rules.patched_code,
        "tests/unit/test_x.py",
        "from shared import clock\ndef test(monkeypatch):\n    monkeypatch.setattr(clock, 'now', None)\n",
    ),
    (
        code_rules.patched_code,
        "tests/unit/test_x.py",
        "def test(mocker):\n    mocker.patch('daemons.controller.measure.reports.x')\n",
    ),
    (code_rules.patched_code, "tests/unit/test_x.py", "import shared.base.clock\nshared.clock.now = None\n"),
    (code_rules.option_numbers, "daemons/cli/x.py", "import click\nx = click.FloatRange(0.0, 1.0)\n"),
    (code_rules.option_numbers, "daemons/cli/x.py", "from click import IntRange\nx = IntRange(1)\n"),
    (code_rules.option_numbers, "sim_backend/commands/x.py", "import click\nx = click.option('--x', type=float)\n"),
    (code_rules.option_numbers, "sim_backend/commands/x.py", "import click\nx = click.option('--x', default=3)\n"),
    (code_rules.printed_elsewhere, "daemons/cli/x.py", "import click\nclick.echo('x', err=True)\n"),
    (code_rules.printed_elsewhere, "sim_backend/commands/x.py", "from rich.console import Console\nx = Console()\n"),
    (code_rules.printed_elsewhere, "sim_backend/env_commands/x.py", "print('x')\n"),
    (code_rules.written_elsewhere, "daemons/cli/x.py", "def f(path):\n    path.write_text('x')\n"),
    (code_rules.written_elsewhere, "sim_backend/experiments/x.py", "def f(path):\n    path.write_bytes(b'x')\n"),
    (code_rules.phases_elsewhere, "daemons/controller/web/apps.py", "def f(e, p):\n    e.held, e.phase = True, p\n"),
    (code_rules.phases_elsewhere, "daemons/controller/x.py", "def f(entry):\n    entry.revision += 1\n"),
    (code_rules.late_wiring, "daemons/controller/core/x.py", "class A:\n    def f(self):\n        self.web.on = f\n"),
    (code_rules.late_wiring, "daemons/controller/x.py", "class A:\n    def f(self):\n        self.a.b.c += 1\n"),
    (
        code_rules.many_by_position,
        "daemons/x.py",
        "from shared.values.actions import Action\na = Action('1', 2, 'vm', 'n1')\n",
    ),
    (code_rules.named_places, "tests/unit/test_x.py", "DATA = '../share" + "d/data'\n"),
    (code_rules.named_places, "daemons/config/controller.py", "# see /hom" + "e/someone/notes\n"),
    (code_rules.named_documents, "daemons/config/controller.py", "# see docs/nowhere.md\n"),
    (code_rules.docstring_verbs, "daemons/planning/order.py", 'def f() -> int:\n    """What it is."""\n    return 1\n'),
    (code_rules.docstring_verbs, "shared/x.py", 'class A:\n    async def f(self) -> None:\n        """The end."""\n'),
    (code_rules.unfinished_marks, "daemons/config/controller.py", "# TO" + "DO: later\n"),
    (code_rules.unfinished_marks, "daemons/config/controller.py", "raise NotImplemente" + "dError\n"),
)

# Rule, file, text: what a rule must let pass.
ALLOWED: tuple[tuple[Rule, str, str], ...] = (
    (import_rules.no_io_builtins, "daemons/cli/main.py", "print('done')\n"),
    (code_rules.wall_clock, "shared/base/clock.py", "import time\n"),
    (code_rules.wall_clock, "shared/runtime/logs.py", "def f(now):\n    return now.time(), now.now()\n"),
    (
        code_rules.global_chance,
        "sim_backend/replay/workloads.py",
        "import random\nrng = random.Random(7)\nx = rng.random()\n",
    ),
    (code_rules.global_chance, "sim_backend/replay/workloads.py", "def f(random):\n    return random.random()\n"),
    (
        code_rules.global_chance,
        "sim_backend/replay/workloads.py",
        "import numpy as np\ndef f(rng: np.random.Generator, seed: int):\n    return np.random.default_rng(seed)\n",
    ),
    (code_rules.swallowed_errors, "shared/protocol/codec.py", "try:\n    x = 1\nexcept OSError:\n    pass\n"),
    (
        code_rules.swallowed_errors,
        "shared/protocol/codec.py",
        "try:\n    x = 1\nexcept Exception as e:\n    print(e)\n",
    ),
    (code_rules.option_numbers, "daemons/cli/numbers.py", "import click\nx = click.FloatRange(0.0, 1.0)\n"),
    (code_rules.option_numbers, "daemons/cli/x.py", "import click\nx = click.option('--x', default='3')\n"),
    (code_rules.patched_code, "tests/unit/test_x.py", "def test(monkeypatch):\n    monkeypatch.setenv('CI', 'true')\n"),
    (
        code_rules.patched_code,
        "tests/unit/test_x.py",
        "import sys\nfrom unittest.mock import patch\npatch.object(sys, 'x')\n",
    ),
)


def _name(value: object) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_the_tree_keeps_the_rule(rule: Rule) -> None:
    """No file of the repository breaks it."""
    assert [violation for source in tree_sources() for violation in rule(source)] == []


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED, ids=_name)
def test_a_planted_violation_is_found(rule: Rule, path: str, text: str) -> None:
    """Exactly one violation, and it names the file."""
    violations = rule(Source.parse(path, text))

    assert len(violations) == 1, violations
    assert violations[0].startswith(path + ":")


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED, ids=_name)
def test_what_is_allowed_passes(rule: Rule, path: str, text: str) -> None:
    """The rule does not cry wolf."""
    assert rule(Source.parse(path, text)) == []


def test_every_file_is_python() -> None:
    """Of the oldest version that setup.cfg allows, when the tests run on it."""
    assert unreadable() == ()


def test_every_rule_has_a_planted_violation() -> None:
    """A rule that nothing can break would guard nothing."""
    assert {rule for rule, _, _ in PLANTED} == set(RULES)


def test_the_rules_see_the_whole_tree() -> None:
    """Every package and the tests are among the files looked at."""
    assert {source.package for source in tree_sources()} >= {*PACKAGES, "tests"}


def test_documents_name_no_places() -> None:
    """Neither do the documents and settings; only the Makefile and .ci/run may say where the data lie."""
    files = [ROOT / name for name in ("setup.cfg", "pyproject.toml")]
    files += [
        file
        for pattern in ("*.md", "docs/**/*.md", "systemd/*.*", "systemd/debian/**/*", "**/*.toml")
        for file in ROOT.glob(pattern)
    ]
    kept = sorted({file for file in files if ".venv" not in file.parts and file.is_file()})
    assert [hit for file in kept for hit in code_rules.places_in(file.name, file.read_text("utf-8"))] == []
