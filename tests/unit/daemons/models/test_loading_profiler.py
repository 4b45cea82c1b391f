"""What is made of samples, copies and probes: the loading vector of the job alone, however it was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from daemons.models.dilation import product_form
from daemons.models.dilation.inverse import regressed
from daemons.models.loading_history import (
    HALF_LIFE_S,
    PACES_ALIKE_MAX,
    CopyTime,
    LoadingHistory,
    PaceSample,
    ProbePart,
    Running,
    Shares,
    with_copies,
    with_pace,
    with_probe,
    with_shares,
)
from daemons.models.loading_profiler import (
    Demand,
    Reading,
    Status,
    alone,
    converted,
    copies_part,
    declared,
    pace_of,
    probe_part,
    profile_of,
    servers_of,
)
from shared.values.load_vector import Loading

ELAPSED_S = 30.0


def shared_readings(parts: list[tuple[float, float]], servers: int = 1) -> list[Reading]:
    """What counters say of jobs with these parts (CPU, disk) that each have CPUs of their own and share the disk."""
    slowed = product_form.dilation([[io] for _, io in parts], [servers])
    readings = []
    for (cpu, io), dilation in zip(parts, slowed.tolist(), strict=True):
        work_s = ELAPSED_S / dilation
        readings.append(Reading(cpu * work_s, io * work_s + ELAPSED_S - work_s))
    return readings


def parts_of(readings: list[Reading], found: list[Reading]) -> list[tuple[float, float]]:
    alone_s = [ELAPSED_S - raw.io_s + each.io_s for raw, each in zip(readings, found, strict=True)]
    return [(each.cpu_s / all_s, each.io_s / all_s) for each, all_s in zip(found, alone_s, strict=True)]


# --- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [[(0.3, 0.6), (0.5, 0.4)], [(0.0, 1.0), (0.0, 1.0)], [(0.9, 0.1), (0.1, 0.8)]])
def test_of_two_jobs_the_time_alone_is_found_exactly(parts: list[tuple[float, float]]) -> None:
    """Given two jobs that share a disk, then their parts are those that they have alone, not those that were seen."""
    readings = shared_readings(parts)

    found = parts_of(readings, alone(readings, ELAPSED_S))

    assert np.array(found) == pytest.approx(np.array(parts), abs=2e-3)


def test_of_more_jobs_it_is_found_nearly() -> None:
    """Given seeded sets of three to six jobs, then every part at the disk is within 0.1 of the true one, and much
    nearer than what was seen."""
    rng = np.random.default_rng(4)
    for count in (3, 4, 5, 6):
        parts = [(float(each) * 0.5, 1.0 - float(each)) for each in rng.uniform(0.3, 1.0, count)]
        readings = shared_readings(parts)
        errors = [
            abs(io - true) for (_, io), (_, true) in zip(parts_of(readings, alone(readings, 30.0)), parts, strict=True)
        ]
        seen = [abs(each.io_s / ELAPSED_S - true) for each, (_, true) in zip(readings, parts, strict=True)]

        assert max(errors) < 0.1
        assert max(errors) < max(seen) / 2.0


def test_a_disk_of_several_servers_makes_nobody_wait() -> None:
    readings = [Reading(10.0, 20.0), Reading(5.0, 25.0)]

    assert alone(readings, ELAPSED_S, servers=2.0) == readings


def test_others_than_vms_are_waited_for_too() -> None:
    """Given one VM beside something of the host that always is at the disk, then half of its time there was waiting."""
    assert alone([Reading(0.0, 20.0)], ELAPSED_S, others=1.0)[0].io_s == pytest.approx(10.0)


def test_of_more_seconds_than_there_were_the_disk_has_its_own() -> None:
    """Given a job that computes while its requests are served, then all of the time at the disk counts."""
    assert alone([Reading(30.0, 20.0)], ELAPSED_S) == [Reading(10.0, 20.0)]
    assert alone([Reading(30.0, 60.0, 30.0)], ELAPSED_S) == [Reading(0.0, 20.0, 10.0)]


# --- observations -----------------------------------------------------------------------------------------------------


def history(*parts: float, noise: float = 0.0, seed: int = 0, known: LoadingHistory | None = None) -> LoadingHistory:
    """A history of observations with these parts at the disk, each over 300 s."""
    made, rng = known or LoadingHistory(), np.random.default_rng(seed)
    for at, part in enumerate(parts):
        io = float(np.clip(part + rng.normal(0.0, noise), 0.0, 1.0)) if noise else part
        made = with_shares(made, Shares((0.2, io, 0.0), 300.0), float(at))[0]
    return made


def test_mean_and_spread_are_those_of_weighted_observations() -> None:
    """Given observations of different lengths, then mean and deviation are as computed from all of them at once."""
    rng = np.random.default_rng(1)
    values, seconds = rng.uniform(0.0, 1.0, 40), rng.uniform(30.0, 300.0, 40)
    running = Running()
    for value, length in zip(values.tolist(), seconds.tolist(), strict=True):
        running = running.with_shares(Shares((value, 0.0, 0.0), length))
    since = seconds[::-1].cumsum()[::-1] - seconds
    weights = seconds * 0.5 ** (since / HALF_LIFE_S)
    mean = float((weights * values).sum() / weights.sum())

    assert running.mean[0] == pytest.approx(mean)
    assert running.spread[0] == pytest.approx(float((weights * (values - mean) ** 2).sum()))
    assert running.effective == pytest.approx(float(weights.sum() ** 2 / (weights**2).sum()))


def test_a_profile_counts_once_it_is_known_well_enough() -> None:
    """Given too few observations, or too different ones, then they do not count; more of them do."""
    assert profile_of(history(0.5, 0.52)).status is Status.MEASURING
    assert profile_of(history(0.1, 0.9, 0.1, 0.9)).status is Status.MEASURING

    good = profile_of(history(0.48, 0.5, 0.52, 0.5))

    assert (good.status, good.counts, good.observations) == (Status.MEASURED, True, 4)
    assert good.vector == pytest.approx((0.2, 0.5, 0.0), abs=1e-3)
    assert 0.02 < good.parts[1].half_width < 0.03  # t(3) x 0.0163 / 2
    assert [part.source for part in good.parts] == ["samples", "samples", "samples"]


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Given 400 seeded histories of 12 observations, then the true part is within the interval in 93 to 97 %."""
    inside = 0
    for seed in range(400):
        part = profile_of(history(*[0.5] * 12, noise=0.05, seed=seed)).parts[1]
        inside += abs(part.value - 0.5) <= part.half_width

    assert 0.93 <= inside / 400 <= 0.975


# --- drift ------------------------------------------------------------------------------------------------------------


def drifts(parts: list[float], noise: float, seed: int) -> list[int]:
    """At which observations a history drifted."""
    known, found, rng = LoadingHistory(), [], np.random.default_rng(seed)
    for at, part in enumerate(parts):
        io = float(np.clip(part + rng.normal(0.0, noise), 0.0, 1.0))
        known, drifted = with_shares(known, Shares((0.2, io, 0.0), 300.0), float(at))
        found += [at] if drifted else []
    return found


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.6), (0.6, 0.3)])
def test_a_class_that_changes_is_noticed_soon_and_learnt_anew(before: float, after: float) -> None:
    """Given jobs that begin to use the disk twice, or half as much, then within ten observations that is a drift, and
    the profile is that of the new ones."""
    for seed in range(20):
        found = drifts([before] * 40 + [after] * 10, 0.05, seed)
        assert len(found) == 1
        assert 40 <= found[0] < 50

    fresh = history(*[before] * 40, *[after] * 12, noise=0.05)
    assert (fresh.drifts, fresh.copies, fresh.probes) == (1, (), ())
    assert profile_of(fresh).vector[1] == pytest.approx(after, abs=0.05)


def test_noise_and_single_outliers_are_no_drift() -> None:
    """Given 20 histories of 250 observations without a change, and one with an outlier now and then, then at most one
    of them drifts at all."""
    assert sum(bool(drifts([0.4] * 250, 0.05, seed)) for seed in range(20)) <= 1
    assert drifts(([0.4] * 19 + [0.9]) * 6, 0.05, 3) == []


def test_jobs_of_a_class_that_differ_are_not_one_drift_after_the_other() -> None:
    """Given 20 jobs, of nine observations each, that are at the disk 0.6 of their time give or take 0.1, then there are
    three false alarms, not one for every second job; and a change that comes hours after is noticed in an hour."""
    found = []
    for seed in range(20):
        parts = np.clip(np.random.default_rng([seed, 5]).normal(0.6, 0.1, 20), 0.0, 1.0)
        found.append(len(drifts(np.repeat(parts, 9).tolist(), 0.01, seed)))
    assert np.mean(found) < 4.0

    twice = drifts([0.3] * 40 + [0.6] * 80 + [0.3] * 20, 0.05, 1)
    assert len(twice) == 2
    assert twice[1] < 120 + 12


def test_what_copies_and_probes_told_before_a_drift_is_forgotten() -> None:
    known = with_probe(with_copies(history(*[0.3] * 10), CopyTime(1.0, 0.01, 1.0)), ProbePart("io", 0.3, 2.0))

    assert history(*[0.9] * 6, known=known).probes == ()


# --- copies -----------------------------------------------------------------------------------------------------------


def times(part: float, most: int, noise: float = 0.0, seed: int = 0) -> list[CopyTime]:
    """What up to `most` copies of a job take for a Mcycle, each number twice."""
    rng = np.random.default_rng(seed)
    made = []
    for count in range(1, most + 1):
        slowed = 1.0 + (count - 1) * part**2
        made += [CopyTime(float(count), 0.002 * slowed * (1.0 + rng.normal(0.0, noise)), 1.0) for _ in range(2)]
    return made


@pytest.mark.parametrize("part", [0.1, 0.4, 0.7, 1.0])
def test_copies_tell_the_part_at_the_disk(part: float) -> None:
    """Given times of 1 to 4 copies, then the part is found, with an interval that holds it, and is the root of the
    slope that Algorithm 1 finds by regression."""
    found = copies_part(times(part, 4, 0.01))

    assert found.value == pytest.approx(part, abs=0.06)
    assert abs(found.value - part) <= found.half_width
    neutral = sum(each.s_per_mcycle for each in times(part, 1, 0.01)) / 2
    slope = regressed(
        [int(each.copies) for each in times(part, 4, 0.01)],
        [each.s_per_mcycle / neutral for each in times(part, 4, 0.01)],
    )
    assert found.value == pytest.approx(math.sqrt(max(0.0, slope.value)), abs=0.01)


def test_copies_that_never_ran_alone_or_only_alone_tell_nothing() -> None:
    assert copies_part(times(0.5, 1)).observations == 0
    assert copies_part([each for each in times(0.5, 3) if each.copies > 1.0]).observations == 0


def test_copies_on_a_disk_of_two_servers() -> None:
    """Given three copies that take half as long again, then the job is at the disk all the time."""
    slowed = [CopyTime(1.0, 0.01, 1.0), CopyTime(2.0, 0.01, 1.0), CopyTime(3.0, 0.015, 1.0)]

    assert copies_part(slowed, 2.0).value == pytest.approx(1.0, abs=0.01)
    assert copies_part(slowed, 1.0).value < 0.6


# --- probes and paces -------------------------------------------------------------------------------------------------


def test_a_probe_tells_a_part_by_how_much_it_is_slowed() -> None:
    """Property 3; with two copies on two servers the job shares a server with one of them."""
    assert probe_part(300.0, 200.0) == pytest.approx(0.5)
    assert probe_part(300.0, 310.0) == 0.0
    assert probe_part(300.0, 0.0) == probe_part(300.0, 100.0) == 1.0
    assert probe_part(600.0, 500.0, 2) == pytest.approx(0.4)


def test_a_probe_goes_before_samples_and_the_surest_before_the_first() -> None:
    """Given samples of one part and a probe of another, then the probe's counts, beside the others' of the samples."""
    known = with_probe(history(*[0.5] * 6), ProbePart("io", 0.7, 9.0))
    told = profile_of(known)
    assert [part.source for part in told.parts] == ["samples", "probe", "samples"]
    assert told.vector == pytest.approx((0.2, 0.7, 0.0))
    unsure = with_probe(with_probe(known, ProbePart("io", 0.1, 9.0)), ProbePart("io", 0.9, 9.0))
    assert profile_of(unsure).parts[1].source == "samples"
    assert profile_of(replace(known, copies=tuple(times(0.6, 4)), probes=())).parts[1].source == "copies"


def test_parts_never_sum_to_more_than_one() -> None:
    told = profile_of(with_probe(history(*[0.5] * 6), ProbePart("cpu", 1.0, 9.0)))

    assert sum(told.vector) == pytest.approx(1.0)


def test_paces_are_medians_of_the_newest_and_tell_servers() -> None:
    """Given 100 units/s of one copy, one reading far off, and 390 of four, then four are served at a time."""
    paces: tuple[PaceSample, ...] = ()
    for at, (copies, pace) in enumerate([(1, 99.0), (1, 100.0), (1, 5.0), (1, 101.0), (1, 100.0), (4, 390.0)]):
        paces = with_pace(paces, PaceSample("io", copies, pace, float(at)))

    assert pace_of(paces, "io") == 100.0
    assert (servers_of(paces, "io"), servers_of(paces, "cpu"), servers_of((), "io")) == (4, 1, 1)
    for at in range(PACES_ALIKE_MAX):
        paces = with_pace(paces, PaceSample("io", 1, 200.0, 10.0 + at))
    assert pace_of(paces, "io") == 200.0
    assert pace_of(paces, "io", 4) == 390.0
    assert servers_of((PaceSample("io", 1, 1e-300, 1.0), PaceSample("io", 2, 1e300, 1.0)), "io") == 2


# --- node types -------------------------------------------------------------------------------------------------------


def paced(cpu: float, io: float) -> tuple[PaceSample, ...]:
    return PaceSample("cpu", 1, cpu, 1.0), PaceSample("io", 1, io, 1.0)


def test_a_profile_of_another_node_type_is_converted_by_the_standard_jobs() -> None:
    """Given a node whose disk is twice as fast, then a job that is at the disk half of its time, and at the CPU a
    quarter, spends a third of its time at each there."""
    known = profile_of(
        replace(history(*[0.5] * 6), samples=replace(history(*[0.5] * 6).samples, mean=(0.25, 0.5, 0.0)))
    )

    there = converted(known, "old", paced(10.0, 100.0), paced(10.0, 200.0))

    assert (there.status, there.origin, there.scaled, there.counts) == (Status.CONVERTED, "old", True, True)
    assert there.vector == pytest.approx((1 / 3, 1 / 3, 0.0))
    as_it_is = converted(known, "old", paced(10.0, 100.0), ())
    assert (as_it_is.vector, as_it_is.scaled) == (known.vector, False)


def test_what_is_declared_counts_as_it_is() -> None:
    told = declared(Loading((("io", 0.4), ("cpu", 0.6))))

    assert (told.vector, told.status, told.counts) == ((0.6, 0.4, 0.0), Status.DECLARED, True)


def test_demands_are_heeded() -> None:
    known = history(0.48, 0.5, 0.52, 0.5)

    assert profile_of(known, Demand(observations_min=5)).status is Status.MEASURING
    assert profile_of(known, Demand(half_width_max=0.01)).status is Status.MEASURING
