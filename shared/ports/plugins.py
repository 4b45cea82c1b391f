"""Finds drivers and policies by entry point, so that nothing inside Trimtab points upward or names a third party."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shared.base.errors import InvalidInput, Problem, UnknownPolicy, UnknownType
from shared.policy_api.policies import EnvironmentType
from shared.values.agreement import Scheduling, WorkloadType
from shared.values.web_app import Distribution

HYPERVISORS = "trimtab.hypervisors"
COMMANDS = "trimtab.commands"
ENV_COMMANDS = "trimtab.commands.env"
POWER = "trimtab.power"
BALANCERS = "trimtab.balancers"
NOTIFIERS = "trimtab.notifiers"
BUSES = "trimtab.buses"
ENVIRONMENTS = "trimtab.environments"
_DECLARED = {"workload": WorkloadType, "scheduling": Scheduling, "distribution": Distribution, "terms": Mapping}
POLICY_ROLES = ("admission", "coordination", "provisioning", "placement")


def policy_group(role: str) -> str:
    """Return the entry-point group of a policy role."""
    return f"trimtab.policies.{role}"


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def forget() -> None:
    """Look again what is installed: for processes in which that changes."""
    _found.cache_clear()
    _environment_type.cache_clear()


def names(group: str) -> tuple[str, ...]:
    """Return every name registered in a group, sorted."""
    return tuple(sorted(_found(group)))


def load(group: str, name: str) -> Any:
    """Load the object registered as `name`; KeyError when there is none."""
    return _found(group)[name].load()


def find_driver(group: str, key: str, name: str) -> Any:
    """Return the factory for drivers of a group, registered as `name`; raises `InvalidInput` naming the configuration's
    `key` and the available drivers."""
    if name not in _found(group):
        raise InvalidInput(Problem(key, f"there is no {name!r}", "one of " + ", ".join(names(group))))
    return load(group, name)


def find_policy(role: str, name: str) -> Any:
    """Return an instance of the policy class registered for a role; raises `UnknownPolicy` naming the available
    ones."""
    group = policy_group(role)
    if name not in _found(group):
        raise UnknownPolicy(Problem(f"{role} policy", f"there is no {name!r}", "one of " + ", ".join(names(group))))
    return load(group, name)()


def find_environment_type(name: str) -> Any:
    """Return the type of environment registered under a name, the same object each time; raises `UnknownType` naming
    the available ones, or why the type cannot be used."""
    if name not in _found(ENVIRONMENTS):
        known = "one of " + ", ".join(names(ENVIRONMENTS))
        raise UnknownType(Problem("type of environment", f"there is no {name!r}", known))
    found = _environment_type(name)
    if isinstance(found, UnknownType):
        raise found.with_traceback(None)
    return found


@cache
def _environment_type(name: str) -> Any:
    """Load the type, or return its error: a failed load may have taken long, and this process does not retry it."""
    where = f"type of environment {name!r}"
    try:
        made = load(ENVIRONMENTS, name)()
        wrong = [key for key, kind in _DECLARED.items() if not isinstance(getattr(made, key), kind)]
    except Exception as problem:  # noqa: BLE001 - a type may raise anything: it cannot be used then
        return UnknownType(Problem(where, f"cannot be loaded: {problem}"))
    if wrong or not isinstance(made, EnvironmentType):
        return UnknownType(
            Problem(where, f"is none: {', '.join(wrong) or type(made).__name__}", "an `EnvironmentType`")
        )
    return made
