"""Which way a VM is migrated."""

from __future__ import annotations

import math

import pytest

from daemons.models.migration_choice import MethodVerdict, MigrationLimits, choose, scaled
from daemons.models.migration_time import Link, MigrationDemand, forecast
from shared.values.migration_terms import MigrationMethod, MigrationTerms

LINK = Link(100.0)
LIMITS = MigrationLimits(120.0)
CALM = MigrationDemand(400.0, 5.0, 200.0)
FAST = MigrationDemand(400.0, 150.0, 200.0)
WILD = MigrationDemand(40_000.0, 39_000.0, 40_000.0)
LONG = MigrationLimits(3_000.0)


def verdicts(demand: MigrationDemand, link: Link, limits: MigrationLimits, post_copy: bool) -> list[MethodVerdict]:
    return [reason.verdict for reason in choose(demand, link, limits, post_copy).reasons]


def test_pre_copy_is_chosen_for_a_calm_guest() -> None:
    found = choose(CALM, LINK, LIMITS)
    assert found.forecast is not None
    assert found.forecast.method is MigrationMethod.PRE_COPY
    assert found.refusal == ""
    assert found.terms(LIMITS) == MigrationTerms(downtime_ms=300, limit_s=120.0)


def test_auto_converge_is_chosen_where_pre_copy_does_not_end() -> None:
    assert verdicts(FAST, LINK, LIMITS, False) == [
        MethodVerdict.NOT_CONVERGING,
        MethodVerdict.CHOSEN,
        MethodVerdict.NOT_ALLOWED,
    ]
    assert choose(FAST, LINK, LIMITS).terms(LIMITS, 50.4) == MigrationTerms(
        MigrationMethod.AUTO_CONVERGE, bandwidth_mib_per_s=50, downtime_ms=300, limit_s=120.0
    )


def test_post_copy_is_chosen_last_and_only_where_it_is_allowed() -> None:
    found = choose(WILD, LINK, LONG, post_copy_allowed=True)
    assert found.forecast is not None
    assert found.forecast.method is MigrationMethod.POST_COPY
    assert found.terms(LIMITS).method is MigrationMethod.POST_COPY
    assert choose(WILD, LINK, LONG).forecast is None


def test_a_guest_that_no_allowed_method_moves_is_refused() -> None:
    found = choose(WILD, LINK, LONG)
    assert found.refusal == "will-not-converge"
    assert found.terms(LIMITS).method is MigrationMethod.AUTO_CONVERGE  # for an operator who insists


def test_one_that_would_end_too_late_is_refused_as_slow() -> None:
    found = choose(MigrationDemand(4_000.0, 0.0), LINK, MigrationLimits(10.0), post_copy_allowed=True)
    assert found.refusal == "too-slow"
    assert {reason.verdict for reason in found.reasons} == {MethodVerdict.TOO_SLOW}


def test_more_connections_are_used_only_where_they_carry_more() -> None:
    slow_streams = Link(100.0, streams=4, stream_mib_per_s=20.0)
    limits = MigrationLimits(10.0)
    found = choose(CALM, slow_streams, limits)
    assert [reason.verdict for reason in found.reasons][:2] == [MethodVerdict.TOO_SLOW, MethodVerdict.CHOSEN]
    assert found.terms(limits).streams == 4
    assert len(choose(CALM, Link(100.0, streams=4), limits).reasons) == 3


def test_post_copy_is_no_way_out_of_several_connections() -> None:
    link, limits = Link(100.0, streams=4, stream_mib_per_s=20.0), MigrationLimits(10.0)
    found = choose(CALM, link, limits, post_copy_allowed=True).terms(limits)
    assert (found.streams, found.post_copy) == (4, False)
    assert choose(CALM, LINK, limits, post_copy_allowed=True).terms(limits).post_copy


def test_an_unknown_dirty_rate_is_met_with_auto_converge() -> None:
    for unknown in (math.nan, -1.0):
        found = choose(MigrationDemand(400.0, unknown), LINK, LIMITS)
        assert found.guessed
        assert found.terms(LIMITS).method is MigrationMethod.AUTO_CONVERGE


def test_what_was_learned_counts() -> None:
    assert choose(CALM, LINK, MigrationLimits(10.0), factor=3.0).refusal == "too-slow"
    assert choose(CALM, LINK, MigrationLimits(10.0, safety=3.0)).refusal == "too-slow"
    one = forecast(CALM, LINK)
    assert scaled(one, 2.0).duration_s == 2.0 * one.duration_s
    for odd in (math.nan, math.inf, 0.0, -1.0):
        assert scaled(one, odd, odd) == one


def test_learned_downtimes_count_apart_from_durations() -> None:
    one = forecast(CALM, LINK, MigrationMethod.AUTO_CONVERGE)
    found = scaled(one, 1.0, 3.0)
    assert (found.duration_s, found.downtime_s) == (one.duration_s, 3.0 * one.downtime_s)
    assert found.lost_s == pytest.approx(one.lost_s + 2.0 * one.downtime_s)
    assert found.pause_s == found.downtime_s
    waits = scaled(forecast(CALM, LINK, MigrationMethod.POST_COPY), 2.0, 3.0)
    assert waits.downtime_s == forecast(CALM, LINK, MigrationMethod.POST_COPY).downtime_s
    assert waits.pause_s == waits.lost_s > waits.downtime_s
    chosen = choose(CALM, LINK, LIMITS, downtime_factor=3.0).forecast
    assert chosen is not None
    assert chosen.downtime_s == 3.0 * forecast(CALM, LINK).downtime_s


@pytest.mark.parametrize("rate", [0.0, 0.9, math.inf, math.nan, -5.0])
def test_a_share_that_is_none_limits_nothing(rate: float) -> None:
    assert choose(CALM, LINK, LIMITS).terms(LIMITS, rate).bandwidth_mib_per_s == 0


def test_no_limits_leave_the_node_s_own() -> None:
    none = MigrationLimits(math.inf, 0.0)
    assert choose(CALM, LINK, MigrationLimits(math.inf)).terms(none) == MigrationTerms()
