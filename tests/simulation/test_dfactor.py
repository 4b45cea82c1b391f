"""`trimtab sim reproduce dfactor`: the printed figures, scheduling on many sets, and the real measurement, shortly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemons.capacity.process_pool import Work
from daemons.models.dilation import inverse, product_form
from daemons.models.dilation.list_scheduling import Rule
from shared.base.clock import SystemClock
from sim_backend.experiments import catalogue
from sim_backend.experiments.dilation.figures import compute, rows_figures, tables_figures
from sim_backend.experiments.dilation.measured import (
    FORMULA,
    LINEAR,
    PROBED,
    PRODUCT_FORM,
    SETS,
    Measured,
    Measuring,
    Runs,
    compared,
    dilations,
    disturbance,
    error,
    measure,
    parallelism,
    servers,
    shares,
    work_measured,
)
from sim_backend.experiments.dilation.measured_rows import rows_measured, tables_measured
from sim_backend.experiments.dilation.rig import Set
from sim_backend.experiments.dilation.scheduling import KINDS, OPTIMUM, rows_scheduling, schedule, work_scheduling
from sim_backend.experiments.dilation.workers import Counted, Reading, Window, WorkKind, count
from sim_backend.experiments.experiment import Experiment, Paper, Row

SHORT = Measuring(runs=2, profile_runs=1, window_s=0.05, file_mib=16, settle_s=0.02, sizes=(1, 2), copies=(1, 2))
WRONG = {"6-mail-2", "8-gain"}  # printed figures that do not follow from the paper's own


def by_id(rows: Sequence[Row]) -> dict[str, Row]:
    """Rows by their id."""
    return {row.id: row for row in rows}


# --- printed figures -------------------------------------------------------------------------------------------------


def test_every_printed_figure_that_follows_from_the_papers_own_is_found() -> None:
    rows = by_id(rows_figures([compute()]))
    assert {id for id, row in rows.items() if row.holds is False} == WRONG
    assert all(rows[id].why for id in WRONG)
    found = {id: row.ours for id, row in rows.items()}
    assert found["5-part"] == pytest.approx(0.5839, abs=1e-4)
    assert found["5-io"] == pytest.approx(110.874, abs=1e-3)
    assert (found["6-server"], found["6-mail"]) == (458.099, 87.6192)
    assert (found["6-server-2"], found["6-mail-2"]) == (497.31, 125.755)
    assert [found[f"7b-{name}"] for name in ("Sort", "Grep", "PiEstimator")] == pytest.approx([112.0, 168.0, 163.0])
    assert (found["8-list"], found["8-vectors"]) == (290.56, 221.12)
    assert found["8-gain"] == pytest.approx(23.9, abs=0.01)


def test_table_3_says_when_each_job_ends() -> None:
    (lines,) = tables_figures([compute()]).values()
    assert [line["ends_s by vectors"] for line in lines] == [161.12, 115.83, 180.0, 221.12]
    assert [line["machine by vectors"] for line in lines] == [1, 1, 2, 1]


# --- scheduling ------------------------------------------------------------------------------------------------------


@pytest.mark.accept
def test_composed_times_beat_plain_list_scheduling_on_sets_of_every_kind() -> None:
    results = [schedule(0, kind, 4) for kind in range(len(KINDS))]
    for each in (each for piece in results for each in piece):
        least = each.makespans_s[OPTIMUM]
        assert all(makespan_s >= least * (1.0 - 1e-9) for makespan_s in each.makespans_s.values())
    gains = {row.id: row.ours for row in rows_scheduling(results)}
    assert gains["sets-equal-pure"] == pytest.approx(9.09, abs=0.01)  # of four sets; `make full` has a hundred
    assert all(isinstance(gain, float) and gain > -5.0 for gain in gains.values())
    assert schedule(0, 2, 1) == schedule(0, 2, 1)
    assert len(work_scheduling(5)) == 5 * len(KINDS)


@pytest.mark.accept
def test_a_hundred_sets_of_every_kind() -> None:
    """Never above plain list scheduling on average, and at least 12 % below for equal sizes and pure loads."""
    rows = rows_scheduling([schedule(seed, kind) for seed in range(5) for kind in range(len(KINDS))])
    assert [row.id for row in rows if not row.holds] == []


# --- the measurement: what is made of it -----------------------------------------------------------------------------


def made_up(disk_servers: int = 1, speed: float = 1.0) -> Measured:
    """A machine that obeys the product form, where STD-I/O is on the CPU for 0.2 of its time. While several run, its
    core has so many times the speed that it has while one does."""
    vectors = {WorkKind.CPU: (1.0, 0.0), WorkKind.IO: (0.2, 0.8), WorkKind.FILES: (0.6, 0.3)}
    paces = {WorkKind.CPU: 1000.0, WorkKind.IO: 4000.0, WorkKind.FILES: 500.0}

    def counted(kind: WorkKind, pace: float, slowed: float, speed: float) -> Counted:
        cpu, io = (0.9 * part for part in vectors[kind])
        longer = slowed * (1.0 - cpu + cpu / speed)
        return Counted(pace / longer, cpu / speed / longer, 0.1, io / longer)

    def runs(sets: Sequence[Set], rounds: int) -> Runs:
        found: dict[Set, list[list[Counted]]] = {}
        for together in sets:
            slowed = product_form.dilation([vectors[kind] for kind in together], [1, disk_servers]).tolist()
            now = speed if len(together) > 1 else 1.0
            found[together] = [
                [
                    counted(kind, paces[kind] * (1.0 + 0.1 * number), by, now)
                    for kind, by in zip(together, slowed, strict=True)
                ]
                for number in range(rounds)
            ]
        return found

    copies = tuple((kind,) * n for kind in (WorkKind.CPU, WorkKind.IO) for n in (1, 2, 4))
    return Measured(2, True, runs((*copies, *PROBED), 2), runs([*SETS[1], *SETS[2], *SETS[3]], 10))


def test_profiles_are_parts_of_the_time_in_which_it_could_run() -> None:
    found = made_up()
    assert shares(found.profiled, WorkKind.FILES) == pytest.approx((0.6, 0.3, 0.1))
    assert shares(found.profiled, WorkKind.CPU) == pytest.approx((1.0, 0.0, 0.0))


@pytest.mark.parametrize("disk_servers", [1, 2, 4])
def test_how_many_requests_a_resource_serves_at_a_time_is_found_though_all_share_a_core(disk_servers: int) -> None:
    found = made_up(disk_servers)
    assert servers(found.profiled, WorkKind.IO) == disk_servers
    assert servers(found.profiled, WorkKind.CPU) == 1
    assert parallelism(found.profiled, WorkKind.CPU, 4) == pytest.approx(1.0)


def test_drift_that_hits_all_alike_is_no_dilation() -> None:
    (cpu,) = dilations(made_up().runs, (WorkKind.CPU, WorkKind.CPU))
    assert (cpu.over.value, cpu.half) == pytest.approx((2.0, 0.0), abs=1e-9)
    assert cpu.over.samples == 10


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_how_fast_the_machine_is_meanwhile_is_no_dilation(speed: float) -> None:
    """Given a core that has another speed while several run, so that a unit takes another CPU time, then they are
    slowed by one another as ever; by the clock they are not."""
    found, usual = made_up(speed=speed), made_up()
    for together in (*SETS[2], *SETS[3]):
        for ours, other in zip(dilations(found.runs, together), dilations(usual.runs, together), strict=True):
            assert ours.over.value == pytest.approx(other.over.value)
    assert parallelism(found.profiled, WorkKind.IO, 4) == pytest.approx(parallelism(usual.profiled, WorkKind.IO, 4))
    (cpu,) = dilations(found.runs, (WorkKind.CPU, WorkKind.CPU))
    assert cpu.by_clock == pytest.approx(2.0 * (0.1 + 0.9 / speed))


def test_what_else_had_the_core_is_told_from_those_that_are_measured() -> None:
    """Given two that want the core all the time and have a third of it each, then something else has the last third;
    given one that is blocked meanwhile, nothing."""
    third, half = Counted(1.0, 1 / 3, 2 / 3, 0.0), Counted(1.0, 0.5, 0.5, 0.0)
    assert disturbance([third, third]) == pytest.approx(1 / 3)
    assert disturbance([half, half]) == disturbance([half, Counted(1.0, 0.5, 0.1, 0.4)]) == 0.0
    assert disturbance([Counted(1.0, 0.9, 0.1, 0.0)]) == pytest.approx(0.1)


def test_each_model_is_judged_by_what_was_measured() -> None:
    """Given a machine of the product form, then that has no error, the formula none for pairs and some for triples."""
    found = made_up()
    pairs, triples = compared(found, 2), compared(found, 3)
    assert (len(pairs), len(triples)) == (9, 18)
    assert error(pairs, PRODUCT_FORM) == pytest.approx(0.0, abs=1e-9)
    assert error(pairs, FORMULA) == pytest.approx(0.0, abs=1e-9)
    assert 0.0 < error(triples, FORMULA) < 0.1
    assert error(pairs, LINEAR) > 0.3
    rows = by_id(rows_measured([found]))
    assert rows["real-cpu-cpu"].holds
    assert rows["real-pairs-formula"].holds
    assert rows["real-probe-cpu"].ours == pytest.approx(0.6)
    assert rows["real-probe-io"].ours == pytest.approx(0.2 * 0.6 + 0.8 * 0.3)
    tables = tables_measured([found])
    assert [len(lines) for lines in tables.values()] == [3, 9, 18]


def halved(alone: Counted) -> Counted:
    """Has half of everything."""
    return replace(alone, units_per_s=alone.units_per_s / 2, cpu=alone.cpu / 2, blocked=alone.blocked / 2)


def test_a_machine_of_one_resource_obeys_the_linear_sum_and_is_told_so() -> None:
    found = made_up()
    alone = {kind: found.runs[(kind,)][0][0] for kind in WorkKind}
    slow = {
        together: [[halved(alone[kind]) if len(together) > 1 else alone[kind] for kind in together] for _ in rounds]
        for together, rounds in found.runs.items()
    }
    rows = by_id(rows_measured([replace(found, runs=slow)]))
    assert rows["real-pairs-formula"].holds is False
    assert rows["real-cpu-cpu"].holds


def test_one_round_has_no_interval() -> None:
    assert inverse.mean([2.0]).high == math.inf
    assert work_measured(5)[0][1][0].runs == 10


# --- the measurement itself ------------------------------------------------------------------------------------------


def test_work_is_counted_within_the_window_only() -> None:
    """Given work before, in and after the window, then its pace is that of the units within it."""
    clock = SystemClock()
    begin_s = clock.monotonic_s() + 0.02
    done = count(lambda: clock.sleep(0.005), Window(begin_s, begin_s + 0.05, begin_s + 0.06), Reading())
    assert clock.monotonic_s() >= begin_s + 0.06
    assert 20.0 < done.units_per_s < 200.0
    assert done.cpu < 0.5
    assert done.idle > 0.4


@pytest.mark.accept
def test_real_processes_shortly() -> None:
    """Everything is measured and nothing is left; what comes out is judged in `make full`."""
    found = measure(SHORT)
    assert set(found.runs) == {*SETS[1], *SETS[2]}
    assert all(len(each) == SHORT.runs for each in found.runs.values())
    assert all(one.units_per_s > 0.0 for runs in found.runs.values() for each in runs for one in each)
    for kind in WorkKind:
        assert 0.9 < sum(shares(found.profiled, kind)) <= 1.01
    assert len(compared(found, 2)) == 9
    assert {row.id for row in rows_measured([found])} >= {"real-core", "real-servers-io", "real-cpu-cpu"}


@pytest.mark.full
@pytest.mark.alone
def test_real_processes_are_slowed_as_the_models_say() -> None:
    """CPU with CPU within 25 %, and the formula's mean error over the pairs below the linear sum's; one retry. Half of
    the rounds that the command takes."""

    def judged() -> list[str]:
        rows = by_id(rows_measured([measure(Measuring(runs=5))]))
        return [rows[id].why for id in ("real-cpu-cpu", "real-pairs-formula") if not rows[id].holds]

    assert not judged() or not judged()


# --- the command -----------------------------------------------------------------------------------------------------


def note(path: str, text: str) -> str:
    """Work that leaves a trace of its order."""
    with Path(path).open("a") as file:
        file.write(text)
    return text


def test_what_measures_runs_after_all_else_and_results_keep_their_place(tmp_path: Path) -> None:
    path = str(tmp_path / "order")

    def experiment(text: str, alone: bool) -> Experiment:
        def work(seeds: int) -> list[Work]:
            return [(note, (path, text))] * seeds

        def rows(results: Sequence[Any]) -> list[Row]:
            return [Row(text, "".join(results), None, None)]

        return Experiment(text, work, rows, lambda _results, _folder: [], alone=alone)

    paper = Paper("toy", "", {"m": experiment("m", True), "a": experiment("a", False), "b": experiment("b", False)})
    told: list[tuple[int, int]] = []
    found = catalogue.reproduce(paper, ["m", "a", "b"], 2, None, 1, lambda done, total: told.append((done, total)))
    assert [row.what for row in found.rows] == ["mm", "aa", "bb"]
    assert Path(path).read_text() == "aabbmm"
    assert told == [(done, 6) for done in range(1, 7)]


@pytest.mark.accept
def test_the_pictures_of_all_experiments(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    experiments = catalogue.paper("dfactor").experiments
    drawn = [
        *experiments["figures"].draw([compute()], tmp_path),
        *experiments["scheduling"].draw([schedule(0, kind, 1) for kind in range(len(KINDS))], tmp_path),
        *experiments["measured"].draw([made_up()], tmp_path),
    ]
    assert [path.name.removeprefix("dfactor-figure-").removesuffix(".png") for path in drawn] == [
        *("4", "5", "6", "7a", "7b", "8"),
        *("sets", "measured"),
    ]
    assert all(path.stat().st_size > 10_000 for path in drawn)
    assert experiments["measured"].alone
    assert Rule.COMPOSED in schedule(0, 0, 1)[0].makespans_s
