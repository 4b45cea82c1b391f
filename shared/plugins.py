"""Finds drivers and policies by entry point, so that nothing inside Trimtab points upward or names a third party."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shared.errors import InvalidInput, Problem, UnknownPolicy

HYPERVISORS = "trimtab.hypervisors"
COMMANDS = "trimtab.commands"
POWER = "trimtab.power"
BALANCERS = "trimtab.balancers"
POLICY_ROLES = ("admission", "coordination", "provisioning", "placement")


def policy_group(role: str) -> str:
    """The entry-point group of a policy role."""
    return f"trimtab.policies.{role}"


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names(group: str) -> tuple[str, ...]:
    """Every name registered in a group, sorted."""
    return tuple(sorted(_found(group)))


def load(group: str, name: str) -> Any:
    """The object registered as `name`; KeyError when there is none."""
    return _found(group)[name].load()


def find_driver(group: str, key: str, name: str) -> Any:
    """What makes drivers of a group, registered as `name`; raises `InvalidInput` naming the configuration's `key` and
    the drivers that there are."""
    if name not in _found(group):
        raise InvalidInput(Problem(key, f"there is no {name!r}", "one of " + ", ".join(names(group))))
    return load(group, name)


def find_policy(role: str, name: str) -> Any:
    """An instance of the policy class registered for a role; raises `UnknownPolicy` naming the ones there are."""
    group = policy_group(role)
    if name not in _found(group):
        raise UnknownPolicy(Problem(f"{role} policy", f"there is no {name!r}", "one of " + ", ".join(names(group))))
    return load(group, name)()
