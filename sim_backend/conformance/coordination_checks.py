"""What every coordination policy must do: run each of `CHECKS` on an instance, with a seed.

A check that fails raises `ContractViolation` with the broken rule, the seed, the moment and the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from shared.base.errors import ContractViolation
from shared.policy_api.coordination import Asked, GroupSizes, GroupView, Moment, Party
from shared.policy_api.policies import CoordinationPolicy
from shared.values.agreement import UNITS_MAX, BatchTerms, WorkloadType

_GROUPS = 100
_MOMENTS = tuple(Moment)
_BOUNDS = ((0, None), (0, 0), (0, 5), (3, None), (3, 3), (3, 9), (UNITS_MAX, None), (UNITS_MAX, UNITS_MAX))


@dataclass(frozen=True, slots=True)
class CoordinationSubject:
    """A policy under test, with the seed of the groups."""

    policy: CoordinationPolicy
    seed: int = 0

    def bounds(self) -> list[tuple[int, int | None]]:
        """Bounds that its agreements may have."""
        return [bounds for bounds in _BOUNDS if not self.policy.objection(*bounds)]

    def groups(self) -> Iterator[GroupView]:
        """Random groups with such bounds, the same for the same seed: one party or two, in either order, nothing owned
        or more than the bounds, nothing wanted or more than anybody has."""
        rng = np.random.default_rng(self.seed)
        bounds = self.bounds()
        for _ in range(_GROUPS if bounds else 0):
            picked = [bounds[int(rng.integers(len(bounds)))] for _ in range(2)]
            parties = [_batch(rng, *picked[0]), _web(rng, *picked[1])]
            first = int(rng.integers(4))
            yield GroupView(tuple((parties, parties[::-1], parties[:1], parties[1:])[first]))

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """Return one decision. Raise ContractViolation if the policy raises anything."""
        try:
            return self.policy.decide(group, moment)
        except Exception as error:
            raise ContractViolation(f"{self.policy.name}: raises {error!r} at {moment} for {group}") from error

    def expect(self, holds: bool, rule: str, group: GroupView | None = None, moment: Moment | None = None) -> None:
        """Raise `ContractViolation` unless the rule holds."""
        if not holds:
            raise ContractViolation(f"{self.policy.name}, seed {self.seed}: {rule}; it saw {group} at {moment}")


Check = Callable[[CoordinationSubject], None]


def _units(rng: np.random.Generator) -> int:
    return int(rng.choice([0, 1, 2, 3, 5, 8, 13, 64, 1_000, UNITS_MAX]))


def _batch(rng: np.random.Generator, lower: int, upper: int | None) -> Party:
    owned, queued = _units(rng), _units(rng)
    terms = BatchTerms(float(rng.choice([0.3, 1.0, 1.2, 2.0])), float(rng.choice([0.0, 0.2])), 0.5)
    return Party(
        "batch",
        WorkloadType.BATCH,
        lower,
        upper=upper,
        owned=owned,
        idle=int(rng.integers(owned + 1)),
        queued=queued,
        biggest=int(rng.integers(1, queued + 1)) if queued else 0,
        batch=terms,
        asks=Asked(_units(rng)) if rng.integers(2) else None,
    )


def _web(rng: np.random.Generator, lower: int, upper: int | None) -> Party:
    owned = _units(rng)
    idle = int(rng.integers(owned + 1))
    return Party("web", WorkloadType.WEB, lower, upper=upper, owned=owned, idle=idle, wanted=_units(rng))


def check_declarations(subject: CoordinationSubject) -> None:
    """Check that the policy has a name, accepts some bounds and explains in text why it refuses others, and that its
    firm units lie within the bounds."""
    policy = subject.policy
    subject.expect(isinstance(policy.name, str) and policy.name != "", "it has no name")
    said = [policy.objection(*bounds) for bounds in _BOUNDS]
    subject.expect(all(isinstance(text, str) for text in said), f"its objections are {said}")
    subject.expect("" in said, "no bounds suit it")
    for lower, upper in subject.bounds():
        firm = policy.firm(lower, upper)
        within = type(firm) is int and lower <= firm <= (firm if upper is None else upper)
        subject.expect(within, f"{firm} units come first with the bounds {lower} and {upper}")


def check_sizes(subject: CoordinationSubject) -> None:
    """Check that the decision has an integer number of units, at least 0, for each party, and a text as its reason."""
    for group in subject.groups():
        for moment in _MOMENTS:
            answer = subject.decide(group, moment)
            subject.expect(len(answer.sizes) == len(group.parties), f"its sizes are {answer.sizes}", group, moment)
            whole = all(type(size) is int and size >= 0 for size in answer.sizes)
            subject.expect(whole, f"its sizes are {answer.sizes}", group, moment)
            subject.expect(isinstance(answer.reason, str), f"its reason is {answer.reason!r}", group, moment)


def check_bounds(subject: CoordinationSubject) -> None:
    """Check that the sum of the sizes does not exceed the sum of the upper bounds, where every party has one."""
    for group in subject.groups():
        uppers = [party.upper for party in group.parties]
        most = sum(upper for upper in uppers if upper is not None)
        for moment in _MOMENTS if None not in uppers else ():
            sizes = subject.decide(group, moment).sizes
            subject.expect(sum(sizes) <= most, f"its sizes {sizes} exceed {most} units", group, moment)


def check_same_again(subject: CoordinationSubject) -> None:
    """Check that the decision depends only on the group and the moment, not on earlier calls, and that the group is
    unchanged."""
    asked = [(group, moment) for group in subject.groups() for moment in _MOMENTS]
    before = [repr(group) for group, _ in asked]
    first = [subject.decide(group, moment) for group, moment in asked]
    again = [subject.decide(group, moment) for group, moment in reversed(asked)][::-1]
    for (group, moment), one, other, text in zip(asked, first, again, before, strict=True):
        subject.expect(one == other, f"it said {one}, then {other}", group, moment)
        subject.expect(repr(group) == text, "it changed the group", group, moment)


def check_order_of_parties(subject: CoordinationSubject) -> None:
    """Check that the order and the names of the parties do not affect their sizes."""
    for group in subject.groups():
        turned = GroupView(tuple(replace(party, name=f"other-{party.name}") for party in reversed(group.parties)))
        for moment in _MOMENTS:
            sizes = subject.decide(group, moment).sizes
            other = subject.decide(turned, moment).sizes[::-1]
            subject.expect(sizes == other, f"its sizes are {sizes}, in the other order {other}", group, moment)


def check_settles(subject: CoordinationSubject) -> None:
    """Check that the policy repeats its decision at the same moment once its sizes are in effect, since a restarted
    controller asks again. MANAGE is excluded: it is asked once per reallocation interval."""
    for group in subject.groups():
        for moment in (Moment.START, Moment.DEMAND, Moment.PROVISION):
            sizes = subject.decide(group, moment).sizes
            settled = GroupView(tuple(_resized(party, size) for party, size in zip(group.parties, sizes, strict=True)))
            again = subject.decide(settled, moment).sizes
            subject.expect(again == sizes, f"its sizes are {sizes}, and then {again}", group, moment)


def _resized(party: Party, size: int) -> Party:
    """Return the party with another size. Idle units are added and removed first; jobs whose units are removed are
    queued again."""
    idle = party.idle + size - party.owned
    freed = max(0, -idle) if party.workload is WorkloadType.BATCH else 0
    return replace(
        party, owned=size, idle=max(0, idle), queued=party.queued + freed, biggest=max(party.biggest, min(freed, 1))
    )


CHECKS: tuple[Check, ...] = (
    check_declarations,
    check_sizes,
    check_bounds,
    check_same_again,
    check_order_of_parties,
    check_settles,
)
