"""Clusters for the placement policies, drawn from seeds: small ones whose optimum can be found, and mixed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shared.policy_api.snapshot import FlowColumns, Snapshot, WebColumns, WorkloadState
from shared.values.jobs import Constraint, ConstraintKind, Stage
from shared.values.operation_costs import COSTS
from shared.values.web_app import ModelForm
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

NOW_S, CYCLE_S = 200_000.0, 600.0
CORE_MHZ = 3900.0
COSTLY, FREE = "paper", "none"


@dataclass(slots=True)
class _Room:
    """What is still free on each node while jobs are put there."""

    mib: list[float]
    mhz: list[float]
    rows: Sequence[NodeRow]
    overhead_mib: float = 0.0
    apps: dict[int, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Sequence[NodeRow], overhead_mib: float = 0.0) -> _Room:
        mib = [node.memory_mib - node.other_mib for node in nodes]
        return cls(mib, [node.cores * node.core_mhz - node.other_mhz for node in nodes], nodes, overhead_mib)

    def settle(self, rng: np.random.Generator, job: WorkRow, share: float = 1.0) -> WorkRow:
        """The job running on random nodes with room at up to `share` of its speed, or as it was."""
        places: list[tuple[int, float]] = []
        mib, mhz = list(self.mib), list(self.mhz)
        taken = self.apps.get(job.app, set()) if job.app >= 0 else set()
        for _ in range(job.instances):
            for node in rng.permutation(len(self.rows)).tolist():
                row = self.rows[node]
                most = min(job.max_mhz, job.vcpus * row.core_mhz, row.cores * row.core_mhz)
                give = min(most, max(job.min_mhz, most * share), mhz[node])
                apart = node not in taken and not (job.spread and any(node == there for there, _ in places))
                fits = mib[node] >= job.memory_mib + self.overhead_mib and give >= max(job.min_mhz, 1.0)
                if fits and apart and {*job.required_labels} <= {*row.labels}:
                    mib[node] -= job.memory_mib + self.overhead_mib
                    mhz[node] -= give
                    places.append((node, give))
                    break
        if len(places) < job.instances:
            return job
        self.mib, self.mhz = mib, mhz
        self.apps.setdefault(job.app, set()).update(node for node, _ in places)
        if job.instances > 1:  # the slowest sets the pace
            pace = min(given for _, given in places)
            for node, given in places:
                self.mhz[node] += given - pace
            places = [(node, pace) for node, _ in places]
        return replace(job, state=WorkloadState.RUNNING, places=tuple(places))


def _asleep(rng: np.random.Generator, job: WorkRow, nodes: int) -> WorkRow:
    """The job suspended, its images on random nodes."""
    homes = rng.integers(0, nodes, job.instances).tolist()
    return replace(job, state=WorkloadState.SUSPENDED, places=tuple((node, 0.0) for node in homes))


def small_instance(seed: int, costs: str | None = None) -> Snapshot:
    """3 to 5 nodes and 6 to 10 single-stage jobs of mixed memory, speed, progress and tightness, in every state.

    Memory is short, so that not all jobs fit, and CPU at times. Without `costs` every other seed has the paper's.
    """
    rng = np.random.default_rng([seed, 1])
    nodes = [
        NodeRow(f"n{at}", 2, CORE_MHZ, memory_mib=float(rng.choice([8000, 10_000, 12_000])))
        for at in range(rng.integers(3, 6))
    ]
    room, jobs = _Room.of(nodes), []
    for at in range(int(rng.integers(6, 11))):
        job = _small_job(rng, f"j{at}")
        fate = rng.random()
        if fate < 0.6:
            job = room.settle(rng, job, float(rng.choice([0.5, 1.0, 1.0])))
        elif fate < 0.7:
            job = _asleep(rng, job, len(nodes))
        if job.state is WorkloadState.WAITING:
            job = replace(job, done_mcycles=0.0)
        jobs.append(job)
    chosen = costs if costs is not None else (COSTLY if seed % 2 else FREE)
    return replace(snapshot(nodes, jobs, NOW_S), cycle_s=CYCLE_S, costs=COSTS[chosen])


def _small_job(rng: np.random.Generator, name: str) -> WorkRow:
    vcpus = int(rng.choice([1, 1, 2]))
    max_mhz = vcpus * CORE_MHZ * float(rng.choice([0.4, 0.6, 1.0]))
    needs_s = float(rng.choice([580.0, 3000.0, 9000.0, 17_600.0]))
    done_frac = float(rng.choice([0.0, 0.2, 0.5, 0.9]))
    factor = float(rng.choice([1.3, 1.9, 2.5, 4.0]))
    since_s = needs_s * (done_frac + (factor - 1.0) * float(rng.choice([0.0, 0.0, 0.2, 0.4, 0.8, 1.1])))
    start_s = NOW_S - round(since_s)
    return WorkRow(
        name,
        memory_mib=float(rng.choice([2000, 3000, 4320, 6000])),
        max_mhz=max_mhz,
        vcpus=vcpus,
        submit_s=start_s,
        desired_start_s=start_s,
        goal_s=start_s + factor * needs_s,
        work_mcycles=max_mhz * needs_s,
        done_mcycles=done_frac * max_mhz * needs_s,
        revision=int(rng.integers(1, 9)),
    )


def experiment_one(goal_s: float) -> Snapshot:
    """apc.txt section 5.1, the second cycle: J1 runs, J2 with this goal has just come."""
    j1 = WorkRow(
        "J1",
        WorkloadState.RUNNING,
        memory_mib=750.0,
        work_mcycles=4000.0,
        done_mcycles=1000.0,
        goal_s=20.0,
        places=((0, 1000.0),),
    )
    j2 = WorkRow("J2", memory_mib=750.0, max_mhz=500.0, work_mcycles=2000.0, desired_start_s=1.0, goal_s=goal_s)
    return replace(snapshot([NodeRow("n1", 1, 1000.0, memory_mib=2000.0)], [j1, j2], 1.0), cycle_s=1.0)


def experiment_five(waiting: int, nodes: int = 25, cores: int = 4) -> Snapshot:
    """apc.txt section 5.5: three jobs and an instance of the application on every node, so many jobs waiting.

    At first the application has all that it can use; the jobs share what is left of each node. Goals are of factor 2.7.
    """
    rows = [NodeRow(f"n{at}", cores, CORE_MHZ, memory_mib=16_000.0) for at in range(nodes)]
    most_mhz = 130_000.0 * nodes / 25
    web_mhz = most_mhz / nodes
    job_mhz = min(CORE_MHZ, (cores * CORE_MHZ - web_mhz) / 3)
    jobs = []
    for at in range(3 * nodes + waiting):
        start_s = NOW_S - 200.0 * (at % 80) - 1.0
        job = WorkRow(f"j{at}", memory_mib=4320.0, max_mhz=CORE_MHZ, work_mcycles=68_640_000.0)
        job = replace(job, submit_s=start_s, desired_start_s=start_s, goal_s=start_s + 47_520.0)
        if at < 3 * nodes:
            done = (NOW_S - start_s) * CORE_MHZ * 0.9
            job = replace(job, state=WorkloadState.RUNNING, done_mcycles=done, places=((at // 3, job_mhz),))
        jobs.append(job)
    replica = WorkRow(
        "", WorkloadState.RUNNING, memory_mib=2000.0, max_mhz=cores * CORE_MHZ, vcpus=cores, work_mcycles=0.0, app=0
    )
    replicas = [replace(replica, name=f"web#{at}", places=((at, web_mhz),)) for at in range(nodes)]
    one, none = np.ones(1), np.zeros(1)
    scale = nodes / 25
    web = WebColumns(("web",), np.array([1]), np.array([nodes]), np.array([most_mhz]), one)
    flows = FlowColumns(
        ("requests",),
        np.array([0]),
        one,
        percentile=none,
        throughput=none > 0,
        model=(ModelForm.SHIFTED_HYPERBOLA,),
        t_min_s=one * 0.175,
        c_mhz_s=one * 16_500.0 * scale,
        load_mhz=one * 30_000.0 * scale,
        rate_per_s=none,
        work_mcycles=none,
        response_factor=one,
        expected_mhz=np.zeros_like(one),
    )
    return replace(snapshot(rows, [*jobs, *replicas], NOW_S), cycle_s=CYCLE_S, web=web, flows=flows)


# --- everything at once --------------------------------------------------------------------------------------------


def mixed_instance(seed: int, constrained: bool = True) -> Snapshot:
    """2 to 6 nodes of several kinds, up to 12 jobs (gangs, stages, importance, least speeds, some without a goal, fixed
    or suspended), up to two web applications, at times the paper's costs, constraints, labels, a draining node."""
    rng = np.random.default_rng([seed, 2])
    nodes = [_mixed_node(rng, at) for at in range(int(rng.integers(2, 7)))]
    overhead_mib = float(rng.choice([0.0, 100.0]))
    room, rows = _Room.of(nodes, overhead_mib), list[WorkRow]()
    web, flows, replicas = _applications(rng, int(rng.choice([0, 0, 1, 2])), len(nodes))
    for replica in replicas:
        rows.append(room.settle(rng, replica) if rng.random() < 0.7 else replica)
    for at in range(int(rng.integers(1, 13))):
        job = _mixed_job(rng, f"j{at}")
        fate = rng.random()
        if fate < 0.55:
            job = room.settle(rng, job, float(rng.choice([0.3, 0.7, 1.0])))
        elif fate < 0.7:
            job = _asleep(rng, job, len(nodes))
        if job.state is WorkloadState.WAITING:
            job = replace(job, done_mcycles=0.0)
        rows.append(job)
    made = snapshot(nodes, rows, NOW_S, overhead_mib)
    return replace(
        made,
        cycle_s=CYCLE_S,
        web=web,
        flows=flows,
        costs=COSTS[str(rng.choice([COSTLY, FREE]))],
        constraints=_constraints(rng, rows, [node.name for node in nodes]) if constrained else (),
    )


def _mixed_node(rng: np.random.Generator, at: int) -> NodeRow:
    fate = rng.random()
    return NodeRow(
        f"n{at}",
        cores=int(rng.integers(2, 9)),
        core_mhz=float(rng.choice([2600.0, CORE_MHZ])),
        memory_mib=float(rng.choice([8000, 12_000, 16_000])),
        other_mhz=float(rng.choice([0.0, 0.0, 1000.0])),
        other_mib=float(rng.choice([0.0, 0.0, 1000.0])),
        schedulable=fate > 0.12,
        draining=bool(fate < 0.08),
        labels=("ssd",) if rng.random() < 0.6 else (),
    )


def _mixed_job(rng: np.random.Generator, name: str) -> WorkRow:
    job = _small_job(rng, name)
    stages = tuple(
        Stage(
            job.work_mcycles * part,
            job.max_mhz * float(rng.choice([0.5, 1.0])),
            float(rng.choice([0.0, 0.0, 300.0])),
            int(job.memory_mib),
        )
        for part in rng.dirichlet(np.ones(int(rng.choice([1, 1, 2, 4]))))
    )
    slowness = sum(s.work_mcycles / s.max_mhz for s in stages) / (job.work_mcycles / job.max_mhz)
    goal_s = job.desired_start_s + (job.goal_s - job.desired_start_s) * slowness
    return replace(
        job,
        stages=stages,
        max_mhz=max(stage.max_mhz for stage in stages),
        min_mhz=max(stage.min_mhz for stage in stages),
        work_mcycles=sum(stage.work_mcycles for stage in stages),
        goal_s=float("inf") if rng.random() < 0.1 else goal_s,
        instances=int(rng.choice([1, 1, 1, 2, 3])),
        spread=bool(rng.random() < 0.3),
        fixed=bool(rng.random() < 0.06),
        importance=float(rng.choice([1.0, 1.0, 1.0, 2.0, 0.5])),
        required_labels=("ssd",) if rng.random() < 0.15 else (),
        memory_mib=float(rng.choice([1000, 2000, 3000])),
    )


def _applications(rng: np.random.Generator, count: int, nodes: int) -> tuple[WebColumns, FlowColumns, list[WorkRow]]:
    """Applications of one or two flows each; some are overloaded with what they have."""
    most = [int(rng.integers(1, nodes + 1)) for _ in range(count)]
    least = [int(rng.integers(0, 2)) for _ in range(count)]
    web = WebColumns(
        tuple(f"w{app}" for app in range(count)),
        np.array(least, dtype=np.int64),
        np.array(most, dtype=np.int64),
        np.array([float(rng.choice([6000.0, 15_000.0, np.inf])) for _ in range(count)], dtype=np.float64),
        np.array([float(rng.choice([1.0, 1.0, 2.0])) for _ in range(count)], dtype=np.float64),
    )
    columns = [_flow(rng, app, at) for app in range(count) for at in range(int(rng.integers(1, 3)))]
    number = {name: np.array([flow[name] for flow in columns], dtype=np.float64) for name in _FLOW_NUMBERS}
    of = np.array([flow["app"] for flow in columns], dtype=np.int64)
    names, models = (
        tuple(str(flow["name"]) for flow in columns),
        tuple(ModelForm(str(flow["model"])) for flow in columns),
    )
    flows = FlowColumns(
        names,
        of,
        throughput=np.zeros(len(columns), dtype=np.bool_),
        model=models,
        response_factor=np.ones(len(columns)),
        expected_mhz=np.zeros(len(columns)),
        **number,
    )
    replicas = [
        WorkRow(f"w{app}#{at}", memory_mib=1000.0, max_mhz=5000.0, vcpus=2, submit_s=NOW_S - 1.0, app=app)
        for app in range(count)
        for at in range(most[app])
    ]
    return web, flows, [replace(replica, work_mcycles=0.0) for replica in replicas]


_FLOW_NUMBERS = ("goal", "percentile", "t_min_s", "c_mhz_s", "load_mhz", "rate_per_s", "work_mcycles")


def _flow(rng: np.random.Generator, app: int, at: int) -> dict[str, float | str]:
    goal_s, load_mhz = float(rng.choice([0.2, 1.0])), float(rng.choice([300.0, 1500.0]))
    flow: dict[str, float | str] = {"name": f"f{at}", "app": app, "goal": goal_s, "t_min_s": 0.1 * goal_s}
    flow["percentile"] = float(rng.choice([0.0, 0.0, 0.9]))
    if rng.random() < 0.5:
        fitted = {"c_mhz_s": goal_s * float(rng.choice([1000.0, 3000.0])), "load_mhz": load_mhz}
        return flow | {"model": ModelForm.SHIFTED_HYPERBOLA.value, "rate_per_s": 0.0, "work_mcycles": 0.0} | fitted
    work_mcycles = float(rng.choice([10.0, 50.0]))
    known = {"rate_per_s": load_mhz / work_mcycles, "work_mcycles": work_mcycles}
    return flow | {"model": ModelForm.PROCESSOR_SHARING.value, "c_mhz_s": 0.0, "load_mhz": 0.0} | known


def _constraints(rng: np.random.Generator, rows: list[WorkRow], nodes: list[str]) -> tuple[Constraint, ...]:
    jobs = [row.name for row in rows if row.app < 0] or ["nobody"]
    found = []
    for kind in ConstraintKind:
        if rng.random() < 0.25:
            members = tuple(dict.fromkeys(rng.choice(jobs, int(rng.integers(1, 4))).tolist()))
            about = kind in (ConstraintKind.PIN, ConstraintKind.FORBID)
            chosen = tuple(dict.fromkeys(rng.choice(nodes, int(rng.integers(1, 3))).tolist())) if about else ()
            found.append(Constraint(kind, members, chosen))
    return tuple(found)


# --- racks and zones -----------------------------------------------------------------------------------------------

RACKS, ZONES = ("rack=r1", "rack=r2", "rack=r3"), ("zone=a", "zone=b")
SCOPES = ("", "", "rack", "rack", "zone")


def with_rules(seen: Snapshot, seed: int, preferred: float = 0.4) -> Snapshot:
    """The cluster in racks and zones, at times with a node in none, and one to eight constraints of every kind; a share
    of them is `preferred`."""
    rng = np.random.default_rng([seed, 3])
    labels = []
    for has in seen.nodes.labels:
        more = [str(rng.choice(RACKS))] if rng.random() < 0.9 else []
        labels.append((*has, *more, *([str(rng.choice(ZONES))] if rng.random() < 0.8 else [])))
    names = [*seen.web.names, *(n for n, app in zip(seen.workloads.names, seen.workloads.app, strict=True) if app < 0)]
    found = [_constraint(rng, names, seen.nodes.names, preferred) for _ in range(int(rng.integers(1, 9))) if names]
    return replace(seen, nodes=replace(seen.nodes, labels=tuple(labels)), constraints=tuple(found))


def _constraint(rng: np.random.Generator, names: Sequence[str], nodes: Sequence[str], preferred: float) -> Constraint:
    kind = list(ConstraintKind)[int(rng.choice(5, p=[0.15, 0.15, 0.25, 0.35, 0.1]))]
    members = tuple(dict.fromkeys(rng.choice(names, int(rng.integers(1, 5))).tolist()))
    weight = int(rng.integers(1, 101)) if rng.random() < preferred and kind is not ConstraintKind.KEEP else 0
    if kind is ConstraintKind.KEEP:
        return Constraint(kind, members[:1])
    if kind in (ConstraintKind.TOGETHER, ConstraintKind.APART):
        about = tuple(dict.fromkeys(rng.choice(names, int(rng.integers(1, 3))).tolist())) if rng.random() < 0.3 else ()
        about = () if set(about) <= set(members) else about
        return Constraint(kind, members, scope=str(rng.choice(SCOPES)), weight=weight, about=about)
    if rng.random() < 0.5 or not nodes:
        return Constraint(kind, members, labels=(str(rng.choice([*RACKS, "ssd"])),), weight=weight)
    return Constraint(kind, members, tuple(dict.fromkeys(rng.choice(nodes, 2).tolist())), weight=weight)
