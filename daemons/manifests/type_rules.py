"""What a file of an agreement says of its type, held against the types of environment that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.base.errors import InvalidInput, UnknownType
from shared.policy_api.policies import EnvironmentType
from shared.ports.plugins import ENVIRONMENTS, find_environment_type, names
from shared.values.agreement import Scheduling, WorkloadType

WORKLOAD = "workload"  # the key that names it


def found_type(values: Mapping[str, Any]) -> EnvironmentType | None:
    """Return the type that a file names; None if there is none, or the key is already wrong."""
    name = values.get(WORKLOAD)
    try:
        found: EnvironmentType | None = None if name is None else find_environment_type(name)
    except UnknownType:
        return None
    return found


def of_side(side: WorkloadType) -> tuple[str, ...]:
    """Return the types that are installed, can be loaded and share their units on that side; sorted."""
    known = {name: found_type({WORKLOAD: name}) for name in names(ENVIRONMENTS)}
    return tuple(name for name, kind in known.items() if kind is not None and kind.workload is side)


@dataclass(frozen=True, slots=True)
class RegisteredType:
    """`key` is an installed type of environment."""

    key: str = WORKLOAD

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        name = values.get(self.key)
        if name is None or found_type(values) is not None:
            return ""
        if name not in names(ENVIRONMENTS):
            return f"one of {', '.join(names(ENVIRONMENTS))}"
        try:
            find_environment_type(name)
        except UnknownType as problem:
            return f"a type that can be loaded: {problem}"
        return ""


@dataclass(frozen=True, slots=True)
class OfItsSide:
    """A table `table` is only for types of the side `of`."""

    table: str
    of: WorkloadType
    key: str = WORKLOAD

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        given, kind = self.table not in values, found_type(values)  # a table that is left out is known to be None
        wrong = given and kind is not None and kind.workload is not self.of
        return f"{' or '.join(of_side(self.of))}, or no table [{self.table}]" if wrong else ""


@dataclass(frozen=True, slots=True)
class TermsFit:
    """The type of the environment accepts `key`."""

    key: str = "terms"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        kind = found_type(values)
        if kind is None or self.key not in values:
            return ""
        try:
            kind.check_terms(values[self.key])
        except InvalidInput as error:
            return "; ".join(f"{problem}" for problem in error.problems)
        except Exception as error:  # noqa: BLE001 - a type may raise anything: it takes no terms then
            return f"terms that its type can check: {error!r}"
        return ""


def scheduling_of(kind: EnvironmentType, policy: str | None, params: Mapping[str, Any]) -> Scheduling:
    """Return the scheduling in a file: without a policy that of the type, with the type's parameters if the file has
    none either."""
    if policy is not None:
        return Scheduling(policy, params)
    return Scheduling(kind.scheduling.policy, params or kind.scheduling.params)


def type_rows() -> list[dict[str, Any]]:
    """Return a row of facts about every type that is installed here; for one that cannot be loaded, the reason."""
    return [_row(name) for name in names(ENVIRONMENTS)]


def _row(name: str) -> dict[str, Any]:
    try:
        kind: EnvironmentType = find_environment_type(name)
    except UnknownType as problem:
        return {"name": name, "detail": str(problem)}
    return {
        "name": name,
        "workload": kind.workload.value,
        "scheduling": {"policy": kind.scheduling.policy, "params": dict(kind.scheduling.params)},
        "distribution": kind.distribution.value,
        "terms": dict(kind.terms),
        "detail": "",
    }
