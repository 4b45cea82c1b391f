"""Carries out fault scripts on closed loops and says what did not hold. Each seed is a world of its own."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from random import Random

from agents.core.settings import AgentSettings
from daemons.values.settings import BalancerSettings, ControllerSettings, PolicyChoice
from shared.ports.effects import Write
from shared.protocol import topology
from shared.protocol.operator_messages import CancelJob, DrainNode, Request
from shared.values.jobs import Job, Rules, workload_of
from shared.values.vms import LIVE_STATES
from sim_backend.fakes.hypervisor import Failure, FakeHypervisor
from sim_backend.fakes.leases import LeaseTimes
from sim_backend.faults.adopted import AdoptedFaults, draw_existing_vms, has_existing_vms, has_leases, with_hardware
from sim_backend.faults.apps import FaultApp
from sim_backend.faults.drift import DriftFaults, draw_drift
from sim_backend.faults.environment_runs import EnvironmentFaults, with_environments
from sim_backend.faults.health_runs import Illnesses
from sim_backend.faults.invariants.apps import unsettled_apps
from sim_backend.faults.invariants.checker import Checker, Violation, unsettled
from sim_backend.faults.load_balancer import BalancerFaults, balancer_of, served
from sim_backend.faults.power_runs import PowerFaults, with_power
from sim_backend.faults.script import (
    BUS_KINDS,
    HEARTBEAT_S,
    LEADER_DIES_S,
    Fault,
    FaultScript,
    Incident,
    write_environments,
    write_existing_vms,
    write_script,
)
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.shells import ControllerShell

CONVERGE_S = 7_200.0  # within it, after the last fault is put right, every job must be over and nothing left behind
CONVERGED_CHECK_S = 60.0
FAULT_PRIORITY = 5
GARBAGE_USER = "controller.garbage"
MOVING_NOTHING = frozenset({"first-fit", "edf"})  # policies that leave applications where they are
REMOVE_S = 1_800.0  # within it everything of an application is gone
FAIL_HOW: dict[Fault, Failure] = {
    Fault.OPERATION_REFUSED: "refuse",
    Fault.OPERATION_FAILED: "fail-half-way",
    Fault.OPERATION_HUNG: "hang",
}

CONTROLLER = ControllerSettings(
    report_s=10.0,
    reconcile_s=10.0,
    decide_s=300.0,
    unreachable_after_s=30.0,
    fence_after_s=60.0,
    probe_s=5.0,
    retry_s=15.0,
    retry_max_s=120.0,
    stall_after_s=600.0,
    external_change_pause_s=240.0,
)
AGENT = AgentSettings(report_s=10.0, operation_timeout_s=150.0, address="192.0.2.1")


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What came of one seed. `ended_s`: when the loop had converged, or was given up."""

    seed: int
    faults: dict[str, int]
    violations: tuple[Violation, ...]
    ended_s: float
    crash: str = ""


def run_seed(
    seed: int,
    nodes: int = 5,
    policy: str | None = None,
    change: Callable[[LoopSettings], LoopSettings] | None = None,
) -> SeedOutcome:
    """Run the script of a seed. `change` may plant something in the loop, to see whether it is found."""
    return run_script(write_script(seed, nodes, policy), change)


def run_script(script: FaultScript, change: Callable[[LoopSettings], LoopSettings] | None = None) -> SeedOutcome:
    """Run a script. `change`: see `run_seed`."""
    settings = loop_settings(script)
    run = FaultRun(script, change(settings) if change is not None else settings)
    try:
        run.run()
    except Exception as error:  # noqa: BLE001 - whatever a core or a part raises is a finding of this seed
        violation = Violation("crash", run.loop.engine.now_s, f"{type(error).__name__}: {error}")
        return run.outcome((violation,), "".join(traceback.format_exception(error)))
    return run.outcome()


@dataclass(frozen=True, slots=True)
class RunKind:
    """What scripts are written of seeds: see `write_script`, `write_environments` and `write_existing_vms`."""

    nodes: int = 5
    policy: str | None = None
    environments: bool = False
    hours: int = 2
    existing_vms: bool = False

    def script(self, seed: int) -> FaultScript:
        """Return the script of a seed."""
        if self.environments:
            return write_environments(seed, self.nodes, self.policy, self.hours)
        if self.existing_vms:
            return write_existing_vms(seed, self.nodes, self.policy)
        return write_script(seed, self.nodes, self.policy)


def replay_command(seed: int, kind: RunKind) -> str:
    """Return the command that replays one seed."""
    chosen = f" --policy {kind.policy}" if kind.policy else ""
    if kind.environments:
        chosen += f" --environments --hours {kind.hours}"
    if kind.existing_vms:
        chosen += " --existing-vms"
    return f"trimtab sim faults --seeds {seed}-{seed} --nodes {kind.nodes}{chosen}"


def _early(sender: str, reason: str) -> bool:
    """Return whether a measurement arrived before its application was submitted or after it was removed."""
    return sender.startswith(topology.WEB_USER_PREFIX) and "has not been submitted" in reason


def loop_settings(script: FaultScript) -> LoopSettings:
    """Return the closed loop's settings for a script, without its faults."""
    settings = LoopSettings(
        controller=replace(
            CONTROLLER,
            placement=PolicyChoice(script.policy),
            gang_timeout_s=script.gang_timeout_s,
            action_ttl_s=script.action_ttl_s,
            balancer=BalancerSettings(**balancer_of(script.seed)),
        ),
        agent=AGENT,
        controllers=script.controllers,
        costs=script.costs,
        faults=script.bus,
        speed_factors=script.speed_factors,
    )
    if script.environments is not None:
        settings = with_environments(settings, script.seed)
    elif has_leases(script):
        settings = replace(settings, leases=LeaseTimes())
    return settings if script.power is None else with_power(settings, script.power, script.seed)


class FaultRun:
    """One script on one closed loop."""

    def __init__(self, script: FaultScript, settings: LoopSettings) -> None:
        self.script = script
        is_owned = has_existing_vms(script)
        nodes = with_hardware(script.seed, script.nodes) if is_owned else script.nodes
        self.loop = ClosedLoop(nodes, settings)
        self.checker = Checker(self.loop)
        self.done: Counter[str] = Counter()
        self._rng = Random(script.seed + 1)
        self._boots: Counter[str] = Counter()
        self._apart: set[frozenset[str]] = set()
        self.loop.cluster.reachable = lambda a, b: frozenset((a, b)) not in self._apart
        self.loop.on_host_death = self._host_died
        for controller in self.loop.controllers.values():
            controller.compute_delay_s = lambda: script.compute_s
            controller.power_delay_s = lambda: 2.0
        self.power: PowerFaults | None = None
        self.environments: EnvironmentFaults | None = None
        self.illnesses = Illnesses(self.loop, self.done)
        touches = draw_drift(script.seed) if script.environments is None else ()
        self.drift = DriftFaults(self.loop, self.checker.guests, self.checker.drift, self.done, touches)
        self.balancer = BalancerFaults(self.loop, self.done, script.seed)
        vms = draw_existing_vms(script.seed, nodes) if is_owned else ()
        self.adopted = AdoptedFaults(
            self.loop, vms, self.checker.report, self.done, self.checker.guests.touch, self.checker.drift.started
        )
        self.checker.guests.also = self.adopted.check
        self.checker.apps.is_stuck = self.adopted.is_stuck
        self.checker.guests.also_order = self.adopted.ordered
        self._write_down()

    def run(self) -> None:
        """Play the script, then let the loop converge, until its horizon at least: every job is over, every application
        that lasts has the instances that it must have, and every environment its nodes. Then those are removed, and
        nothing is left. What waits for a node of an application has its time after that."""
        self.loop.run_until(self.script.repaired_by_s)
        self._repair_everything()
        self.loop.run_until(self.script.horizon_s)
        until_s = max(self.script.repaired_by_s + CONVERGE_S, self.script.horizon_s)
        self._converge(until_s, self._held_up)
        held_up = self._held_up()
        for script in self.script.apps:
            if script.removed_s == math.inf:
                self.loop.remove_web(script.app.name, self.loop.engine.now_s)
        if self.environments is not None:
            self.environments.end()
        self._converge(until_s + (CONVERGE_S if held_up else REMOVE_S), self._held_up_for_good)
        if self.power is not None:
            self.power.check()
        for letter in self.loop.broker.dead_letters():
            if letter.sender != GARBAGE_USER and not _early(letter.sender, letter.reason):
                self.checker.report("dead-letter", f"{letter.sender} to {letter.queue}: {letter.reason}")

    def _converge(self, until_s: float, but: Callable[[], frozenset[str]] = frozenset) -> None:
        """Let the loop converge. `but`: returns jobs that may still wait."""
        while self._open(but()) and self.loop.engine.now_s < until_s:
            self.loop.run_until(self.loop.engine.now_s + CONVERGED_CHECK_S)
        for why in self._open(but()):
            self.checker.report("not-converged", why)

    def _held_up(self) -> frozenset[str]:
        """Return the jobs that must run on certain nodes of which an application or an adopted VM has one: a policy
        that moves nothing lets them wait for as long as it stays there."""
        taken = {
            name
            for name, hypervisor in self.loop.cluster.hypervisors.items()
            if any(not one.foreign and workload_of(vm)[0] in self.loop.apps for vm, one in hypervisor.domains.items())
        }
        return self._bound_to(taken) | self._held_up_for_good()

    def _held_up_for_good(self) -> frozenset[str]:
        """Return those of them that wait for the node of an adopted VM, which never ends."""
        return self._bound_to(self.adopted.homes())

    def _bound_to(self, taken: AbstractSet[str]) -> frozenset[str]:
        if self.script.policy not in MOVING_NOTHING:
            return frozenset()
        return frozenset(job.name for job in self.script.jobs if self._is_bound(job, taken))

    def _is_bound(self, job: Job, taken: AbstractSet[str]) -> bool:
        """Return whether a job must run on some of these nodes: its rules name one of them, or leave it too few
        others."""
        rules, count = job.rules, job.instances if job.spread else 1
        if taken & self._named_by(rules):
            return True
        left = [
            node
            for node in self.script.nodes
            if node.name not in taken
            and node.name not in rules.node_anti_affinity
            and {*job.required_labels, *rules.label_affinity} <= {*node.labels}
            and not {*rules.label_anti_affinity} & {*node.labels}
        ]
        return len(left) < count

    def _named_by(self, rules: Rules) -> AbstractSet[str]:
        """Return the nodes that required rules name, themselves or by their labels."""
        wanted = {*rules.label_affinity}
        labelled = {node.name for node in self.script.nodes if wanted and wanted <= {*node.labels}}
        return {*rules.node_affinity} | labelled

    def outcome(self, more: tuple[Violation, ...] = (), crash: str = "") -> SeedOutcome:
        """Return the findings so far, and `more`."""
        faults = self.done.copy()
        counts = self.loop.broker.fault_counts
        for fault, kind in BUS_KINDS.items():
            if counts[kind]:
                faults[fault.value] += counts[kind]
        found = (*self.checker.violations, *more)
        return SeedOutcome(self.script.seed, dict(faults), found, self.loop.engine.now_s, crash)

    def _open(self, but: frozenset[str] = frozenset()) -> list[str]:
        accepted, apps = self.checker.jobs.accepted, self.checker.apps
        environments = self.environments
        missing = [
            f"{job.name} was never accepted"
            for job in self.script.jobs
            if job.name not in accepted | self.checker.jobs.too_large
            and not (environments is not None and environments.exempt(job.name))
        ]
        missing += [f"{name} was never accepted" for name in self.loop.apps if name not in apps.accepted]
        missing += [] if environments is None else environments.unsettled()
        missing += self.adopted.unsettled() + self.balancer.unsettled()
        return missing + unsettled(self.loop, accepted, but) + unsettled_apps(self.loop)

    # --- the script -----------------------------------------------------------------------------------------------

    def _write_down(self) -> None:
        loop, script = self.loop, self.script
        for job in script.jobs:
            factor = script.work_factors[job.name]
            loop.submit(job, [(stage.work_mcycles * factor, stage.max_mhz) for stage in job.stages])
        for number, each in enumerate(script.apps):
            self._write_down_app(served(script.seed, number, each))
        name, at_s = script.cancelled
        if name:
            at_s = max(at_s, loop.jobs[name].submit_s + 1.0)
            self._ask_later(at_s, CancelJob("cancel", name))
        for number, drain in enumerate(script.drains):
            self._ask_later(drain.from_s, DrainNode(f"drain-{number}", drain.node, True))
            self._ask_later(drain.until_s, DrainNode(f"undrain-{number}", drain.node, False))
        for incident in script.incidents:
            self._schedule(incident)
        if script.power is not None:
            self.power = PowerFaults(loop, script.power, self.checker.report, self.done, self._leader)
        if script.environments is not None:
            self.environments = EnvironmentFaults(
                loop, script.environments, self.checker.guests, self.checker.report, self.done, self._leader
            )

    def _write_down_app(self, script: FaultApp) -> None:
        loop, name = self.loop, script.app.name
        self.illnesses.schedule(name, script.illnesses)
        loop.submit_web(script.app, script.truth(), script.submit_s)
        if script.changed is not None and script.changed_s < script.removed_s:
            loop.change_web(script.changed, script.changed_s)
        if script.removed_s < math.inf:
            loop.remove_web(name, script.removed_s)

    def _ask_later(self, at_s: float, request: Request) -> None:
        self.loop.engine.at(at_s, FAULT_PRIORITY, lambda: self.loop.operator.send(request))

    def _schedule(self, incident: Incident) -> None:
        begin = _BEGIN.get(incident.kind)
        engine = self.loop.engine
        if begin is not None:
            engine.at(incident.at_s, FAULT_PRIORITY, lambda: begin(self, incident))
        elif incident.kind not in BUS_KINDS:
            engine.at(incident.at_s, FAULT_PRIORITY, lambda: self._count(incident))

    def _count(self, incident: Incident) -> None:
        self.done[incident.kind.value] += 1

    def _later(self, incident: Incident, repair: Callable[[], None]) -> None:
        self.loop.engine.at(incident.until_s, FAULT_PRIORITY, repair)

    def _repair_everything(self) -> None:
        for name, agent in self.loop.agents.items():
            agent.hypervisor.clear_failures()
            agent.journal.full = False
            self.loop.fake_power.fail_fence(name, 0)
            if self.loop.fake_power.sleeps(name):
                pass  # on purpose
            elif not agent.hypervisor.up:
                self._return(name, self._boots[name])
            elif not agent.alive:
                agent.restart()
            agent.die_after_effects = None
        for controller in self.loop.controllers.values():
            controller.die_after_effects = controller.freeze_after_effects = controller.freeze_before = None
            if controller.frozen:
                controller.thaw()
            if not controller.alive:
                controller.restart()
        self.loop.store.available = True
        self._apart.clear()
        self.illnesses.repair()
        self.drift.repair()
        self.balancer.repair()
        if self.power is not None:
            self.power.repair()
        if self.environments is not None:
            self.environments.repair()

    # --- processes ------------------------------------------------------------------------------------------------

    def agent_killed(self, incident: Incident) -> None:
        """Kill the agent, possibly in the middle of its next effects, and restart it."""
        agent = self.loop.agents[incident.node]
        if not agent.alive:
            return
        self._count(incident)
        agent.die_after_effects = incident.number

        def repair() -> None:
            agent.kill()
            if agent.hypervisor.up:
                agent.restart()

        self._later(incident, repair)

    def journal_full(self, incident: Incident) -> None:
        """Fill the agent's disk: the agent exits when it must write to its journal, and is restarted when it can write
        again."""
        agent = self.loop.agents[incident.node]
        self._count(incident)
        agent.journal.full = True

        def repair() -> None:
            agent.journal.full = False
            if agent.hypervisor.up and not agent.alive:
                agent.restart()

        self._later(incident, repair)

    def controller_killed(self, incident: Incident) -> None:
        """Kill the leading controller, possibly in the middle of its next effects, and restart it."""
        controller = self._leader()
        if not controller.alive:
            return
        self._count(incident)
        controller.die_after_effects = 3 * incident.number
        self._later(incident, controller.restart)

    def controller_frozen(self, incident: Incident) -> None:
        """Freeze the leading controller. After missed heartbeats the broker closes its connection."""
        controller = self._leader()
        if not controller.alive or controller.frozen:
            return
        self._count(incident)
        controller.on_freeze = self._frozen
        if incident.number % 2:
            controller.freeze_before = Write
        else:
            controller.freeze_after_effects = incident.number

        def repair() -> None:
            controller.freeze_after_effects = controller.freeze_before = None
            controller.thaw()

        self._later(incident, repair)

    def _frozen(self, controller: ControllerShell) -> None:
        connection, engine = controller.connection, self.loop.engine

        def give_up() -> None:
            if controller.frozen and connection is not None and not connection.ended:
                self.loop.broker.end(connection, "missed heartbeats")

        engine.at(engine.now_s + HEARTBEAT_S, FAULT_PRIORITY, give_up)

    def leader_changes(self, incident: Incident) -> None:
        """Kill the leader while its latest orders are in transit."""
        self._count(incident)
        self.loop.engine.at(incident.at_s + LEADER_DIES_S, FAULT_PRIORITY, lambda: self._replace_leader(incident))

    def _replace_leader(self, incident: Incident) -> None:
        controller = self._leader()
        controller.kill()
        self._later(incident, lambda: None if controller.alive else controller.restart())

    def _leader(self) -> ControllerShell:
        loop = self.loop
        return loop.controllers.get(loop.store.leader) or next(iter(loop.controllers.values()))

    def store_down(self, incident: Incident) -> None:
        """Make the store unavailable for a while."""
        self._count(incident)
        store = self.loop.store
        store.available = False

        def repair() -> None:
            store.available = True

        self._later(incident, repair)

    def computation_fails(self, incident: Incident) -> None:
        """Make the leader's next decision time out."""
        self._count(incident)
        self._leader().failing_computations += 1

    # --- the bus --------------------------------------------------------------------------------------------------

    def broker_restarted(self, incident: Incident) -> None:
        """Restart the broker, which drops all connections and everything that is not durable."""
        self._count(incident)
        self.loop.broker.restart()

    def garbage(self, incident: Incident) -> None:
        """Bytes that no one understands, for an agent and for the controller."""
        self._count(incident)
        connection = self.loop.broker.connect(GARBAGE_USER)
        body = self._rng.randbytes(64)
        connection.publish(topology.ACTIONS, incident.node, body)
        connection.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, body)
        connection.close()

    # --- hosts ----------------------------------------------------------------------------------------------------

    def operation_fails(self, incident: Incident) -> None:
        """Make the next operation on the node be refused, fail half-way or hang."""
        self._count(incident)
        self.loop.cluster.hypervisor(incident.node).fail_next(incident.operation, FAIL_HOW[incident.kind])

    def vm_lost(self, incident: Incident) -> None:
        """Remove or crash a live VM. A VM that Trimtab did not create is only crashed, since only its owner would
        remove it."""
        hypervisor = self._hypervisor_with_vm(incident.node)
        if hypervisor is None:
            return
        self._count(incident)
        live = sorted(vm for vm, domain in hypervisor.domains.items() if domain.state in LIVE_STATES)
        vm = live[incident.number % len(live)]
        self.checker.guests.excuse_loss(hypervisor.node.name, vm)
        removed = incident.kind is Fault.VM_LOST and not hypervisor.domains[vm].foreign
        lose = hypervisor.lose_vm if removed else hypervisor.crash_vm
        lose(vm, self.loop.engine.now_s)

    def _hypervisor_with_vm(self, first: str) -> FakeHypervisor | None:
        hypervisors = self.loop.cluster.hypervisors
        for name in sorted(hypervisors, key=lambda name: (name != first, name)):
            if any(domain.state in LIVE_STATES for domain in hypervisors[name].domains.values()):
                return hypervisors[name]
        return None

    def host_dies(self, incident: Incident) -> None:
        """Cut a host's power, with everything on it; it returns under a new boot id."""
        if not self.loop.cluster.hypervisor(incident.node).up:
            return
        self._count(incident)
        self.loop.host_dies(incident.node)

    def host_reboots(self, incident: Incident) -> None:
        """Cut a host's power and bring it back under a new boot id before its loss is detected."""
        self.host_dies(incident)
        boots = self._boots[incident.node]
        self._later(incident, lambda: self._return(incident.node, boots))

    def fence_fails(self, incident: Incident) -> None:
        """Cut a host's power; at first its power driver cannot confirm that it is off."""
        self.loop.fake_power.fail_fence(incident.node, 1 + incident.number % 3)
        self.host_dies(incident)

    def hosts_cut_off(self, incident: Incident) -> None:
        """Cut the network between two hosts, which prevents migrations and image transfers."""
        self._count(incident)
        pair = frozenset((incident.node, incident.other))
        self._apart.add(pair)
        self._later(incident, lambda: self._apart.discard(pair))

    def _host_died(self, node: str) -> None:
        """Power is gone, by the script or by fencing: someone brings the host back after a while."""
        self.adopted.host_died(node)  # before it is looked at what has stopped
        self.checker.guests.host_died(node)
        engine = self.loop.engine
        boots = self._boots[node]
        if engine.now_s < self.script.repaired_by_s:
            back_s = min(engine.now_s + self._rng.uniform(100.0, 900.0), self.script.repaired_by_s)
        else:
            back_s = engine.now_s + 100.0
        engine.at(back_s, FAULT_PRIORITY, lambda: self._return(node, boots))

    def _return(self, node: str, boots: int) -> None:
        """Bring a host back, unless that has been done since it had booted `boots` times."""
        if self._boots[node] == boots and not self.loop.cluster.hypervisor(node).up:
            self._boots[node] += 1
            self.loop.host_returns(node, f"boot-{self._boots[node] + 1}")


_BEGIN: dict[Fault, Callable[[FaultRun, Incident], None]] = {
    Fault.GARBAGE: FaultRun.garbage,
    Fault.HOSTS_CUT_OFF: FaultRun.hosts_cut_off,
    Fault.BROKER_RESTARTED: FaultRun.broker_restarted,
    Fault.AGENT_KILLED: FaultRun.agent_killed,
    Fault.CONTROLLER_KILLED: FaultRun.controller_killed,
    Fault.CONTROLLER_FROZEN: FaultRun.controller_frozen,
    Fault.LEADER_CHANGES: FaultRun.leader_changes,
    Fault.STORE_DOWN: FaultRun.store_down,
    Fault.COMPUTATION_FAILS: FaultRun.computation_fails,
    Fault.OPERATION_REFUSED: FaultRun.operation_fails,
    Fault.OPERATION_FAILED: FaultRun.operation_fails,
    Fault.OPERATION_HUNG: FaultRun.operation_fails,
    Fault.VM_LOST: FaultRun.vm_lost,
    Fault.VM_CRASHED: FaultRun.vm_lost,
    Fault.HOST_DIES: FaultRun.host_dies,
    Fault.HOST_REBOOTS: FaultRun.host_reboots,
    Fault.FENCE_FAILS: FaultRun.fence_fails,
    Fault.JOURNAL_FULL: FaultRun.journal_full,
}
