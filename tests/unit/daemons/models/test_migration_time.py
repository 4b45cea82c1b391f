"""Forecasts of live migrations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daemons.models.migration_time import (
    SETUP_S,
    SWITCH_OVER_S,
    Link,
    MigrationDemand,
    dirtied,
    forecast,
    forecasts,
)
from shared.values.migration_terms import MigrationMethod

LINK = Link(100.0)


def test_an_idle_guest_is_sent_once() -> None:
    found = forecast(MigrationDemand(1_000.0, 0.0), LINK)

    assert found.converges
    assert found.duration_s == pytest.approx(SETUP_S + 10.0 + SWITCH_OVER_S)
    assert (found.total_mib, found.rounds) == (1_000.0, 1)
    assert found.downtime_s == pytest.approx(SWITCH_OVER_S)


def test_zero_pages_are_not_sent_and_disks_come_first() -> None:
    found = forecast(MigrationDemand(1_000.0, 0.0, disk_mib=500.0, zero_frac=0.6), LINK)

    assert found.total_mib == pytest.approx(900.0)
    assert found.duration_s == pytest.approx(SETUP_S + 9.0 + SWITCH_OVER_S)


def test_several_connections_carry_memory_and_one_carries_disks() -> None:
    link = Link(100.0, streams=8, stream_mib_per_s=25.0)
    demand = MigrationDemand(1_000.0, 0.0, disk_mib=100.0)

    assert forecast(demand, link, streams=1).duration_s == pytest.approx(SETUP_S + 44.0 + SWITCH_OVER_S)
    assert forecast(demand, link, streams=8).duration_s == pytest.approx(SETUP_S + 14.0 + SWITCH_OVER_S)
    assert forecast(demand, link, streams=99).duration_s == pytest.approx(SETUP_S + 14.0 + SWITCH_OVER_S)
    post = forecast(demand, link, MigrationMethod.POST_COPY, streams=8)
    assert post.duration_s == pytest.approx(SETUP_S + 44.0 + SWITCH_OVER_S)  # which has one connection


def test_a_guest_faster_than_the_link_never_ends_by_pre_copy() -> None:
    demand = MigrationDemand(1_000.0, 150.0, 500.0)

    found = forecast(demand, LINK)

    assert (found.converges, found.duration_s, found.downtime_s) == (False, math.inf, math.inf)


def test_a_small_working_set_ends_however_fast_it_is_written_to() -> None:
    assert forecast(MigrationDemand(1_000.0, 29.0, 29.0), LINK, downtime_limit_s=0.3).converges
    assert not forecast(MigrationDemand(1_000.0, 100.0, 100.0), LINK, downtime_limit_s=0.3).converges


def test_auto_converge_takes_time_from_the_guest_until_it_ends() -> None:
    demand = MigrationDemand(1_000.0, 150.0, 500.0)

    found = forecast(demand, LINK, MigrationMethod.AUTO_CONVERGE)

    assert found.converges
    assert 0.5 <= found.throttle_frac <= 0.99
    assert found.lost_s > found.downtime_s
    assert found.downtime_s <= 0.3 + SWITCH_OVER_S


def test_post_copy_sends_what_was_changed_once_more() -> None:
    demand = MigrationDemand(1_000.0, 400.0, 500.0)

    found = forecast(demand, LINK, MigrationMethod.POST_COPY)

    assert found.converges
    assert found.total_mib == pytest.approx(1_500.0, rel=1e-3)
    assert found.downtime_s == pytest.approx(SWITCH_OVER_S)


def test_a_working_set_that_is_not_known_is_all_memory() -> None:
    unknown = forecast(MigrationDemand(1_000.0, 50.0), LINK)
    assert unknown == forecast(MigrationDemand(1_000.0, 50.0, 1_000.0), LINK)
    assert unknown == forecast(MigrationDemand(1_000.0, 50.0, 0.0), LINK)
    assert unknown == forecast(MigrationDemand(1_000.0, 50.0, 9_999.0), LINK)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_link_that_carries_nothing_never_ends(rate: float) -> None:
    for method in MigrationMethod:
        assert not forecast(MigrationDemand(100.0, 1.0), Link(rate), method).converges
    assert forecast(MigrationDemand(0.0, 0.0), Link(rate)).converges  # nothing is to be sent


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 0.0, 5e-324])
def test_odd_figures_give_no_odd_forecast(odd: float) -> None:
    for method in MigrationMethod:
        found = forecast(MigrationDemand(odd, odd, odd, odd, odd), Link(odd, odd, 1, odd), method, 1, odd, odd)
        assert found.duration_s >= 0.0
        assert found.total_mib >= 0.0


def test_no_migration_has_no_forecast() -> None:
    found = forecasts([], [])
    assert (len(found.duration_s), len(found.rounds)) == (0, 0)


def test_a_thousand_nodes_are_forecast_at_once() -> None:
    demands = [MigrationDemand(4_096.0 + at, at % 2_000, 1_500.0) for at in range(5_000)]

    found = forecasts(demands, [Link(1_000.0)] * 5_000, MigrationMethod.AUTO_CONVERGE)

    assert found.duration_s[7] == forecast(demands[7], Link(1_000.0), MigrationMethod.AUTO_CONVERGE).duration_s
    assert found.converges.all()


def test_pages_written_at_random_are_changed_as_modelled() -> None:
    """Count the pages that a guest changes, one write after the other."""
    rng = np.random.default_rng(1)
    pages, per_s = 20_000, 8_000
    one = len(np.unique(rng.integers(pages, size=per_s)))
    three = len(np.unique(rng.integers(pages, size=3 * per_s)))

    found = dirtied(np.array([float(pages)]), np.array([float(one)]), np.array([3.0]))

    assert found[0] == pytest.approx(three, rel=0.01)
