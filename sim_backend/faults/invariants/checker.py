"""What must hold after every event of a closed loop, checked from outside: hypervisors, world and store are asked,
never the cores. Incremental: only what the event may have changed is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.core.journal import Accepted, Finished
from daemons.values.records.cluster import Deleted, EnvironmentRecord, JobRecord, WebRecord
from shared.ports import effects as fx
from shared.protocol.messages import (
    AbortAction,
    AgentBound,
    EventsSeen,
    GoToSleep,
    GuestEvent,
    Hello,
    Message,
    Order,
    Reply,
    Report,
    Result,
    SetUpNode,
    Watch,
)
from shared.protocol.operator_messages import CancelJob, DestroyEnvironment, Request, SubmitJob
from shared.values.jobs import INSTANCE_SEPARATOR, Job, JobPhase, workload_of
from sim_backend.faults.drift import DriftChecks
from sim_backend.faults.health_runs import HealthChecks
from sim_backend.faults.invariants.apps import AppChecks
from sim_backend.faults.invariants.guests import OVER, GuestChecks
from sim_backend.loop.agent_shell import AgentShell
from sim_backend.loop.closed_loop import ClosedLoop
from sim_backend.loop.shells import ControllerShell

TOUCHING = (fx.Operate, fx.Abort, fx.Forget)


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold, when, and for whom."""

    invariant: str
    at_s: float
    detail: str


class Checker:
    """Watches one closed loop. `violations` collects the findings; a repeated finding is recorded once.

    The script reports its own changes with `excuse_loss` and `host_died`.
    """

    def __init__(self, loop: ClosedLoop) -> None:
        self.violations: list[Violation] = []
        self._loop = loop
        self._known: set[tuple[str, str]] = set()
        self.guests = GuestChecks(loop, self.report)
        self.agents = AgentChecks(self.report)
        self.controllers = ControllerChecks(loop, self.report)
        self.jobs = JobChecks(loop, self.report)
        self.apps = AppChecks(loop, self.report)
        self.health = HealthChecks(loop, self.report)
        self.drift = DriftChecks(self.report)
        self.agents.publish_accepted, self.agents.ordered = self.guests.publish_accepted, self.controllers.ordered
        self._hook()

    def report(self, invariant: str, detail: str) -> None:
        """Note a violation."""
        if (invariant, detail) not in self._known:
            self._known.add((invariant, detail))
            self.violations.append(Violation(invariant, self._loop.engine.now_s, detail))

    def _hook(self) -> None:
        loop = self._loop
        for agent in loop.agents.values():
            agent.on_effect, agent.on_input = self._agent_effect, self.agents.on_input
            agent.on_death = self.agents.on_death
        for controller in loop.controllers.values():
            controller.on_effect, controller.on_input = self._controller_effect, self.controllers.on_input
            controller.on_death = self.controllers.on_death
        loop.cluster_source.on_change = self.guests.touch
        loop.store.on_write = self._write
        loop.operator.on_reply = self._reply
        loop.engine.after_event = self.guests.look_if_touched

    def _controller_effect(self, shell: ControllerShell, effect: fx.Effect) -> None:
        self.controllers.on_effect(shell, effect)
        self.health.on_effect(effect)
        self.drift.on_effect(effect)

    def _write(self, term: int, records: tuple[object, ...]) -> None:
        self.jobs.on_write(term, records)
        for record in records:
            if isinstance(record, JobRecord):
                self.apps.job_stored(record)
            elif isinstance(record, WebRecord):
                self.apps.app_stored(record.app)
            elif isinstance(record, Deleted):
                self.apps.deleted(record.key)
        self.apps.all_stored()

    def _reply(self, request: Request, reply: Reply) -> None:
        self.jobs.on_reply(request, reply)
        self.apps.on_reply(request, reply)

    def _agent_effect(self, shell: AgentShell, effect: fx.Effect) -> None:
        if isinstance(effect, TOUCHING):
            self.guests.on_effect(shell, effect)
        elif type(effect) is fx.Publish and type(effect.message) is GuestEvent:
            self.guests.event_leaves(shell.node, effect.publish_id, effect.message)
        self.agents.on_effect(shell, effect)


class AgentChecks:
    """No action of an older term than the agent has taken in, none twice, none acknowledged before it is written."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self.publish_accepted: Callable[[str, int], None] | None = None
        self._term: dict[str, int] = {}
        self._hearing: dict[str, int] = {}  # a term that an agent is taking in: it may die before it is on its disk
        self.ordered: set[str] = set()  # ids of all actions that a controller has published
        self._begun: set[tuple[str, str]] = set()
        self._orders: dict[tuple[str, int], str] = {}
        self._written: set[tuple[str, str]] = set()
        self._report_seq: dict[str, int] = {}
        self._events: dict[tuple[str, int], tuple[str, int]] = {}

    def on_input(self, shell: AgentShell, event: fx.Input) -> None:
        """Check an input that an agent is about to process."""
        node = shell.node
        if node in self._hearing:
            self._take_in(node)
        if type(event) is fx.Published:
            if event.ok and self.publish_accepted is not None:
                self.publish_accepted(node, event.publish_id)
        elif type(event) is fx.Received and isinstance(event.message, AgentBound):
            self._hearing[node] = term_of(event.message)
            if type(event.message) is Order and event.delivery is not None:
                self._orders[node, event.delivery] = event.message.action.id

    def on_effect(self, shell: AgentShell, effect: fx.Effect) -> None:
        """Check an effect that an agent is about to carry out."""
        node = shell.node
        if type(effect) is fx.Operate:
            action = effect.action
            newest = max(self._term.get(node, 0), self._hearing.get(node, 0))
            if action.term < newest:
                self._report("older-term", f"{action.id} of term {action.term} begun on {node}, which knows {newest}")
            if (node, action.id) in self._begun:
                self._report("action-twice", f"{action.id} on {node}")
            self._begun.add((node, action.id))
            if action.id not in self.ordered:
                self._report("not-ordered", f"{action.id} on {node}")
        elif type(effect) is fx.WriteJournal:
            if isinstance(effect.record, Accepted):
                self._written.add((node, effect.record.action.id))
            elif isinstance(effect.record, Finished):
                self._written.add((node, effect.record.result.action))
        elif type(effect) is fx.Acknowledge:
            self._take_in(node)
            action_id = self._orders.pop((node, effect.delivery), "")
            if action_id and (node, action_id) not in self._written:
                self._report("acknowledged-unwritten", f"{action_id} on {node}")
        elif type(effect) is fx.Publish:
            self._says(node, effect.message)

    def _says(self, node: str, message: Message) -> None:
        """Reports are numbered upwards for ever, and a number of a guest event means one event for ever."""
        if type(message) is Report:
            if message.seq <= self._report_seq.get(node, 0):
                self._report("seq-went-back", f"{node}: {message.seq} after {self._report_seq[node]}")
            self._report_seq[node] = message.seq
        elif type(message) is GuestEvent:
            meaning = (message.status.vm, message.status.generation)
            if self._events.setdefault((node, message.event), meaning) != meaning:
                self._report("event-renumbered", f"{node}: {message.event} was {self._events[node, message.event]}")

    def on_death(self, shell: AgentShell) -> None:
        """Note that an agent has died: the input that it was processing may be lost and is delivered again."""
        self._hearing.pop(shell.node, None)

    def _take_in(self, node: str) -> None:
        term = self._hearing.pop(node, 0)
        if term > self._term.get(node, 0):
            self._term[node] = term


class ControllerChecks:
    """Orders go only to nodes that have echoed the term, and none is sent by one who knows that another leads."""

    def __init__(self, loop: ClosedLoop, report: Callable[[str, str], None]) -> None:
        self._loop, self._report = loop, report
        self._term: dict[str, int] = {}
        self._echoed: dict[str, set[str]] = {}
        self._deposed: set[str] = set()
        self.ordered: set[str] = set()

    def on_input(self, shell: ControllerShell, event: fx.Input) -> None:
        """Check an input that a controller is about to process."""
        name = shell.name
        if type(event) is fx.Received:
            message = event.message
            if isinstance(message, Report | Result):
                own = self._term.get(name, 0)
                if message.term == own > 0 and type(message) is Report:
                    self._echoed[name].add(message.node)
                elif message.term > own > 0:
                    self._deposed.add(name)
        elif type(event) is fx.LeadTaken and event.term > 0:
            self._term[name] = event.term
            self._echoed[name] = set()
            self._deposed.discard(name)
        elif type(event) is fx.Written and event.stale:
            self._deposed.add(name)

    def on_effect(self, shell: ControllerShell, effect: fx.Effect) -> None:
        """Check an effect that a controller is about to carry out."""
        if type(effect) is not fx.Publish or type(effect.message) is not Order:
            return
        action = effect.message.action
        name = shell.name
        self.ordered.add(action.id)
        if action.node not in self._echoed.get(name, ()) or action.term != self._term.get(name):
            self._report("order-without-echo", f"{action.id} of term {action.term} by {name} to {action.node}")
        if name in self._deposed and self._loop.store.term > action.term:
            self._report("order-after-loss", f"{action.id} of term {action.term} by {name}")

    def on_death(self, shell: ControllerShell) -> None:
        """Note that a controller has died and restarts without a term."""
        self._term.pop(shell.name, None)
        self._echoed.pop(shell.name, None)
        self._deposed.discard(shell.name)


class JobChecks:
    """Every accepted job stays in the store, and lives as a job may."""

    def __init__(self, loop: ClosedLoop, report: Callable[[str, str], None]) -> None:
        self._loop, self._report = loop, report
        self.accepted: set[str] = set()
        self.too_large: set[str] = set()  # were refused, and rightly so
        self._cancelled: set[str] = set()

    def on_reply(self, request: Request, reply: Reply) -> None:
        """Record the answer to an operator's request."""
        if isinstance(request, SubmitJob) and reply.code == "fits-no-environment" and self._is_too_large(request.job):
            self.too_large.add(request.job.name)
        if isinstance(request, SubmitJob) and reply.done:
            self.accepted.add(request.job.name)
            if self._loop.store.get(("job", request.job.name)) is None:
                self._report("job-lost", f"{request.job.name} was accepted and is not in the store")

    def _is_too_large(self, job: Job) -> bool:
        """Return whether the job's environment, under its current specification, can never have a unit for each
        instance."""
        record = self._loop.store.get(("environment", job.environment))
        if not isinstance(record, EnvironmentRecord):
            return False
        agreement = record.agreement
        most = agreement.lower if agreement.model == "dedicated" else agreement.upper
        return most is not None and job.instances > most

    def on_write(self, term: int, records: tuple[object, ...]) -> None:
        """Records are about to be stored."""
        store = self._loop.store
        if term != store.term:
            self._report("stale-write", f"term {term} wrote while {store.term} was the store's")
        for record in records:
            if isinstance(record, JobRecord):
                self._check_record(record, store.get(record.key))
            elif isinstance(record, Deleted) and store.get(record.key) is not None and is_job(record.key):
                self._report("job-lost", f"{record.key[1]} was deleted")

    def _check_record(self, record: JobRecord, before: JobRecord | None) -> None:
        name = record.job.name
        if is_replica(name):  # comes and goes with its application
            if before is not None:
                self._check_counts(record, before)
            return
        if record.phase is JobPhase.COMPLETED and not self._loop.world.completions.get(name):
            self._report("completed-early", name)
        if record.phase is JobPhase.CANCELLED and not self._asked_to_cancel(name):
            self._report("cancelled-unasked", name)
        if before is None:
            return
        if before.phase in OVER and record.phase is not before.phase:
            self._report("job-revived", f"{name}: {before.phase} to {record.phase}")
        self._check_counts(record, before)

    def _check_counts(self, record: JobRecord, before: JobRecord) -> None:
        generations = zip(before.instances, record.instances, strict=False)
        if record.attempt < before.attempt or any(new.generation < old.generation for old, new in generations):
            self._report(
                "went-back", f"{record.job.name}: attempt {before.attempt} to {record.attempt}, or a generation"
            )

    def _asked_to_cancel(self, job: str) -> bool:
        if job in self._cancelled:
            return True
        operator = self._loop.operator
        asked = [*operator.pending.values(), *operator.answered.values()]
        self._cancelled = {request.job for request in asked if isinstance(request, CancelJob)}
        known = self._loop.jobs.get(job)
        home = known.environment if known is not None else ""
        ends = any(isinstance(request, DestroyEnvironment) and request.environment == home for request in asked)
        return ends or job in self._cancelled


def is_job(key: tuple[str, str]) -> bool:
    """Return whether a record belongs to a job and not to an instance of a web application."""
    return key[0] == "job" and not is_replica(key[1])


def is_replica(workload: str) -> bool:
    """Return whether a workload is an instance of a web application, which has the name of its VM."""
    return INSTANCE_SEPARATOR in workload


def term_of(message: AgentBound) -> int:
    """Return the term of a message to an agent."""
    if isinstance(message, Order):
        return message.action.term
    assert isinstance(message, Hello | EventsSeen | GoToSleep | SetUpNode | Watch | AbortAction)
    return message.term


def unsettled(loop: ClosedLoop, accepted: set[str], but: frozenset[str] = frozenset()) -> list[str]:
    """Return why the loop has not converged; empty when every accepted job is over, in the store and in the world, and
    no VM, image or operation is left except VMs of web applications that were not removed. `but`: jobs that may still
    wait, or are suspended."""
    why: list[str] = []
    for name in sorted(accepted):
        record = loop.store.get(("job", name))
        if record is None:
            why.append(f"{name} is not in the store")
        elif record.phase in (JobPhase.WAITING, JobPhase.SUSPENDED) and name in but:
            continue
        elif record.phase not in OVER:
            why.append(f"{name} is {record.phase}")
        elif record.instances:
            why.append(f"{name} is {record.phase}, but may be on {record.instances}")
        elif record.phase is JobPhase.COMPLETED and not loop.world.completions.get(name):
            why.append(f"{name} is said to be completed")
    why += [f"{request} was not answered" for request in loop.operator.pending]
    lasting = {name for name, balancer in loop.balancers.items() if not balancer.stopped}
    for name, hypervisor in loop.cluster.hypervisors.items():
        domains = hypervisor.domains.items()
        others = {vm: one for vm, one in domains if not (one.foreign or workload_of(vm)[0] in lasting)}
        why += [f"{vm} is {domain.state} on {name}" for vm, domain in others.items()]
        why += [f"an image of {vm} is on {name}" for vm in hypervisor.images if workload_of(vm)[0] not in but]
        why += [f"an operation on {vm} is in progress on {name}" for vm in hypervisor.operations]
    return why
