"""Whether the bounds of several environments can be kept at once, and what to say when they cannot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from daemons.models.coordination.matching import Matching
from shared.values.agreement import Agreement, Granularity


def shortfall(lowers: Sequence[tuple[int, tuple[bool, ...]]], capacity: Sequence[int]) -> tuple[int, ...]:
    """Return the number of units missing from each bound when earlier bounds are met first: all 0 when all can be met
    at once.

    lowers: for each environment its bound and the classes of units that suit it; capacity: units of each class. The sum
    is the least possible. A maximum flow, O(environments x classes) per path.
    """
    matching = Matching([fits for _, fits in lowers], capacity)
    return tuple(units - matching.assign(index, units) for index, (units, _) in enumerate(lowers))


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of an environment. units: how many it names; fits: which classes will do; what: the units in words, as
    `units_of` says them."""

    name: str
    units: int
    fits: tuple[bool, ...]
    what: str = "nodes"


def units_of(agreement: Agreement) -> str:
    """Describe the allocation unit of an agreement in words: "nodes running debian 12", "VMs of template 'small'"."""
    system = f"{agreement.os_type} {agreement.os_version}".strip()
    if agreement.granularity is Granularity.VM and agreement.template is not None:
        return f"VMs of template {agreement.template.name!r}" + (f" on nodes running {system}" if system else "")
    return f"nodes running {system}" if system else "nodes"


def unmet(lowers: Sequence[Bound], capacity: Sequence[int], named: Collection[str] | None = None) -> tuple[str, ...]:
    """Return a sentence for each lower bound that cannot be met when those before it are met: put the new one last.

    capacity: units of each class. named: the environments that the reader may know of (None: all).
    """
    matching = Matching([bound.fits for bound in lowers], capacity)
    sentences = []
    for index, bound in enumerate(lowers):
        if matching.assign(index, bound.units) < bound.units:
            sentences.append(_unmet(lowers, index, matching, capacity, named))
    return tuple(sentences)


def contended(uppers: Sequence[Bound], capacity: Sequence[int], named: Collection[str] | None = None) -> str:
    """Describe the upper bounds that cannot all be reached at once ("": they can). This is no reason to refuse: an
    environment has priority up to its upper bound, but the bound is not guaranteed. An environment without one is left
    out. named: as for `unmet`."""
    short = shortfall([(bound.units, bound.fits) for bound in uppers], capacity)
    if not any(short):
        return ""
    shown = [bound for bound in uppers if bound.units and (named is None or bound.name in named)]
    hidden = sum(bound.units for bound in uppers) - sum(bound.units for bound in shown)
    parts = [f"{bound.name!r} {bound.units} {bound.what}" for bound in shown] + [f"others {hidden}"] * (hidden > 0)
    among = ", ".join(parts)
    lack = sum(short)
    return f"upper bounds cannot all be reached at once: {among}; {lack} of these cannot be had"


def _unmet(
    lowers: Sequence[Bound], index: int, matching: Matching, capacity: Sequence[int], named: Collection[str] | None
) -> str:
    bound = lowers[index]
    kinds = [kind for kind, fit in enumerate(bound.fits) if fit]
    there = sum(capacity[kind] for kind in kinds)
    promised: dict[str, int] = {}
    for number, group in enumerate(matching.groups):
        units = sum(group.units[kind] for kind in kinds)
        if units and number != index:
            name = lowers[number].name
            to = repr(name) if named is None or name in named else "others"
            promised[to] = promised.get(to, 0) + units
    said = f"environment {bound.name!r} needs {bound.units} {bound.what}, {there} {_are(there)} there"
    parts = [f"{units} {_are(units)} promised to {to}" for to, units in promised.items()]
    return f"{said}, of which {_listed(parts)}" if parts else said


def _are(units: int) -> str:
    return "is" if units == 1 else "are"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
