"""The fast path between cycles on random clusters, against the same in plain loops, one entry at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.controller.core.controller import Controller
from daemons.controller.state.jobs import InFlight, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.usage import unmanaged_mhz
from daemons.controller.state.web_app import Sample, WebEntry
from daemons.controller.web.redistribution import (
    FULL_FRAC,
    LEAST_MHZ,
    PHASES,
    RESIZED_FRAC,
    ROOM_FRAC,
    SETTLING,
    WORTH,
    Redistribution,
)
from daemons.controller.web.snapshot import flow_columns, web_columns
from daemons.models.level import JobDemand
from daemons.models.load_forecast import headroom_quantile
from daemons.models.redistribution import Running, Shared, outlook_of, redistribute
from daemons.models.stages import stage_work_left
from daemons.models.web_utility import AppColumns, AppUtility, app_utilities
from daemons.models.work_left import RatioHistory
from daemons.values.records.cluster import ReconciliationPause, WorkRatioRecord
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.protocol.messages import UnderWay
from shared.values.actions import ActionKind
from shared.values.jobs import Allotment, Job, JobPhase, Stage
from shared.values.nodes import Ability, Node, NodeCondition, NodeService
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from tests.extent import examples
from tests.support.controller_harness import ControllerHarness

SETTINGS = ControllerSettings(placement=PolicyChoice("apc"))
NOW_S = 1_000.0
ODD = 0.06  # of entries that something is the matter with, in each of many ways


# --- random clusters ---------------------------------------------------------------------------------------------


def made(random: Random, odd: float) -> Controller:
    """A cluster whose nodes have a few jobs and instances of web applications each, of all kinds."""
    core = ControllerHarness((), placement=PolicyChoice("apc")).lead().controller
    for number in range(random.randint(1, 5)):
        name = f"n{number}"
        abilities = tuple(each for each in Ability if each is not Ability.MIGRATE or random.random() > 0.5)
        inventory = Node(
            name,
            cores=random.randint(1, 4),
            core_mhz=random.choice((1000.0, 2500.0)),
            memory_mib=64_000,
            abilities=abilities,
        )
        node = core.cluster.nodes[name] = NodeEntry(name, condition=NodeCondition.UP, inventory=inventory)
        if random.random() < odd:
            node.condition = NodeCondition.UNKNOWN
        if random.random() < odd:
            node.service = NodeService.DRAINING
        if random.random() < odd:
            node.environment = "batch"
    for number in range(random.randint(0, 3)):
        _add_app(core, random, number, odd)
    if random.random() < odd:
        history = RatioHistory(20, random.choice((-0.5, 0.3)), 0.01)
        core.cluster.lengths.load(WorkRatioRecord("render", history))
    for number in range(random.randint(0, 12)):
        stages = tuple(
            Stage(random.choice((0.0, 1e5, 3e6)), random.choice((400.0, 2000.0)), random.choice((0.0, 50.0)), 100)
            for _ in range(random.choice((1, 1, 1, 2, 4)))
        )
        job = Job(
            f"job{number}",
            stages,
            desired_start_s=random.choice((0.0, 900.0, 1_100.0)),
            goal_s=random.choice((None, 2_000.0, 9_000.0, 40_000.0)),
            instances=random.choice((1, 1, 1, 2, 3)),
            vcpus=random.randint(1, 2),
            importance=random.choice((1.0, 1.0, 1.0, 2.0)),
            environment="batch" if random.random() < odd else "",
            job_class=random.choice(("", "render")),
        )
        _add(core, random, job, odd)
    return core


def _add_app(core: Controller, random: Random, number: int, odd: float) -> None:
    goal = random.choice(({"mean_s": 0.2}, {"percentile_s": 0.5, "percentile": 0.9}, {"throughput_per_s": 30.0}))
    flow = Flow("browse", **goal, work_mcycles=10.0, t_min_s=0.01, model=random.choice((*ModelForm,)))
    most = random.randint(1, 5)
    app = WebApp(f"web{number}", (flow,), 100, max_mhz=2_000.0, max_instances=most, vcpus=random.randint(1, 2))
    web = WebEntry(app, "", number, accepted_s=0.0, removed=random.random() < odd)
    if random.random() > odd:
        asked = 60 * random.choice((1, 50, 150, 400))
        web.samples.append(Sample(NOW_S, (FlowSample("browse", 60.0, offered=asked, served=asked, mean_s=0.1),)))
        web.load.add(NOW_S, web.samples[-1].flows)
    web.headroom_quantile = random.choice((None, 0.8))
    core.cluster.web[app.name] = web
    for index in range(random.randint(0, most)):
        _add(core, random, app.replica_job(index, 0.0), odd)


def _add(core: Controller, random: Random, job: Job, odd: float) -> None:
    """Add a job in any phase; whatever can be the matter with it is so now and then."""
    nodes = [*core.cluster.nodes]
    phase = random.choice((JobPhase.RUNNING,) * 6 + (JobPhase.WAITING, JobPhase.SUSPENDED))
    runs = phase is JobPhase.RUNNING
    places = [random.choice(nodes) for _ in range(job.instances)] if runs else []
    allotments = tuple(Allotment(name, random.choice((1.0, 100.0, 300.0, 500.0))) for name in places)
    entry = JobEntry(job, "", order=core.deciding.next_submission(), accepted_s=0.0, phase=phase, allotments=allotments)
    entry.released = random.random() > odd
    entry.held = random.random() < odd
    entry.not_before_s = random.choice((0.0, NOW_S + 50.0)) if random.random() < odd else 0.0
    if random.random() < odd:
        entry.reconciliation_paused = ReconciliationPause(
            "", "", "", at_s=0.0, until_s=random.choice((NOW_S - 1.0, NOW_S + 1.0)), count=1
        )
    entry.awaits = ("other",) if random.random() < odd else ()
    entry.adopted = f"own-{job.name}" if random.random() < odd and not job.app else ""
    core.cluster.add_job(entry)
    for instance, name in zip(entry.instances, places or [nodes[0]] * job.instances, strict=True):
        instance.done_mcycles = random.choice((0.0, 0.0, 5e4, 1e5, 2e6, 1e8))
        if not runs:
            continue
        busy = "suspend" if random.random() < odd else ""
        node = core.cluster.nodes[name]
        node.vms[instance.vm] = VmStatus(instance.vm, VmState.RUNNING, busy=busy)
        core.cluster.claim(instance, name)
        if random.random() < odd:
            node.in_progress[instance.vm] = UnderWay("a", ActionKind.SET_CPU, instance.vm)
        if random.random() < odd:
            core.cluster.claim(instance, random.choice(nodes))
        if random.random() < odd:
            core.cluster.begin(
                instance, InFlight(instance.vm, ActionKind.SET_CPU, name, to_node="", boot_id="", expires_at_s=NOW_S)
            )
        if random.random() < odd:
            instance.awaited.add(name)
            core.cluster.missing[instance.vm] = instance
        if random.random() < odd:
            core.cluster.lose(instance, "gone")
        if random.random() < odd:
            instance.sought = True
            core.cluster.nodes_not_reported.add(random.choice(nodes))


clusters = st.builds(made, st.randoms(use_true_random=False), st.sampled_from((0.0, ODD)))


# --- the same in plain loops -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What is to come of it."""

    changes: list[Change]
    grown: Sequence[int]
    quantiles: Sequence[float | None]
    place: bool


def stage_needs(core: Controller, entry: JobEntry) -> tuple[float, float, float, float]:
    """Work left, seconds that takes at best, the most speed that is of use before the next cycle, and the least."""
    done, left, best_s, most, least = entry.done_mcycles, 0.0, 0.0, 0.0, 0.0
    stages = entry.job.stages
    found = core.cluster.lengths.left([entry]).get(entry.job.name)
    if found is not None:
        works = stage_work_left([stage.work_mcycles for stage in stages], done, found.mean_mcycles)
        stages = tuple(replace(stage, work_mcycles=work) for stage, work in zip(stages, works, strict=True))
    for stage in stages:
        here = stage.work_mcycles - min(done, stage.work_mcycles)
        done -= min(done, stage.work_mcycles)
        if best_s == 0.0 and stage.work_mcycles > 0.0:
            most, least = stage.max_mhz, stage.min_mhz
        elif here > 0.0 and best_s < SETTINGS.decide_s:
            most, least = max(most, stage.max_mhz), max(least, stage.min_mhz)
        left, best_s = left + here, best_s + here / stage.max_mhz
    return left, best_s, most, least


def naive(core: Controller) -> Expected:
    """O(jobs x nodes): whatever is asked for is looked for."""
    apps = [web for web in core.cluster.web.values() if not web.removed and web.samples]
    nodes = [n for n in core.cluster.nodes.values() if n.condition is NodeCondition.UP and not n.environment]
    names = [node.name for node in nodes]
    nothing = Expected([], [web.grown for web in apps], [web.headroom_quantile for web in apps], False)
    if not apps or not nodes:
        return nothing
    demand: list[tuple[float, float, float, float, float]] = []
    row, node, count, least, most, had = [], [], [], [], [], []
    replica_app, replica_node, replica_most, replica_had = [], [], [], []
    jobs: list[JobEntry] = []
    replicas: list[JobEntry] = []
    fixed_mhz, waiting = [0.0] * len(apps), False
    held = [each.wanted_mhz + unmanaged_mhz(each) for each in nodes]
    for entry in core.cluster.active.values():
        job = entry.job
        if entry.phase not in PHASES or entry.awaits or job.environment:
            continue
        runs = entry.phase is JobPhase.RUNNING
        free = runs and all(a.node in names for a in entry.allotments)
        free = free and not core.deciding.builder.is_fixed(entry, NOW_S)
        if job.app:
            for at, web in enumerate(apps):
                if web.app.name == job.app and free:
                    (allotment,) = entry.allotments
                    replicas.append(entry)
                    replica_app.append(at)
                    replica_node.append(names.index(allotment.node))
                    replica_most.append(_most_mhz(core, entry, allotment.node, job.max_mhz))
                    replica_had.append(allotment.cpu_mhz)
                elif web.app.name == job.app and entry.released:
                    fixed_mhz[at] += sum(a.cpu_mhz for a in entry.allotments)
            continue
        if entry.adopted:
            continue
        left, best_s, stage_most, stage_least = stage_needs(core, entry)
        free = free and left > 0.0
        if runs and not free:
            left = best_s = 0.0
        goal_s = math.inf if job.goal_s is None else job.goal_s
        demand.append((job.instances * left, goal_s - NOW_S, goal_s - job.desired_start_s, best_s, job.importance))
        waiting = waiting or (not runs and max(entry.not_before_s, job.desired_start_s) <= NOW_S)
        if free:
            jobs.append(entry)
            for allotment in entry.allotments:
                row.append(len(demand) - 1)
                node.append(names.index(allotment.node))
                count.append(job.instances)
                least.append(max(stage_least, LEAST_MHZ))
                most.append(max(least[-1], _most_mhz(core, entry, allotment.node, stage_most)))
                had.append(allotment.cpu_mhz)
    if not replicas:
        return nothing
    for at in range(len(nodes)):
        held[at] -= sum(mhz for where, mhz in zip(node, had, strict=True) if where == at) + sum(
            mhz for where, mhz in zip(replica_node, replica_had, strict=True) if where == at
        )
    inventories = [each.inventory for each in nodes if each.inventory]
    vcpu_mhz = max(each.core_mhz for each in inventories)
    utilities = app_utilities(web_columns(apps), flow_columns(apps, SETTINGS.web_planning), vcpu_mhz)
    a, b, r, tb, importance = (
        (np.array(column, dtype=np.float64) for column in zip(*demand, strict=True)) if (demand) else (np.zeros(0),) * 5
    )
    running = Running(
        np.array([max(0.0, each.cpu_mhz - mhz) for each, mhz in zip(inventories, held, strict=True)]),
        np.array(row, dtype=np.int64),
        np.array(node, dtype=np.int64),
        count=np.array(count, dtype=np.int64),
        least_mhz=np.array(least),
        most_mhz=np.array(most),
        replica_app=np.array(replica_app, dtype=np.int64),
        replica_node=np.array(replica_node, dtype=np.int64),
        replica_least_mhz=np.full(len(replicas), LEAST_MHZ),
        replica_most_mhz=np.array(replica_most),
        demand=JobDemand(a, b, r, tb, None if (importance == 1.0).all() else importance),
        apps=AppColumns.of(utilities),
        fixed_mhz=np.array(fixed_mhz),
        waiting=waiting,
    )
    then, now = redistribute(running), outlook_of(running, np.array(had), np.array(replica_had))
    grown = [
        _grown(web, utility, at, running, then, len(core.cluster.replicas_wanted(web.app.name)), vcpu_mhz)
        for at, (web, utility) in enumerate(zip(apps, utilities, strict=True))
    ]
    quantiles = [_quantile(web, utility.best - then.level) for web, utility in zip(apps, utilities, strict=True)]
    place = any(after != web.grown for web, after in zip(apps, grown, strict=True))
    makes_room = waiting and then.replica_mhz.sum() < (1.0 - ROOM_FRAC) * sum(replica_had)
    place = place or makes_room
    if not makes_room and smallest(then) - smallest(now) < WORTH:
        return Expected([], grown, quantiles, place)
    reason = Reason(ReasonCode.LOAD, (("utility", smallest(then)), ("before", smallest(now))))
    given = [*then.mhz.tolist(), *then.replica_mhz.tolist()]
    changes = []
    for entry in (*jobs, *replicas):
        each = [given.pop(0) for _ in entry.allotments]
        before = [allotment.cpu_mhz for allotment in entry.allotments]
        if any(abs(new - old) > RESIZED_FRAC * max(old, 1.0) for new, old in zip(each, before, strict=True)):
            allotments = tuple(
                replace(allotment, cpu_mhz=max(mhz, LEAST_MHZ))
                for allotment, mhz in zip(entry.allotments, each, strict=True)
            )
            change = Change(entry.job.name, entry.revision, ChangeKind.RESIZE, allotments, reason)
            changes.append((sum(each) - sum(before), change))
    return Expected([change for _, change in sorted(changes, key=lambda one: one[0])], grown, quantiles, place)


def _most_mhz(core: Controller, entry: JobEntry, name: str, wanted_mhz: float) -> float:
    inventory = core.cluster.nodes[name].inventory
    assert inventory is not None
    return min(wanted_mhz, entry.job.speed_on_mhz(inventory))


def _quantile(web: WebEntry, gap: float) -> float:
    wanted = headroom_quantile(SETTINGS.web_planning.headroom_quantile, gap)
    before = web.headroom_quantile
    return wanted if before is None else before + SETTLING * (wanted - before)


def _grown(
    web: WebEntry, utility: AppUtility, at: int, running: Running, then: Shared, wanted: int, vcpu_mhz: float
) -> int:
    """How many instances are asked for after this: one after another until the load that lasts is met."""
    mine = np.flatnonzero(running.replica_app == at)
    most_mhz, given_mhz = running.replica_most_mhz[mine].tolist(), float(sum(then.replica_mhz[mine].tolist()))
    full = len(mine) > 0 and given_mhz > FULL_FRAC * sum(most_mhz)
    if not full or then.utilities[at] >= then.level - WORTH:
        return web.grown
    if float(utility.utility(given_mhz + max(most_mhz))) < then.utilities[at] + WORTH:
        return web.grown
    planning = replace(SETTINGS.web_planning, work_off_s=math.inf)
    (lasting,) = app_utilities(web_columns([web]), flow_columns([web], planning), vcpu_mhz)
    needed_mhz, more = float(lasting.mhz(min(then.level, lasting.best - WORTH))), 1
    while given_mhz + more * max(most_mhz) < needed_mhz and more < web.app.max_instances:
        more += 1
    return len(mine) + more if len(mine) + more > wanted else web.grown


def smallest(shared: Shared) -> float:
    return max(min(shared.level, *shared.utilities), -1e300)


# --- both --------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(400), deadline=None)
@given(core=clusters)
def test_changes_are_those_of_plain_loops(core: Controller) -> None:
    apps = [web for web in core.cluster.web.values() if not web.removed and web.samples]
    expected = naive(core)
    core.deciding.unit_of_work.place = False

    found = Redistribution(core.cluster, SETTINGS, core.deciding).changes(NOW_S)

    assert found == expected.changes
    assert [web.grown for web in apps] == expected.grown
    assert [web.headroom_quantile for web in apps] == expected.quantiles
    assert core.deciding.unit_of_work.place == expected.place


@settings(max_examples=examples(400), deadline=None)
@given(core=clusters)
def test_many_are_fixed_as_each_is(core: Controller) -> None:
    entries, builder = [*core.cluster.active.values()], core.deciding.builder

    assert builder.are_fixed(entries, NOW_S).tolist() == [builder.is_fixed(entry, NOW_S) for entry in entries]


@settings(max_examples=examples(100), deadline=None)
@given(core=clusters)
def test_what_is_kept_of_jobs_between_two_looks_is_not_stale(core: Controller) -> None:
    path = Redistribution(core.cluster, SETTINGS, core.deciding)
    path.changes(NOW_S)
    for entry in core.cluster.active.values():
        if not entry.job.app:
            entry.job = replace(entry.job, importance=3.0, vcpus=4, stages=(Stage(2e6, 3_000.0), *entry.job.stages))
    expected = naive(core)

    assert path.changes(NOW_S) == expected.changes


@settings(max_examples=examples(100), deadline=None)
@given(core=clusters)
def test_what_is_kept_of_places_between_two_looks_is_not_stale(core: Controller) -> None:
    path = Redistribution(core.cluster, SETTINGS, core.deciding)
    path.changes(NOW_S)
    for entry in core.cluster.active.values():
        frac = 0.3 if entry.job.app else 0.9
        entry.allotments = tuple(replace(one, cpu_mhz=frac * one.cpu_mhz) for one in entry.allotments)
    expected = naive(core)
    assert path.changes(NOW_S) == expected.changes

    next(iter(core.cluster.nodes.values())).condition = NodeCondition.UNKNOWN
    expected = naive(core)
    assert path.changes(NOW_S) == expected.changes
