"""Standard jobs, the calibration benchmarks that operators run on nodes, and what they show of node types and jobs
(d-factor.txt, 4.2).

A node runs one at a time. The order goes straight to its agent and is not stored: a controller that takes over does not
know of it, and the operator must run it again.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from daemons.controller.interference.profiles import InterferenceProfiles
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.loading_history import PaceSample, ProbePart
from daemons.models.loading_profiler import pace_of, probe_part, servers_of
from daemons.values.replies import unknown
from daemons.values.settings import ControllerSettings
from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import RunStandardJob, StandardJobEnded
from shared.protocol.operator_messages import ProfileNode
from shared.values.load_vector import StandardJob, StandardRun
from shared.values.vms import VmState

MARGIN_S = 60.0  # for the standard job to be prepared and told of, beyond its run
KEPT = 100
Refused = tuple[str, str]
FINE: Refused = ("", "")


@dataclass(frozen=True, slots=True)
class Run:
    """A calibration benchmark that is running, or ended at `ended_s`. vm, generation: the VM beside which it runs ("":
    none). `detail`: its result (None: none yet); `ok`: whether that is a measurement."""

    request: str
    order: str
    node: str
    run: StandardRun
    job: str
    vm: str
    generation: int
    started_s: float
    until_s: float
    ended_s: float | None = None
    ok: bool = False
    detail: str = ""


class StandardJobs:
    """Sends standard jobs, and takes in how they went."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, profiles: InterferenceProfiles
    ) -> None:
        self.cluster, self.unit_of_work, self.settings, self.profiles = cluster, unit_of_work, settings, profiles
        self.in_progress: dict[str, Run] = {}  # by node
        self.ended: deque[Run] = deque(maxlen=KEPT)
        self._orders = 0

    def ask(self, request: ProfileNode, now_s: float) -> Refused:
        """Have a standard job run, or say why not."""
        node = self.cluster.nodes.get(request.node)
        if node is None:
            return "unknown-node", unknown("node", request.node, self.cluster.nodes)
        refused, instance = self._refuse(node, request)
        if refused[0]:
            return refused
        self._orders += 1
        order = f"{self.unit_of_work.term}-standard-{self._orders}"
        expires_s = now_s + self.settings.action_ttl_s
        self.in_progress[node.name] = Run(
            request.request,
            order,
            node.name,
            run=request.run,
            job=request.job,
            vm=instance.vm if instance is not None else "",
            generation=instance.generation if instance is not None else 0,
            started_s=now_s,
            until_s=expires_s + request.run.run_s + MARGIN_S,
        )
        self.profiles.disturbed[node.name] = math.inf
        message = RunStandardJob(order, node.name, self.unit_of_work.term, node.boot_id, expires_s, request.run)
        self.unit_of_work.stored.append(Publish(topology.ACTIONS, node.name, message))
        beside = f" beside job {request.job}" if request.job else ""
        what = f"{request.run.copies} of {request.run.job} for {request.run.run_s:g} s{beside}"
        self.unit_of_work.emit(now_s, "standard-job-sent", node.name, what)
        return FINE

    def _refuse(self, node: NodeEntry, request: ProfileNode) -> tuple[Refused, Instance | None]:
        if not self.unit_of_work.acting:
            return ("not-acting", "the controller only observes; switch deciding on first"), None
        if not node.usable or node.asleep or node.inventory is None:
            return ("node-not-usable", f"node {node.name!r} is not up, or its clock is off"), None
        if node.name in self.in_progress:
            return ("busy", f"a standard job is running on node {node.name!r} already"), None
        if node.unmanaged_mib > 0.0:
            return ("node-not-empty", f"VMs that are not ours run on node {node.name!r}"), None
        if request.job:
            return self._refuse_beside(node, request)
        if node.claimed or node.flights:
            there = f"{len(node.claimed)} VMs are or may be on node {node.name!r}"
            return ("node-not-empty", f"{there}: name the job there, or drain it first"), None
        return FINE, None

    def _refuse_beside(self, node: NodeEntry, request: ProfileNode) -> tuple[Refused, Instance | None]:
        entry = self.cluster.job(request.job)
        if entry is None:
            return ("unknown-job", unknown("job", request.job, self.cluster.jobs)), None
        there = [instance for instance in node.claimed.values() if instance.job is entry]
        runs = [each for each in there if each.vm in node.vms and node.vms[each.vm].state is VmState.RUNNING]
        if not runs:
            return ("job-not-there", f"job {request.job!r} does not run on node {node.name!r}"), None
        if len(node.claimed) > 1:
            what = (
                f"{len(node.claimed)} VMs are or may be on node {node.name!r}, only one of job {request.job!r} may be"
            )
            return ("several-jobs", what), None
        job, copies = request.run.job.value, request.run.copies
        assert node.inventory is not None
        node_type = node.inventory.node_type
        paces = self.profiles.paces.get(node_type, ())
        servers = node.inventory.cores if request.run.job is StandardJob.CPU else servers_of(paces, job)
        if copies < servers:
            what = f"the node has {servers} for {job}: with fewer copies than that the job is not in their way"
            return ("too-few-copies", what), None
        if pace_of(paces, job, copies) is None:
            what = f"how fast {copies} of {job} are alone on nodes of type {node_type!r} is not known; run them without"
            return ("no-pace", f"{what} a job first"), None
        return FINE, runs[0]

    def answer(self, message: StandardJobEnded, now_s: float) -> None:
        """Handle an agent's answer; one that was not expected changes nothing."""
        run = self.in_progress.get(message.node)
        node = self.cluster.nodes[message.node]
        if run is None or message.request != run.order:
            return
        total = _total(message, run.run.copies)
        if total is None:
            self._end(run, False, message.detail or "it did nothing", now_s)
        elif message.boot_id != node.boot_id or node.inventory is None:
            self._end(run, False, "the node restarted meanwhile", now_s)
        elif not run.job:
            self._paced(run, node, node.inventory.node_type, total, now_s)
        else:
            self._probed(run, node, node.inventory.node_type, total, now_s)

    def _paced(self, run: Run, node: NodeEntry, node_type: str, total: float, now_s: float) -> None:
        if node.claimed or node.unmanaged_mib > 0.0:
            self._end(run, False, "VMs have come to the node meanwhile", now_s)
            return
        job, copies = run.run.job.value, run.run.copies
        self.profiles.paced(node_type, PaceSample(job, copies, total, now_s))
        many = f", {servers_of(self.profiles.paces[node_type], job)} at a time at full speed" if copies > 1 else ""
        self._end(run, True, f"{copies} of {job}: {total:.6g} units/s{many}", now_s)

    def _probed(self, run: Run, node: NodeEntry, node_type: str, total: float, now_s: float) -> None:
        status, entry = node.vms.get(run.vm), self.cluster.job(run.job)
        stays = status is not None and status.state is VmState.RUNNING and status.generation == run.generation
        if entry is None or not stays or len(node.claimed) != 1 or node.unmanaged_mib > 0.0:
            self._end(run, False, "the job did not stay alone on the node", now_s)
            return
        job, copies = run.run.job.value, run.run.copies
        neutral = pace_of(self.profiles.paces.get(node_type, ()), job, copies)
        if neutral is None:
            self._end(run, False, "the pace of the node type is not known any more", now_s)
            return
        part = probe_part(neutral, total, copies)
        self.profiles.probed(entry.job, node_type, ProbePart(job, part, now_s))
        self._end(run, True, f"job {run.job}: {job} {part:.3f}, by a slow-down of {neutral / total:.3f}", now_s)

    def _end(self, run: Run, ok: bool, detail: str, now_s: float) -> None:
        del self.in_progress[run.node]
        self.profiles.disturbed[run.node] = now_s
        what = "standard-job-done" if ok else "standard-job-failed"
        self.unit_of_work.emit(now_s, what, run.node, detail)
        self.ended.append(replace(run, ended_s=now_s, ok=ok, detail=detail))

    # --- time passes ------------------------------------------------------------------------------------------------

    def due(self, now_s: float) -> None:
        """Give up what was not answered in time."""
        for run in [run for run in self.in_progress.values() if run.until_s <= now_s]:
            self._end(run, False, "no answer came in time", now_s)

    def next_due_s(self) -> float:
        """Return when the next run times out (inf: none)."""
        return min((run.until_s for run in self.in_progress.values()), default=math.inf)

    def removed(self, name: str, now_s: float) -> None:
        """Handle the removal of a node from the cluster."""
        run = self.in_progress.get(name)
        if run is not None:
            self._end(run, False, "the node was removed", now_s)
        self.profiles.disturbed.pop(name, None)


def _total(message: StandardJobEnded, copies: int) -> float | None:
    """Return the work of all copies per second; None where that is no measurement."""
    paces = message.paces
    if not message.ok or len(paces) != copies or not all(min(pace.units, pace.elapsed_s) > 0.0 for pace in paces):
        return None
    total = sum(pace.units / pace.elapsed_s for pace in paces)
    return total if 0.0 < total < math.inf else None
