"""The fast models of migrations agree with slow ones: a round-by-round simulation, progressive filling with fractions,
and the course that the simulator takes for the truth."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daemons.models.migration_bandwidth import NodeLink, Transfer, shares
from daemons.models.migration_choice import MethodVerdict, MigrationLimits, choose
from daemons.models.migration_time import (
    SATURATED,
    SWITCH_OVER_S,
    Link,
    MigrationDemand,
    forecast,
    forecasts,
)
from shared.values.migration_terms import MigrationMethod
from sim_backend.world.migrating import SWITCH_S, Course, GuestMemory

METHODS = st.sampled_from(MigrationMethod)
SIZES = st.floats(1.0, 1e5)
RATES = st.floats(0.0, 1e4)
DEMANDS = st.builds(
    MigrationDemand,
    memory_mib=SIZES,
    dirty_mib_per_s=RATES,
    working_set_mib=SIZES,
    disk_mib=st.just(0.0) | SIZES,
    zero_frac=st.floats(0.0, 0.9),
)
LINKS = st.builds(
    Link, st.floats(1.0, 1e4), st.floats(0.0, 0.2), streams=st.integers(1, 8), stream_mib_per_s=st.floats(0.5, 1e4)
)
ODD = st.floats(allow_nan=True, allow_infinity=True)


def naive(demand: MigrationDemand, link: Link, method: MigrationMethod, limit_s: float) -> tuple[float, float, int]:
    """Seconds in all and of standing still, and rounds, one after the other; infinite where it never ends."""
    memory = demand.memory_mib * (1.0 - demand.zero_frac)
    working = min(demand.working_set_mib, memory)
    rate, single = link.rate_mib_per_s(1), link.rate_mib_per_s(1)
    fixed = SWITCH_OVER_S + 2.0 * link.latency_s
    total = demand.disk_mib / single

    def changed(seconds: float) -> float:
        part = min(SATURATED, demand.dirty_mib_per_s / working)
        return working * -math.expm1(seconds * math.log1p(-part))

    if method is MigrationMethod.POST_COPY:
        rest = changed(memory / rate)
        return total + memory / rate + fixed + rest / rate, fixed, 2
    left, rounds, percent, high = memory, 0, 0, 0
    seconds = sent = dirty = 0.0
    while rounds < 1_000:
        took = left / rate
        next_left = changed(took * (100 - percent) / 100)
        rounds += 1
        total += took
        raised = False
        if method is MigrationMethod.AUTO_CONVERGE:
            seconds, sent, dirty = seconds + took, sent + left, dirty + next_left
            if seconds >= 1.0:
                high += dirty > 0.5 * sent
                seconds = sent = dirty = 0.0
            if high >= 2:
                percent, high, raised = (min(99, percent + 10) if percent else 20), 0, True
        if next_left <= limit_s * rate:
            return total + next_left / rate + fixed, next_left / rate + fixed, rounds
        hopeless = method is MigrationMethod.PRE_COPY or (percent == 99 and not raised)
        if rounds > 1 and next_left >= left * 0.999 and hopeless:
            break
        left = next_left
    return math.inf, math.inf, rounds


@given(st.lists(st.tuples(DEMANDS, LINKS), min_size=1, max_size=8), METHODS, st.floats(0.01, 2.0))
def test_rounds_side_by_side_are_the_rounds_one_after_the_other(
    pairs: list[tuple[MigrationDemand, Link]], method: MigrationMethod, limit_s: float
) -> None:
    found = forecasts([one for one, _ in pairs], [link for _, link in pairs], method, 1, limit_s, setup_s=0.0)
    for row, (demand, link) in enumerate(pairs):
        duration, downtime, rounds = naive(demand, link, method, limit_s)
        assert found.converges[row] == math.isfinite(duration)
        assert found.duration_s[row] == pytest.approx(duration, rel=1e-6)
        assert found.downtime_s[row] == pytest.approx(downtime, rel=1e-6)
        assert found.rounds[row] == rounds


@given(
    st.floats(10.0, 1e5),
    st.floats(0.0, SATURATED),
    st.floats(0.05, 1.0),
    st.floats(10.0, 1e3),
    st.sampled_from((MigrationMethod.PRE_COPY, MigrationMethod.AUTO_CONVERGE)),
)
def test_the_simulator_s_course_takes_as_long_as_is_forecast(
    memory: float, part: float, working: float, rate: float, method: MigrationMethod
) -> None:
    dirty = part * working * memory
    guest = GuestMemory(memory, dirty, working * memory)
    course = Course(guest, 0.0, 0.3, method is MigrationMethod.AUTO_CONVERGE)
    found = forecast(MigrationDemand(memory, dirty, working * memory), Link(rate), method, setup_s=0.0)
    assume(found.converges)
    took_s = course.run(rate)
    assert took_s == pytest.approx(found.duration_s, rel=1e-6)
    assert course.downtime_s == pytest.approx(found.downtime_s, rel=1e-6, abs=1e-6)
    assert course.throttle_frac == pytest.approx(found.throttle_frac)
    assert SWITCH_S == SWITCH_OVER_S


@given(st.floats(10.0, 1e4), st.floats(0.0, 0.95), st.floats(10.0, 1e3), st.lists(st.floats(0.001, 5.0), max_size=20))
def test_a_course_in_small_steps_is_the_course_in_large_ones(
    memory: float, part: float, rate: float, steps: list[float]
) -> None:
    guest = GuestMemory(memory, part * memory / 4.0, memory / 4.0)
    one, other = (Course(guest, 50.0, 0.3, auto_converge=True) for _ in range(2))
    took_s = other.run(rate)
    assume(other.is_done)
    for step in steps:
        left = step
        while left > 0.0 and not one.is_done:
            part_s = min(left, one.until_s(rate))
            one.advance(part_s, rate)
            left -= part_s
    if one.is_done:
        assert one.time_s == pytest.approx(took_s)
    else:
        assert one.run(rate) == pytest.approx(took_s)
    assert one.sent_mib == pytest.approx(other.sent_mib)
    assert one.downtime_s == pytest.approx(other.downtime_s)


@given(st.lists(st.tuples(DEMANDS, LINKS), min_size=1, max_size=4), METHODS)
def test_more_dirty_memory_never_ends_sooner(
    pairs: list[tuple[MigrationDemand, Link]], method: MigrationMethod
) -> None:
    assume(method is not MigrationMethod.AUTO_CONVERGE)  # which may throttle the faster guest earlier
    for demand, link in pairs:
        faster = MigrationDemand(
            demand.memory_mib, 2.0 * demand.dirty_mib_per_s, demand.working_set_mib, demand.disk_mib, demand.zero_frac
        )
        first, second = (forecast(one, link, method) for one in (demand, faster))
        assert second.duration_s >= first.duration_s * (1.0 - 1e-9)


@given(
    st.builds(MigrationDemand, ODD, ODD, ODD, ODD, ODD), st.builds(Link, ODD, ODD, st.integers(-3, 9), ODD), ODD, ODD
)
def test_whatever_is_given_a_forecast_is_a_number(
    demand: MigrationDemand, link: Link, limit_s: float, setup_s: float
) -> None:
    for method in MigrationMethod:
        found = forecast(demand, link, method, 2, limit_s, setup_s)
        for value in (found.duration_s, found.downtime_s, found.total_mib, found.lost_s):
            assert value >= 0.0
        assert found.converges == math.isfinite(found.duration_s)
        assert 0.0 <= found.throttle_frac < 1.0
    chosen = choose(demand, link, MigrationLimits(limit_s, limit_s, setup_s), post_copy_allowed=True)
    assert (chosen.refusal == "") == (chosen.forecast is not None)
    chosen.terms(MigrationLimits(limit_s, limit_s, setup_s), limit_s)


@given(DEMANDS, LINKS, st.floats(1.0, 1e4), st.floats(1.0, 1e4), st.booleans())
def test_the_first_method_that_ends_in_time_is_chosen(
    demand: MigrationDemand, link: Link, limit_s: float, source_s: float, post_copy: bool
) -> None:
    limits = MigrationLimits(limit_s, source_s=source_s)
    found = choose(demand, link, limits, post_copy)
    verdicts = [reason.verdict for reason in found.reasons]
    assert verdicts.count(MethodVerdict.CHOSEN) == (found.forecast is not None)
    for reason in found.reasons:
        one = reason.forecast
        leaves_s = one.duration_s - (one.lost_s if one.method is MigrationMethod.POST_COPY else 0.0)
        ends = one.converges and one.duration_s <= limit_s and leaves_s <= source_s
        if reason.verdict is MethodVerdict.CHOSEN:
            assert ends
            assert reason.forecast == found.forecast
            break
        assert not ends or reason.verdict is MethodVerdict.NOT_ALLOWED
    if post_copy and found.forecast is None:
        last = forecast(demand, link, MigrationMethod.POST_COPY)
        assert last.duration_s > limit_s or last.source_s > source_s


NODES = ("a", "b", "c", "d")


@given(
    st.lists(
        st.builds(Transfer, st.sampled_from(NODES), st.sampled_from(NODES), st.just(math.inf) | st.integers(0, 200)),
        max_size=9,
    ),
    st.dictionaries(st.sampled_from(NODES), st.builds(NodeLink, st.integers(0, 300), st.integers(0, 300))),
)
def test_shares_are_those_of_progressive_filling(moves: list[Transfer], links: dict[str, NodeLink]) -> None:
    found = shares(moves, links)
    assert found == pytest.approx(np.array(_filled(moves, links)), rel=1e-9)


def _filled(moves: list[Transfer], links: dict[str, NodeLink]) -> list[float]:
    """One limit after the other, exactly."""
    capacities: dict[tuple[str, str], Fraction] = {}
    for name, link in links.items():
        capacities["out", name] = Fraction(link.sends_mib_per_s)
        capacities["in", name] = Fraction(link.receives_mib_per_s)
    rates: dict[int, Fraction | None] = {}
    while len(rates) < len(moves):
        active = [at for at in range(len(moves)) if at not in rates]
        limits: list[Fraction] = [
            Fraction(moves[at].most_mib_per_s) for at in active if moves[at].most_mib_per_s < math.inf
        ]
        for key, capacity in capacities.items():
            on = [at for at in range(len(moves)) if key in (("out", moves[at].source), ("in", moves[at].target))]
            users = [at for at in on if at in active]
            if users:
                taken = sum((rates[at] or Fraction(0) for at in on if at in rates), Fraction(0))
                limits.append((capacity - taken) / len(users))
        if not limits:
            rates |= dict.fromkeys(active)
            break
        level = min(limits)
        for at in active:
            keys = [key for key in (("out", moves[at].source), ("in", moves[at].target)) if key in capacities]
            full = False
            for key in keys:
                on = [x for x in range(len(moves)) if key in (("out", moves[x].source), ("in", moves[x].target))]
                taken = sum((rates[x] or Fraction(0) for x in on if x in rates and x not in active), Fraction(0))
                full = full or (capacities[key] - taken) / sum(x in active for x in on) == level
            if full or moves[at].most_mib_per_s <= level:
                rates[at] = level
    return [math.inf if rates[at] is None else float(rates[at] or 0) for at in range(len(moves))]
