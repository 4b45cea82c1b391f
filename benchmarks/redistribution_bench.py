"""The fast path between cycles at 1,000 nodes: all that is gathered, shared again and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from benchmarks.runner import Figure, cpu_time_s
from daemons.controller.core.controller import Controller
from daemons.controller.state import transitions
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.web_app import Sample, WebEntry
from daemons.controller.web.feature import WebFeature
from daemons.controller.web.redistribution import Redistribution
from daemons.values.settings import PolicyChoice
from shared.values.jobs import Allotment, Job, Stage
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from tests.support.controller_harness import ControllerHarness

ROUNDS = 7
NODES, APPS, INSTANCES, JOBS = 1_000, 100, 20, 3_000
SHARE_MHZ = 700.0  # what each VM has; nodes have 4,000 MHz
FLOW = Flow("browse", mean_s=0.2, work_mcycles=10.0, t_min_s=0.01, model=ModelForm.MULTI_SERVER)
RATE_PER_S = 1_000  # what an application is asked for: 10,000 MHz of its 14,000


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """CPU time of one core."""
    say(f"{NODES} nodes, {APPS} applications of {INSTANCES} instances, {JOBS} jobs")
    desk = made()
    path = _path(desk.controller)
    assert path.needed()
    taken_ms = median(cpu_time_s(partial(path.changes, desk.now_s)) for _ in range(ROUNDS)) * 1e3
    assert path.changes(desk.now_s)
    yield Figure("redistribution", "between two cycles, with all that is gathered for it", taken_ms, "ms", most=20.0)


def made(nodes: int = NODES, apps: int = APPS, jobs: int = JOBS) -> ControllerHarness:
    """A cluster on which everything runs, two in three jobs with less CPU than would be fair."""
    desk = ControllerHarness((f"n{number}" for number in range(nodes)), placement=PolicyChoice("apc")).lead()
    core, names = desk.controller, list(desk.nodes)
    for number in range(apps):
        app = WebApp(f"web{number}", (FLOW,), 100, max_mhz=4_000.0, min_instances=1, max_instances=INSTANCES, vcpus=4)
        web = WebEntry(app, "", number, accepted_s=0.0)
        _measure(web, desk.now_s)
        core.cluster.web[app.name] = web
        for index in range(INSTANCES):
            _run(core, app.replica_job(index, 0.0), names[(number * INSTANCES + index) % nodes], desk.now_s)
    for number in range(jobs):
        stages = (Stage(4e6 * (1 + number % 3), 4_000.0, memory_mib=100),)
        job = Job(f"job{number}", stages, desired_start_s=0.0, goal_s=9_000.0 + number % 700, vcpus=4)
        _run(core, job, names[number % nodes], desk.now_s)
    return desk


def _run(core: Controller, job: Job, node: str, now_s: float) -> None:
    entry = JobEntry(job, "", core.deciding.next_submission(), accepted_s=now_s)
    core.cluster.add_job(entry)
    transitions.start(core.cluster, entry, (Allotment(node, SHARE_MHZ),), now_s)
    entry.released = True


def _measure(web: WebEntry, now_s: float) -> None:
    asked = FlowSample("browse", 60.0, offered=60 * RATE_PER_S, served=60 * RATE_PER_S, mean_s=0.1)
    web.samples.append(Sample(now_s, (asked,)))
    web.load.add(now_s, (asked,))


def _path(core: Controller) -> Redistribution:
    (web,) = (feature for feature in core.features if isinstance(feature, WebFeature))
    return web.redistribution
