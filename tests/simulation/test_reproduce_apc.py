"""The experiments of apc.txt: the whole of One, small parts of Two to Five, and every claim over one seed (five, as
`trimtab sim reproduce apc` takes by default, are a quarter of an hour of a slow core)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sim_backend.experiments.apc import equal, hypothetical, mixed, random
from sim_backend.experiments.apc.paper import PAPER
from sim_backend.experiments.apc.runs import utility
from sim_backend.experiments.apc.settings import (
    APC,
    APC_STARTS,
    EDF,
    FACTORS,
    FCFS,
    JOB_MHZ,
    RANDOM_FACTORS,
    WEB_MAX_MHZ,
    jobs_five,
    jobs_four,
    jobs_three,
    jobs_two,
    web_utility,
)
from sim_backend.experiments.catalogue import Reproduction, reproduce
from sim_backend.experiments.experiment import Row

SEEDS = 1


def broken(rows: Sequence[Row]) -> list[Row]:
    """The rows whose claim does not hold."""
    return [row for row in rows if row.holds is False]


def by_id(rows: Sequence[Row]) -> dict[str, Row]:
    """Rows by their name, which is theirs alone."""
    found = {row.id: row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def one() -> Sequence[hypothetical.Played]:
    """Both scenarios of Experiment One."""
    return [hypothetical.play_one(scenario) for scenario in hypothetical.SCENARIOS]


# --- Experiment One ----------------------------------------------------------------------------------------------


def test_one_decides_as_the_paper(one: Sequence[hypothetical.Played]) -> None:
    """S1 leaves J1 alone in cycle 2, S2 halves it for J2, with the stated utilities."""
    rows = by_id(hypothetical.rows_one(one))
    assert broken(list(rows.values())) == []
    assert rows["one.S1.P1"].ours == "0.6958 / 0.6958"
    assert rows["one.S1.P2"].ours == "0.7000 / 0.6875"
    assert rows["one.S2.P1"].ours == "0.6581 / 0.6581"
    assert rows["one.S2.P2"].ours == "0.7000 / 0.5833"
    assert (rows["one.S1.chosen"].ours, rows["one.S2.chosen"].ours) == ("J1 1000", "J1 500, J2 500")
    assert (rows["one.S1.chosen"].why, rows["one.S2.chosen"].why) == (
        "predicted 0.7000 / 0.6875",
        "predicted 0.6581 / 0.6581",
    )


def test_one_tells_every_cycle_until_all_jobs_end(one: Sequence[hypothetical.Played]) -> None:
    """Work done and left add up, no cycle is missing, and nobody is given more than the node has."""
    for played in one:
        assert all(end is not None for end in played.ends_s.values())
        cycles = [line["cycle"] for line in played.lines]
        assert sorted(set(cycles)) == list(range(1, max(cycles) + 1))
        for cycle in set(cycles):
            lines = [line for line in played.lines if line["cycle"] == cycle]
            assert sum(line["mhz"] for line in lines) <= 1_000.0
            assert all(line["left_mcycles"] + line["done_mcycles"] in (4_000.0, 2_000.0) for line in lines)
        assert sum(line["mhz"] for line in played.lines) == pytest.approx(10_000.0)  # all the work, at 1 s a cycle


# --- Experiments Two and Three -----------------------------------------------------------------------------------


@pytest.mark.accept
def test_two_leaves_identical_jobs_alone() -> None:
    """Given a queue of identical jobs, then nobody is suspended or moved, and all rivals end the same jobs at the same
    times."""
    seed = equal.play_two(1, 200)
    for rival in (APC, APC_STARTS):
        ran = seed.ran[rival.label]
        assert max(cycle.jobs for cycle in ran.cycles) > 80
        assert set(ran.operations) <= {"start", "resize"}
        assert max(cycle.placed for cycle in ran.cycles) == 75
    rows = by_id(equal.rows_two([seed]))
    assert all(row.holds for key, row in rows.items() if key.startswith("two.same"))
    assert rows["two.best"].holds
    assert rows["two.completed"].holds is False  # of 200 jobs: the row does not pass for everything


@pytest.mark.accept
def test_three_prefers_tight_goals() -> None:
    """Given jobs that differ in their goals alone, then the least utility at the tightest is not below that of FCFS."""
    seed = equal.play_three(0, 150)
    ours, other = seed.ran[APC.label], seed.ran[FCFS.label]
    assert len(ours.completed) == len(other.completed) == 150
    assert {equal.factor_of(run) for run in ours.runs} == set(FACTORS)
    least = equal.least_utility(ours, 1.9)
    assert least >= equal.least_utility(other, 1.9) - 0.005
    assert least == min(utility(run) for run in ours.completed if equal.factor_of(run) == 1.9)


# --- Experiment Four ---------------------------------------------------------------------------------------------


@pytest.mark.accept
def test_four_ends_with_so_many_completions() -> None:
    """Given a crowded cluster, then each is judged by the first jobs that it completed, and FCFS is the worst."""
    outcomes = [random.play_four(0, 50.0, rival, 150) for rival in (APC, EDF, FCFS)]
    assert all(150 <= len(each.done) < 160 for each in outcomes)
    met = {each.label: each.met_percent for each in outcomes}
    assert met["FCFS"] <= min(met["APC"], met["EDF"])
    assert outcomes[2].changes == 0


def test_four_draws_the_same_jobs_at_every_rate() -> None:
    """Given one seed, then rates differ in times alone."""
    slow, fast = jobs_four(3, 400.0, 50), jobs_four(3, 50.0, 50)
    assert [job.stages for job in slow] == [job.stages for job in fast]
    assert [job.submit_s for job in slow] == pytest.approx([8 * job.submit_s for job in fast])
    runs = random.play_four(3, 400.0, FCFS, 30).done
    jobs = {job.name: job for job in jobs_four(3, 400.0)}
    for run in runs:
        shortest_s = jobs[run.name].work_mcycles / jobs[run.name].max_mhz
        assert (run.goal_s or 0.0) - run.submit_s == pytest.approx(random.factor_of(run) * shortest_s)
    assert {random.factor_of(run) for run in runs} == set(RANDOM_FACTORS)


# --- Experiment Five ---------------------------------------------------------------------------------------------


def test_five_values_cpu_as_figure_18() -> None:
    """Utility 0 at 50,000 MHz, 0.66 at 130,000 MHz, and nothing gained above."""
    assert web_utility(50_000.0) == pytest.approx(0.0, abs=1e-12)
    assert web_utility(130_000.0) == pytest.approx(0.66)
    assert web_utility(200_000.0) == web_utility(130_000.0)


@pytest.mark.accept
def test_five_equalises() -> None:
    """Given more jobs than fit beside the web application's best, then both end at one utility."""
    ran = mixed.play_five(1, 130, 0)
    shared = [cycle for cycle in ran.cycles if mixed.contended(cycle)]
    assert shared
    assert max(map(mixed.gap, shared)) <= mixed.EQUAL
    assert ran.cycles[0].web_mhz == pytest.approx(WEB_MAX_MHZ)
    assert max(cycle.jobs_mhz for cycle in shared) <= 75 * JOB_MHZ


# --- workloads ---------------------------------------------------------------------------------------------------


def test_workloads_are_those_of_the_paper() -> None:
    """Mean gaps, goal factors and their shares, within three deviations."""
    submits = [job.submit_s for job in jobs_two(0)]
    assert len(submits) == 800
    assert submits[-1] / 800 == pytest.approx(260.0, abs=3 * 260 / 800**0.5)
    assert all((job.goal_s or 0) - job.submit_s == pytest.approx(47_520.0) for job in jobs_two(0))
    three = jobs_three(0, 4_000)
    shares = [
        sum(abs(((job.goal_s or 0) - job.submit_s) / 17_600 - factor) < 1e-6 for job in three) / 4_000
        for factor in FACTORS
    ]
    assert shares == pytest.approx([0.3 / 1.1, 0.4 / 1.1, 0.4 / 1.1], abs=0.03)
    five = [job.submit_s for job in jobs_five(0)]
    assert five[:600] == submits[:600]
    assert (five[-1] - five[599]) / (submits[-1] - submits[599]) == pytest.approx(350 / 260)


# --- all of it ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """All five experiments with one seed, and the figures."""
    return reproduce(PAPER, tuple(PAPER.experiments), SEEDS, tmp_path_factory.mktemp("figures"))


@pytest.mark.accept
def test_every_claim_holds(everything: Reproduction) -> None:
    """Given seed 0, then every judged row of every experiment holds."""
    assert broken(everything.rows) == []
    assert len(by_id(everything.rows)) > 60


@pytest.mark.accept
def test_every_figure_is_drawn(everything: Reproduction) -> None:
    """Figures 1, 2, 5 and 9 to 20 are there."""
    numbers = {path.stem.removeprefix("apc-figure-") for path in everything.pictures}
    assert {"1", "2", "5", *map(str, range(9, 21)), "17-utility"} <= numbers
    assert all(Path(path).stat().st_size > 5_000 for path in everything.pictures)
