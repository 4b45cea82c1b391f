"""What FB and FLB-NUB keep to, whatever happens, and the order in which jobs give way."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.environment_types.batch import managed
from daemons.policies.coordination.bounds import FixedBounds, FixedLowerBound
from shared.policy_api.coordination import GroupView, Moment, Party
from shared.values.agreement import WorkloadType
from tests.extent import examples

EVENTS = st.lists(
    st.tuples(
        st.sampled_from([Moment.DEMAND, Moment.PROVISION, Moment.MANAGE]), st.integers(0, 40), st.integers(0, 40)
    ),
    max_size=30,
)


@settings(max_examples=examples(150))
@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 40), EVENTS)
def test_fixed_bounds_share_one_size(
    batch_lower: int, web_lower: int, wanted: int, events: list[tuple[Moment, int, int]]
) -> None:
    """Never more than the sum of the bounds, all of it after a timer; the web environment has what it needs of it, and
    the batch environment loses no more than that takes."""
    fb, size = FixedBounds(), batch_lower + web_lower
    batch = Party("hpc", WorkloadType.BATCH, batch_lower)
    web = Party("shop", WorkloadType.WEB, web_lower, wanted=wanted)
    working, serving = fb.decide(GroupView((batch, web)), Moment.START).sizes
    assert (working, serving) == (size - min(wanted, size), min(wanted, size))
    for moment, number, queued in events:
        wanted = number if moment is Moment.DEMAND else wanted
        before = working
        batch, web = replace(batch, owned=working, queued=queued), replace(web, owned=serving, wanted=wanted)
        working, serving = fb.decide(GroupView((batch, web)), moment).sizes
        assert serving == min(wanted, size)
        if moment is Moment.PROVISION:
            assert working + serving == size
        else:
            assert working == min(before, size - serving)


@settings(max_examples=examples(150))
@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 40), st.integers(0, 40), EVENTS)
def test_fixed_lower_bound_with_any_upper(
    batch_lower: int, web_lower: int, more: int, wanted: int, events: list[tuple[Moment, int, int]]
) -> None:
    """Without upper bounds nobody's growth takes from the other, and the lower bounds are full after a timer; with
    them their sum is never exceeded."""
    flb = FixedLowerBound()
    for bounded in (False, True):
        most = batch_lower + web_lower + 2 * more
        batch = Party("hpc", WorkloadType.BATCH, batch_lower, upper=batch_lower + more if bounded else None)
        web = Party("shop", WorkloadType.WEB, web_lower, upper=web_lower + more if bounded else None, wanted=wanted)
        working, serving = flb.decide(GroupView((batch, web)), Moment.START).sizes
        for moment, number, queued in events:
            wants = number if moment is Moment.DEMAND else web.wanted
            batch = replace(batch, owned=working, idle=min(working, number), queued=queued, biggest=min(queued, 9))
            batch = replace(batch, asks=managed(batch))
            web = replace(web, owned=serving, wanted=wants)
            before = working
            working, serving = flb.decide(GroupView((batch, web)), moment).sizes
            if bounded:
                assert working + serving <= most
            elif moment is Moment.DEMAND:
                assert (working, serving) == (before, wants)
            elif moment is Moment.PROVISION:
                assert working == max(before, batch_lower + web_lower - serving)
            else:
                assert serving == web.owned
