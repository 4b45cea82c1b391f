"""What must hold after every event of a closed loop, checked from outside: hypervisors, world and store are asked,
never the cores. Incremental: only what the event may have changed is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.journal import Accepted, Finished
from daemons.records import Deleted, JobRecord
from shared import effects as fx
from shared.messages import (
    AgentBound,
    CancelJob,
    EventsSeen,
    GuestEvent,
    Hello,
    Message,
    Order,
    Reply,
    Report,
    Request,
    Result,
    SubmitJob,
)
from shared.model import LIVE_STATES, Action, ActionKind, GuestChange, JobPhase, VmState, workload_of
from sim_backend.closed_loop import ClosedLoop
from sim_backend.shells import AgentShell, ControllerShell

OVER = frozenset({JobPhase.COMPLETED, JobPhase.CANCELLED})
TOUCHING = (fx.Operate, fx.Abort, fx.Forget)
Place = tuple[str, str]  # node, vm


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold, when, and for whom."""

    invariant: str
    at_s: float
    detail: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A VM or image as a hypervisor had it."""

    state: VmState
    generation: int
    attempt: int


class Checker:
    """Watches one closed loop. `violations` collects what was found; a repeated finding is noted once.

    The script tells it what it does on purpose: `excuse_loss` and `host_died`.
    """

    def __init__(self, loop: ClosedLoop) -> None:
        self.violations: list[Violation] = []
        self._loop = loop
        self._known: set[tuple[str, str]] = set()
        self.guests = GuestChecks(loop, self.report)
        self.agents = AgentChecks(self.report)
        self.controllers = ControllerChecks(loop, self.report)
        self.jobs = JobChecks(loop, self.report)
        self.agents.told = self.guests.told
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
            controller.on_effect, controller.on_input = self.controllers.on_effect, self.controllers.on_input
            controller.on_death = self.controllers.on_death
        loop.cluster_source.on_change = self.guests.touch
        loop.store.on_write = self.jobs.on_write
        loop.operator.on_reply = self.jobs.on_reply
        loop.engine.after_event = self.guests.look_if_touched

    def _agent_effect(self, shell: AgentShell, effect: fx.Effect) -> None:
        if isinstance(effect, TOUCHING):
            self.guests.on_effect(shell, effect)
        elif type(effect) is fx.Publish and type(effect.message) is GuestEvent:
            self.guests.event_leaves(shell.node, effect.publish_id, effect.message)
        self.agents.on_effect(shell, effect)


class GuestChecks:
    """No VM live twice, none lost, no node over its memory, no task done twice."""

    def __init__(self, loop: ClosedLoop, report: Callable[[str, str], None]) -> None:
        self._loop, self._report = loop, report
        self._touched = False
        self._domains: dict[str, dict[str, Seen]] = {name: {} for name in loop.agents}
        self._images: dict[str, dict[str, Seen]] = {name: {} for name in loop.agents}
        self._newest: dict[str, int] = {}  # highest generation that was ever live
        self._stopped: set[Place] = set()
        self._discarded: set[Place] = set()
        self._forgotten: set[Place] = set()
        self._excused: set[Place] = set()
        self._done: dict[str, int] = {}  # completions seen, by task
        self._untold: dict[str, str] = {}  # VM that ended -> node that has not got the word out yet
        self._leaving: dict[tuple[str, int], str] = {}
        self._lost_ends: set[str] = set()  # tasks whose end died with a host before it was told
        self._doubles = 0

    # --- what is about to happen ----------------------------------------------------------------------------------

    def touch(self) -> None:
        """Hypervisors may change in this event."""
        self._touched = True

    def excuse_loss(self, node: str, vm: str) -> None:
        """The script takes this VM away."""
        self._excused.add((node, vm))
        self._touched = True

    def host_died(self, node: str) -> None:
        """A host has just stopped, with what its agent had not told yet."""
        self._touched = True
        self.look_if_touched()
        for vm in [vm for vm, home in self._untold.items() if home == node]:
            self._lost_ends.add(workload_of(vm)[0])

    def on_effect(self, shell: AgentShell, effect: fx.Operate | fx.Abort | fx.Forget) -> None:
        """An agent is about to touch its hypervisor."""
        self._touched = True
        if isinstance(effect, fx.Forget):
            self._forgotten.add((shell.node, effect.vm))
        elif isinstance(effect, fx.Operate):
            place = (shell.node, effect.action.vm)
            if effect.action.kind is ActionKind.STOP:
                self._stopped.add(place)
            elif effect.action.kind is ActionKind.DISCARD_IMAGE:
                self._discard(place, effect.action)

    def event_leaves(self, node: str, publish_id: int | None, event: GuestEvent) -> None:
        """An agent publishes a guest event; `told` when the broker has taken it."""
        if publish_id is not None and event.change is GuestChange.ENDED:
            self._leaving[node, publish_id] = event.status.vm

    def told(self, node: str, publish_id: int) -> None:
        """The broker has taken a publish of an agent."""
        vm = self._leaving.pop((node, publish_id), "")
        if self._untold.get(vm) == node:
            del self._untold[vm]

    def _discard(self, place: Place, action: Action) -> None:
        self.look_if_touched()
        node, vm = place
        image = self._loop.cluster.hypervisor(node).images.get(vm)
        self._discarded.add(place)
        if image is None or image.generation != action.expects:
            return
        job = workload_of(vm)[0]
        record = self._loop.store.get(("job", job))
        superseded = self._newest.get(vm, 0) > image.generation
        over = bool(self._loop.world.completions.get(job)) or record is None or record.phase in OVER
        set_back = record is not None and (record.attempt > image.attempt or record.phase is JobPhase.WAITING)
        if not (superseded or over or set_back):
            self._report("image-discarded", f"{vm} generation {image.generation} on {node}")

    # --- looking --------------------------------------------------------------------------------------------------

    def look_if_touched(self) -> None:
        """Compare the hypervisors with what they were, if anything touched them."""
        if not self._touched:
            return
        self._touched = False
        before_domains, before_images = self._domains, self._images
        hypervisors = self._loop.cluster.hypervisors
        self._domains = {
            name: {vm: Seen(d.state, d.generation, d.attempt) for vm, d in hypervisor.domains.items()}
            for name, hypervisor in hypervisors.items()
        }
        self._images = {
            name: {vm: Seen(i.state, i.generation, i.attempt) for vm, i in hypervisor.images.items()}
            for name, hypervisor in hypervisors.items()
        }
        live = self._check_single()
        self._check_completions(before_domains)
        for name in hypervisors:
            if self._domains[name] != before_domains[name]:
                self._check_memory(name)
                self._check_domains(name, before_domains[name], live)
            if self._images[name] != before_images[name]:
                self._check_images(name, before_images[name], live)
        self._stopped.clear()
        self._forgotten.clear()

    def _check_single(self) -> dict[str, int]:
        live: dict[str, tuple[str, int]] = {}
        for name, domains in self._domains.items():
            for vm, seen in domains.items():
                if seen.state not in LIVE_STATES:
                    continue
                if vm in live:
                    self._report("vm-on-two-nodes", f"{vm} on {live[vm][0]} and {name}")
                live[vm] = (name, seen.generation)
                if seen.generation > self._newest.get(vm, 0):
                    self._newest[vm] = seen.generation
        doubles = self._loop.cluster.doubles
        for _, vm, node in doubles[self._doubles :]:
            self._report("vm-started-twice", f"{vm} on {node}: a disk lock kept it from coming to life a second time")
        self._doubles = len(doubles)
        return {vm: generation for vm, (_, generation) in live.items()}

    def _check_memory(self, name: str) -> None:
        hypervisor = self._loop.cluster.hypervisor(name)
        used_mib = hypervisor.memory_used_mib()
        if used_mib > hypervisor.node.usable_mib:
            self._report("memory-over", f"{name}: {used_mib} of {hypervisor.node.usable_mib} MiB")

    def _check_domains(self, name: str, before: dict[str, Seen], live: dict[str, int]) -> None:
        domains, images = self._domains[name], self._images[name]
        up = self._loop.cluster.hypervisor(name).up
        for vm, was in before.items():
            now = domains.get(vm)
            if was.state not in LIVE_STATES or (now is not None and now.state in LIVE_STATES):
                continue
            place = (name, vm)
            ended = bool(self._loop.world.completions.get(workload_of(vm)[0]))
            lawful = (
                not up
                or place in self._excused
                or place in self._stopped
                or (ended and (place in self._forgotten or (now is not None and now.state is VmState.ENDED)))
                or (vm in images and images[vm].generation >= was.generation)
                or live.get(vm, -1) >= was.generation
            )
            if not lawful:
                self._report("vm-lost", f"{vm} generation {was.generation} on {name}")

    def _check_images(self, name: str, before: dict[str, Seen], live: dict[str, int]) -> None:
        for vm, was in before.items():
            if vm in self._images[name]:
                continue
            place = (name, vm)
            if place in self._discarded:
                self._discarded.discard(place)
            elif live.get(vm, -1) <= was.generation and self._newest.get(vm, 0) <= was.generation:
                self._report("image-lost", f"{vm} generation {was.generation} on {name}")

    def _check_completions(self, before: dict[str, dict[str, Seen]]) -> None:
        for task, ends in self._loop.world.completions.items():
            count = len(ends)
            if count == self._done.get(task, 0):
                continue
            self._done[task] = count
            if count > 1 and task not in self._lost_ends:
                self._report("completed-twice", f"{task}: {ends}")
            self._lost_ends.discard(task)
            for node, domains in before.items():
                for vm, seen in domains.items():
                    if seen.state in LIVE_STATES and vm.rpartition("#")[0] == task:
                        self._untold[vm] = node


class AgentChecks:
    """No action of an older term than the agent has taken in, none twice, none acknowledged before it is written."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self.told: Callable[[str, int], None] | None = None
        self._term: dict[str, int] = {}
        self._hearing: dict[str, int] = {}  # a term that an agent is taking in: it may die before it is on its disk
        self._begun: set[tuple[str, str]] = set()
        self._orders: dict[tuple[str, int], str] = {}
        self._written: set[tuple[str, str]] = set()
        self._report_seq: dict[str, int] = {}
        self._events: dict[tuple[str, int], tuple[str, int]] = {}

    def on_input(self, shell: AgentShell, event: fx.Input) -> None:
        """An agent is about to take an input."""
        node = shell.node
        if node in self._hearing:
            self._take_in(node)
        if type(event) is fx.Published:
            if event.ok and self.told is not None:
                self.told(node, event.publish_id)
        elif type(event) is fx.Received and isinstance(event.message, AgentBound):
            self._hearing[node] = term_of(event.message)
            if type(event.message) is Order and event.delivery is not None:
                self._orders[node, event.delivery] = event.message.action.id

    def on_effect(self, shell: AgentShell, effect: fx.Effect) -> None:
        """An agent is about to carry out an effect."""
        node = shell.node
        if type(effect) is fx.Operate:
            action = effect.action
            newest = max(self._term.get(node, 0), self._hearing.get(node, 0))
            if action.term < newest:
                self._report("older-term", f"{action.id} of term {action.term} begun on {node}, which knows {newest}")
            if (node, action.id) in self._begun:
                self._report("action-twice", f"{action.id} on {node}")
            self._begun.add((node, action.id))
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
        """An agent has died: what it was taking in may be forgotten, and will be delivered again."""
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

    def on_input(self, shell: ControllerShell, event: fx.Input) -> None:
        """A controller is about to take an input."""
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
        """A controller is about to carry out an effect."""
        if type(effect) is not fx.Publish or type(effect.message) is not Order:
            return
        action = effect.message.action
        name = shell.name
        if action.node not in self._echoed.get(name, ()) or action.term != self._term.get(name):
            self._report("order-without-echo", f"{action.id} of term {action.term} by {name} to {action.node}")
        if name in self._deposed and self._loop.store.term > action.term:
            self._report("order-after-loss", f"{action.id} of term {action.term} by {name}")

    def on_death(self, shell: ControllerShell) -> None:
        """A controller has died: its next life begins without a term."""
        self._term.pop(shell.name, None)
        self._echoed.pop(shell.name, None)
        self._deposed.discard(shell.name)


class JobChecks:
    """Every accepted job stays in the store, and lives as a job may."""

    def __init__(self, loop: ClosedLoop, report: Callable[[str, str], None]) -> None:
        self._loop, self._report = loop, report
        self.accepted: set[str] = set()
        self._cancelled: set[str] = set()

    def on_reply(self, request: Request, reply: Reply) -> None:
        """The operator has been answered."""
        if isinstance(request, SubmitJob) and reply.done:
            self.accepted.add(request.job.name)
            if self._loop.store.get(("job", request.job.name)) is None:
                self._report("job-lost", f"{request.job.name} was accepted and is not in the store")

    def on_write(self, term: int, records: tuple[object, ...]) -> None:
        """Records are about to be stored."""
        store = self._loop.store
        if term != store.term:
            self._report("stale-write", f"term {term} wrote while {store.term} was the store's")
        for record in records:
            if isinstance(record, JobRecord):
                self._check_record(record, store.get(record.key))
            elif isinstance(record, Deleted) and record.key[0] == "job" and store.get(record.key) is not None:
                self._report("job-lost", f"{record.key[1]} was deleted")

    def _check_record(self, record: JobRecord, before: JobRecord | None) -> None:
        name = record.job.name
        if record.phase is JobPhase.COMPLETED and not self._loop.world.completions.get(name):
            self._report("completed-early", name)
        if record.phase is JobPhase.CANCELLED and not self._asked_to_cancel(name):
            self._report("cancelled-unasked", name)
        if before is None:
            return
        if before.phase in OVER and record.phase is not before.phase:
            self._report("job-revived", f"{name}: {before.phase} to {record.phase}")
        generations = zip(before.instances, record.instances, strict=False)
        if record.attempt < before.attempt or any(new.generation < old.generation for old, new in generations):
            self._report("went-back", f"{name}: attempt {before.attempt} to {record.attempt}, or a generation")

    def _asked_to_cancel(self, job: str) -> bool:
        if job in self._cancelled:
            return True
        operator = self._loop.operator
        asked = [*operator.pending.values(), *operator.answered.values()]
        self._cancelled = {request.job for request in asked if isinstance(request, CancelJob)}
        return job in self._cancelled


def term_of(message: AgentBound) -> int:
    """The term that a message to an agent carries."""
    if isinstance(message, Order):
        return message.action.term
    assert isinstance(message, Hello | EventsSeen)
    return message.term


def unsettled(loop: ClosedLoop, accepted: set[str]) -> list[str]:
    """Why the loop has not converged; empty when every accepted job is over, in the store and in truth, and no VM,
    image or operation is left anywhere."""
    why: list[str] = []
    for name in sorted(accepted):
        record = loop.store.get(("job", name))
        if record is None:
            why.append(f"{name} is not in the store")
        elif record.phase not in OVER:
            why.append(f"{name} is {record.phase}")
        elif record.instances:
            why.append(f"{name} is {record.phase}, but may be on {record.instances}")
        elif record.phase is JobPhase.COMPLETED and not loop.world.completions.get(name):
            why.append(f"{name} is said to be completed")
    why += [f"{request} was not answered" for request in loop.operator.pending]
    for name, hypervisor in loop.cluster.hypervisors.items():
        why += [f"{vm} is {domain.state} on {name}" for vm, domain in hypervisor.domains.items()]
        why += [f"an image of {vm} is on {name}" for vm in hypervisor.images]
        why += [f"an operation on {vm} is under way on {name}" for vm in hypervisor.operations]
    return why
