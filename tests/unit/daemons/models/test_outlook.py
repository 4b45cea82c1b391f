"""The outlook of a placement: the paper's first example, operations and their costs, gangs, web applications, and the
same job by job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemons.capacity.place.file import check
from daemons.capacity.place.snapshot import snapshot_of
from daemons.models.outlook import Forecast, Target, after, outlook_of, unchanged
from shared.base.errors import InvalidValue
from shared.policy_api.decision import Change, ChangeKind, Outlook, Reason, ReasonCode
from shared.policy_api.snapshot import Snapshot
from shared.values.jobs import Allotment
from tests.support.place_cases import case, experiment_one, job, node, snapshot, web

COSTS = {"start_s": 1.0, "suspend_s_per_mib": 0.002, "resume_s_per_mib": 0.002, "migrate_s_per_mib": 0.001}
WHY = Reason(ReasonCode.HIGHER_UTILITY)


def change(kind: ChangeKind, workload: str, *allotments: tuple[str, float]) -> Change:
    return Change(workload, 0, kind, tuple(Allotment(*each) for each in allotments), WHY)


def start(workload: str, *allotments: tuple[str, float]) -> Change:
    return change(ChangeKind.START, workload, *allotments)


def by_name(outlook: Outlook) -> dict[str, float]:
    return dict(zip(outlook.names, outlook.predicted, strict=True))


# --- experiment one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal_s", "changes", "j1", "j2"),
    [
        (17, [], 0.7, 0.6875),
        (17, [change(ChangeKind.RESIZE, "J1", ("n1", 500.0)), start("J2", ("n1", 500.0))], 0.6958, 0.6958),
        (13, [], 0.7, 0.5833),
        (13, [change(ChangeKind.RESIZE, "J1", ("n1", 500.0)), start("J2", ("n1", 500.0))], 0.6581, 0.6581),
    ],
)
def test_experiment_one_second_cycle(goal_s: float, changes: list[Change], j1: float, j2: float) -> None:
    """P2 leaves J1 alone on the node, P1 gives both 500 MHz; the figures are those of the paper's example."""
    found = outlook_of(snapshot_of(check(experiment_one(goal_s), "case")), changes)
    assert by_name(found) == {"J1": pytest.approx(j1, abs=5e-5), "J2": pytest.approx(j2, abs=5e-5)}
    assert found.now == pytest.approx([0.7, {17: 0.6875, 13: 0.58333}[int(goal_s)]], abs=5e-5)
    assert found.best == pytest.approx([0.8, {17: 0.75, 13: 0.66667}[int(goal_s)]], abs=5e-5)


# --- operations ------------------------------------------------------------------------------------------------------


def alone(state: dict[str, Any], *changes: Change, **keys: Any) -> float:
    """The utility of one job of 20 s at full speed with the goal at 40 s, nodes n1 and n2."""
    given = job(work_mcycles=20_000, goal_s=40.0) | state
    cluster = snapshot(nodes=[node("n1"), node("n2")], jobs=[given], operation_costs=COSTS, **keys)
    return by_name(outlook_of(cluster, changes))["j"]


@pytest.mark.parametrize(
    ("state", "changes", "lost_s"),
    [
        ({"state": "running", "node": "n1"}, [], 0.0),
        ({}, [start("j", ("n1", 1000.0))], 1.0),
        ({"state": "suspended", "node": "n1"}, [change(ChangeKind.RESUME, "j", ("n1", 1000.0))], 1.0),
        ({"state": "suspended", "node": "n1"}, [change(ChangeKind.RESUME, "j", ("n2", 1000.0))], 1.5),
        ({"state": "suspended"}, [change(ChangeKind.RESUME, "j", ("n2", 1000.0))], 1.5),
        ({"state": "running", "node": "n1"}, [change(ChangeKind.MIGRATE, "j", ("n2", 1000.0))], 0.5),
        ({"state": "running", "node": "n1"}, [change(ChangeKind.RESIZE, "j", ("n1", 1000.0))], 0.0),
        ({"state": "running", "node": "n1"}, [change(ChangeKind.SUSPEND, "j")], None),
        ({}, [], None),
    ],
)
def test_no_progress_during_an_operation(state: dict[str, Any], changes: list[Change], lost_s: float | None) -> None:
    """The job then ends that much later, at full speed: (40 - 20 - lost) / 40. Without any CPU there is no level."""
    expected = -np.inf if lost_s is None else (20.0 - lost_s) / 40.0
    assert alone(state, *changes) == pytest.approx(expected)


def test_an_operation_longer_than_the_cycle_leaves_no_progress() -> None:
    slow = alone({}, start("j", ("n1", 1000.0)), cycle_s=0.5)
    assert slow == pytest.approx((40.0 - 0.5 - 20.0) / 40.0)


def displaced(memory_mib: float) -> dict[str, float]:
    """`b` gives way to `j` on a node of 2,000 MiB."""
    jobs = [
        job("b", state="running", node="n1", memory_mib=memory_mib),
        job("j", work_mcycles=20_000, memory_mib=800, goal_s=40.0),
    ]
    cluster = snapshot(jobs=jobs, operation_costs=COSTS)
    return by_name(outlook_of(cluster, [change(ChangeKind.SUSPEND, "b"), start("j", ("n1", 1000.0))]))


def test_who_takes_a_suspended_jobs_place_waits_for_it() -> None:
    """Given room for only one of the two, then `j` starts when the 1,500 MiB are saved, after 3 s."""
    assert displaced(1500.0)["j"] == pytest.approx((20.0 - 3.0 - 1.0) / 40.0)


def test_who_finds_room_beside_it_does_not_wait() -> None:
    assert displaced(1000.0)["j"] == pytest.approx((20.0 - 1.0) / 40.0)


def test_a_job_that_ends_within_the_cycle_keeps_its_own_utility() -> None:
    """`short` ends at 2 s of 5; its MHz still count for the level of the other, which has no more of its own."""
    jobs = [
        job("short", state="running", node="n1", work_mcycles=1000, max_mhz=500, goal_s=10.0),
        job("long", state="running", node="n1", work_mcycles=20_000, max_mhz=500, goal_s=100.0),
    ]
    found = outlook_of(snapshot(jobs=jobs), [])
    assert by_name(found)["short"] == pytest.approx(0.8)
    left = 20_000 - 5 * 500
    assert found.level == pytest.approx((95.0 - left / 500) / 100.0)  # no faster than 500 MHz
    assert by_name(found)["long"] == pytest.approx(found.level)


# --- jobs of several instances, stages, best effort ------------------------------------------------------------------


def test_a_gang_runs_at_its_slowest_instance() -> None:
    gang = job("g", instances=2, work_mcycles=4000, goal_s=20.0, max_mhz=800)
    cluster = snapshot(nodes=[node("n1"), node("n2")], jobs=[gang])
    found = by_name(outlook_of(cluster, [start("g", ("n1", 800.0), ("n2", 400.0))]))
    # 2,000 of 4,000 Mcycles are done after 5 s; then both can have 600 MHz of the 1,200 that were given.
    assert found["g"] == pytest.approx((15.0 - 2000 / 600) / 20.0)


def test_stages_bound_the_speed_one_after_the_other() -> None:
    stages = [{"work_mcycles": 1000, "max_mhz": 250}, {"work_mcycles": 3000, "max_mhz": 1000}]
    staged = {"name": "s", "stages": stages, "memory_mib": 10, "goal_s": 20.0, "state": "running", "node": "n1"}
    cluster = snapshot(jobs=[staged])
    assert by_name(outlook_of(cluster, []))["s"] == pytest.approx((20.0 - 7.0) / 20.0)


def test_best_effort_jobs_are_never_the_unhappiest() -> None:
    found = outlook_of(snapshot(jobs=[job("b"), job("c", state="running", node="n1")]), [])
    assert found.predicted == (1.0, 1.0)
    assert found.level is None


def test_jobs_without_a_sound_profile_are_left_out() -> None:
    cluster = snapshot(jobs=[job("a", goal_s=10.0), job("b", goal_s=10.0), job("c", goal_s=10.0)])
    work, stages = cluster.workloads, cluster.stages
    odd = replace(
        cluster,
        workloads=replace(work, goal_s=np.array([10.0, np.nan, 10.0])),
        stages=replace(stages, max_mhz=np.array([1000.0, 1000.0, np.inf])),
    )
    assert outlook_of(odd, []).names == ("a",)


def test_nothing_at_all() -> None:
    found = outlook_of(snapshot(nodes=[]), [])
    assert (found.names, found.predicted, found.level) == ((), (), None)


# --- web applications ------------------------------------------------------------------------------------------------


def test_a_web_application_has_the_utility_of_all_its_instances() -> None:
    """1 - 100 / (w - 200): now 500 MHz, then 900; at best both nodes, 2,000 MHz."""
    shop = web("shop", max_instances=2, placed_on=["n1"])
    nodes = [node("n1"), node("n2")]
    cluster = snapshot(nodes=nodes, web_apps=[shop], placement={"shop@n1": {"node": "n1", "cpu_mhz": 500}})
    found = outlook_of(cluster, [start("shop#1", ("n2", 400.0))])
    assert found.names == ("shop",)
    assert found.now == pytest.approx([1 - 100 / 300])
    assert found.predicted == pytest.approx([1 - 100 / 700])
    assert found.best == pytest.approx([1 - 100 / 1800])
    stopped = outlook_of(cluster, [change(ChangeKind.STOP, "shop#0")])
    assert np.isfinite(stopped.predicted[0])
    assert stopped.predicted[0] < found.now[0]


def test_its_cpu_is_not_the_jobs() -> None:
    """The level of a job counts what jobs have."""
    apps = [web("shop", placed_on=["n1"])]
    held = {"shop@n1": {"node": "n1", "cpu_mhz": 600}, "j": {"node": "n1", "cpu_mhz": 400}}
    running = job(work_mcycles=10_000, state="running", goal_s=100.0)
    with_web = outlook_of(snapshot(jobs=[running], web_apps=apps, placement=held), [])
    without = outlook_of(snapshot(jobs=[running], placement={"j": held["j"]}), [])
    assert with_web.predicted[0] == without.predicted[0]


# --- what is wrong with a change -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (start("x", ("n1", 1.0)), "workload"),
        (start("j", ("n9", 1.0)), "node"),
        (start("j", ("n1", 1.0), ("n1", 1.0)), "allotments"),
        (change(ChangeKind.SUSPEND, "j", ("n1", 1.0)), "allotments"),
    ],
)
def test_a_change_that_fits_no_row_is_refused(wrong: Change, field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        after(snapshot(jobs=[job()]), [wrong])
    assert caught.value.field == field


# --- against a naive calculation -------------------------------------------------------------------------------------


def random_cluster(rng: np.random.Generator) -> tuple[Snapshot, list[Change]]:
    """Jobs in every state on three nodes, and changes to some of them."""
    jobs, changes = [], []
    for index in range(int(rng.integers(1, 12))):
        state = str(rng.choice(["waiting", "running", "suspended"]))
        name, home, to = f"j{index}", f"n{rng.integers(3)}", f"n{rng.integers(3)}"
        made = job(
            name,
            state=state,
            work_mcycles=float(rng.integers(100, 20_000)),
            max_mhz=float(rng.integers(50, 1000)),
            memory_mib=float(rng.integers(100, 900)),
            desired_start_s=-float(rng.integers(0, 50)),
            goal_s=float(rng.integers(1, 60)),
            importance=float(rng.choice([0.5, 1.0, 3.0])),
            instances=int(rng.integers(1, 4)),
        )
        jobs.append(made if state == "waiting" else made | {"node": home})
        kinds = {
            "waiting": (ChangeKind.START,),
            "suspended": (ChangeKind.RESUME,),
            "running": (ChangeKind.SUSPEND, ChangeKind.MIGRATE, ChangeKind.RESIZE),
        }
        if rng.random() < 0.6:
            kind = rng.choice(np.array(kinds[state], dtype=object))
            count = 0 if kind is ChangeKind.SUSPEND else made["instances"]
            where = home if kind is ChangeKind.RESIZE else to
            changes.append(change(kind, name, *[(where, float(rng.integers(1, 1000)))] * count))
    nodes = [node(f"n{index}") for index in range(3)]
    return snapshot_of(check(case(nodes=nodes, jobs=jobs, operation_costs=COSTS), "case")), changes


def naive(cluster: Snapshot, changes: list[Change]) -> dict[str, float]:
    """The same, job by job with bisection for the level."""
    work, made = cluster.workloads, {each.workload: each for each in changes}
    target, before = after(cluster, changes), unchanged(cluster)
    jobs = {}
    given_mhz = 0.0
    for row, name in enumerate(work.names):
        mine = target.owner == row
        runs, mhz, kind = bool(target.running[row]), target.cpu_mhz[mine], made[name].kind if name in made else None
        memory = work.memory_mib.item(row)
        first = work.first_instance.item(row)
        homes = cluster.instances.node[first : first + mine.sum()].tolist()
        moved = kind in (ChangeKind.RESUME, ChangeKind.MIGRATE) and homes != target.node[mine].tolist()
        delay = {ChangeKind.START: 1.0, ChangeKind.RESUME: 0.002 * memory}.get(kind, 0.0) if kind else 0.0
        delay += 0.001 * memory if moved else 0.0
        delay += (
            waits(cluster, target, before, row) if kind in ARRIVE and (moved or kind is not ChangeKind.MIGRATE) else 0.0
        )
        top = work.max_mhz.item(row)
        speed = min(mhz.min(), top) if runs else 0.0
        can = speed * max(5.0 - delay, 0.0)
        left = work.work_mcycles.item(row) - min(can, work.work_mcycles.item(row))
        ends = delay + work.work_mcycles.item(row) / speed if runs and left == 0.0 else None
        span = work.goal_s.item(row) - work.desired_start_s.item(row)
        jobs[name] = (left, work.instances.item(row), top, work.goal_s.item(row), span, work.importance.item(row), ends)
        given_mhz += mhz.sum() if runs else 0.0
    return {name: worth(each, level_of(list(jobs.values()), given_mhz)) for name, each in jobs.items()}


ARRIVE = (ChangeKind.START, ChangeKind.RESUME, ChangeKind.MIGRATE)


def waits(cluster: Snapshot, target: Target, before: Target, row: int) -> float:
    work, longest = cluster.workloads, 0.0
    here: dict[int, list[int]] = {}
    for owner, at in zip(target.owner.tolist(), target.node.tolist(), strict=True):
        same = [n for o, n in zip(before.owner.tolist(), before.node.tolist(), strict=True) if o == owner]
        if at not in same:
            here.setdefault(at, []).append(owner)
    for at in set(target.node[target.owner == row].tolist()):
        leaving = {o for o, n in zip(before.owner.tolist(), before.node.tolist(), strict=True) if n == at}
        leaving = {owner for owner in leaving if not target.running[owner]}
        asked = sum(work.memory_mib[owner] for owner in here.get(at, []))
        if leaving and row in here.get(at, []) and asked > cluster.nodes.free_memory_mib[at]:
            longest = max(longest, *(0.002 * work.memory_mib[owner] for owner in leaving))
    return longest


def worth(each: tuple[Any, ...], level: float) -> float:
    left, _, top, goal, span, importance, ends = each
    if ends is not None:
        return weigh((goal - ends) / span, importance)
    return min(level, weigh((goal - 5.0 - left / top) / span, importance))


def weigh(utility: float, importance: float) -> float:
    return utility / importance if utility > 0 else utility * importance


def level_of(jobs: list[tuple[Any, ...]], given_mhz: float) -> float:
    if given_mhz == 0.0:
        return -np.inf
    low, high = -1e9, 10.0
    for _ in range(200):
        level = (low + high) / 2
        needed = 0.0
        for left, count, top, goal, span, importance, ends in jobs:
            plain = level * importance if level > 0 else level / importance
            if ends is None:
                needed += left * count / max(goal - 5.0 - span * plain, left / top)
        low, high = (low, level) if needed > given_mhz else (level, high)
    return low


@pytest.mark.parametrize("seed", range(60))
def test_the_same_as_job_by_job(seed: int) -> None:
    cluster, changes = random_cluster(np.random.default_rng(seed))
    assert by_name(outlook_of(cluster, changes)) == pytest.approx(naive(cluster, changes), rel=1e-7, abs=1e-7)


def test_a_forecast_is_asked_for_several_targets() -> None:
    cluster = snapshot(jobs=[job(goal_s=20.0)])
    forecast = Forecast(cluster)
    nothing, level = forecast.predict(unchanged(cluster))
    started, _ = forecast.predict(after(cluster, [start("j", ("n1", 1000.0))]))
    assert (nothing[0], level) == (-np.inf, -np.inf)
    assert started[0] == pytest.approx(0.5)
