"""Bugs planted in agents, controllers and stores: the fault runs must find each of them within a few seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from agents.core.agent import Agent
from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.controller.state.nodes import NodeEntry
from daemons.values.records.cluster import Deleted, JobRecord
from daemons.values.settings import ControllerSettings
from shared.ports.effects import Acknowledge, Effect, Input, LeadTaken, Publish, Received, Written
from shared.protocol.messages import Reply, Report
from shared.protocol.operator_messages import PowerVm, SetJob
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.jobs import Rules
from shared.values.lease import SeenLease
from shared.values.nodes import Node, NodeCondition
from shared.values.vms import VmStatus
from sim_backend.fakes.definitions import SHARED
from sim_backend.fakes.host import Domain, Operation
from sim_backend.fakes.hypervisor import FakeHypervisor
from sim_backend.fakes.store import MemoryStore
from sim_backend.faults.run import RunKind, run_script
from sim_backend.loop.closed_loop import LoopSettings
from tests.extent import only

SEEDS_MAX = 40
Change = Callable[[LoopSettings], LoopSettings]


class TermlessAgent(Agent):
    """Begins orders of deposed leaders."""

    def _is_older(self, term: int) -> bool:
        del term
        return False


class HastyAgent(Agent):
    """Acknowledges before it has written anything down."""

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        return sorted(super().handle(event, now_s), key=lambda effect: not isinstance(effect, Acknowledge))


class ObliviousAgent(Agent):
    """Does not remember the orders that it has carried out."""

    def _order(self, action: Action, delivery: int | None, now_s: float, effects: list[Effect]) -> None:
        self._state.finished.clear()
        self._state.unreported.clear()
        super()._order(action, delivery, now_s, effects)


def forgetful_agent(node: str, boot_id: str, records: Sequence[Any], settings: AgentSettings) -> Agent:
    """An agent whose journal is empty after every restart."""
    del records
    return Agent(node, boot_id, (), settings)


class RashController(Controller):
    """Takes a silent node for dead and restarts its VMs without any proof."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        self.measure.silent = self.measure.proven_off  # type: ignore[method-assign]


class TrustingController(Controller):
    """A new leader that believes what the store says of nodes instead of waiting for them to echo its term."""

    def _lead(self, answer: LeadTaken, now_s: float) -> list[Effect]:
        effects = super()._lead(answer, now_s)
        for node in self.cluster.nodes.values():
            node.condition, node.echoed = NodeCondition.UP, True
        return effects


class StubbornController(Controller):
    """Goes on whatever tells it that another leads: the store, agents, or its probes that do not come back."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        written = self.committing.written

        def believed(answer: Written, now_s: float) -> list[Effect]:
            return written(replace(answer, ok=True), now_s)

        self.committing.written = believed  # type: ignore[method-assign]

    def _timer(self, name: str, now_s: float) -> list[Effect]:
        self.leadership._returned_s = now_s
        return super()._timer(name, now_s)

    def _report(self, report: Report, now_s: float, arrived_s: float | None = None) -> list[Effect]:
        return super()._report(replace(report, term=min(report.term, self.unit_of_work.term)), now_s, arrived_s)


class PromisingController(Controller):
    """Tells the operator that a job is accepted before it is in the store."""

    def _received(self, received: Received, now_s: float) -> list[Effect]:
        effects = super()._received(received, now_s)
        replies = [e for e in self.unit_of_work.stored if isinstance(e, Publish) and isinstance(e.message, Reply)]
        self.unit_of_work.stored = [effect for effect in self.unit_of_work.stored if effect not in replies]
        return effects + replies


class ImpatientController(Controller):
    """Takes a report that does not list a VM for proof that it is not there, though an order may yet bring it; and a
    new leader that does not wait until every node has told what is on it."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        self.measure._expected = lambda *_: False  # type: ignore[method-assign]
        self.measure._lapsed = self._give_up  # type: ignore[method-assign]

    def _give_up(self, node: NodeEntry, report: Report) -> None:
        """An order that the report does not show under way will not be carried out, it thinks."""
        doing = {in_progress.id for in_progress in report.in_progress}
        for action, instance in list(node.flights.items()):
            if action not in doing:
                self.cluster.settle(instance)
                self.unit_of_work.enqueue(instance.job)

    def _lead(self, answer: LeadTaken, now_s: float) -> list[Effect]:
        effects = super()._lead(answer, now_s)
        self.cluster.nodes_not_reported.clear()
        return effects


class WastefulController(Controller):
    """Forgets in the store what may be where and that it was ever started: a successor starts it again."""

    def _lead(self, answer: LeadTaken, now_s: float) -> list[Effect]:
        if answer.image is None:
            return super()._lead(answer, now_s)
        image = tuple(_bare(record) if isinstance(record, JobRecord) else record for record in answer.image)
        return super()._lead(replace(answer, image=image), now_s)


def _bare(record: JobRecord) -> JobRecord:
    instances = tuple(replace(instance, may_run_on=(), issued_attempt=0) for instance in record.instances)
    return replace(record, instances=instances)


class TermlessStore(MemoryStore):
    """Takes the writes of deposed leaders."""

    def check_term(self, term: int) -> None:
        del term


class TidyHypervisor(FakeHypervisor):
    """Removes every definition that it is asked to forget, also one that was there before it was ours."""

    def guest_ended(self, vm: str, now_s: float) -> None:
        super().guest_ended(vm, now_s)
        self.domains.pop(vm, None)


class SparingHypervisor(FakeHypervisor):
    """Copies no disk that lies at the target already, and leaves its own where it was."""

    def end(self, op: Operation, now_s: float, outcome: Outcome | None = None, detail: str = "") -> None:
        disks, vm = self.cluster.disks, op.action.vm
        there = op.action.to_node if op.action.kind is ActionKind.MIGRATE else self.node.name
        before = dict(disks.copies)
        super().end(op, now_s, outcome, detail)
        if op.peer is not None and (vm, there) in before and (vm, there) in disks.copies:
            disks.copies[vm, there] = before[vm, there]
            disks.executes(vm, there, now_s)
        if op.action.kind is ActionKind.MIGRATE and (vm, self.node.name) in before:
            disks.copies.setdefault((vm, self.node.name), before[vm, self.node.name])


class StartingHypervisor(FakeHypervisor):
    """Starts with its host what Trimtab may have restarted elsewhere."""

    def host_returns(self, boot: str) -> None:
        for domain in self.domains.values():
            domain.failover = False
        super().host_returns(boot)


class GreedyHypervisor(FakeHypervisor):
    """Counts the memory that is reserved for hugepages as free."""

    def inventory(self) -> Node:
        return replace(super().inventory(), hugepages=())


class BlindHypervisor(FakeHypervisor):
    """Does not see what of its host a VM needs."""

    def status_of(self, domain: Domain, now_s: float) -> VmStatus:
        return structs.replace(super().status_of(domain, now_s), migration_needs=())


class CarelessController(Controller):
    """Forgets the rules of a job that an operator changes in something else."""

    def _take(self, received: Received, now_s: float) -> list[Effect]:
        message = received.message
        if isinstance(message, SetJob) and message.rules is None:
            received = structs.replace(received, message=replace(message, rules=Rules()))
        return super()._take(received, now_s)


class HighHandedController(Controller):
    """Shuts down each VM that an operator sets."""

    def _take(self, received: Received, now_s: float) -> list[Effect]:
        message = received.message
        if isinstance(message, SetJob):
            received = structs.replace(received, message=PowerVm(message.request, message.job, False))
        return super()._take(received, now_s)


class ForgetfulController(Controller):
    """Does not remember that a VM has stopped with its host."""

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        effects = super().handle(event, now_s)
        for entry in self.cluster.adopted.values():
            entry.lost_with_host = False
        return effects


class MixedUpController(Controller):
    """Sends another VM's definition to be started."""

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        for entry in self.cluster.adopted.values():
            if entry.definition:
                entry.definition = ("<domain><name>somebody-elses</name></domain>",)
        return super().handle(event, now_s)


class UndefiningHypervisor(FakeHypervisor):
    """Removes the newest definition of a VM, and not what a failover has left."""

    def end(self, op: Operation, now_s: float, outcome: Outcome | None = None, detail: str = "") -> None:
        super().end(op, now_s, outcome, detail)
        if op.action.kind is ActionKind.UNDEFINE:
            for other in self.cluster.hypervisors.values():
                other.domains.pop(op.action.vm, None)


class RewritingHypervisor(FakeHypervisor):
    """Defines on the target of a migration what it knows of a VM, without its firmware variables."""

    def end(self, op: Operation, now_s: float, outcome: Outcome | None = None, detail: str = "") -> None:
        super().end(op, now_s, outcome, detail)
        if op.arriving is not None:
            op.arriving.xml = re.sub(r"<nvram>.*</nvram>", "", op.arriving.xml)


class ThoroughHypervisor(FakeHypervisor):
    """Removes the firmware variables that other hosts see with what a failover has left."""

    def end(self, op: Operation, now_s: float, outcome: Outcome | None = None, detail: str = "") -> None:
        super().end(op, now_s, outcome, detail)
        if op.action.kind is ActionKind.UNDEFINE and op.action.vm not in self.domains:
            self.cluster.belongings.kept.pop((op.action.vm, SHARED), None)


class CredulousController(Controller):
    """Takes every lease that was not renewed in time for expired."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        reported = self.lease_proofs.reported

        def believe(witness: NodeEntry, leases: Sequence[SeenLease], now_s: float) -> None:
            reported(witness, [structs.replace(lease, proof_s=1e-9) for lease in leases], now_s)

        self.lease_proofs.reported = believe  # type: ignore[method-assign]


def with_hypervisor(make: Any) -> Change:
    return lambda settings: replace(settings, make_hypervisor=make)


def with_agent(make: Any) -> Change:
    return lambda settings: replace(settings, make_agent=make)


def with_controller(make: Any) -> Change:
    return lambda settings: replace(settings, make_controller=make)


def with_store(make: Any) -> Change:
    return lambda settings: replace(settings, make_store=lambda: make(Deleted))


PLANTED: dict[str, tuple[Change, set[str]]] = {
    "agent ignores terms": (with_agent(TermlessAgent), {"older-term"}),
    "agent acknowledges before writing": (with_agent(HastyAgent), {"acknowledged-unwritten"}),
    "agent does not know what it has done": (with_agent(ObliviousAgent), {"action-twice"}),
    "agent loses its journal": (with_agent(forgetful_agent), {"seq-went-back"}),
    "controller restarts unknown VMs": (with_controller(RashController), {"vm-started-twice", "vm-on-two-nodes"}),
    "controller does not wait for the echo": (with_controller(TrustingController), {"order-without-echo"}),
    "controller ignores that another leads": (with_controller(StubbornController), {"order-after-loss"}),
    "controller promises too early": (with_controller(PromisingController), {"job-lost"}),
    "controller takes absence for proof": (
        with_controller(ImpatientController),
        {"vm-started-twice", "cpu-over", "memory-over"},
    ),
    "controller forgets its ledger": (with_controller(WastefulController), {"vm-started-twice"}),
    "driver removes a definition that it did not make": (with_hypervisor(TidyHypervisor), {"definition-removed"}),
    "driver resumes with what lies at the path": (with_hypervisor(SparingHypervisor), {"stale-disk"}),
    "driver starts with its host what runs elsewhere": (with_hypervisor(StartingHypervisor), {"vm-started-twice"}),
    "driver counts hugepages as free memory": (with_hypervisor(GreedyHypervisor), {"memory-over"}),
    "driver does not see what a VM needs": (with_hypervisor(BlindHypervisor), {"hardware-lacking"}),
    "controller takes a late lease for an expired one": (with_controller(CredulousController), {"vm-started-twice"}),
    "controller loses the rules of a VM that is set": (with_controller(CarelessController), {"rules-lost"}),
    "controller shuts down what is set": (with_controller(HighHandedController), {"adopted-vm-stopped"}),
    "controller forgets that a VM stopped with its host": (
        with_controller(ForgetfulController),
        {"not-converged"},
    ),
    "controller sends another definition": (with_controller(MixedUpController), {"hardware-lacking"}),
    "driver removes the newest definition": (with_hypervisor(UndefiningHypervisor), {"definition-removed"}),
    "driver migrates a definition without NVRAM": (with_hypervisor(RewritingHypervisor), {"definition-changed"}),
    "driver removes NVRAM that others see": (with_hypervisor(ThoroughHypervisor), {"vm-files-lost"}),
    "store takes any term": (with_store(TermlessStore), {"stale-write"}),
}
EARLY = {"agent loses its journal"}  # found in the first seeds
# Looked for where every seed has adopted VMs.
OF_ADOPTED = {
    "driver removes a definition that it did not make",
    "driver starts with its host what runs elsewhere",
    "driver counts hugepages as free memory",
    "driver does not see what a VM needs",
    "driver removes the newest definition",
    "driver migrates a definition without NVRAM",
    "driver removes NVRAM that others see",
    "controller takes a late lease for an expired one",
    "controller loses the rules of a VM that is set",
    "controller shuts down what is set",
    "controller forgets that a VM stopped with its host",
    "controller sends another definition",
}
# Where those that need many seeds are found as things are: it is looked there first.
KNOWN = {
    "agent ignores terms": 8,
    "controller takes absence for proof": 25,
    "controller forgets its ledger": 8,
}


@pytest.mark.accept
@pytest.mark.parametrize("bug", only(EARLY, list(PLANTED)))
def test_a_planted_bug_is_found(bug: str) -> None:
    change, invariants = PLANTED[bug]
    other: set[str] = set()
    known, kind = KNOWN.get(bug, 0), RunKind(existing_vms=bug in OF_ADOPTED)
    for seed in (known, *(seed for seed in range(SEEDS_MAX) if seed != known)):
        found = {violation.invariant for violation in run_script(kind.script(seed), change).violations}
        if found & invariants:
            return
        other |= found
    pytest.fail(f"{bug}: nothing of {sorted(invariants)} in {SEEDS_MAX} seeds, only {sorted(other)}")
