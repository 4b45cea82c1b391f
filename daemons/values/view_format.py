"""The form of a reason in views."""

from __future__ import annotations

from typing import Any

from shared.policy_api.decision import UNBOUNDED, Reason, ReasonCode

Row = dict[str, Any]


# What is short of something: how that is called, the ends of the names of what is needed and of the most there is.
_SHORT = {
    ReasonCode.NO_CPU: (("CPU", "mhz"),),
    ReasonCode.NO_MEMORY: (("memory", "mib"),),
    ReasonCode.TOO_FEW_NODES: (("nodes", "nodes"),),
    ReasonCode.FITS_NO_NODE: (("memory", "mib"), ("CPU", "mhz")),
}


_MOST = (
    ("largest_free_{}", "most free"),
    ("free_{}", "free"),
    ("largest_{}", "the largest node has"),
    ("{}", "can be had"),
)
_UNITS = {"mhz": " MHz", "mib": " MiB", "nodes": ""}
_SAID = {
    ReasonCode.NO_GAIN: "preempting would not raise the lowest utility by the tolerance",
    ReasonCode.LABELS: "no node has the labels that it needs",
    ReasonCode.CONSTRAINT: "its rules leave no node",
    ReasonCode.MIGRATION_FIT: "no node with room has what its migration needs",
    ReasonCode.UNKNOWN_NODE: "an instance is on an unreachable node",
    ReasonCode.PREEMPTED: "its place, or its CPU, serves more urgent workloads",
    ReasonCode.ADOPTED: "adopted: never stopped for others",
}


def reason_view(reason: Reason) -> dict[str, Any]:
    """Return a reason: its code, its numbers (None: there is none), both in a line for programs, and in words for
    people."""
    numbers = {name: number if abs(number) < UNBOUNDED else None for name, number in reason.numbers}
    return {"code": reason.code.value, "numbers": numbers, "text": str(reason), "words": in_words(reason)}


def in_words(reason: Reason) -> str:
    """Say a reason in a few words: `CPU: needs 1,000 MHz, most free 0`. Numbers that need no eye are left out."""
    numbers = {name: number for name, number in reason.numbers if abs(number) < UNBOUNDED}
    told = [_lacking(what, unit, numbers) for what, unit in _SHORT.get(reason.code, ())]
    if any(told):
        return "; ".join(part for part in told if part)
    return _SAID.get(reason.code, reason.code.value.replace("-", " "))


def _lacking(what: str, unit: str, numbers: dict[str, float]) -> str:
    needed = numbers.get(f"needed_{unit}")
    found = ((numbers.get(name.format(unit)), said) for name, said in _MOST)
    most = next(((number, said) for number, said in found if number is not None), None)
    if needed is None or most is None or (most[1] == _MOST[2][1] and needed <= most[0]):
        return ""
    return f"{what}: needs {needed:,.0f}{_UNITS[unit]}, {most[1]} {most[0]:,.0f}"


def age_since(at_s: float | None, now_s: float) -> float | None:
    """Return the seconds since then, None for never."""
    return None if at_s is None else now_s - at_s
