"""Experiment Five of apc.txt: the jobs of Experiment Two beside a web application on every node."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.capacity.process_pool import Work
from sim_backend.experiments.apc.runs import Cycle, RunOutcome, play
from sim_backend.experiments.apc.settings import (
    APC,
    JOB_MHZ,
    JOBS,
    NODES,
    WEB_MAX_MHZ,
    cluster,
    jobs_five,
    web_five,
    web_utility,
)
from sim_backend.experiments.experiment import Row, mean, within

EQUAL = 1e-6
_ONE_MHZ = 1.0


def play_five(seed: int, count: int = JOBS, late: int | None = None) -> RunOutcome:
    """APC at cycles on the jobs of one seed."""
    jobs = jobs_five(seed, count) if late is None else jobs_five(seed, count, late)
    return play(jobs, cluster(), APC, web_apps=[web_five(NODES)])


def work_five(seeds: int) -> list[Work]:
    """Return the work for every seed."""
    return [(play_five, (seed,)) for seed in range(seeds)]


def contended(cycle: Cycle) -> bool:
    """Return whether both the web application and the jobs could use more CPU than they get, so that they compete for
    it."""
    return cycle.web_mhz < WEB_MAX_MHZ - _ONE_MHZ and cycle.jobs_mhz < cycle.placed * JOB_MHZ - _ONE_MHZ


def gap(cycle: Cycle) -> float:
    """Return the distance between the web application's utility and the jobs' common level; NaN if either is
    missing."""
    if cycle.web is None or cycle.level is None:
        return float("nan")
    return abs(cycle.web - cycle.level)


def rows_five(results: Sequence[RunOutcome]) -> list[Row]:
    """Return the rows for the claims of section 5.5."""
    shared = [[cycle for cycle in ran.cycles if contended(cycle)] for ran in results]
    furthest = [max((gap(cycle) for cycle in cycles), default=float("nan")) for cycles in shared]
    counted = [float(len(cycles)) for cycles in shared]
    full = [float(ran.cycles[0].web_mhz) for ran in results]
    last = [float(ran.cycles[-1].web_mhz) for ran in results]
    least = [min(cycle.web_mhz for cycle in ran.cycles) for ran in results]
    uneven = [mean([c.jobs_mhz / c.web_mhz for c in cycles]) for cycles in shared if cycles]
    limit = "both sides could use more CPU; the web's utility against the jobs' common level"
    return [
        Row(
            "five.zero", "web utility at 50,000 MHz", 0.0, round(web_utility(50_000.0), 6), abs(web_utility(5e4)) < 1e-9
        ),
        Row(
            "five.highest",
            "web utility at 130,000 MHz, the highest",
            0.66,
            round(web_utility(WEB_MAX_MHZ), 4),
            abs(web_utility(WEB_MAX_MHZ) - 0.66) < 5e-4,
        ),
        within(
            "five.equal", "equalised cycles: largest difference of utility", "equal", furthest, 0.0, EQUAL, why=limit
        ),
        within("five.cycles", "cycles in which CPU is divided so", None, counted, 1.0, float("inf")),
        within(
            "five.first",
            "CPU of the web application while there are few jobs (MHz)",
            130_000.0,
            full,
            129_999.0,
            130_001.0,
        ),
        within("five.least", "least CPU of the web application (MHz)", None, least, 0.0, WEB_MAX_MHZ - _ONE_MHZ),
        within("five.last", "and when the jobs have gone (MHz)", 130_000.0, last, 129_999.0, 130_001.0),
        Row(
            "five.uneven",
            "CPU of the jobs / of the web application in those cycles",
            "uneven",
            round(mean(uneven), 2),
            mean(uneven) > 1.5,
        ),
        within(
            "five.placed", "instances stopped", 0.0, [float(r.operations.get("stop", 0)) for r in results], 0.0, 0.0
        ),
    ]
