"""Reads a file for `trimtab sim place`: a cluster as someone wrote it by hand, checked as a whole.

What one thing alone may be is said by `fields`; here is what must hold between them, and what follows from what is left
out. `read` raises `InvalidInput` with every problem of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from daemons.capacity.json_file import parse_file
from daemons.capacity.place.fields import (
    RUNNING,
    SUSPENDED,
    WAITING,
    Cluster,
    Costs,
    Flow,
    Held,
    Job,
    Node,
    Restriction,
    Stage,
    WebApp,
)
from shared.base.errors import InvalidValue
from shared.config import records
from shared.config.records import Findings
from shared.values.jobs import NODE_SCOPE, Constraint, ConstraintKind, instance_name
from shared.values.load_vector import CPU, Loading
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.web_app import ModelForm

GOALS = ("mean_s", "percentile_s", "throughput_per_s")
SAME_WORK = 1e-6  # how far a job's work may be from the sum of its stages
Place = tuple[str, float | None]
"""The node that an instance runs on or its image lies on ("": on none), and its MHz (None: not known)."""


@dataclass(frozen=True, slots=True)
class WholeStage:
    """A stage with what the job says of it."""

    work_mcycles: float
    max_mhz: float
    min_mhz: float
    memory_mib: float


@dataclass(frozen=True, slots=True)
class WholeJob:
    """A job with its stages, where each instance runs or each image is, and what it loads, its CPU left out."""

    keys: Job
    desired_start_s: float
    stages: tuple[WholeStage, ...]
    held: tuple[Place, ...]
    loading: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WholeFlow:
    """A flow with its one goal. A figure that its model does not need is 0."""

    name: str
    goal: float
    percentile: float
    throughput: bool
    model: ModelForm
    t_min_s: float
    c_mhz_s: float
    load_mhz: float
    rate_per_s: float
    work_mcycles: float


@dataclass(frozen=True, slots=True)
class WholeApp:
    """A web application with its flows, and where its instances run."""

    keys: WebApp
    flows: tuple[WholeFlow, ...]
    total_max_mhz: float | None
    held: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class PlaceFile:
    """A file whose every part is known to be good.

    changes_max: the limit on changes of running workloads, None: no limit. interference: the model of what sharing
    costs, "off": none.
    """

    now_s: float
    cycle_s: float
    costs: OperationCosts
    vm_overhead_mib: float
    nodes: tuple[Node, ...]
    jobs: tuple[WholeJob, ...]
    web_apps: tuple[WholeApp, ...]
    constraints: tuple[Constraint, ...]
    changes_max: int | None
    interference: str


def read(path: Path) -> PlaceFile:
    """Read the file at `path`. Raises `InvalidInput` naming each problem with its place in the file."""
    return check(parse_file(path), str(path))


def check(raw: Any, name: str) -> PlaceFile:
    """Check a parsed file; `name` is the file name in reported problems. Raises `InvalidInput`."""
    file = records.read(raw, Cluster, name, notation=records.JSON, check=lambda file, found: _Check(file, found).all())
    costs = file.operation_costs
    return PlaceFile(
        file.now_s,
        file.cycle_s,
        OperationCosts(*astuple(costs)) if isinstance(costs, Costs) else COSTS[costs],
        vm_overhead_mib=file.vm_overhead_mib,
        nodes=file.nodes,
        jobs=tuple(_whole_job(job, file) for job in file.jobs),
        web_apps=tuple(_whole_app(app, file) for app in file.web_apps),
        constraints=tuple(_constraint(each) for each in file.constraints),
        changes_max=file.limits.changes_max,
        interference=file.interference,
    )


def _constraint(each: Restriction) -> Constraint:
    scope = "" if each.scope == NODE_SCOPE else each.scope
    return Constraint(each.kind, each.members, each.nodes, scope, each.labels, each.weight, each.about)


def vm_names(job: Job) -> list[str]:
    """Return the names of the VMs of a job in `placement`."""
    count = job.instances
    return [job.name] if count == 1 else [instance_name(job.name, index) for index in range(count)]


def replica_name(app: str, node: str) -> str:
    """Return the name of the instance of a web application on a node in `placement`."""
    return f"{app}@{node}"


# --- what follows ---------------------------------------------------------------------------------------------------


def _whole_job(job: Job, file: Cluster) -> WholeJob:
    start_s = file.now_s if job.desired_start_s is None else job.desired_start_s
    loading = {name: part for name, part in job.loading.items() if name != CPU and part > 0.0}
    return WholeJob(job, start_s, tuple(_whole_stages(job)), tuple(_held(job, file.placement)), loading)


def _whole_stages(job: Job) -> list[WholeStage]:
    """Fill values that a stage omits from the job's own keys; NaN if neither gives one."""
    return [
        WholeStage(
            _known(stage.work_mcycles),
            _known(stage.max_mhz, job.max_mhz),
            _known(stage.min_mhz, job.min_mhz),
            _known(stage.memory_mib, job.memory_mib),
        )
        for stage in ([Stage(_known(job.work_mcycles))] if job.stages is None else job.stages)
    ]


def _known(*values: float | None) -> float:
    return next((value for value in values if value is not None), math.nan)


def _held(job: Job, placement: Mapping[str, Held]) -> Sequence[Place]:
    if job.state == WAITING:
        return ()
    if job.state == SUSPENDED:
        return ((job.image_node or job.node or "", None),) * job.instances
    vms = vm_names(job)
    if any(vm in placement for vm in vms):
        return [(placement[vm].node, placement[vm].cpu_mhz) for vm in vms]
    return ((job.node or "", None),) * job.instances


def _nodes_of_replicas(app: WebApp, placement: Mapping[str, Held]) -> dict[str, str]:
    """Return the node in the name of each VM of a web application that `placement` has."""
    parts = {vm: vm.partition("@") for vm in placement}
    return {vm: node for vm, (name, at_sign, node) in parts.items() if at_sign and name == app.name}


def _whole_app(app: WebApp, file: Cluster) -> WholeApp:
    nodes = tuple(_nodes_of_replicas(app, file.placement).values()) if app.placed_on is None else app.placed_on
    replicas = [file.placement.get(replica_name(app.name, node)) for node in nodes]
    held = tuple(
        (node, None if replica is None else replica.cpu_mhz) for node, replica in zip(nodes, replicas, strict=True)
    )
    goal = app.goal_relative
    if goal is None:
        return WholeApp(app, tuple(map(_whole_flow, app.flows or ())), app.total_max_mhz, held)
    form = ModelForm.SHIFTED_HYPERBOLA
    flow = WholeFlow(
        "all",
        1.0,
        0.0,
        throughput=False,
        model=form,
        t_min_s=goal.t_min,
        c_mhz_s=goal.c_mhz,
        load_mhz=goal.load_mhz,
        rate_per_s=0.0,
        work_mcycles=0.0,
    )
    return WholeApp(app, (flow,), app.total_max_mhz if goal.max_mhz is None else goal.max_mhz, held)


def _whole_flow(flow: Flow) -> WholeFlow:
    return WholeFlow(
        flow.name,
        _known(flow.mean_s, flow.percentile_s, flow.throughput_per_s),
        flow.percentile or 0.0,
        throughput=flow.throughput_per_s is not None,
        model=flow.model,
        t_min_s=flow.t_min_s,
        c_mhz_s=flow.c_mhz_s or 0.0,
        load_mhz=flow.load_mhz or 0.0,
        rate_per_s=flow.rate_per_s or 0.0,
        work_mcycles=flow.work_mcycles or 0.0,
    )


# --- what must hold between the parts -------------------------------------------------------------------------------


class _Check:
    """Goes through one file in which some values may stand for ones that are not good."""

    def __init__(self, file: Cluster, found: Findings) -> None:
        self._file = file
        self._wrong = found.wrong
        self._good = found.is_good
        self._nodes = {node.name for node in file.nodes}
        self._used: set[str] = set()

    def all(self) -> None:
        """Report everything that does not fit."""
        file = self._file
        self._names("nodes", file.nodes, {})
        for index, node in enumerate(file.nodes):
            if CPU in node.servers:
                at = f"nodes[{index}].servers.{CPU}"
                self._wrong(at, "is shared out by allotments", "another resource, such as io")
        for vm, held in file.placement.items():
            self._node(f"placement.{vm}.node", held.node)
        names: dict[str, str] = {}
        self._names("jobs", file.jobs, names)
        self._names("web_apps", file.web_apps, names)
        for index, job in enumerate(file.jobs):
            self._job(f"jobs[{index}]", job)
        for index, app in enumerate(file.web_apps):
            self._app(f"web_apps[{index}]", app)
        for vm in file.placement:
            if vm not in self._used:
                self._wrong(f"placement.{vm}", "runs nowhere by the rest of the file", "a job or app@node that runs")
        for index, each in enumerate(file.constraints):
            self._restriction(f"constraints[{index}]", each, names)

    def _names(self, key: str, rows: Iterable[Node | Job | WebApp], names: dict[str, str]) -> None:
        """None in a list has the name of another."""
        for index, row in enumerate(rows):
            at = f"{key}[{index}]"
            if row.name in names:
                self._wrong(f"{at}.name", f"{row.name!r} is the name of {names[row.name]} too", "names that differ")
            elif row.name:
                names[row.name] = at

    def _node(self, at: str, node: str | None) -> None:
        if node and node not in self._nodes:
            self._wrong(at, f"there is no node {node!r}", "the name of a node of the file")

    def _job(self, at: str, job: Job) -> None:
        self._stages(at, job)
        try:
            Loading(tuple(job.loading.items()))
        except InvalidValue as problem:
            self._wrong(f"{at}.loading", str(problem), "parts of a job's time alone, by resource")
        if job.goal_s is not None and self._good(f"{at}.desired_start_s"):
            start_s = self._file.now_s if job.desired_start_s is None else job.desired_start_s
            if job.goal_s <= start_s:
                self._wrong(f"{at}.goal_s", f"is {job.goal_s:g}", f"more than desired_start_s = {start_s:g}")
        self._node(f"{at}.node", job.node)
        self._node(f"{at}.image_node", job.image_node)
        if job.name and self._good(f"{at}.instances") and self._good(f"{at}.state"):
            {WAITING: self._waits, RUNNING: self._runs, SUSPENDED: self._saved}[job.state](at, job)

    def _stages(self, at: str, job: Job) -> None:
        if not job.stages and not self._good(f"{at}.stages"):
            return
        whole = _whole_stages(job)
        for index, stage in enumerate(whole):
            here = at if job.stages is None else f"{at}.stages[{index}]"
            own = None if job.stages is None else job.stages[index]
            for key, words in _NEEDED.items():
                said = (f"{here}.{key}",) if job.stages is None else (f"{here}.{key}", f"{at}.{key}")
                if math.isnan(getattr(stage, key)) and all(map(self._good, said)):
                    what = "is missing" if own is None else "is missing here and in the job"
                    self._wrong(f"{here}.{key}", what, words)
            if stage.min_mhz > stage.max_mhz:
                self._wrong(f"{here}.min_mhz", f"is {stage.min_mhz:g}", f"at most max_mhz = {stage.max_mhz:g}")
        total, stated = math.fsum(stage.work_mcycles for stage in whole), job.work_mcycles
        if job.stages is not None and stated is not None and abs(stated - total) > SAME_WORK * total:
            self._wrong(f"{at}.work_mcycles", f"is {stated:g}", f"{total:g}, the sum of the stages, or nothing")
        elif job.done_mcycles > total:
            self._wrong(f"{at}.done_mcycles", f"is {job.done_mcycles:g}", f"at most the job's work, {total:g}")

    def _waits(self, at: str, job: Job) -> None:
        for key, node in (("node", job.node), ("image_node", job.image_node)):
            if node is not None:
                self._wrong(f"{at}.{key}", "is given for a waiting job", "null, or another state")

    def _runs(self, at: str, job: Job) -> None:
        if job.image_node is not None:
            self._wrong(f"{at}.image_node", "is given for a running job", "null, or the state suspended")
        vms, placement = vm_names(job), self._file.placement
        if any(vm in placement for vm in vms):
            for vm in vms:
                self._placed(at, job, vm, placement.get(vm))
        elif job.node is None and self._good(f"{at}.node"):
            self._wrong(f"{at}.node", "is missing", f"where it runs, here or as {vms[0]} in placement")

    def _placed(self, at: str, job: Job, vm: str, held: Held | None) -> None:
        self._used.add(vm)
        if held is None:
            self._wrong(f"placement.{vm}", "is missing", "every instance of a job that runs, or none")
        elif job.node is not None and held.node and job.node != held.node:
            self._wrong(f"{at}.node", f"is {job.node!r}", f"{held.node!r} as in placement.{vm}, or nothing")

    def _saved(self, at: str, job: Job) -> None:
        image, node = job.image_node, job.node
        if image is not None and node is not None and image != node:
            self._wrong(f"{at}.image_node", f"is {image!r}", f"{node!r} as in node, or only one of the two")

    # --- web applications -------------------------------------------------------------------------------------------

    def _app(self, at: str, app: WebApp) -> None:
        bounds_good = self._good(f"{at}.min_instances") and self._good(f"{at}.max_instances")
        if app.min_instances > app.max_instances and bounds_good:
            what = f"at most max_instances = {app.max_instances}"
            self._wrong(f"{at}.min_instances", f"is {app.min_instances}", what)
        if app.name:
            self._check_replicas(at, app)
        given = {"goal_relative": app.goal_relative is not None, "flows": app.flows is not None}
        if all(given.values()):
            self._wrong(at, "has goal_relative and flows", "either goal_relative or flows")
        elif not any(given.values()) and all(self._good(f"{at}.{key}") for key in given):
            self._wrong(at, "has no goal", "either goal_relative or flows")
        self._goal_relative(at, app)
        names: set[str] = set()
        for index, flow in enumerate(app.flows or ()):
            place = f"{at}.flows[{index}]"
            if flow.name and flow.name in names:
                self._wrong(f"{place}.name", f"{flow.name!r} is the name of another flow too", "names that differ")
            names.add(flow.name)
            self._flow(place, flow)

    def _check_replicas(self, at: str, app: WebApp) -> None:
        placement = self._file.placement
        by_vm = _nodes_of_replicas(app, placement)
        self._used |= by_vm.keys()
        nodes = list(by_vm.values()) if app.placed_on is None else app.placed_on
        for index, node in enumerate(nodes):
            self._node(f"{at}.placed_on[{index}]", node)
            replica = replica_name(app.name, node)
            if by_vm and replica not in by_vm:
                self._wrong(f"placement.{replica}", "is missing", "every instance that runs, or none")
        for vm, node in by_vm.items():
            if node not in nodes or placement[vm].node not in ("", node):
                self._wrong(f"placement.{vm}", "does not fit placed_on or its node", "app@node, on that node")
        if len(nodes) > app.max_instances and self._good(f"{at}.max_instances"):
            self._wrong(f"{at}.placed_on", f"names {len(nodes)} nodes", f"at most max_instances = {app.max_instances}")

    def _goal_relative(self, at: str, app: WebApp) -> None:
        goal = app.goal_relative
        if goal is None:
            return
        if goal.t_min >= 1.0:
            self._wrong(f"{at}.goal_relative.t_min", f"is {goal.t_min:g}", "less than 1, the goal")
        if goal.max_mhz is not None and app.total_max_mhz is not None:
            self._wrong(f"{at}.total_max_mhz", "is given in goal_relative too", "one of the two")

    def _flow(self, at: str, flow: Flow) -> None:
        given = [key for key in GOALS if getattr(flow, key) is not None]
        if len(given) != 1 and all(self._good(f"{at}.{key}") for key in GOALS):
            self._wrong(at, f"has {len(given)} goals", "exactly one of " + ", ".join(GOALS))
        if (flow.percentile is None) != (flow.percentile_s is None) and self._good(f"{at}.percentile"):
            self._wrong(f"{at}.percentile", "and percentile_s go together", "both or neither")
        for key in _figures(flow) if self._good(f"{at}.model") else ():
            if getattr(flow, key) is None and self._good(f"{at}.{key}"):
                self._wrong(f"{at}.{key}", "is missing", "a number, for this goal and model")

    # --- constraints ------------------------------------------------------------------------------------------------

    def _restriction(self, at: str, each: Restriction, names: Mapping[str, str]) -> None:
        for key in ("members", "about"):
            for index, member in enumerate(getattr(each, key)):
                if member not in names:
                    expected = "the name of a job or web application"
                    self._wrong(f"{at}.{key}[{index}]", f"there is no {member!r}", expected)
        for index, node in enumerate(each.nodes):
            self._node(f"{at}.nodes[{index}]", node)
        if not self._good(f"{at}.kind") or not self._good(f"{at}.nodes"):
            return
        about_nodes = each.kind in (ConstraintKind.PIN, ConstraintKind.FORBID)
        if about_nodes and not each.nodes and not each.labels and self._good(f"{at}.labels"):
            self._wrong(f"{at}.nodes", "is missing", "the nodes that the constraint is about, or labels")
        for key in ("nodes", "labels"):
            if getattr(each, key) and not about_nodes:
                self._wrong(f"{at}.{key}", f"is given for {each.kind}", f"nothing: only pin and forbid name {key}")
        related = each.kind in (ConstraintKind.TOGETHER, ConstraintKind.APART)
        for key, default in (("scope", NODE_SCOPE), ("about", ())):
            if getattr(each, key) != default and not related:
                self._wrong(f"{at}.{key}", f"is given for {each.kind}", f"nothing: only together and apart have {key}")
        if each.weight and each.kind is ConstraintKind.KEEP:
            self._wrong(f"{at}.weight", f"is given for {each.kind}", "nothing: keep is required")


_NEEDED = {
    "work_mcycles": "a number from 0",
    "max_mhz": "a number from 0.001",
    "memory_mib": "a number from 0",
}
"""What is known of every stage."""


def _figures(flow: Flow) -> tuple[str, ...]:
    """Return the figures without which the response time, or the rate that CPU can answer, is unknown."""
    if flow.throughput_per_s is not None:
        return ("work_mcycles",)
    return ("c_mhz_s",) if flow.model is ModelForm.SHIFTED_HYPERBOLA else ("rate_per_s", "work_mcycles")
