"""What goes wrong in a fault run, when and to whom: all of it drawn from one seed before the run begins.

Pure: a script is a value, the same for the same seed. `fault_runs` carries it out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from shared.protocol import topology
from shared.values.actions import ActionKind
from shared.values.jobs import Job, Rules, Stage
from shared.values.nodes import Node
from shared.values.operation_costs import OperationCosts
from sim_backend.bus.faults import BusFaults, FaultRule, Partition
from sim_backend.bus.faults import FaultKind as BusFaultKind
from sim_backend.faults.apps import FaultApp, draw_apps, watched, with_rules
from sim_backend.faults.environments import NODES as ENVIRONMENT_NODES
from sim_backend.faults.environments import FaultEnvironments, at_home, draw_environments
from sim_backend.faults.power import FaultPower, draw_power

JOBS = 20
NODES_MIN = 5
HORIZON_S = 7_200.0
EXISTING_HORIZON_S, JOBS_BESIDE = 5_400.0, 6
FAULTS_FROM_S = 60.0
FAULTS_UNTIL_S = 4_200.0
REPAIRED_BY_S = 4_500.0
FAULTS_MIN, FAULTS_MAX = 12, 16
ROTATED = 4  # kinds that a seed must have: over 20 consecutive seeds every kind comes up
NODE_MIB, NODE_RESERVE_MIB = 3_000, 400
CORES, CORE_MHZ = 2, 1_000.0
CONTROLLERS = ("a", "b")
HEARTBEAT_S = 20.0
PART_S = 14_400.0  # of a longer script: how long after one part the next begins
PARTS_APART = 1_000_000  # between the seeds of its parts
LEADER_DIES_S = 4.0  # how long before a change of leaders its orders begin to be late
NEAR_MOMENT = 0.7  # share of faults that hit just when a job has come in or a drain has begun
DRAINS = 12


class Fault(StrEnum):
    """Kinds of faults, in the order in which seeds rotate through them."""

    MESSAGE_LOST = "message-lost"
    MESSAGE_LATE = "message-late"
    MESSAGE_DOUBLED = "message-doubled"
    MESSAGE_OVERTAKEN = "message-overtaken"
    CONFIRM_LOST = "confirm-lost"
    GARBAGE = "garbage"
    AGENT_CUT_OFF = "agent-cut-off"
    CONTROLLER_CUT_OFF = "controller-cut-off"
    HOSTS_CUT_OFF = "hosts-cut-off"
    BROKER_RESTARTED = "broker-restarted"
    AGENT_KILLED = "agent-killed"
    CONTROLLER_KILLED = "controller-killed"
    CONTROLLER_FROZEN = "controller-frozen"
    LEADER_CHANGES = "leader-changes"
    STORE_DOWN = "store-down"
    COMPUTATION_FAILS = "computation-fails"
    OPERATION_REFUSED = "operation-refused"
    OPERATION_FAILED = "operation-failed"
    OPERATION_HUNG = "operation-hung"
    VM_LOST = "vm-lost"
    VM_CRASHED = "vm-crashed"
    HOST_DIES = "host-dies"
    HOST_REBOOTS = "host-reboots"
    FENCE_FAILS = "fence-fails"
    JOURNAL_FULL = "journal-full"


BUS_KINDS = {
    Fault.MESSAGE_LOST: BusFaultKind.DROP,
    Fault.MESSAGE_LATE: BusFaultKind.DELAY,
    Fault.MESSAGE_DOUBLED: BusFaultKind.DUPLICATE,
    Fault.MESSAGE_OVERTAKEN: BusFaultKind.REORDER,
    Fault.CONFIRM_LOST: BusFaultKind.LOSE_CONFIRM,
}
JUST_BEFORE = frozenset({Fault.CONTROLLER_FROZEN, Fault.LEADER_CHANGES})
OPERATIONS = frozenset({Fault.OPERATION_REFUSED, Fault.OPERATION_FAILED, Fault.OPERATION_HUNG})
NEEDS_STANDBY = frozenset({Fault.CONTROLLER_CUT_OFF, Fault.CONTROLLER_FROZEN, Fault.LEADER_CHANGES})


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault of `kind` at `at_s` that is put right at `until_s`. `node` (and `other`) for those that hit a node;
    `number` cuts between effects or counts repetitions; `operation` is the one that fails (None: whichever is next)."""

    kind: Fault
    at_s: float
    until_s: float
    node: str = ""
    other: str = ""
    number: int = 0
    operation: ActionKind | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """A node that an operator drains from `from_s` to `until_s`: VMs are moved, images stay."""

    node: str
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class FaultScript:
    """Everything that a run of one seed consists of. `work_factors`: true work / declared work by job. `existing_vms`:
    there are VMs that existed before, whatever the seed."""

    seed: int
    nodes: tuple[Node, ...]
    speed_factors: dict[str, float]
    jobs: tuple[Job, ...]
    apps: tuple[FaultApp, ...]
    work_factors: dict[str, float]
    costs: OperationCosts
    policy: str
    controllers: tuple[str, ...]
    cancelled: tuple[str, float]
    drains: tuple[Drain, ...]
    incidents: tuple[Incident, ...]
    bus: BusFaults
    compute_s: float
    gang_timeout_s: float
    action_ttl_s: float
    power: FaultPower | None = None
    environments: FaultEnvironments | None = None
    existing_vms: bool = False
    repaired_by_s: float = REPAIRED_BY_S
    horizon_s: float = HORIZON_S


POLICIES = ("first-fit", "edf", "apc")


def write_script(seed: int, nodes: int = NODES_MIN, policy: str | None = None) -> FaultScript:
    """Return the script of a seed for at least `NODES_MIN` nodes. With a `policy` of None, seeds rotate through
    `POLICIES`; everything else is the same for every policy."""
    rng = Random(seed)
    chosen = policy or POLICIES[seed % len(POLICIES)]
    cluster = tuple(_node(index, rng) for index in range(max(nodes, NODES_MIN)))
    jobs = tuple(_job(index, rng) for index in range(JOBS))
    drains = tuple(_drain(turn, cluster, rng) for turn in range(DRAINS))
    kinds = _kinds(seed, rng)
    standby = any(kind in NEEDS_STANDBY for kind in kinds)
    moments = [(job.submit_s, "") for job in jobs] + [(drain.from_s, drain.node) for drain in drains]
    names = [node.name for node in cluster]
    power = draw_power(seed, cluster)
    incidents = tuple(
        sorted((_incident(kind, names, moments, rng) for kind in kinds), key=lambda incident: incident.at_s)
    )
    return FaultScript(
        seed=seed,
        nodes=cluster,
        speed_factors={node.name: rng.choice((1.0, 1.0, 0.8, 1.1)) for node in cluster},
        jobs=with_rules(seed, jobs, cluster),
        apps=draw_apps(seed, cluster),
        work_factors={job.name: rng.uniform(0.8, 1.3) for job in jobs},
        costs=rng.choice(_COSTS),
        policy=chosen,
        controllers=CONTROLLERS if standby else CONTROLLERS[:1],
        cancelled=(rng.choice(jobs).name, rng.uniform(300.0, 3_000.0)) if rng.random() < 0.5 else ("", 0.0),
        drains=drains,
        incidents=incidents,
        bus=_bus_faults(seed, incidents, rng),
        compute_s=rng.choice((0.0, 0.0, 0.4, 3.0)),
        gang_timeout_s=rng.choice((30.0, 120.0)),
        action_ttl_s=rng.choice((60.0, 150.0)),
        power=power,
    )


def write_environments(
    seed: int, nodes: int = ENVIRONMENT_NODES, policy: str | None = None, hours: int = 2
) -> FaultScript:
    """Return the script of a seed with environments: the faults of `write_script` without power, and those of node
    reassignments.

    A longer script is a sequence of all scripts that begin within `hours`; its periods are longer too.
    """
    count = max(1, math.ceil(3_600.0 * hours / PART_S))
    parts = [write_script(seed + turn * PARTS_APART, max(nodes, ENVIRONMENT_NODES), policy) for turn in range(count)]
    script = parts[0] if count == 1 else lengthened(parts)
    until_s = script.repaired_by_s - (REPAIRED_BY_S - FAULTS_UNTIL_S)
    environments = draw_environments(seed, script.nodes, script.jobs, until_s)
    return replace(
        script,
        jobs=tuple(at_home(job, environments.homes.get(job.name, "")) for job in script.jobs),
        apps=(
            *(replace(one, app=replace(one.app, rules=Rules()), changed=None) for one in script.apps),
            watched(seed, environments.app),
        ),
        speed_factors=dict.fromkeys(script.speed_factors, 1.0),
        power=None,
        environments=environments,
    )


def write_existing_vms(seed: int, nodes: int = NODES_MIN, policy: str | None = None) -> FaultScript:
    """Return the script of a seed with VMs that existed before: the faults of `write_script` without power, few jobs
    and no application."""
    script = write_script(seed, nodes, policy)
    jobs = script.jobs[:JOBS_BESIDE]
    names = {job.name for job in jobs}
    return replace(
        script,
        jobs=jobs,
        apps=(),
        work_factors={name: factor for name, factor in script.work_factors.items() if name in names},
        cancelled=script.cancelled if script.cancelled[0] in names else ("", 0.0),
        power=None,
        existing_vms=True,
        horizon_s=EXISTING_HORIZON_S,
    )


def lengthened(parts: Sequence[FaultScript]) -> FaultScript:
    """Return a sequence of scripts on the nodes of the first, each part with its own jobs and faults. Applications,
    environments and everything that is drawn once per world come from the first."""
    first, step_s = parts[0], PART_S
    shifted = [part if not turn else _later(part, turn, turn * step_s) for turn, part in enumerate(parts)]
    last_s = (len(parts) - 1) * step_s
    return replace(
        first,
        jobs=tuple(job for part in shifted for job in part.jobs),
        work_factors={name: factor for part in shifted for name, factor in part.work_factors.items()},
        controllers=CONTROLLERS,
        drains=tuple(drain for part in shifted for drain in part.drains),
        incidents=tuple(incident for part in shifted for incident in part.incidents),
        bus=replace(
            first.bus,
            rules=tuple(rule for part in shifted for rule in part.bus.rules),
            partitions=tuple(partition for part in shifted for partition in part.bus.partitions),
        ),
        repaired_by_s=REPAIRED_BY_S + last_s,
        horizon_s=PART_S * len(parts),
    )


def _later(script: FaultScript, turn: int, by_s: float) -> FaultScript:
    """Return the script shifted to a later time, with other names for its jobs."""
    return replace(
        script,
        jobs=tuple(_job_later(job, turn, by_s) for job in script.jobs),
        work_factors={f"{name}-{turn}": factor for name, factor in script.work_factors.items()},
        drains=tuple(Drain(one.node, one.from_s + by_s, one.until_s + by_s) for one in script.drains),
        incidents=tuple(replace(one, at_s=one.at_s + by_s, until_s=one.until_s + by_s) for one in script.incidents),
        bus=replace(
            script.bus,
            rules=tuple(replace(one, from_s=one.from_s + by_s, until_s=one.until_s + by_s) for one in script.bus.rules),
            partitions=tuple(
                replace(one, from_s=one.from_s + by_s, until_s=one.until_s + by_s) for one in script.bus.partitions
            ),
        ),
    )


def _job_later(job: Job, turn: int, by_s: float) -> Job:
    goal_s = None if job.goal_s is None else job.goal_s + by_s
    begins_s = job.desired_start_s + by_s
    name = f"{job.name}-{turn}"
    return replace(job, name=name, submit_s=job.submit_s + by_s, desired_start_s=begins_s, goal_s=goal_s)


_COSTS = (
    OperationCosts(),
    OperationCosts(start_s=3.6, suspend_s_per_mib=0.0353, resume_s_per_mib=0.0333, migrate_s_per_mib=0.0132),
    OperationCosts(start_s=12.0, suspend_s_per_mib=0.02, resume_s_per_mib=0.03, migrate_s_per_mib=0.05),
    OperationCosts(start_s=1.0, suspend_s_per_mib=0.0, resume_s_per_mib=0.05, migrate_s_per_mib=0.0),
)


def _node(index: int, rng: Random) -> Node:
    """Draw a node; two make a rack."""
    fast = ("ssd",) if rng.random() < 0.6 or index == 0 else ()
    labels = (*fast, f"rack=r{index // 2}")
    return Node(f"n{index}", CORES, CORE_MHZ, memory_mib=NODE_MIB, reserve_mib=NODE_RESERVE_MIB, labels=labels)


def _drain(turn: int, nodes: Sequence[Node], rng: Random) -> Drain:
    """Drains come one after the other."""
    slot_s = (FAULTS_UNTIL_S - 300.0) / DRAINS
    from_s = 300.0 + (turn + rng.uniform(0.0, 0.3)) * slot_s
    return Drain(rng.choice(nodes).name, from_s, from_s + rng.uniform(0.2, 0.7) * slot_s)


def _job(index: int, rng: Random) -> Job:
    """Job 0 has three instances on nodes of their own, the others one to three; the longer, the earlier they come."""
    instances = 3 if index == 0 else rng.choice((1, 1, 1, 1, 2, 3))
    long = index % 5 == 1
    run_s = rng.uniform(1_200.0, 3_300.0) if long else rng.uniform(60.0, 900.0)
    submit_s = rng.uniform(20.0, 600.0) if long else rng.uniform(20.0, FAULTS_UNTIL_S - 600.0)
    max_mhz = rng.choice((500.0, 800.0, 1_000.0))
    saves = long or rng.random() < 0.3
    memory_mib = rng.choice((300, 600, 900, 1_300))
    halves = rng.random() < 0.3
    stages: Sequence[Stage] = (Stage(run_s * max_mhz, max_mhz, 0.0, memory_mib),)
    if halves:
        stages = (
            Stage(run_s * max_mhz / 2, max_mhz, 0.0, memory_mib),
            Stage(run_s * max_mhz / 4, max_mhz / 2, 0.0, memory_mib),
        )
    return Job(
        name=f"j{index:02}",
        stages=tuple(stages),
        submit_s=submit_s,
        desired_start_s=submit_s,
        goal_s=submit_s + rng.choice((1.3, 2.5, 4.0)) * run_s if rng.random() < 0.7 else None,
        instances=instances,
        importance=rng.choice((1.0, 2.0)),
        spread=index == 0 or rng.random() < 0.4,
        checkpoint_mcycles=rng.choice((60.0, 200.0)) * max_mhz if saves else 0.0,
        required_labels=("ssd",) if instances == 1 and rng.random() < 0.1 else (),
    )


def _kinds(seed: int, rng: Random) -> list[Fault]:
    every = list(Fault)
    first = [every[(seed * ROTATED + turn) % len(every)] for turn in range(ROTATED)]
    return first + rng.choices(every, k=rng.randint(FAULTS_MIN, FAULTS_MAX) - ROTATED)


_LENGTHS_S: dict[Fault, tuple[float, float]] = {
    Fault.AGENT_CUT_OFF: (5.0, 300.0),
    Fault.CONTROLLER_CUT_OFF: (5.0, 200.0),
    Fault.HOSTS_CUT_OFF: (60.0, 600.0),
    Fault.AGENT_KILLED: (1.0, 60.0),
    Fault.CONTROLLER_KILLED: (1.0, 60.0),
    Fault.CONTROLLER_FROZEN: (10.0, 90.0),
    Fault.LEADER_CHANGES: (5.0, 40.0),
    Fault.STORE_DOWN: (1.0, 40.0),
    Fault.HOST_REBOOTS: (3.0, 28.0),  # back before it is missed
    Fault.JOURNAL_FULL: (5.0, 60.0),
}
_MESSAGE_WINDOW_S = (5.0, 60.0)


_OPERATIONS = (None, None, ActionKind.START, ActionKind.UNPAUSE, ActionKind.SUSPEND, ActionKind.RESUME)


def _incident(kind: Fault, nodes: Sequence[str], moments: Sequence[tuple[float, str]], rng: Random) -> Incident:
    """Draw one incident. Most happen when there is work: a job has just arrived, or a node is being drained."""
    at_s, operation = rng.uniform(FAULTS_FROM_S, FAULTS_UNTIL_S), rng.choice(_OPERATIONS)
    node, other = rng.sample(nodes, 2)
    if kind in JUST_BEFORE:
        moment_s, _ = rng.choice(moments)
        at_s = moment_s - rng.uniform(0.0, 1.5)
    elif rng.random() < NEAR_MOMENT:
        moment_s, drained = rng.choice(moments)
        at_s = moment_s + (rng.uniform(0.0, 4.0) if kind not in OPERATIONS else -1.0)
        if drained:
            node, operation = drained, ActionKind.MIGRATE
            other = rng.choice([name for name in nodes if name != drained])
    at_s = min(max(at_s, FAULTS_FROM_S), FAULTS_UNTIL_S)
    length_s = rng.uniform(*_LENGTHS_S.get(kind, _MESSAGE_WINDOW_S))
    return Incident(kind, at_s, min(at_s + length_s, REPAIRED_BY_S), node, other, rng.randint(0, 12), operation)


def _bus_faults(seed: int, incidents: Sequence[Incident], rng: Random) -> BusFaults:
    rules: list[FaultRule] = []
    partitions: list[Partition] = []
    for incident in incidents:
        if incident.kind in BUS_KINDS:
            rules.append(_rule(BUS_KINDS[incident.kind], incident, rng))
        elif incident.kind is Fault.LEADER_CHANGES:
            rules.append(_late_orders(incident))
        elif incident.kind is Fault.AGENT_CUT_OFF:
            partitions.append(Partition((topology.agent_user(incident.node),), incident.at_s, incident.until_s))
        elif incident.kind is Fault.CONTROLLER_CUT_OFF:
            user = topology.CONTROLLER_USER_PREFIX + rng.choice(CONTROLLERS)
            partitions.append(Partition((user,), incident.at_s, incident.until_s))
    latency_s = rng.choice(((0.0, 0.0), (0.001, 0.02), (0.01, 0.5)))
    return BusFaults(seed, tuple(rules), tuple(partitions), latency_s, heartbeat_s=HEARTBEAT_S)


def _rule(kind: BusFaultKind, incident: Incident, rng: Random) -> FaultRule:
    exchange = rng.choice(
        (topology.ACTIONS, topology.ACTIONS, topology.RESULTS, topology.REPORTS, topology.REQUESTS, None)
    )
    delay_s = (0.0, rng.choice((2.0, 20.0, 100.0)))
    return FaultRule(
        kind,
        exchange,
        probability=rng.choice((0.3, 0.7, 1.0)),
        from_s=incident.at_s,
        until_s=incident.until_s,
        count=1 + incident.number,
        delay_s=delay_s,
    )


def _late_orders(incident: Incident) -> FaultRule:
    """Orders of the old leader that arrive when the new one has already introduced itself."""
    return FaultRule(
        BusFaultKind.REORDER,
        topology.ACTIONS,
        from_s=incident.at_s,
        until_s=incident.at_s + LEADER_DIES_S,
        delay_s=(4.0, 50.0),
    )
