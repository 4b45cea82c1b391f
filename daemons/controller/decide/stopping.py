"""Stops plans in progress: what has not begun is not wanted any more, what runs ends or is aborted. Nodes stay in
service or asleep as they are."""

from __future__ import annotations

from dataclasses import dataclass

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.decide.node_pool import ServiceChange
from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import InFlight, Instance, JobEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import Approval
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import AbortAction
from shared.values.actions import ActionKind
from shared.values.jobs import Allotment, JobPhase
from shared.values.vms import LIVE_STATES

NO_NODES = ServiceChange((), ())
_STOPPED = Reason(ReasonCode.OPERATOR)
_LEAVES = {JobPhase.SUSPENDED: ChangeKind.SUSPEND, JobPhase.WAITING: ChangeKind.STOP}


@dataclass(slots=True)
class Stopped:
    """What became of the steps in progress: workloads that stay as they are, operations that end or are aborted, and
    nodes that stay in service or asleep."""

    kept: int = 0
    ends: int = 0
    aborted: int = 0
    nodes: ServiceChange = NO_NODES

    def __str__(self) -> str:
        said = []
        if self.kept or self.ends or self.aborted:
            said.append(
                f"{self.kept} workloads stay as they are, {self.ends} operations end, {self.aborted} are aborted"
            )
        if self.nodes:
            said.append(f"{len(self.nodes.removed)} nodes stay in service, {len(self.nodes.added)} are not woken")
        return ", ".join(said) or "nothing was in progress"


class PlanStop:
    """Makes the present state of workloads and nodes the desired one, where a decision wanted another."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, deciding: DecisionCycle) -> None:
        self.cluster, self.unit_of_work, self._deciding = cluster, unit_of_work, deciding

    def stop(self, abort: bool, by: Approval) -> Stopped:
        """Stop what is in progress, on an account's word; `abort`: migrations that run are aborted. What was given up
        is not proposed again for a while. O(active workloads + nodes)."""
        found, given_up = Stopped(), []
        for entry in list(self.cluster.active.values()):
            if entry.over:
                continue
            if entry.phase is not JobPhase.RUNNING:
                given_up += self._run_on(entry, found, by.at_s)
            elif not entry.released:
                given_up += self._give_up_start(entry, found)
            else:
                given_up += self._stay(entry, abort, found)
        found.nodes = self._deciding.nodes.stop(by.at_s)
        self._deciding.stopped(given_up, found.nodes, by)
        self.unit_of_work.emit(by.at_s, "plan-stopped", "controller", str(found))
        return found

    def _give_up_start(self, entry: JobEntry, found: Stopped) -> list[Change]:
        """Let a workload of which nothing has been ordered wait again; one that has begun to start comes to run."""
        if entry.begun_s is not None or entry.adopted:
            found.ends += sum(instance.in_flight is not None for instance in entry.instances)
            return []
        kind = ChangeKind.RESUME if entry.resuming else ChangeKind.START
        transitions.take_back(self.cluster, entry, entry.resuming)
        self.unit_of_work.change(entry)
        found.kept += 1
        return [self._change(entry, kind)]

    def _run_on(self, entry: JobEntry, found: Stopped, now_s: float) -> list[Change]:
        """Let a workload run on that is to be suspended or stopped, where nothing of that has begun. What an operator
        holds is no plan's."""
        kind = _LEAVES.get(entry.phase)
        if kind is None or entry.held or not entry.instances:
            return []
        if any(instance.in_flight is not None for instance in entry.instances):
            found.ends += 1
            return []
        homes = [self._lives_on(instance) for instance in entry.instances]
        if not all(homes):
            return []
        cpu_mhz = [instance.cpu_mhz for instance in entry.instances]
        allotments = [Allotment(home, mhz) for home, mhz in zip(homes, cpu_mhz, strict=True)]
        transitions.run_on(self.cluster, entry, allotments, now_s)
        self.unit_of_work.change(entry)
        found.kept += 1
        return [self._change(entry, kind)]

    def _lives_on(self, instance: Instance) -> str:
        """Return the node on which the VM was live when it was reported last ("": it is not)."""
        for name in sorted(instance.copies):
            status = self.cluster.nodes[name].vms[instance.vm]
            if status.state in LIVE_STATES and not status.busy:
                return name
        return ""

    def _stay(self, entry: JobEntry, abort: bool, found: Stopped) -> list[Change]:
        """Want the VMs of a running workload where they live. One that migrates is wanted where it is when that has
        ended; nothing is ordered again should its order be lost."""
        allotments = list(entry.allotments)
        given_up = False
        for index, instance in enumerate(entry.instances):
            flight = instance.in_flight
            moves = flight is not None and flight.kind is ActionKind.MIGRATE
            if flight is not None and not (moves and abort):
                found.ends += 1
            if flight is not None and moves:
                instance.settles = True
                self.unit_of_work.change(entry)
                if abort:
                    found.aborted += 1
                    self._abort(flight)
            here = flight.node if flight is not None and moves else self._home(instance)
            if here and here != allotments[index].node:
                allotments[index] = Allotment(here, allotments[index].cpu_mhz)
                given_up = given_up or abort or not moves
        if tuple(allotments) == entry.allotments:
            return []
        transitions.reallot(self.cluster, entry, allotments)
        self.unit_of_work.change(entry)
        if not given_up:
            return []
        found.kept += 1
        return [self._change(entry, ChangeKind.MIGRATE)]

    @staticmethod
    def _change(entry: JobEntry, kind: ChangeKind) -> Change:
        return Change(entry.job.name, entry.revision, kind, entry.allotments, _STOPPED)

    def _home(self, instance: Instance) -> str:
        """Return the node on which the VM lives ("": not known for certain)."""
        return next(iter(instance.may_run_on)) if len(instance.may_run_on) == 1 else instance.home

    def _abort(self, flight: InFlight) -> None:
        message = AbortAction(flight.node, self.unit_of_work.term, flight.boot_id, flight.id)
        self.unit_of_work.stored.append(Publish(topology.ACTIONS, flight.node, message))
