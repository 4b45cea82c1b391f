"""Which environments may be coordinated with each other (phoenixcloud.txt sections 4.2, 5): rules on agreements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from shared.agreement import Agreement, WorkloadType


def objections(a: Agreement, b: Agreement) -> tuple[str, ...]:
    """Why the two cannot share their units, one sentence each; none: they can. Who consents is not asked here."""
    both = f"{a.name!r} and {b.name!r}"
    found = []
    if a.name == b.name:
        found.append(f"{a.name!r} cannot be coordinated with itself")
    elif a.workload is b.workload:
        found.append(f"{both} are both of type {a.workload}: a batch environment is coordinated with a web environment")
    for key, of_a, of_b in _compared(a, b):
        if of_a != of_b:
            found.append(f"{both} differ in {key}: {of_a or 'none'} and {of_b or 'none'}")
    return tuple(found)


def consents(agreement: Agreement, other: Agreement, granted: Sequence[str] = ()) -> bool:
    """Whether its owner lets it be coordinated with the other one: both have the same owner, it names the other, it
    shares with whoever asks, or its owner has `granted` (names of environments) it."""
    named = other.name in (agreement.coordinated_with, *granted)
    return agreement.owner == other.owner or agreement.shares or named


def entangled(agreement: Agreement, others: Sequence[Agreement], partners: Mapping[str, str] | None = None) -> str:
    """Why its `coordinated_with` cannot be, in words ("": it can): who is named has another partner, or names another;
    who names is named by a third; or names go round in a circle.

    others: all other environments that are not destroyed; partners: the partner that each has now. A name of no
    environment is no reason: it may be created later.
    """
    names = {other.name: other.coordinated_with for other in others if other.name != agreement.name}
    names[agreement.name] = agreement.coordinated_with
    taken = {name: partner for name, partner in (partners or {}).items() if partner}
    mine, named = agreement.name, agreement.coordinated_with
    chain = _chain(names, mine)
    if len(chain) > 3 and chain[0] == chain[-1]:
        return f"coordination goes round in a circle: {_told(chain)}; only two environments share their units"
    if named and names.get(named, "") not in ("", mine):
        return f"{mine!r} names {named!r}, which names {names[named]!r}: only two environments share their units"
    if named and taken.get(named, mine) != mine:
        return f"{mine!r} names {named!r}, which is coordinated with {taken[named]!r} already"
    if named and taken.get(mine, named) != named:
        return f"{mine!r} names {named!r}, and is coordinated with {taken[mine]!r}"
    rivals = [name for name, other in names.items() if other in (mine, named) and other and name not in (mine, named)]
    if named and rivals:
        return (
            f"{rivals[0]!r} names {names[rivals[0]]!r}: only two environments share their units, {mine!r} and {named!r}"
        )
    return ""


def offer(batch: Agreement, candidates: Sequence[Agreement]) -> str:
    """The name of the web environment that is offered to a batch environment which names none ("": nobody suits).

    candidates: those without a partner. One suits that names the batch environment, or names nobody and shares with
    whoever asks, and against which there is no objection. Best first: it names the batch environment; it has the same
    owner; its lower bound is nearest to that of the batch environment, since two of one size can lend each other most;
    its name.
    """
    if batch.coordinated_with or batch.workload is not WorkloadType.BATCH:
        return ""
    suited = [
        (web.coordinated_with != batch.name, web.owner != batch.owner, abs(web.lower - batch.lower), web.name)
        for web in candidates
        if (web.coordinated_with == batch.name or (web.shares and not web.coordinated_with))
        and not objections(batch, web)
    ]
    return min(suited)[3] if suited else ""


def _compared(a: Agreement, b: Agreement) -> list[tuple[str, str, str]]:
    return [
        ("model", a.model, b.model),
        ("lease_s", f"{a.lease_s:.15g}", f"{b.lease_s:.15g}"),
        ("granularity", a.granularity.value, b.granularity.value),
        ("template", _template(a), _template(b)),
        ("what their nodes run", _system(a), _system(b)),
    ]


def _template(agreement: Agreement) -> str:
    form = agreement.template
    return "" if form is None else f"{form.name} ({form.vcpus} vCPUs, {form.memory_mib} MiB, {form.max_mhz:.15g} MHz)"


def _system(agreement: Agreement) -> str:
    return f"{agreement.os_type} {agreement.os_version}".strip()


def _chain(names: Mapping[str, str], start: str) -> list[str]:
    """Who names whom from there on, until nobody is named or somebody comes again."""
    chain = [start]
    while (following := names.get(chain[-1], "")) and following not in chain:
        chain.append(following)
    return [*chain, following] if following else chain


def _told(chain: Sequence[str]) -> str:
    return ", ".join(f"{one!r} names {other!r}" for one, other in pairwise(chain))
