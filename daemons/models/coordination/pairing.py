"""Which environments may be coordinated with each other (phoenixcloud.txt sections 4.2, 5): rules on agreements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from shared.values.agreement import Agreement, WorkloadType

_ONLY_TWO = "only two environments share their units"


def objections(a: Agreement, b: Agreement) -> tuple[str, ...]:
    """Return the reasons why the two cannot share their units, one sentence each; empty if they can. Consent is not
    checked here."""
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
    """Return whether the owner of an environment consents to sharing with the other one: both have the same owner, it
    names the other, it shares with any, or its owner has `granted` it (names of environments)."""
    named = other.name in (agreement.coordinated_with, *granted)
    return agreement.owner == other.owner or agreement.shares or named


def entangled(agreement: Agreement, others: Sequence[Agreement], partners: Mapping[str, str] | None = None) -> str:
    """Explain why its `coordinated_with` is impossible ("": it is possible): an environment it names has another
    partner or names another; another environment of the same owner names one of the two; or names form a circle.

    others: all other environments that are not destroyed; partners: the current partner of each. A name that matches no
    environment is no reason: the environment may be created later. Names given by other owners are no reason either:
    they could block the pair without anybody's consent. Agreements between other owners are not disclosed.
    """
    mine, named = agreement.name, agreement.coordinated_with
    if not named:
        return ""
    known = {other.name: other for other in others} | {mine: agreement}
    taken = {name: partner for name, partner in (partners or {}).items() if partner}
    circle = _circle(known, mine)
    if circle and all(known[name].owner == agreement.owner for name in circle):
        return f"coordination goes round in a circle: {_told(circle)}; {_ONLY_TWO}"
    wanted = taken.get(named) or (known[named].coordinated_with if named in known else "")
    if wanted not in ("", mine):
        ours = named in known and known[named].owner == agreement.owner
        third = repr(wanted) if ours else "another environment"
        return f"{mine!r} names {named!r}, which is coordinated with {third}: {_ONLY_TWO}"
    if taken.get(mine, named) != named:
        return f"{mine!r} names {named!r}, and is coordinated with {taken[mine]!r}: {_ONLY_TWO}"
    for other in others:
        if (
            other.owner == agreement.owner
            and other.name not in (mine, named)
            and other.coordinated_with in (mine, named)
        ):
            return f"{other.name!r} names {other.coordinated_with!r}, and {mine!r} names {named!r}: {_ONLY_TWO}"
    return ""


def offer(batch: Agreement, candidates: Sequence[Agreement]) -> str:
    """Return the name of the web environment that is offered to a batch environment which names none ("": none suits).

    candidates: those without a partner. A candidate suits if there is no objection to it, and it names the batch
    environment, or names none and shares with any. Best first: it names the batch environment; it has the same owner;
    its lower bound is nearest to that of the batch environment, since two of one size can lend each other most; its
    name.
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


def _circle(known: Mapping[str, Agreement], start: str) -> list[str]:
    """Return the circle of three or more environments that name each other from `start` on; empty if the names do not
    lead back."""
    chain = [start]
    while (name := known[chain[-1]].coordinated_with) in known and name not in chain:
        chain.append(name)
    return [*chain, start] if name == start and len(chain) > 2 else []


def _told(chain: Sequence[str]) -> str:
    return ", ".join(f"{one!r} names {other!r}" for one, other in pairwise(chain))
