"""What each coordination policy says in cases worked out by hand (phoenixcloud.txt section 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.environment_types.batch import managed
from daemons.policies.coordination.baselines import Dedicated, OnDemand
from daemons.policies.coordination.bounds import FixedBounds, FixedLowerBound
from shared.policy_api.coordination import Asked, GroupView, Moment, Party
from shared.policy_api.policies import CoordinationPolicy
from shared.values.agreement import BatchTerms, WorkloadType

HPC = Party("hpc", WorkloadType.BATCH, lower=10)
SHOP = Party("shop", WorkloadType.WEB, lower=6)


def sizes(policy: CoordinationPolicy, moment: Moment, *parties: Party) -> tuple[int, ...]:
    """What a policy says of them, their manager asking as that of the type `batch` does."""
    parties = tuple(
        replace(party, asks=managed(party)) if party.workload is WorkloadType.BATCH else party for party in parties
    )
    return policy.decide(GroupView(parties), moment).sizes


def test_fixed_bounds_through_a_day() -> None:
    """16 units: the web environment grows over idle ones, then over the batch environment's; what it gives back comes
    to the batch environment at the provider's timer."""
    fb = FixedBounds()
    assert sizes(fb, Moment.START, HPC, replace(SHOP, wanted=4)) == (12, 4)
    assert sizes(fb, Moment.DEMAND, replace(HPC, owned=12), replace(SHOP, owned=4, wanted=2)) == (12, 2)
    assert sizes(fb, Moment.DEMAND, replace(HPC, owned=12), replace(SHOP, owned=2, wanted=3)) == (12, 3)
    assert sizes(fb, Moment.DEMAND, replace(HPC, owned=12), replace(SHOP, owned=3, wanted=7)) == (9, 7)
    assert sizes(fb, Moment.DEMAND, replace(HPC, owned=9), replace(SHOP, owned=7, wanted=5)) == (9, 5)
    assert sizes(fb, Moment.MANAGE, replace(HPC, owned=9, queued=40, biggest=16), replace(SHOP, owned=5)) == (9, 5)
    assert sizes(fb, Moment.PROVISION, replace(HPC, owned=9), replace(SHOP, owned=5, wanted=5)) == (11, 5)
    assert sizes(fb, Moment.DEMAND, replace(HPC, owned=11), replace(SHOP, owned=5, wanted=99)) == (0, 16)


def test_fixed_bounds_alone_and_after_a_smaller_bound() -> None:
    """One party has its own bound; what exceeds a bound that was made smaller goes."""
    fb = FixedBounds()
    assert sizes(fb, Moment.START, HPC) == (10,)
    assert sizes(fb, Moment.START, replace(SHOP, wanted=2)) == (2,)
    assert sizes(fb, Moment.START, replace(SHOP, wanted=20)) == (6,)
    assert sizes(fb, Moment.PROVISION, replace(HPC, lower=2, owned=10), replace(SHOP, lower=3, owned=8)) == (0, 5)


def test_fixed_lower_bound_through_a_day() -> None:
    """16 units are their own: the web environment grows from outside, the batch environment gets what is idle within
    the bounds at the provider's timer."""
    flb = FixedLowerBound()
    assert sizes(flb, Moment.START, HPC, replace(SHOP, wanted=4)) == (12, 4)
    assert sizes(flb, Moment.START, HPC, replace(SHOP, wanted=20)) == (0, 20)
    assert sizes(flb, Moment.DEMAND, replace(HPC, owned=12), replace(SHOP, owned=4, wanted=9)) == (12, 9)
    assert sizes(flb, Moment.DEMAND, replace(HPC, owned=12), replace(SHOP, owned=9, wanted=1)) == (12, 1)
    assert sizes(flb, Moment.PROVISION, replace(HPC, owned=12), replace(SHOP, owned=1)) == (15, 1)
    assert sizes(flb, Moment.PROVISION, replace(HPC, owned=30), replace(SHOP, owned=1)) == (30, 1)
    manage = replace(HPC, owned=15, queued=40, biggest=8)
    assert sizes(flb, Moment.MANAGE, manage, replace(SHOP, owned=1)) == (40, 1)


def test_a_manager_that_was_not_asked_leaves_what_there_is() -> None:
    """And one that was asked has what it says, whatever is queued."""
    flb, batch = FixedLowerBound(), replace(HPC, owned=15, queued=90, biggest=8)
    assert flb.decide(GroupView((batch,)), Moment.MANAGE).sizes == (15,)
    answer = flb.decide(GroupView((replace(batch, asks=Asked(7, "they are patient")),)), Moment.MANAGE)
    assert (answer.sizes, answer.reason) == ((7,), "they are patient")


def test_fixed_lower_bound_with_upper_bounds() -> None:
    """Their sum is the end; the web environment comes first."""
    flb, hpc, shop = FixedLowerBound(), replace(HPC, upper=20), replace(SHOP, upper=8)
    assert sizes(flb, Moment.DEMAND, replace(hpc, owned=20), replace(shop, owned=8, wanted=10)) == (18, 10)
    assert sizes(flb, Moment.DEMAND, replace(hpc, owned=20), replace(shop, owned=8, wanted=50)) == (0, 28)
    manage = replace(hpc, owned=15, queued=90, biggest=8)
    assert sizes(flb, Moment.MANAGE, manage, replace(shop, owned=3)) == (25, 3)
    assert (flb.firm(6, None), flb.firm(6, 8)) == (6, 8)


@pytest.mark.parametrize(
    ("owned", "idle", "queued", "biggest", "wants", "why"),
    [
        (10, 0, 13, 4, 13, "DR1 = 3: 13 queued, 10 owned"),
        (10, 3, 12, 4, 10, ""),  # the ratio is U, not above it
        (10, 3, 12, 12, 19, "DR2 = 9: the biggest job needs 12, 3 idle of 10"),
        (10, 7, 1, 1, 7, "RSS = 3: 1 queued, 7 idle of 10"),
        (10, 7, 2, 1, 10, ""),  # the ratio is V, not below it
        (10, 1, 0, 0, 10, "RSS = 0: 0 queued, 1 idle of 10"),
        (0, 0, 5, 5, 5, "DR1 = 5: 5 queued, 0 owned"),
        (0, 0, 0, 0, 0, "RSS = 0: 0 queued, 0 idle of 0"),
    ],
)
def test_the_batch_manager(owned: int, idle: int, queued: int, biggest: int, wants: int, why: str) -> None:
    """DR1 above U = 1.2, else DR2 for a job larger than all that is owned, else RSS below V = 0.2."""
    assert managed(replace(HPC, owned=owned, idle=idle, queued=queued, biggest=biggest)) == Asked(wants, why)


def test_a_request_is_never_negative() -> None:
    """With U below 1 less may be queued than is owned."""
    batch = replace(HPC, owned=10, queued=7, biggest=2, batch=BatchTerms(request_ratio=0.5))
    assert managed(batch).units == 10


def test_dedicated() -> None:
    """Always the lower bound; one bound only."""
    policy = Dedicated()
    for moment in Moment:
        assert sizes(policy, moment, replace(HPC, owned=3, queued=99), replace(SHOP, wanted=40)) == (10, 6)
    assert policy.objection(4, 4) == policy.objection(4, None) == ""
    assert "one size" in policy.objection(4, 5)


def test_on_demand() -> None:
    """Units come with jobs and instances; idle batch units go at the end of a lease unit only."""
    policy, hpc, shop = OnDemand(), replace(HPC, lower=0), replace(SHOP, lower=0)
    assert sizes(policy, Moment.DEMAND, replace(hpc, owned=8, idle=3, queued=7), replace(shop, wanted=2)) == (12, 2)
    assert sizes(policy, Moment.DEMAND, replace(hpc, owned=8, idle=3), replace(shop, owned=5, wanted=2)) == (8, 2)
    assert sizes(policy, Moment.MANAGE, replace(hpc, owned=8, idle=3), replace(shop, owned=5, wanted=2)) == (5, 5)
    assert sizes(policy, Moment.MANAGE, replace(hpc, upper=9, owned=8, idle=3, queued=7)) == (9,)
    assert "nothing aside" in policy.objection(1, None)


def test_objections_of_fixed_bounds() -> None:
    assert FixedBounds().objection(4, 4) == FixedBounds().objection(4, None) == ""
    assert FixedBounds().objection(4, 5) == "the model fb has one bound: leave upper out, or make it 4"
