"""Whether the bounds of several environments can be kept at once, and what to say when they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daemons.policies.coordination.matching import Matching
from shared.agreement import Agreement, Granularity


def shortfall(lowers: Sequence[tuple[int, tuple[bool, ...]]], capacity: Sequence[int]) -> tuple[int, ...]:
    """How many units of each bound cannot be had when those before it have theirs: all 0 when all can be met at once.

    lowers: of each environment its bound and which classes of units will do; capacity: units of each class. The sum is
    the least possible. A maximum flow, O(environments^2 x classes) at worst.
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
    """In words, in what an agreement counts: "nodes running debian 12", "VMs of template 'small'"."""
    system = f"{agreement.os_type} {agreement.os_version}".strip()
    if agreement.granularity is Granularity.VM and agreement.template is not None:
        return f"VMs of template {agreement.template.name!r}" + (f" on nodes running {system}" if system else "")
    return f"nodes running {system}" if system else "nodes"


def unmet(lowers: Sequence[Bound], capacity: Sequence[int]) -> tuple[str, ...]:
    """A sentence for each lower bound that cannot be met when those before it are: put the one that is new last.

    capacity: units of each class.
    """
    matching = Matching([bound.fits for bound in lowers], capacity)
    sentences = []
    for index, bound in enumerate(lowers):
        if matching.assign(index, bound.units) < bound.units:
            sentences.append(_unmet(lowers, index, matching, capacity))
    return tuple(sentences)


def contended(uppers: Sequence[Bound], capacity: Sequence[int]) -> str:
    """That upper bounds cannot all be reached at once, in words ("": they can). No reason to refuse: an upper bound is
    how far an environment comes first, not what it is promised. An environment without one is left out."""
    short = shortfall([(bound.units, bound.fits) for bound in uppers], capacity)
    if not any(short):
        return ""
    among = ", ".join(f"{bound.name!r} {bound.units} {bound.what}" for bound in uppers if bound.units)
    lack = sum(short)
    return f"upper bounds cannot all be reached at once: {among}; {lack} of these cannot be had"


def _unmet(lowers: Sequence[Bound], index: int, matching: Matching, capacity: Sequence[int]) -> str:
    bound = lowers[index]
    kinds = [kind for kind, fit in enumerate(bound.fits) if fit]
    there = sum(capacity[kind] for kind in kinds)
    others = [
        (sum(group.units[kind] for kind in kinds), other.name)
        for other, group in zip(lowers, matching.groups, strict=True)
        if other is not bound
    ]
    promised = [f"{units} are promised to {name!r}" for units, name in others if units]
    said = f"environment {bound.name!r} needs {bound.units} {bound.what}, {there} {'is' if there == 1 else 'are'} there"
    return f"{said}, of which {_listed(promised)}" if promised else said


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
