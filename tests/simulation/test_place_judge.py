"""The judge of placements is right where the answer is known, its two optima agree, and it finds faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, Reason, ReasonCode, Refusal
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import Allotment, Constraint, ConstraintKind, Stage
from shared.values.operation_costs import COSTS
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot
from tests.extent import first
from tests.simulation.place_instances import CYCLE_S, NOW_S, experiment_one, small_instance
from tests.simulation.place_judge import Places, level_of, predict
from tests.simulation.place_optimum import Small, best_by_milp, best_min_utility, is_reachable
from tests.simulation.place_rules import judge_decision

HALF = {0: ((0, 500.0),), 1: ((0, 500.0),)}
FULL = {0: ((0, 1000.0),)}
WITHIN = 1e-4


@pytest.mark.parametrize(
    ("goal_s", "placement", "expected"),
    [
        (17.0, HALF, (0.6958, 0.6958)),
        (17.0, FULL, (0.7000, 0.6875)),
        (13.0, HALF, (0.6581, 0.6581)),
        (13.0, FULL, (0.7000, 0.5833)),
    ],
)
def test_experiment_one(goal_s: float, placement: dict[int, Places], expected: tuple[float, float]) -> None:
    found = predict(experiment_one(goal_s), placement).utilities
    assert (round(found["J1"], 4), round(found["J2"], 4)) == expected


@pytest.mark.parametrize(("goal_s", "best"), [(17.0, 0.6958), (13.0, 0.6581)])
def test_optimum_of_experiment_one(goal_s: float, best: float) -> None:
    """Exact arithmetic prefers to run both in either scenario."""
    found, placement = best_min_utility(experiment_one(goal_s))
    assert found == pytest.approx(best, abs=WITHIN)
    assert set(placement) == {0, 1}


def test_level_at_the_bends() -> None:
    assert level_of(lambda _: 100.0, 0.5, 100.0) == 0.5
    assert level_of(lambda level: 100.0 / (1.0 - level), 0.5, 0.0) == -np.inf
    assert level_of(lambda level: 100.0 / (1.0 - level), 0.5, 1.0) == pytest.approx(-99.0)


def _two(costs: str, **second: object) -> Snapshot:
    """One node of one core with `runs` on it; `comes` is of the same kind, changed by `second`."""
    runs = WorkRow(
        "runs",
        WorkloadState.RUNNING,
        memory_mib=1000.0,
        work_mcycles=3000.0 * 1000.0,
        goal_s=NOW_S + 6000.0,
        desired_start_s=NOW_S,
        places=((0, 1000.0),),
    )
    comes = replace(runs, name="comes", state=WorkloadState.WAITING, places=())
    seen = snapshot([NodeRow("n0", 1, memory_mib=1500.0), NodeRow("n1", 1)], [runs, replace(comes, **second)], NOW_S)  # type: ignore[arg-type]
    return replace(seen, cycle_s=CYCLE_S, costs=COSTS[costs])


def _done(seen: Snapshot, placement: dict[int, Places], row: int) -> float:
    """Work done in the cycle, read back from the level that the job has alone: it is at full speed from then on."""
    work = seen.workloads
    utility = predict(seen, placement).utilities[work.names[row]]
    ends_s = work.goal_s[row] - utility * (work.goal_s[row] - work.desired_start_s[row])
    return float(work.work_mcycles[row] - (ends_s - seen.now_s - seen.cycle_s) * 1000.0)


@pytest.mark.parametrize(
    ("second", "placement", "lost_s"),
    [
        ({}, {0: ((0, 1000.0),), 1: ((1, 1000.0),)}, 3.6),
        ({}, {1: ((0, 1000.0),)}, 3.6 + 35.3),
        ({"state": WorkloadState.SUSPENDED, "places": ((1, 0.0),)}, {0: ((0, 1000.0),), 1: ((1, 1000.0),)}, 33.3),
        ({"state": WorkloadState.SUSPENDED, "places": ((1, 0.0),)}, {1: ((0, 1000.0),)}, 33.3 + 13.2 + 35.3),
        ({"state": WorkloadState.RUNNING, "places": ((1, 1000.0),)}, {1: ((0, 1000.0),)}, 13.2 + 35.3),
        ({"state": WorkloadState.RUNNING, "places": ((1, 1000.0),)}, {0: ((0, 1000.0),), 1: ((1, 1000.0),)}, 0.0),
    ],
)
def test_operations_cost_time(second: dict[str, object], placement: dict[int, Places], lost_s: float) -> None:
    """Table 1 for 1,000 MiB. Only `comes` is in the equation, with CPU enough for full speed afterwards."""
    seen = _two("paper", **second)
    seen = replace(seen, workloads=replace(seen.workloads, goal_s=np.array([np.inf, NOW_S + 6000.0])))
    assert _done(seen, placement, 1) == pytest.approx((CYCLE_S - lost_s) * 1000.0)


def test_who_fits_beside_takes_no_place() -> None:
    """With room for both, `comes` only starts, though `runs` is suspended."""
    seen = _two("paper")
    seen = replace(seen, workloads=replace(seen.workloads, goal_s=np.array([np.inf, NOW_S + 6000.0])))
    roomy = replace(seen, nodes=replace(seen.nodes, free_memory_mib=np.array([1000.0, 8000.0])))
    assert _done(roomy, {1: ((0, 1000.0),)}, 1) == pytest.approx((CYCLE_S - 3.6) * 1000.0)


def test_one_that_ends_leaves_the_equation_with_its_own_utility() -> None:
    seen = _two("none", work_mcycles=300.0 * 1000.0)
    found = predict(seen, {0: ((0, 1000.0),), 1: ((1, 1000.0),)})
    assert found.utilities["comes"] == pytest.approx((6000.0 - 300.0) / 6000.0)
    assert found.utilities["runs"] == found.level == pytest.approx(0.5)
    waits = predict(seen, {0: ((0, 1000.0),)})
    assert waits.utilities["comes"] == waits.level  # it shares the 1,000 MHz


def test_a_gang_is_as_fast_as_its_slowest_and_needs_all_its_speeds() -> None:
    seen = _two("none", instances=2)
    slow = predict(seen, {1: ((0, 500.0), (1, 1000.0))})
    assert slow.level is not None
    b, r, a_runs, a_gang = 5400.0, 6000.0, 3e6, 2 * (3e6 - 500.0 * 600.0)
    assert a_runs / (b - r * slow.level) + a_gang / (b - r * slow.level) == pytest.approx(1500.0)


def test_stages_are_run_at_their_own_speeds() -> None:
    stages = (Stage(100_000.0, 250.0), Stage(1e6, 1000.0))
    seen = _two("none", stages=stages, work_mcycles=1.1e6, max_mhz=1000.0)
    seen = replace(seen, workloads=replace(seen.workloads, goal_s=np.array([np.inf, NOW_S + 6000.0])))
    found = predict(seen, {1: ((1, 1000.0),)})
    assert found.utilities["comes"] == pytest.approx((6000.0 - 400.0 - 1000.0) / 6000.0)


@pytest.mark.full
@pytest.mark.parametrize("seed", first(range(8)))
def test_both_ways_to_the_optimum_agree(seed: int) -> None:
    seen = small_instance(seed)
    best, placement = best_min_utility(seen)
    assert best == pytest.approx(best_by_milp(seen), abs=2e-3)
    assert predict(seen, placement).smallest == pytest.approx(best, abs=WITHIN)


@pytest.mark.full
@pytest.mark.parametrize("seed", first(range(24), 2))
def test_no_random_placement_beats_the_optimum(seed: int) -> None:
    """Random sets on random nodes with random shares of the CPU, many of them near the best placement."""
    seen = small_instance(seed)
    best, placement = best_min_utility(seen)
    assert predict(seen, placement).smallest == pytest.approx(best, abs=WITHIN)
    assert is_reachable(seen, best - WITHIN)
    assert not is_reachable(seen, best + WITHIN)
    rng = np.random.default_rng(seed)
    small = Small.of(seen)
    for _ in range(30):
        tried = _random_placement(rng, small, placement)
        assert predict(seen, tried).smallest <= best + WITHIN


def _random_placement(rng: np.random.Generator, small: Small, near: dict[int, Places]) -> dict[int, Places]:
    """Some jobs where `near` has them, the others anywhere that has the memory; CPU in random order."""
    memory, room = small.seen.workloads.memory_mib, list(small.mib)
    at: dict[int, int] = {}
    for job in rng.permutation(len(small.jobs)).tolist():
        node = near[job][0][0] if job in near and rng.random() < 0.8 else int(rng.integers(0, len(room)))
        if room[node] >= memory[job] and rng.random() < 0.9:
            room[node] -= memory[job]
            at[job] = node
    speed, placement = list(small.mhz), dict[int, Places]()
    for job in rng.permutation(list(at)).tolist():
        give = min(small.most_mhz(job, at[job]), speed[at[job]]) * float(rng.choice([1.0, 1.0, 0.7]))
        if give > 0.0:
            speed[at[job]] -= give
            placement[job] = ((at[job], give),)
    return placement


# --- rules ---------------------------------------------------------------------------------------------------------


def _cluster(**changed: object) -> Snapshot:
    """Two nodes; r runs on n0, s is suspended there, w waits, f is fixed on n1: 1,000 MHz and 3,000 MiB are free."""
    rows = [
        WorkRow("r", WorkloadState.RUNNING, places=((0, 1000.0),), max_mhz=2000.0, vcpus=2, revision=3),
        WorkRow("s", WorkloadState.SUSPENDED, places=((0, 0.0),), revision=4),
        WorkRow("w", revision=5, min_mhz=200.0),
        WorkRow("f", WorkloadState.RUNNING, places=((1, 1000.0),), fixed=True, memory_mib=5000.0),
        WorkRow("later", not_before_s=9999.0, required_labels=("ssd",)),
    ]
    seen = snapshot([NodeRow("n0", 2, labels=("ssd",)), NodeRow("n1", 2)], rows)
    return replace(seen, **changed)  # type: ignore[arg-type]


_REASON = Reason(ReasonCode.KEEP)
_REFUSED = {name: Refusal(name, _REASON) for name in ("s", "w", "later")}


def _make(kind: ChangeKind, name: str, *given: Allotment, revision: int = 0) -> Change:
    shown = {"r": 3, "s": 4, "w": 5}
    return Change(name, revision or shown.get(name, 1), kind, given, _REASON)


def _decided(*changes: Change) -> PlacementDecision:
    changed = {change.workload for change in changes}
    return PlacementDecision(changes, tuple(r for name, r in _REFUSED.items() if name not in changed))


START, RESUME, SUSPEND = ChangeKind.START, ChangeKind.RESUME, ChangeKind.SUSPEND
MIGRATE, RESIZE, STOP = ChangeKind.MIGRATE, ChangeKind.RESIZE, ChangeKind.STOP
ON_0, ON_1 = Allotment("n0", 1000.0), Allotment("n1", 1000.0)


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (_make(START, "w", ON_0),),
        (_make(RESUME, "s", ON_1),),
        (_make(MIGRATE, "r", Allotment("n1", 700.0)), _make(START, "w", Allotment("n1", 300.0))),
        (_make(RESIZE, "r", Allotment("n0", 2000.0)),),
        (_make(SUSPEND, "r"), _make(START, "w", ON_0), _make(RESUME, "s", ON_0)),
    ],
)
def test_sound_decisions_pass(changes: tuple[Change, ...]) -> None:
    placement = judge_decision(_cluster(), _decided(*changes))
    assert (0 in placement) is all(change.kind is not SUSPEND for change in changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((_make(START, "nobody", ON_0),), "no such workload"),
        ((_make(START, "w", ON_0), _make(START, "w", ON_1)), "changed 2 times"),
        ((_make(START, "w", ON_0, revision=4),), "of revision 5"),
        ((_make(SUSPEND, "f"),), "is fixed"),
        ((_make(RESUME, "w", ON_0),), "another state"),
        ((_make(STOP, "r"),), "another kind"),
        ((_make(START, "w", ON_0, ON_1),), "not so many instances"),
        ((_make(START, "w", Allotment("n9", 1.0)),), "no node n9"),
        ((_make(START, "later", ON_0),), "not to start yet"),
        ((_make(START, "later", ON_1),), "lacks a label"),
        ((_make(START, "w", Allotment("n0", 1001.0)),), "at most 1000"),
        ((_make(START, "w", Allotment("n0", 100.0)),), "less than 200"),
        ((_make(START, "w", Allotment("n0", 0.0)),), "not above 0"),
        ((_make(RESIZE, "r", ON_1),), "it moves"),
        ((_make(MIGRATE, "r", ON_0),), "stays where it is"),
        ((_make(START, "w", ON_0), _make(RESUME, "s", ON_0)), "MHz wanted"),
        ((_make(START, "w", ON_1), _make(RESUME, "s", Allotment("n1", 1.0))), "MHz wanted"),
    ],
)
def test_faults_are_found(changes: tuple[Change, ...], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        judge_decision(_cluster(), _decided(*changes))


def test_who_asks_is_answered() -> None:
    with pytest.raises(AssertionError, match="w: neither placed nor refused"):
        judge_decision(_cluster(), PlacementDecision((), (_REFUSED["s"], _REFUSED["later"])))


@pytest.mark.parametrize(
    ("kind", "members", "nodes", "change"),
    [
        (ConstraintKind.PIN, ("w",), ("n1",), _make(START, "w", ON_0)),
        (ConstraintKind.FORBID, ("w",), ("n0",), _make(START, "w", ON_0)),
        (ConstraintKind.TOGETHER, ("w", "f"), (), _make(START, "w", ON_0)),
        (ConstraintKind.APART, ("w", "r"), (), _make(START, "w", ON_0)),
        (ConstraintKind.KEEP, ("r",), (), _make(MIGRATE, "r", ON_1)),
        (ConstraintKind.KEEP, ("s",), (), _make(RESUME, "s", ON_1)),
    ],
)
def test_constraints_forbid(
    kind: ConstraintKind, members: tuple[str, ...], nodes: tuple[str, ...], change: Change
) -> None:
    judge_decision(_cluster(), _decided(change))
    with pytest.raises(AssertionError, match=f"{kind.value} "):
        judge_decision(_cluster(constraints=(Constraint(kind, members, nodes),)), _decided(change))


def _without_memory(seen: Snapshot) -> Snapshot:
    return replace(seen, nodes=replace(seen.nodes, free_memory_mib=np.array([0.0, 0.0])))


def _between_cycles(seen: Snapshot) -> Snapshot:
    return replace(seen, at_cycle=False)


@pytest.mark.parametrize(
    ("change", "made", "said"),
    [
        (_make(START, "w", ON_0), _without_memory, "MiB wanted"),
        (_make(SUSPEND, "r"), _between_cycles, "between cycles"),
        (_make(RESIZE, "r", Allotment("n0", 900.0)), _between_cycles, "between cycles"),
    ],
)
def test_room_and_cycles(change: Change, made: Callable[[Snapshot], Snapshot], said: str) -> None:
    judge_decision(_cluster(), _decided(change))
    with pytest.raises(AssertionError, match=said):
        judge_decision(made(_cluster()), _decided(change))


def test_limits_on_changes() -> None:
    seen = _cluster()
    seen = replace(seen, workloads=replace(seen.workloads, changed_s=np.full(5, seen.now_s - 100.0)))
    decided = _decided(_make(MIGRATE, "r", ON_1))
    judge_decision(seen, decided, changes_max=1, cool_down_s=100.0)
    with pytest.raises(AssertionError, match="after its last change"):
        judge_decision(seen, decided, cool_down_s=101.0)
