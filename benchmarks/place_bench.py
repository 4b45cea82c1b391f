"""The placement policy APC: how near to the optimum, how fast, and beside hbal."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks import place_hbal
from benchmarks.place_clusters import fitting, loaded, parted
from benchmarks.runner import Figure, cpu_time_s
from daemons.decision import groups
from daemons.decision import pipeline as decide
from daemons.decision.pipeline import DecideRequest
from daemons.values.settings import PolicyChoice
from shared.policy_api.decision import PlacementDecision
from shared.policy_api.snapshot import Snapshot
from shared.ports.plugins import find_policy
from tests.simulation.place_instances import small_instance
from tests.simulation.place_judge import Prediction, current, predict
from tests.simulation.place_optimum import best_min_utility
from tests.simulation.place_rules import judge_decision
from tests.simulation.sharing_instances import with_loading

ROUNDS = 5
SMALL = range(300)
WITHIN, NEAR = 0.01, 1e-6
FOUR: Mapping[str, Any] = {"heads": 4}
ONE: Mapping[str, Any] = {"heads": 1}


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """Quality on small clusters, speed on large ones, and the same clusters given to hbal."""
    say(f"the optimum of {len(SMALL)} small clusters, and what is within {WITHIN} of it")
    yield from _quality()
    say("large clusters")
    yield from _growth()
    yield from _fitting()
    yield from _gain(loaded(400, 2000))
    say("jobs that slow each other down by sharing disks and networks")
    yield from _sharing()
    say("a cluster parted into environments")
    yield from _parted()
    say(f"hbal, each run stopped after {place_hbal.LIMIT_S:g} s")
    yield from place_hbal.figures(partial(_decide, params=FOUR), say)


def _decide(seen: Snapshot, params: Mapping[str, Any], policy: str = "apc") -> PlacementDecision:
    decision: PlacementDecision = find_policy("placement", policy).decide(seen, None, params)[0]
    return decision


def _quality() -> Iterator[Figure]:
    bench = "near the optimum"
    small = [(seen, best_min_utility(seen)[0]) for seen in map(small_instance, SMALL)]

    def share(decide: Callable[[Snapshot], PlacementDecision]) -> float:
        found = [
            predict(seen, judge_decision(seen, decide(seen))).smallest >= best - WITHIN - NEAR for seen, best in small
        ]
        return float(np.mean(found))

    for policy in ("first-fit", "edf"):
        yield Figure(bench, policy, share(partial(_decide, params={}, policy=policy)), "of clusters")
    for guard in ("off", "equal", "on"):
        for heads in (1, 4):
            least = 0.95 if (guard, heads) == ("off", 4) else None
            params = {"guard": guard, "heads": heads}
            what = f"guard {guard}, heads {heads}"
            yield Figure(bench, what, share(partial(_decide, params=params)), "of clusters", least=least)


def _median_s(seen: Snapshot, params: Mapping[str, Any], policy: str = "apc") -> float:
    """CPU time from built columns to the decision: others' work on the machine does not count."""
    return _typical_s(lambda: _decide(seen, params, policy))


def _growth() -> Iterator[Figure]:
    bench = "loaded"
    most = {(1000, 4): 0.6, (1000, 1): 0.4}
    taken_s: dict[tuple[int, int], float] = {}
    for nodes, jobs in ((400, 2000), (1000, 5000), (2000, 10_000)):
        seen = loaded(nodes, jobs)
        yield Figure(bench, f"{nodes} nodes, {jobs} jobs: first-fit", _median_s(seen, {}, "first-fit"), "s of CPU time")
        for params in (FOUR, ONE):
            heads = int(params["heads"])
            taken_s[nodes, heads] = _median_s(seen, params)
            what = f"{nodes} nodes, {jobs} jobs: heads {heads}"
            yield Figure(bench, what, taken_s[nodes, heads], "s of CPU time", most=most.get((nodes, heads)))
    for heads in (4, 1):
        yield Figure(bench, f"1000 / 400: heads {heads}", taken_s[1000, heads] / taken_s[400, heads], "times", most=3.5)
        yield Figure(
            bench, f"2000 / 1000: heads {heads}", taken_s[2000, heads] / taken_s[1000, heads], "times", most=2.5
        )
    yield Figure(bench, "1000 nodes, 5000 jobs: memory", _peak_mib(loaded(1000, 5000)), "MiB at most at a time")


def _sharing() -> Iterator[Figure]:
    """What counting with loads costs: seven jobs of ten use the disk, three the network; both are exact at the end."""
    bench, seen = "loads", loaded(1000, 5000)
    shared = with_loading(seen, 1, "auto")
    for policy, params, more in (("apc", FOUR, {}), ("apc", ONE, {}), ("first-fit", {}, {"sharing": "composed"})):
        work = partial(_decide, seen, params, policy), partial(_decide, shared, {**params, **more}, policy)
        rounds = [[cpu_time_s(each) for each in work] for _ in range(ROUNDS)]  # in turn: the machine's speed varies
        blind_s, seeing_s = map(min, zip(*rounds, strict=True))
        what = f"1000 nodes, 5000 jobs: {policy}" + (f", heads {params['heads']}" if params else "")
        yield Figure(bench, f"{what}, without", blind_s, "s of CPU time")
        yield Figure(bench, f"{what}, with", seeing_s, "s of CPU time")
        yield Figure(bench, f"{what}, with / without", seeing_s / blind_s, "times", most=1.5 if params else None)
    seen = replace(fitting(1000, 0, 3000), at_cycle=False)
    shared = with_loading(seen, 1, "auto")
    for name, of, params in (("without", seen, {}), ("with", shared, {"sharing": "composed"})):
        taken_s = _median_s(of, params, "first-fit")
        yield Figure(bench, f"1000 nodes, 3000 jobs start: first-fit, {name}", taken_s, "s of CPU time")


def _peak_mib(seen: Snapshot) -> float:
    """What a decision takes at most, in a run of its own: counting slows it down."""
    tracemalloc.start()
    _decide(seen, FOUR)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def _fitting() -> Iterator[Figure]:
    bench = "all fits"
    for what, running in (("all wait", 0), ("a third waits", 2000), ("all run", 3000)):
        seen = fitting(1000, running, 3000 - running)
        yield Figure(bench, f"1000 nodes, 3000 jobs, {what}", _median_s(seen, FOUR), "s of CPU time", most=0.06)


def _parted() -> Iterator[Figure]:
    """What environments cost: parting alone, and a decision beside that on the same cluster without them."""
    bench, count = "20 environments", 20
    for what, seen in (("loaded", loaded(1000, 5000)), ("two fifths run", fitting(1000, 2000, 3000))):
        cut = parted(seen, count)
        yield Figure(
            bench, f"1000 nodes, 5000 jobs, {what}: parting", _typical_s(partial(groups.parts, cut)), "s", most=0.02
        )
        for policy in ("first-fit", "edf"):
            for name, of in (("whole", seen), ("parted", cut)):
                choice = PolicyChoice(policy)
                scheduling = {f"e{at}": choice for at in range(count)}
                request = DecideRequest(replace(of, at_cycle=False), choice, None, None, None, scheduling=scheduling)
                yield Figure(
                    bench, f"{what}: {policy}, {name}", _typical_s(partial(decide.run, request)), "s of CPU time"
                )


def _typical_s(work: Callable[[], object]) -> float:
    return median(cpu_time_s(work) for _ in range(ROUNDS))


def _gain(seen: Snapshot) -> Iterator[Figure]:
    """What displacing is worth: the worst tenth of utilities beside that of filling idle room only."""
    bench = "worst tenth"
    filled = judge_decision(seen, _decide(replace(seen, at_cycle=False), FOUR))
    yield Figure(bench, "as it is", _worst_tenth(predict(seen, current(seen))), "")
    yield Figure(bench, "only idle room filled", _worst_tenth(predict(seen, filled)), "")
    for guard in ("off", "equal", "on"):
        decided = judge_decision(seen, _decide(seen, {**FOUR, "guard": guard}))
        yield Figure(bench, f"guard {guard}", _worst_tenth(predict(seen, decided)), "")


def _worst_tenth(found: Prediction) -> float:
    ordered = sorted(found.utilities.values())
    return float(np.mean(ordered[: max(1, len(ordered) // 10)]))
