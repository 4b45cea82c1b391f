"""Every registered coordination policy keeps its contract, and each check finds the bug that it is there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daemons.policies.coordination.bounds import FixedLowerBound
from shared.base.errors import ContractViolation
from shared.policy_api.coordination import GroupSizes, GroupView, Moment
from shared.ports.plugins import find_policy, names, policy_group
from shared.values.agreement import WorkloadType
from sim_backend.conformance import coordination_checks as checks
from sim_backend.conformance.coordination_checks import CHECKS, Check, CoordinationSubject

Decide = Callable[[GroupView, Moment], GroupSizes]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", names(policy_group("coordination")))
def test_registered_policy(name: str, check: Check) -> None:
    """Each check, with two seeds."""
    for seed in range(2):
        check(CoordinationSubject(find_policy("coordination", name), seed))


class Planted(FixedLowerBound):
    """FLB-NUB but for what was replaced."""

    def __init__(self, decide: Decide | None = None, firm: int | None = None, objection: str = "") -> None:
        self._decide, self._firm, self._objection = decide, firm, objection

    def objection(self, lower: int, upper: int | None) -> str:
        """Whatever was planted."""
        del lower, upper
        return self._objection

    def firm(self, lower: int, upper: int | None) -> int:
        """Whatever was planted."""
        return super().firm(lower, upper) if self._firm is None else self._firm

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """Whatever was planted."""
        return (self._decide or super().decide)(group, moment)


SOUND = FixedLowerBound()


def one_more(group: GroupView, moment: Moment) -> GroupSizes:
    """A unit more than it has, each time."""
    del moment
    return GroupSizes(tuple(party.owned + 1 for party in group.parties))


def below_zero(group: GroupView, moment: Moment) -> GroupSizes:
    """What is free, although more than that may be wanted."""
    sizes = SOUND.decide(group, moment).sizes
    return GroupSizes(tuple(size - 1 for size in sizes))


def too_few(group: GroupView, moment: Moment) -> GroupSizes:
    """A size for the first party alone."""
    return GroupSizes(SOUND.decide(group, moment).sizes[:1])


def halves(group: GroupView, moment: Moment) -> GroupSizes:
    """No whole numbers."""
    return GroupSizes(tuple(size / 2 for size in SOUND.decide(group, moment).sizes))  # type: ignore[misc]


def no_end(group: GroupView, moment: Moment) -> GroupSizes:
    """Whatever the web environment wants."""
    sizes = zip(group.parties, SOUND.decide(group, moment).sizes, strict=True)
    return GroupSizes(tuple(p.wanted if p.workload is WorkloadType.WEB else size for p, size in sizes))


def first_served(group: GroupView, moment: Moment) -> GroupSizes:
    """The first party has all."""
    del moment
    rest = (0,) * (len(group.parties) - 1)
    return GroupSizes((group.lower, *rest))


class Counting:
    """It remembers how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, group: GroupView, moment: Moment) -> GroupSizes:
        self.asked += 1
        return SOUND.decide(group, moment) if self.asked % 5 else GroupSizes((0,) * len(group.parties))


def raising(group: GroupView, moment: Moment) -> GroupSizes:
    """It cannot do without a web environment."""
    web = group.of(WorkloadType.WEB)
    if web is None:
        raise KeyError("web")
    return SOUND.decide(group, moment)


PLANTED: list[tuple[Check, Planted, str]] = [
    (checks.check_declarations, Planted(firm=4), "4 units come first"),
    (checks.check_declarations, Planted(objection="no"), "no bounds suit it"),
    (checks.check_sizes, Planted(below_zero), "its sizes are"),
    (checks.check_sizes, Planted(too_few), "its sizes are"),
    (checks.check_sizes, Planted(halves), "its sizes are"),
    (checks.check_sizes, Planted(raising), "raises KeyError"),
    (checks.check_bounds, Planted(no_end), "exceed"),
    (checks.check_same_again, Planted(Counting()), "then"),
    (checks.check_order_of_parties, Planted(first_served), "in the other order"),
    (checks.check_settles, Planted(one_more), "and then"),
]


@pytest.mark.parametrize(("check", "policy", "said"), PLANTED)
def test_planted_bug_is_found(check: Check, policy: Planted, said: str) -> None:
    """By its check, in words."""
    with pytest.raises(ContractViolation, match=said):
        check(CoordinationSubject(policy))


def test_every_check_has_a_planted_bug() -> None:
    assert {check for check, _, _ in PLANTED} == set(CHECKS)
