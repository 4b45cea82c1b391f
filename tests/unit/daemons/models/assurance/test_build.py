"""Profiles from observations: calendars, whole numbers, the migration rule, what was not observed."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from daemons.models.assurance.aggregate import utility
from daemons.models.assurance.build import Series, needed_units, profile_of, profiles, series
from daemons.models.assurance.calendar import slot_count, slot_of
from daemons.models.assurance.correlation import measure
from daemons.models.assurance.migration import with_migration
from daemons.models.assurance.profile import Profile, from_demand, to_demand
from shared.base.errors import InvalidValue
from shared.values.reservation import Calendar, ResourceDemand, SlotDemand
from tests.support.assurance_cases import constant, one_slot, small_series

HOUR_S = 3_600.0
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("calendar", "when", "slot"),
    [
        (Calendar.HOUR_OF_DAY, "2026-03-04T13:59:59", 13),  # a Wednesday
        (Calendar.WORKDAYS, "2026-03-04T13:00:00", 13),
        (Calendar.WORKDAYS, "2026-03-07T00:00:00", 24),
        (Calendar.WORKDAYS, "2026-03-08T23:00:00", 47),
        (Calendar.HOUR_OF_WEEK, "2026-03-02T00:00:00", 0),
        (Calendar.HOUR_OF_WEEK, "2026-03-08T23:00:00", 167),
        (Calendar.HOUR_OF_WEEK, "1969-12-29T01:00:00", 1),
    ],
)
def test_slots_of_calendars(calendar: Calendar, when: str, slot: int) -> None:
    """Of days whose weekdays are known."""
    local_s = datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp()
    assert slot_of(np.array([local_s]), calendar, HOUR_S).tolist() == [slot]


def test_slots_divide_the_day() -> None:
    """Others are refused, and calendars of too many."""
    assert slot_count(Calendar.HOUR_OF_WEEK, 300.0) == 2_016
    for calendar, bad in ((Calendar.HOUR_OF_DAY, 7_000.0), (Calendar.HOUR_OF_DAY, 0.0), (Calendar.HOUR_OF_WEEK, 60.0)):
        with pytest.raises(InvalidValue, match="slot_s"):
            slot_count(calendar, bad)
    for bad in (np.nan, np.inf, -HOUR_S, 2.0 * DAY_S):
        with pytest.raises(InvalidValue, match="slot_s"):
            slot_count(Calendar.HOUR_OF_DAY, bad)


def test_needed_units_in_whole_numbers() -> None:
    """Where floating point has one too many: 4 CPUs at 15 % by 0.3 are 2, and so on; at least one always."""
    for target, percent, cpus, wanted in (
        (0.3, 15.0, 4, 2),
        (0.6, 30.0, 6, 3),
        (0.8, 40.0, 4, 2),
        (0.8, 56.0, 10, 7),
        (0.5, 50.000001, 4, 5),
        (0.5, 0.0, 8, 1),
        (1.0, 100.0, 8, 8),
    ):
        assert needed_units(np.array([percent]), np.array([cpus]), target).tolist() == [wanted]
    exact = [(target, percent, cpus) for target in (3, 6, 8) for percent in range(101) for cpus in (2, 4, 6, 8)]
    for target, percent, cpus in exact:
        wanted = max(1, -(-percent * cpus // (target * 10)))
        assert needed_units(np.array([float(percent)]), np.array([cpus]), target / 10.0).tolist() == [wanted]


def test_bad_utilisation() -> None:
    """NaN, negative, infinite; CPUs and targets that there are not."""
    one = np.array([1])
    for bad in (np.nan, -1.0, np.inf, 1e5):
        with pytest.raises(InvalidValue, match="utilisation"):
            needed_units(np.array([bad]), one, 0.5)
    for target in (0.0, 1.1, np.nan):
        with pytest.raises(InvalidValue, match="target"):
            needed_units(np.array([1.0]), one, target)
    with pytest.raises(InvalidValue, match="cpus"):
        needed_units(np.array([1.0]), np.array([-1]), 0.5)


def test_migration_rule_of_the_small_trace() -> None:
    """The first application's demand after it, in its ten days."""
    wanted = [3, 3, 3, 1, 1, 2, 2, 3, 3, 3, 3, 2, 2, 1, 2, 2, 3, 3, 3, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]
    assert small_series().with_migration().demand[0].tolist() == wanted


def test_migration_rule_passes_gaps_over() -> None:
    """What was not observed stays so and is nobody's neighbour."""
    demand = np.array([[4, -1, 1, 2]], dtype=np.int32)
    assert with_migration(demand).tolist() == [[4, -1, 2, 2]]
    assert with_migration(np.empty((2, 0), dtype=np.int32)).shape == (2, 0)


def test_one_demand_is_the_largest_of_its_samples() -> None:
    """In any order and in any number of pieces, as a plain loop has it."""
    rng = np.random.default_rng(2)
    times_s, numbers = rng.integers(0, 12 * int(DAY_S), 3_000).astype(np.float64), rng.integers(0, 5, 3_000)
    units = rng.integers(0, 9, 3_000)
    found = series(times_s, numbers, units, 6, Calendar.HOUR_OF_WEEK, 2.0 * HOUR_S, weekday=2)
    again = series(times_s, numbers, units, 6, Calendar.HOUR_OF_WEEK, 2.0 * HOUR_S, weekday=2, at_once=700)

    naive: dict[tuple[int, int], int] = {}
    for at_s, number, value in zip(times_s.tolist(), numbers.tolist(), units.tolist(), strict=True):
        key = (number, int(at_s // 7_200))
        naive[key] = max(naive.get(key, 0), value)
    table = {
        (number, int(instance)): int(found.demand[number, at])
        for number in range(6)
        for at, instance in enumerate(found.instance)
        if found.demand[number, at] >= 0
    }
    assert table == naive
    assert np.array_equal(found.demand, again.demand)
    assert found.slot.tolist() == [(2 + at // 12) % 7 * 12 + at % 12 for at in found.instance.tolist()]


def test_frequencies_and_slots_without_observation() -> None:
    """Frequencies where there are observations; the peak, marked by 0 observations, elsewhere."""
    demand, slot = np.array([1, 2, -1, 1, 5, -1], dtype=np.int32), np.array([0, 0, 1, 0, 2, 2])
    profile, unobserved = profile_of(demand, slot, 3)

    assert profile.observations.tolist() == [3, 0, 1]
    assert np.allclose(profile.pmf, np.array([[0, 2 / 3, 1 / 3, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1.0]]))
    assert unobserved == 1
    assert profile.peaks().tolist() == [2, 5, 5]
    with pytest.raises(InvalidValue, match="at least one"):
        profile_of(np.array([-1], dtype=np.int32), np.array([0]), 1)
    with pytest.raises(InvalidValue, match="a larger unit"):
        profile_of(np.array([100_000], dtype=np.int32), np.array([0]), 2_016)


def test_instances_that_nobody_has_are_passed_over() -> None:
    """As weekends are where a trace has none: Friday's last slot and Monday's first are neighbours."""
    friday_s, monday_s = 4.0 * DAY_S + 23.0 * HOUR_S, 7.0 * DAY_S
    found = series(np.array([friday_s, monday_s]), np.zeros(2, dtype=np.int64), np.array([1, 6]), 1, weekday=0)
    assert found.with_migration().demand.tolist() == [[6, 6]]
    assert found.between(0, 7 * 24).instance.tolist() == [119]
    assert found.missing == 0


def test_correlation_with_gaps() -> None:
    """By all pairs observed; a gap in one application leaves the others' products."""
    observed = small_series()
    demand = observed.demand.copy()
    demand[0, ::7] = -1
    gappy = type(observed)(demand, observed.instance, observed.slot, observed.slots)
    measured = measure(gappy)

    for slot in range(3):
        together = most = 0.0
        rows = demand[:, observed.slot == slot]
        for a in range(6):
            for b in range(a):
                both = (rows[a] >= 0) & (rows[b] >= 0)
                apart = [rows[c] - rows[c][rows[c] >= 0].mean() for c in (a, b)]
                sds = [rows[c][rows[c] >= 0].std() for c in (a, b)]
                together += float((apart[0] * apart[1])[both].sum())
                most += float(sds[0] * sds[1] * both.sum())
        assert measured.rho[slot] == pytest.approx(together / most)
    assert np.allclose(measured.mean, utility(profiles(gappy)).mean)
    assert measured.instances.tolist() == [10, 10, 10]
    assert np.isfinite(measured.normality_p).all()


def test_sums_with_gaps_are_tested() -> None:
    """Applications that come and go: together they are told from apart, though few instances have all of them; without
    gaps the figures are those of the plain sums."""
    rng = np.random.default_rng(5)
    common, gone = rng.normal(size=400), rng.random((20, 400)) < 0.2
    slot = np.zeros(400, dtype=np.int64)
    for weight, wanted in ((0.0, False), (0.5, True)):
        drawn = np.rint(9.0 + 2.0 * (weight * common + rng.normal(size=(20, 400)))).astype(np.int32)
        full = Series(drawn, np.arange(400), slot, 1)
        plain, measured = measure(full), measure(Series(np.where(gone, -1, drawn), np.arange(400), slot, 1))
        sums = drawn.sum(axis=0)

        assert (~gone).all(axis=0).sum() < 20
        assert bool(measured.independence_p[0] < 1e-6) == wanted
        assert measured.rho[0] == pytest.approx(plain.rho[0], abs=0.05)
        assert measured.normality_p[0] > 0.01
        assert plain.normality_p[0] == pytest.approx(stats.jarque_bera(sums).pvalue)
        statistic = 400 * sums.var() / drawn.var(axis=1).sum()
        assert plain.independence_p[0] == pytest.approx(stats.chi2.sf(statistic, 399))


def test_bad_samples() -> None:
    """NaN and infinite times, negative and huge demands, applications that there are not, columns unlike."""
    zero = np.zeros(1, dtype=np.int64)
    for bad in (np.nan, np.inf, -np.inf, 1e13):
        with pytest.raises(InvalidValue, match="local_s"):
            series(np.array([bad]), zero, zero, 1)
    for units in (-1, 100_001):
        with pytest.raises(InvalidValue, match="units"):
            series(np.zeros(1), zero, np.array([units]), 1)
    for number in (-1, 1):
        with pytest.raises(InvalidValue, match="application"):
            series(np.zeros(1), np.array([number]), zero, 1)
    with pytest.raises(InvalidValue, match="columns"):
        series(np.zeros(2), zero, zero, 1)
    with pytest.raises(InvalidValue, match="slots"):
        series(np.array([0.0, 1e12]), np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64), 1)
    assert series(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 3).demand.shape == (3, 0)


def test_profiles_are_checked() -> None:
    """What is no distribution; arrays cannot be written to."""
    zero = np.zeros(1, dtype=np.int64)
    none: list[float] = []
    for bad in ([0.5, 0.4], [-0.5, 1.5], [np.nan, 1.0], [np.inf, 0.0], none):
        with pytest.raises(InvalidValue, match="pmf"):
            Profile(np.array([bad]), zero)
    with pytest.raises(InvalidValue, match="pmf"):
        Profile(np.array([0.5, 0.5]), zero)
    with pytest.raises(InvalidValue, match="observations"):
        Profile(np.array([[1.0]]), np.array([-1]))
    with pytest.raises(InvalidValue, match="unit"):
        Profile(np.array([[1.0]]), zero, unit=0.0)
    with pytest.raises(ValueError, match="read-only"):
        one_slot(1.0).pmf[0, 0] = 0.0


def test_there_and_back() -> None:
    """What a reservation announces becomes a profile and again the same."""
    slots = (SlotDemand((0.25, 0.75), 35), SlotDemand((0.0, 0.0, 0.0, 1.0), 0))
    demand = ResourceDemand("cpu", slots, unit=100.0)
    profile = from_demand(demand)

    assert to_demand(profile) == demand
    assert profile.units == 3
    assert profile.mean().tolist() == [0.75, 3.0]
    assert profile.variance().tolist() == [0.1875, 0.0]


def test_layers_are_parts_of_the_demand() -> None:
    """Of {0: .1, 1: .2, 2: .3, 3: .4}, the first unit and what is above it."""
    whole = one_slot(0.1, 0.2, 0.3, 0.4)
    lower, upper = whole.layer(0, 1), whole.layer(1)

    assert lower.pmf.tolist() == [pytest.approx([0.1, 0.9])]
    assert upper.pmf.tolist() == [pytest.approx([0.3, 0.3, 0.4])]
    assert lower.mean() + upper.mean() == pytest.approx(whole.mean())
    assert constant(3, 2).layer(3).peaks().tolist() == [0, 0]
    for bad in ((-1, 2), (3, 2)):
        with pytest.raises(InvalidValue, match="lower"):
            whole.layer(*bad)
