"""What the contracts of setup.cfg do not see in imports. Each rule lists its violations."""

from __future__ import annotations

import sys
from functools import cache

from tests.architecture.sources import PACKAGES, Source, settings, under

NO_IO = tuple(settings()["importlinter:contract:pure"]["source_modules"].split())
IMPURE_BUILTINS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})

# Import names of distributions that are called otherwise.
IMPORT_NAMES = {"libvirt-python": "libvirt", "prometheus-client": "prometheus_client"}


def absolute(source: Source) -> list[str]:
    """Imports are absolute."""
    return [source.at(line, f"relative import of {name}") for line, name in source.imports() if name.startswith(".")]


def tests_stay_outside(source: Source) -> list[str]:
    """The packages import neither tests nor benchmarks, by no name either."""
    if source.package not in PACKAGES:
        return []
    return [
        source.at(line, f"{source.package} must not import {name}")
        for line, name in source.imports()
        if under(name, "tests", "benchmarks")
    ]


def no_io_builtins(source: Source) -> list[str]:
    """What the contract `pure` names neither opens files, prints nor runs text as code."""
    if not under(source.module, *NO_IO):
        return []
    return [source.at(call.lineno, f"call of {name}()") for call, name in source.calls() if name in IMPURE_BUILTINS]


@cache
def declared() -> frozenset[str]:
    """Import names of every distribution that setup.cfg asks for, the development tools apart."""
    config = settings()
    extras = config["options.extras_require"]
    texts = [config["options"]["install_requires"], *(extras[name] for name in extras if name != "dev")]
    wanted = (line.split(";")[0].split(">=")[0].split("==")[0].strip() for text in texts for line in text.splitlines())
    return frozenset(IMPORT_NAMES.get(name, name.replace("-", "_").lower()) for name in wanted if name)


def declared_dependencies(source: Source) -> list[str]:
    """What the packages import is the standard library, ours, or asked for in setup.cfg."""
    if source.package not in PACKAGES:
        return []
    known = {*sys.stdlib_module_names, *declared(), *PACKAGES}
    return [
        source.at(line, f"{name} is not among the dependencies in setup.cfg")
        for line, name in source.imports()
        if name.split(".", 1)[0] not in known and not name.startswith(".")
    ]


RULES = (absolute, tests_stay_outside, no_io_builtins, declared_dependencies)
