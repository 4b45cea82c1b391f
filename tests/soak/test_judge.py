"""What soaks are judged by, on numbers made for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from tests.soak.judge import (
    AN_HOUR,
    BURST,
    CYCLES_MIN,
    EVENTLESS,
    SLOPE_KIB_MAX,
    Causes,
    Course,
    Levels,
    counted,
    levels,
    said,
    slope,
)
from tests.soak.watching import LogTail, children, read

TIMES_S = [float(second) for second in range(800)]
CALM = Levels(10, 10, 12)


def course(kib_per_1000: float, cycles: float = 2 * CYCLES_MIN, **fields: Levels) -> Course:
    """A process that grows so quickly."""
    both = {"descriptors": CALM, "threads": CALM} | fields
    return Course(
        "x",
        0.0,
        0.0,
        kib_per_1000=kib_per_1000,
        cycles=cycles,
        descriptors=both["descriptors"],
        threads=both["threads"],
        cpu_frac=0.0,
    )


def test_a_slope_is_found_among_steps_and_outliers() -> None:
    """Memory comes in steps, is given back now and then, and one reading in ten is far off."""
    rng = Random(7)
    grown = [100_000.0 + 0.5 * at - at % 16 + rng.uniform(-200.0, 200.0) for at in TIMES_S]
    values = [value + (50_000.0 if rng.random() < 0.1 else 0.0) for value in grown]

    assert slope(TIMES_S, values) == pytest.approx(0.5, rel=0.25)


def test_one_step_at_the_beginning_is_no_slope() -> None:
    """Nor is what was taken once: a pool that fills up, the first report that is made."""
    assert slope(TIMES_S, [100.0 if at < 80 else 5_000.0 for at in TIMES_S]) == 0.0
    assert slope(TIMES_S, [100.0] * 800) == 0.0
    assert slope(TIMES_S[:2], [1.0, 2.0]) == 0.0
    assert slope([3.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]) == 0.0


def test_many_samples_are_thinned() -> None:
    """A day of them has too many pairs."""
    day_s = [float(second) for second in range(86_400)]
    assert slope(day_s, [2.0 * at for at in day_s]) == pytest.approx(2.0)


def test_levels_are_what_stays() -> None:
    """What is open for a moment counts nowhere; one thing that leaks in the middle does."""
    assert levels([10, 11, 10, 15, 10, 10, 10, 10, 19]) == Levels(10, 10, 19)
    assert not levels([10, 11, 10, 15, 10, 10, 10, 10, 19]).grown
    assert levels([10, 10, 12, 11, 13, 11, 11, 14, 11]).grown
    assert not levels([11, 11, 11, 10, 10, 10]).grown
    assert levels([]) == Levels(0, 0, 0)


def test_what_a_process_must_not_do() -> None:
    """Its memory must not grow by more than the bound, its descriptors and threads not at all."""
    assert course(SLOPE_KIB_MAX).faults() == []
    assert course(-5_000.0).faults() == []
    assert len(course(SLOPE_KIB_MAX + 1.0).faults()) == 1
    assert course(9_000.0, CYCLES_MIN - 1.0, threads=Levels(9, 12, 13)).faults() == []  # too few to say so
    assert len(course(0.0, descriptors=Levels(10, 11, 11), threads=Levels(9, 12, 13)).faults()) == 2


def line(event: str, level: str = "info", **values: object) -> str:
    """A line of a log."""
    return json.dumps({"event": event, "level": level, **values})


def test_lines_are_counted_without_their_values() -> None:
    """Those for who looks into a fault are not, nor those of the test; what is no event is."""
    lines = [
        "--- life 1 of x",
        line("order sent", vm="a#0"),
        line("order sent", vm="b#0"),
        line("report sent", "debug"),
        line("happened", what="job-started", subject="a"),
        line("happened", what="job-completed", subject="a"),
        "Traceback (most recent call last):",
        "[1, 2]",
        "",
    ]

    assert counted(lines) == {
        "order sent": 2,
        "happened: job-started": 1,
        "happened: job-completed": 1,
        EVENTLESS: 2,
    }


def test_lines_are_judged_by_what_has_caused_them() -> None:
    """A thousand decisions may each be told; who says something else so often says it too often."""
    causes = Causes(3_600.0, decisions=1_000, jobs=50, vms=100, requests=10, prunes=4, nodes=0)
    told = {"decision computed": 1_000, "happened: job-started": 50, "publish refused": 101, "not connected": 100}
    lines = {one.key: one for one in said("x", told, causes)}

    assert [one.key for one in lines.values() if one.too_often] == ["publish refused"]
    assert lines["not connected"].most == AN_HOUR
    assert lines["decision computed"].cause == "decision"
    assert said("x", {"request received": 11 + int(BURST)}, causes)[0].too_often
    assert said("x", {EVENTLESS: 101}, causes)[0].too_often


def test_a_short_time_has_a_burst_of_lines_and_no_more() -> None:
    """A fault that lasts a minute may be told as often as one that lasts an hour."""
    causes = Causes(180.0, 0, 0, 0, 0, 0, 0)
    assert not said("x", {"not connected": int(BURST)}, causes)[0].too_often
    assert said("x", {"not connected": int(BURST) + 1}, causes)[0].too_often


def test_a_log_that_is_cut_loses_no_line(tmp_path: Path) -> None:
    """Nor is a line counted before it is whole."""
    file = tmp_path / "x.log"
    tail = LogTail(file)
    tail.look()
    with file.open("a") as log:
        log.write(line("a") + "\n" + line("b")[:5])
        log.flush()
        tail.look()
        assert tail.counts == {"a": 1}
        log.write(line("b")[5:] + "\n")
        log.flush()
        tail.cut()
        assert file.stat().st_size == 0
        log.write(line("a") + "\n")
    tail.look()

    assert tail.counts == {"a": 2, "b": 1}


def test_a_process_is_read() -> None:
    """This one, which has an open file more than before; none that has ended."""
    before = read(os.getpid(), 1.0)
    with Path("/dev/null").open() as _:
        after = read(os.getpid(), 2.0)

    assert before is not None
    assert after is not None
    assert (after.pid, after.at_s, after.descriptors) == (os.getpid(), 2.0, before.descriptors + 1)
    assert before.rss_kib > 1_000
    assert before.threads >= 1
    assert read(1 << 30, 1.0) is None
    assert children(1 << 30) == []
