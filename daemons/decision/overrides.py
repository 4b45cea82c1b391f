"""Overrides of recorded policies and values, for decisions that are computed again or a time span that is simulated
again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from daemons.decision.pipeline import DecideRequest
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput, Problem, UnknownPolicy
from shared.ports.plugins import find_policy
from shared.values.operation_costs import OperationCosts

ROLES = ("placement", "provisioning")
COSTS = "operation_costs"
CYCLE, OVERHEAD = "periods.decide_s", "memory.vm_overhead_mib"


@dataclass(frozen=True, slots=True)
class Alteration:
    """placement, provisioning: names of policies ("": as recorded). values: others by `section.key`; the sections
    `placement` and `provisioning` are the parameters of those policies."""

    placement: str = ""
    provisioning: str = ""
    values: tuple[tuple[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.placement or self.provisioning or self.values)

    def section(self, name: str) -> dict[str, Any]:
        """Return the values of a section, by key."""
        parts = ((key.partition("."), value) for key, value in self.values)
        return {key: value for (section, _, key), value in parts if section == name}

    def choice(self, role: str, recorded: PolicyChoice) -> PolicyChoice:
        """Return the policy of a role: the recorded one with the altered parameters, or another with the given ones.

        Raises `InvalidInput` for an unknown policy, and for parameters that it does not accept.
        """
        name, given = getattr(self, role), self.section(role)
        other = bool(name) and name != recorded.name
        choice = PolicyChoice(name or recorded.name, given if other else {**recorded.params, **given})
        if other or given:
            try:
                find_policy(role, choice.name).check_params(choice.params)
            except UnknownPolicy as error:
                raise InvalidInput(
                    *(Problem(f"--{role}", each.what, each.expected) for each in error.problems)
                ) from error
        return choice

    def to_json(self) -> dict[str, Any]:
        """Plain values; only what is altered."""
        named = {role: getattr(self, role) for role in ROLES if getattr(self, role)}
        return named | {"set": dict(self.values)} if self.values else named


def alteration(placement: str | None, provisioning: str | None, given: Sequence[str]) -> Alteration:
    """Parse options. `given`: texts such as `placement.tolerance=0.1`; a value is JSON, or else the text itself. Raises
    `InvalidInput` with every text that is not of that form."""
    values: dict[str, Any] = {}
    problems = []
    for text in given:
        name, equals, value = text.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and section and key):
            problems.append(Problem("--set", f"is {text!r}", "SECTION.KEY=VALUE"))
            continue
        values[f"{section}.{key}"] = _value(value.strip())
    if problems:
        raise InvalidInput(*problems)
    return Alteration(placement or "", provisioning or "", tuple(values.items()))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def number(name: str, value: Any) -> float:
    """Return the value of `--set`, which must be a number of 0 or above. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < float("inf"):
        raise InvalidInput(Problem(f"--set {name}", f"is {value!r}", "a number of 0 or above"))
    return float(value)


def refuse_others(values: Sequence[tuple[str, Any]], known: Mapping[str, object]) -> None:
    """Raise `InvalidInput` for values that are neither parameters of policies nor in `known`."""
    odd = [key for key, _ in values if key not in known and key.partition(".")[0] not in ROLES]
    if odd:
        expected = ", ".join((*(f"{role}.PARAMETER" for role in ROLES), *sorted(known)))
        raise InvalidInput(*(Problem(f"--set {key}", "cannot be set here", expected) for key in odd))


KNOWN = dict.fromkeys((CYCLE, OVERHEAD, *(f"{COSTS}.{each.name}" for each in fields(OperationCosts))))


def altered(request: DecideRequest, other: Alteration) -> DecideRequest:
    """Return the request with the overrides. A policy that is not the one that left the state starts without one.

    Raises `InvalidInput` for values that cannot be altered in a decision, and for policies and parameters that cannot
    work.
    """
    refuse_others(other.values, KNOWN)
    placement = other.choice("placement", request.placement)
    provisioning = request.provisioning and other.choice("provisioning", request.provisioning)
    given = {key: number(key, value) for key, value in other.values if key in KNOWN}
    costs = {key.partition(".")[2]: value for key, value in given.items() if key.startswith(f"{COSTS}.")}
    seen = request.snapshot
    seen = replace(
        seen,
        cycle_s=given.get(CYCLE, seen.cycle_s),
        vm_overhead_mib=given.get(OVERHEAD, seen.vm_overhead_mib),
        costs=replace(seen.costs, **costs),
    )
    same_placement = placement.name == request.placement.name
    same_provisioning = request.provisioning is None or provisioning.name == request.provisioning.name  # type: ignore[union-attr]
    return replace(
        request,
        snapshot=seen,
        placement=placement,
        placement_state=request.placement_state if same_placement else None,
        provisioning=provisioning,
        provisioning_state=request.provisioning_state if same_provisioning else None,
    )
