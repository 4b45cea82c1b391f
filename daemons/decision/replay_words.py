"""What is compared of a recorded decision and the same computed again, in words. Pure."""

from __future__ import annotations

from dataclasses import fields
from itertools import groupby
from typing import Any

from shared.policy_api.decision import Change, ChangeKind, Refusal, Slowed, WindowSize
from shared.values.jobs import Allotment

SHOWN_MAX = 6  # places of one change that are named
NONE = "none"
_WORDS = {ChangeKind.MIGRATE: ("to", "with"), ChangeKind.RESIZE: ("on", "to")}


def both(recorded: Any, replayed: Any) -> tuple[str, str]:
    """Return texts for two items that differ (None: there is none); the texts differ too."""
    one, other = in_words(recorded), in_words(replayed)
    if one != other or recorded is None or replayed is None:
        return one, other
    odd = _odd(recorded, replayed)
    return f"{one} ({_exactly(recorded, odd)})", f"{other} ({_exactly(replayed, odd)})"


def in_words(item: Any) -> str:
    """Describe a change, a refusal, a slowed workload or a window's size; return the plain text of any other item."""
    match item:
        case None:
            return NONE
        case Change():
            return f"{_change(item)}: {item.reason}"
        case Refusal():
            return f"{item.reason}"
        case Slowed():
            return f"{number(item.factor)} times as slow, most by {item.resource} of {', '.join(item.by) or 'nobody'}"
        case WindowSize():
            cost = "" if item.predicted_cost is None else f", predicted to cost {number(item.predicted_cost)}"
            return f"{item.nodes} nodes of {item.wanted} wanted for {item.jobs} jobs{cost}: {item.reason}"
        case (str(), *figures) if len(figures) == 3:
            now, predicted, best = (number(each) for each in figures)
            return f"utility {now} as it is, {predicted} predicted, {best} at best"
    return f"{item}"


def _change(change: Change) -> str:
    """Describe the places of its instances, in their order; adjacent equal places are combined."""
    where, how = _WORDS.get(change.kind, ("on", "with"))
    told = []
    for place, run in groupby(change.allotments):
        count = len(list(run))
        times = f" for each of {count}" if count > 1 else ""
        told.append(f" {where} {place.node} {how} {number(place.cpu_mhz)} MHz{times}")
    more = len(told) - SHOWN_MAX
    return change.kind.value + ",".join(told[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def number(value: float) -> str:
    """Format a number with enough digits to distinguish it from others, and commas."""
    return f"{value:,.10g}"


def _odd(recorded: Any, replayed: Any) -> list[str]:
    """Return the names of the differing fields, if both items have fields."""
    if type(recorded) is not type(replayed) or not hasattr(recorded, "__dataclass_fields__"):
        return []
    names = [field.name for field in fields(recorded)]
    return [name for name in names if getattr(recorded, name) != getattr(replayed, name)]


def _exactly(item: Any, names: list[str]) -> str:
    """Return the values of some fields, or all of it, to the last digit."""
    return ", ".join(f"{name} {_raw(getattr(item, name))}" for name in names) or _raw(item)


def _raw(value: Any) -> str:
    if isinstance(value, Allotment):
        return f"{value.node} {value.cpu_mhz!r} MHz"
    if isinstance(value, tuple | list):
        return " ".join(_raw(each) for each in value)
    return f"{value}"
