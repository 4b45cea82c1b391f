"""Who may import whom, and what the pure parts and the cores must leave alone. Each rule lists its violations."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from functools import cache

from tests.architecture.sources import PACKAGES, Source, settings, under

# Of sim_backend, only these may reach agents and daemons: they join the real classes to the fakes.
JOINERS = (
    "sim_backend.cli",
    "sim_backend.closed_loop",
    "sim_backend.commands",
    "sim_backend.env_commands",
    "sim_backend.experiments",
    "sim_backend.fault_runs",
    "sim_backend.power_runs",
    "sim_backend.provision_arrivals",
    "sim_backend.provision_file",
    "sim_backend.invariants",
    "sim_backend.shells",
    "sim_backend.what_if",
)

# Pure: values in, values out. They import nothing but what is named here.
PURE_LIBRARY = (
    "__future__",
    "abc",
    "array",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "hashlib",
    "itertools",
    "math",
    "operator",
    "re",
    "statistics",
    "types",
    "typing",
)
PURE_VALUES = (
    "msgspec",
    "shared.account_messages",
    "shared.admission",
    "shared.agreement",
    "shared.audit",
    "shared.bus.topology",
    "shared.coordination",
    "shared.costs",
    "shared.decision",
    "shared.effects",
    "shared.errors",
    "shared.health",
    "shared.loading",
    "shared.reservation",
    "shared.messages",
    "shared.operator_messages",
    "shared.model",
    "shared.notices",
    "shared.ports",
    "shared.scalars",
    "shared.snapshot",
    "shared.texts",
    "shared.utc",
    "shared.webapp",
)
POLICY_VALUES = (
    "shared.admission",
    "shared.agreement",
    "shared.coordination",
    "shared.costs",
    "shared.decision",
    "shared.errors",
    "shared.health",
    "shared.loading",
    "shared.reservation",
    "shared.model",
    "shared.ports",
    "shared.snapshot",
    "shared.webapp",
)

# Cores: state machines and virtual worlds. Every module directly in agents/ and daemons/ is one unless named in SHELLS.
CORES = (
    "agents/*.py",
    "daemons/*.py",
    "shared/bus/faults.py",
    "shared/bus/memory.py",
    "shared/bus/permissions.py",
    "sim_backend/engine.py",
    "sim_backend/fake_*.py",
    "sim_backend/memory_*.py",
    "sim_backend/sharing.py",
    "sim_backend/world.py",
    "sim_backend/world_parts.py",
)
SHELLS = (
    "agents/main.py",
    "agents/systemd_bus.py",
    "daemons/assurance_settings.py",
    "daemons/controller_settings.py",
    "daemons/main.py",
    "daemons/power_settings.py",
    "daemons/price_feed.py",
    "daemons/packing.py",
    "daemons/scraping.py",
    "daemons/window_settings.py",
    "daemons/worker.py",
)
# A core may hold a seeded `random.Random`; the rule on chance sees to the seed.
IMPURE = frozenset(settings()["importlinter:contract:pure"]["forbidden_modules"].split()) - {"random"}
# Calendars and time zones are arithmetic on the seconds that a core is given: this one may know them.
CALENDARS = ("daemons.local_time", "datetime")
IMPURE_OURS = ("shared.bus.rabbitmq", "shared.clock", "shared.config", "shared.logs")
IMPURE_BUILTINS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})

HEAVY = ("alembic", "click", "matplotlib", "numpy", "rich", "scipy", "sqlalchemy", "shared.snapshot")

# Import names of distributions that are called otherwise.
IMPORT_NAMES = {"libvirt-python": "libvirt", "prometheus-client": "prometheus_client"}


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Like a shell: `*` stays within a folder."""
    return any(fnmatch(path, pattern) and path.count("/") == pattern.count("/") for pattern in patterns)


def is_pure(source: Source) -> bool:
    """Whether the file is a policy, planning, a shared model of the policies or one of the shared values."""
    if source.package == "shared":
        return source.module in PURE_VALUES
    return source.path.startswith(
        ("daemons/policies/", "daemons/planning/", "daemons/models/", "daemons/environment_types/")
    )


def is_core(source: Source) -> bool:
    """Whether the file is part of a state machine or of a virtual world."""
    return _matches(source.path, CORES) and not _matches(source.path, SHELLS)


def absolute(source: Source) -> list[str]:
    """Imports are absolute."""
    return [source.at(line, f"relative import of {name}") for line, name in source.imports() if name.startswith(".")]


def direction(source: Source) -> list[str]:
    """shared <- agents | daemons <- sim_backend; of sim_backend only the joiners see agents and daemons."""
    allowed = {
        "shared": ("shared",),
        "agents": ("agents", "shared"),
        "daemons": ("daemons", "shared"),
        "sim_backend": PACKAGES if under(source.module, *JOINERS) else ("shared", "sim_backend"),
    }.get(source.package)
    if allowed is None:
        return []
    return [
        source.at(line, f"{source.package} must not import {name}")
        for line, name in source.imports()
        if under(name, *PACKAGES, "tests", "benchmarks") and not under(name, *allowed)
    ]


def worlds(source: Source) -> list[str]:
    """The world, the engine and the fakes do not reach agents and daemons through a joiner either."""
    if not (source.package == "sim_backend" and is_core(source)):
        return []
    return [
        source.at(line, f"a part of the simulated world must not import {name}")
        for line, name in source.imports()
        if under(name, *JOINERS)
    ]


def pure_imports(source: Source) -> list[str]:
    """Pure files import values, numerics and each other downward: nothing with I/O, a clock, a logger or chance."""
    if not is_pure(source):
        return []
    ours = _pure_ours(source)
    numerics = ("numpy", "scipy") if source.package == "daemons" else ("numpy",) * source.path.endswith("snapshot.py")
    return [
        source.at(line, f"pure code must not import {name}")
        for line, name in source.imports()
        if name.split(".", 1)[0] not in PURE_LIBRARY and not under(name, *ours, *numerics)
    ]


def _pure_ours(source: Source) -> tuple[str, ...]:
    parts = source.path.removesuffix(".py").split("/")
    if parts[0] == "shared":
        return PURE_VALUES
    if parts[1] == "policies":  # its own role; the package itself knows no role
        own = ".".join(parts[:3]) if len(parts) > 3 else "daemons.policies"
        return (*POLICY_VALUES, "daemons.models", own)
    if parts[1] == "planning":
        return (*POLICY_VALUES, "daemons.models", "daemons.planning")
    if parts[1] == "environment_types":
        return (*POLICY_VALUES, "daemons.models", "daemons.environment_types")
    return (*POLICY_VALUES, "daemons.models")


def core_imports(source: Source) -> list[str]:
    """Cores know no I/O, clock, logger or process; messages, effects and `now_s` are all they see of the world."""
    if not is_core(source):
        return []
    return [
        source.at(line, f"a core must not import {name}")
        for line, name in source.imports()
        if (name.split(".", 1)[0] in IMPURE or under(name, *IMPURE_OURS))
        and (source.module, name.split(".", 1)[0]) != CALENDARS
    ]


def no_io_builtins(source: Source) -> list[str]:
    """Neither pure files nor cores open files, print or run text as code."""
    if not (is_pure(source) or is_core(source)):
        return []
    return [source.at(call.lineno, f"call of {name}()") for call, name in source.calls() if name in IMPURE_BUILTINS]


def light_agents(source: Source) -> list[str]:
    """Agents carry no numerics, database or command line."""
    if source.package != "agents":
        return []
    return [
        source.at(line, f"an agent must not import {name}") for line, name in source.imports() if under(name, *HEAVY)
    ]


def transports(source: Source) -> list[str]:
    """pika, libvirt and jeepney are known to one file each."""
    homes = {
        "pika": "shared/bus/rabbitmq.py",
        "libvirt": "agents/hypervisors/libvirt/binding.py",
        "jeepney": "agents/systemd_bus.py",
    }
    return [
        source.at(line, f"only {homes[first]} imports {first}")
        for line, name in source.imports()
        if source.package in PACKAGES and (first := name.split(".", 1)[0]) in homes and source.path != homes[first]
    ]


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


RULES = (
    absolute,
    direction,
    worlds,
    pure_imports,
    core_imports,
    no_io_builtins,
    light_agents,
    transports,
    declared_dependencies,
)
