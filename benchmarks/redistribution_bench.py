"""The fast path between cycles at 1,000 nodes: everything gathered, shared again and compared.

First what it returns is made the desired state until it settles; then the load of a few applications moves. The worst
case is the first sharing of all, where nearly every instance gets other CPU.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from benchmarks.runner import Figure, cpu_time_s
from daemons.controller.core.controller import Controller
from daemons.controller.state import transitions
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.load_history import POINTS_MAX
from daemons.controller.state.web_app import Sample, WebEntry
from daemons.controller.web.feature import WebFeature
from daemons.controller.web.redistribution import Redistribution
from daemons.values.settings import PolicyChoice
from shared.runtime.garbage_collection import keep_what_is_there
from shared.runtime.startup import GARBAGE_AFTER
from shared.values.jobs import Allotment, Job, Stage
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from tests.support.controller_harness import ControllerHarness

ROUNDS, SETTLING_ROUNDS = 7, 4
NODES, APPS, INSTANCES, JOBS = 1_000, 100, 20, 3_000
MOVED, MOVED_TIMES = 5, 1.3  # so many applications are asked for so much more
SHARE_MHZ = 700.0  # what each VM has; nodes have 4,000 MHz
FLOW = Flow("browse", mean_s=0.2, work_mcycles=10.0, t_min_s=0.01, model=ModelForm.MULTI_SERVER)
WINDOW_S = 60.0
RATE_PER_S = 1_000  # what an application is asked for: 10,000 MHz of its 14,000


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """CPU time of one core."""
    say(f"{NODES} nodes, {APPS} applications of {INSTANCES} instances, {JOBS} jobs")
    harness = made()
    path = _path(harness.controller)
    assert path.needed()
    keep_what_is_there()  # as the daemon does
    gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])
    first_ms, first = _measured(path, harness.now_s)
    settled(harness, path)
    moved_s = moved(harness)
    taken_ms, changes = _measured(path, moved_s)
    assert 0 < changes < first
    say(f"{changes} changes after the load of {MOVED} has moved, {first} at first")
    yield Figure("redistribution", "between two cycles, with all that is gathered for it", taken_ms, "ms", most=20.0)
    yield Figure("redistribution", "where all CPU is to be shared again", first_ms, "ms")


def _measured(path: Redistribution, now_s: float) -> tuple[float, int]:
    """CPU time in ms, the median, and how many changes come of it."""
    taken_s = median(cpu_time_s(partial(path.changes, now_s)) for _ in range(ROUNDS))
    return taken_s * 1e3, len(path.changes(now_s))


def settled(harness: ControllerHarness, path: Redistribution) -> None:
    """Make the desired state what the path wants it to be."""
    for _ in range(SETTLING_ROUNDS):
        harness.controller.deciding.desired.apply(path.changes(harness.now_s), harness.now_s)


def moved(harness: ControllerHarness) -> float:
    """Have a minute measured in which a few applications are asked for more; returns the time then."""
    now_s = harness.now_s + WINDOW_S
    for number, web in enumerate(harness.controller.cluster.web.values()):
        _measure(web, now_s, MOVED_TIMES if number < MOVED else 1.0)
    return now_s


def made(nodes: int = NODES, apps: int = APPS, jobs: int = JOBS) -> ControllerHarness:
    """A cluster on which everything runs, two in three jobs with less CPU than would be fair."""
    harness = ControllerHarness((f"n{number}" for number in range(nodes)), placement=PolicyChoice("apc")).lead()
    core, names = harness.controller, list(harness.nodes)
    harness.now_s += POINTS_MAX * WINDOW_S
    for number in range(apps):
        app = WebApp(f"web{number}", (FLOW,), 100, max_mhz=4_000.0, min_instances=1, max_instances=INSTANCES, vcpus=4)
        web = WebEntry(app, "", number, accepted_s=0.0)
        for windows in range(POINTS_MAX, 0, -1):
            _measure(web, harness.now_s - (windows - 1) * WINDOW_S)
        core.cluster.web[app.name] = web
        for index in range(INSTANCES):
            _run(core, app.replica_job(index, 0.0), names[(number * INSTANCES + index) % nodes], harness.now_s)
    for number in range(jobs):
        stages = (Stage(4e6 * (1 + number % 3), 4_000.0, memory_mib=100),)
        job = Job(f"job{number}", stages, desired_start_s=0.0, goal_s=9_000.0 + number % 700, vcpus=4)
        _run(core, job, names[number % nodes], harness.now_s)
    return harness


def _run(core: Controller, job: Job, node: str, now_s: float) -> None:
    """Have a job run as its node has reported it."""
    entry = JobEntry(job, "", core.deciding.next_submission(), accepted_s=now_s)
    core.cluster.add_job(entry)
    transitions.start(core.cluster, entry, (Allotment(node, SHARE_MHZ),), now_s)
    entry.released = True
    (instance,) = entry.instances
    core.cluster.nodes[node].vms[instance.vm] = VmStatus(instance.vm, VmState.RUNNING)
    core.cluster.claim(instance, node)


def _measure(web: WebEntry, now_s: float, times: float = 1.0) -> None:
    """Note a window until now in which it was asked for so many times as much as at first."""
    count = round(WINDOW_S * RATE_PER_S * times)
    asked = FlowSample("browse", WINDOW_S, offered=count, served=count, mean_s=0.1)
    web.samples.append(Sample(now_s, (asked,)))
    web.load.add(now_s, (asked,))


def _path(core: Controller) -> Redistribution:
    (web,) = (feature for feature in core.features if isinstance(feature, WebFeature))
    return web.redistribution
