"""When to decide, and what becomes of a decision: dropped where it is stale, held back by the automation level, or
made the desired state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from daemons.controller.decide.approval import Approvals
from daemons.controller.decide.decision_log import DecisionLog
from daemons.controller.decide.predictions import utility_of_completed
from daemons.controller.decide.progress import Progress
from daemons.controller.decide.snapshot import SnapshotBuilder
from daemons.controller.decide.table_requests import TableRequests
from daemons.controller.interference.profiles import InterferenceProfiles
from daemons.controller.interference.snapshot import loading_columns
from daemons.controller.interference.standard_jobs import StandardJobs
from daemons.controller.measure.drift import why_left_alone
from daemons.controller.nodes.service import NodeLifecycle, ServiceChange
from daemons.controller.nodes.snapshot import power_columns
from daemons.controller.reconcile.observed import rooms_of, sight_after
from daemons.controller.reconcile.reconciler import ceilings_of, look_at_speed
from daemons.controller.state import transitions
from daemons.controller.state.availability import is_empty
from daemons.controller.state.capabilities import settled
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.entries import JobEntry
from daemons.controller.state.migration_fit import misfit
from daemons.controller.state.tenancy import Units, home_of, is_leaving, takes
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.usage import unmanaged_mhz
from daemons.controller.state.web_app import utility_of
from daemons.controller.windows.snapshot import window_views
from daemons.controller.windows.windows import WindowBook
from daemons.decision.gains import columns_of, gains_of, with_measured
from daemons.decision.pipeline import DecideOutcome, DecideRequest, acts_on_events
from daemons.decision.recording import record_of
from daemons.planning import order
from daemons.planning.diff import diff
from daemons.planning.observed import Headroom, PlannedAction
from daemons.values.records.cluster import ControlRecord, DecisionRecord, Provisioned
from daemons.values.settings import Automation, ControllerSettings, PolicyChoice
from shared.policy_api.decision import (
    Change,
    ChangeKind,
    PlacementDecision,
    Plan,
    ProvisioningDecision,
    Reason,
    ReasonCode,
    Refusal,
)
from shared.ports.effects import Compute
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeService

ROOM_SLACK = 1e-6  # MiB or MHz: sums of floats
MEASURED_CYCLES = 1.5  # later than so many cycles it is not what was predicted any more


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a computation brought no decision: `what` is the code of the event that told of it."""

    at_s: float
    what: str
    detail: str


class DecisionCycle:
    """Asks for decisions, one at a time, and applies them.

    `refusals` are those of the last computation, made at `refused_s`; `trouble` is why it brought no decision.
    """

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, deployment: NodeLifecycle
    ) -> None:
        self.cluster, self.unit_of_work, self.settings, self.deployment = cluster, unit_of_work, settings, deployment
        self.builder = SnapshotBuilder(cluster, settings)
        self.builder.power = partial(power_columns, deployment)
        self.windows = WindowBook(cluster, unit_of_work, settings)
        self.builder.stays, self.builder.queued = self.windows.stays, self.windows.queued
        self.builder.windows = lambda nodes, now_s: window_views(self.windows, nodes, now_s, self._takes_s)
        self.loadings = InterferenceProfiles(cluster, unit_of_work, settings)
        self.probes = StandardJobs(cluster, unit_of_work, settings, self.loadings)
        self.builder.loading = partial(loading_columns, self.loadings)
        self.preparing = TableRequests(unit_of_work, self._compute)
        self.enabled = True
        self.decisions = 0
        self.submissions = 0
        self.history = DecisionLog()
        self.progress = Progress(cluster)
        self.approving = Approvals(cluster, unit_of_work, settings, deployment, self.history, self._approved)
        self.refusals: Sequence[Refusal] = ()
        self.refused_s = 0.0
        self.trouble: Trouble | None = None
        self._asked = self._ranks = 0
        self._open: int | None = None
        self._request: DecideRequest | None = None
        self._open_cycle = False
        self._again = False
        self._again_cycle = False
        self._states: dict[str, object] = {}
        self._seen: dict[str, int] = {}  # of nodes, when the decision under way was asked for

    def _takes_s(self, node_type: str, what: str) -> float:
        """How long nodes of a type take to come into service or to leave it."""
        return self.deployment.durations.expected_s(self.settings.power.driver, node_type, what)

    def control(self) -> ControlRecord:
        """The switches as the store keeps them."""
        return ControlRecord(self.enabled, self.decisions, self.submissions, self.unit_of_work.acting)

    def note(self, jobs: Iterable[JobEntry], now_s: float) -> None:
        """Take in which jobs have changed in this instant."""
        self.loadings.note(jobs, now_s)
        self.windows.note(jobs, now_s)

    @property
    def pending(self) -> DecisionRecord | None:
        """The decision that waits for approval."""
        return self.approving.pending

    @property
    def under_way(self) -> bool:
        """A decision is being computed."""
        return self._open is not None

    # --- asking -----------------------------------------------------------------------------------------------------

    def ask(self, now_s: float, cycle: bool) -> None:
        """Ask for a decision, unless one is being computed (then again after it) or there is nothing to decide."""
        if not (self.enabled and self.unit_of_work.acting):
            return
        if self._open is not None:
            self._again, self._again_cycle = True, self._again_cycle or cycle
            return
        if cycle:
            self.windows.cycle(now_s)
            self._look_at_speeds(now_s)
            self._seen = self.deployment.seen(now_s)
        elif not self._worth():
            return
        self._request = self.request(now_s, cycle)
        self._open, self._open_cycle = self._compute(self._request, self.settings.decide_limit_s), cycle

    def _look_at_speeds(self, now_s: float) -> None:
        """For the job profiler: how fast jobs of a class have run since the last cycle."""
        for entry in self.cluster.active.values():
            if entry.job.job_class and entry.reading is not None:
                look_at_speed(entry, now_s)
                entry.reading = (now_s, entry.done_mcycles)

    def compute(self, now_s: float, cycle: bool) -> int:
        """Have a decision on the state as it is computed; returns the id of its answer."""
        return self._compute(self.request(now_s, cycle), self.settings.decide_limit_s)

    def assess(self, task: object) -> int:
        """Have something computed beside decisions; returns the id of its answer."""
        return self._compute(task, self.settings.decide_limit_s)

    def _compute(self, request: object, limit_s: float) -> int:
        self._asked += 1
        self.unit_of_work.effects.append(Compute(self._asked, request, limit_s))
        return self._asked

    def request(self, now_s: float, cycle: bool) -> DecideRequest:
        """What a decision now would be asked for."""
        return DecideRequest(
            self.builder.build(now_s, cycle),
            self.settings.placement,
            self._states.get("placement"),
            self.settings.provisioning if cycle else None,
            self._states.get("provisioning"),
            {window.name: window.analyser.params for window in self.settings.windows if window.analyser.params},
            self._scheduling(),
        )

    def _scheduling(self) -> dict[str, PolicyChoice]:
        """The placement policies of the environments with nodes of their own."""
        terms = {e.name: e.agreement.scheduling for e in self.cluster.environments.values() if e.running and e.by_node}
        return {name: PolicyChoice(wanted.policy, wanted.params) for name, wanted in terms.items()}

    def acts_on_events(self) -> bool:
        """Whether the policy of an environment is asked between cycles too."""
        return any(acts_on_events(choice) for choice in self._scheduling().values())

    def _worth(self) -> bool:
        """Between cycles only a job that waits, a web application with fewer instances than it must have or a node
        that is yet to be emptied is worth a decision."""
        nodes = self.cluster.nodes.values()
        if any((node.service is NodeService.DRAINING or is_leaving(node)) and not is_empty(node) for node in nodes):
            return True
        idle = (JobPhase.WAITING, JobPhase.SUSPENDED)
        waits = (
            e.phase in idle
            and not (e.held or e.awaits or e.job.app)
            and home_of(self.cluster, e.job.environment) is not None
            for e in self.cluster.active.values()
        )
        return any(waits) or self.cluster.lacking()

    def next_start_s(self, now_s: float) -> float:
        """When the next job may be changed that may not yet: its desired start, its back-off (inf: none)."""
        due_s = math.inf
        for entry in self.cluster.active.values():
            if not (entry.over or entry.held or entry.awaits):
                at_s = max(entry.not_before_s, entry.job.desired_start_s)
                if now_s < at_s < due_s:
                    due_s = at_s
        return due_s

    # --- applying ---------------------------------------------------------------------------------------------------

    def computed(
        self, compute_id: int, outcome: DecideOutcome | None, error: str, now_s: float
    ) -> list[DecisionRecord]:
        """Take a computation's answer; returns the records to store."""
        if compute_id != self._open:
            self.preparing.answered(compute_id, outcome, error, now_s)
            return []
        self._open = None
        if self._again:
            self.unit_of_work.place, self.unit_of_work.cycle = True, self._again_cycle
            self._again = self._again_cycle = False
        if outcome is None:
            self._fail(now_s, "decision-failed", f"{compute_id}", error)
            return []
        if outcome.skipped:
            self._fail(now_s, "decision-skipped", f"{compute_id}", outcome.skipped)
            return []
        self.trouble = None
        self._told_by_part(compute_id, outcome, now_s)
        self.preparing.lacked(outcome.missing, now_s)
        placement = self._told_to_leave(outcome.placement, now_s)
        self.refusals, self.refused_s = placement.refusals, now_s
        self._states = {"placement": outcome.placement_state, "provisioning": outcome.provisioning_state}
        records = self._measure(outcome.standing, now_s) if self._open_cycle else []
        provisioned = self._provision(outcome.provisioning, now_s) if outcome.provisioning is not None else None
        if outcome.provisioning is not None:
            self.windows.decided(outcome.provisioning, now_s)
        decided = self._decided(placement, provisioned, now_s)
        self._ask_for_room()
        self.unit_of_work.effects += (
            record_of(decided, self._request, outcome) if self.settings.record_snapshots else []
        )
        return records + decided

    def _told_to_leave(self, decision: PlacementDecision, now_s: float) -> PlacementDecision:
        """With the reason of those that are left alone after what somebody else did to them."""
        alone = [why_left_alone(entry, now_s) for entry in self.cluster.active.values() if entry.left_alone(now_s)]
        if not alone:
            return decision
        names = {one.workload for one in alone}
        return replace(decision, refusals=(*(one for one in decision.refusals if one.workload not in names), *alone))

    def _measure(self, standing: Mapping[str, float], now_s: float) -> list[DecisionRecord]:
        """Put beside what the cycle before predicted for this moment what has come of it."""
        before = next((record for record in self.history if len(record.gains)), None)
        late_s = MEASURED_CYCLES * self.settings.decide_s
        if before is None or before.measured_s is not None or now_s > before.at_s + late_s:
            return []
        utilities = dict(standing)
        for name in columns_of(before.gains).names:
            entry, web = self.cluster.jobs.get(name), self.cluster.web.get(name)
            if entry is not None and entry.phase is JobPhase.COMPLETED:
                utilities[name] = utility_of_completed(entry)
            elif web is not None and (utility := utility_of(web)) is not None:
                utilities[name] = utility
        measured = with_measured(before, utilities, now_s)
        self.history.replace(measured)
        self.approving.measured(measured)
        return [measured]

    def _fail(self, now_s: float, what: str, subject: str, detail: str) -> None:
        self.trouble = Trouble(now_s, what, detail)
        self.unit_of_work.happened(now_s, what, subject, detail)

    def _told_by_part(self, compute_id: int, outcome: DecideOutcome, now_s: float) -> None:
        """Why some environments have no decision although others have."""
        for what, reasons in (("decision-skipped", outcome.lacking), ("decision-failed", outcome.failed)):
            for name, why in reasons.items():
                self._fail(now_s, what, name or f"{compute_id}", why)

    def _provision(self, decision: ProvisioningDecision, now_s: float) -> Provisioned:
        """Make it the desired state where the automation level lets it; what it says of nodes that have changed since
        it was asked for is dropped."""
        wish = self.deployment.wish(decision.in_service, self._seen, now_s)
        held = self.settings.automation is not Automation.AUTO
        if held:
            wish = self.approving.without_rejected(wish, now_s)
        else:
            self.deployment.apply(wish, now_s)
        if wish:
            what = "nodes-proposed" if held else "nodes-decided"
            changes = f"{len(wish.added)} into service, {len(wish.removed)} out of it"
            self.unit_of_work.happened(now_s, what, self.settings.provisioning.name, f"{changes}: {decision.reason}")
        return self._provisioned(decision, wish, held)

    def proposed(self, decision: ProvisioningDecision | None, now_s: float) -> Provisioned | None:
        """What a decision on the nodes as they are now would change, if it were carried out."""
        if decision is None:
            return None
        return self._provisioned(
            decision, self.deployment.wish(decision.in_service, self.deployment.seen(now_s), now_s), True
        )

    def _provisioned(self, decision: ProvisioningDecision, wish: ServiceChange, held: bool) -> Provisioned:
        return Provisioned(
            wish.added,
            wish.removed,
            held,
            decision.reason,
            self.settings.provisioning.name,
            wish.dropped,
            len(decision.in_service),
            decision.windows,
            decision.refused,
            decision.predicted_cost,
        )

    def _decided(
        self, decision: PlacementDecision, provisioned: Provisioned | None, now_s: float
    ) -> list[DecisionRecord]:
        if not decision.changes and not self._open_cycle:
            return []  # nothing new between cycles is not worth a record
        free: list[Change] = []
        held: list[Change] = []
        for change in decision.changes:
            starts = self._starts(change) and not self.settings.hold_starts
            (free if starts or self.settings.automation is Automation.AUTO else held).append(change)
        free, dependent = self._independent(free) if held else (free, [])
        held += dependent
        rejected = self.approving.rejected(held, now_s)
        if rejected:
            names = {one.workload for one in rejected}
            held = [one for one in held if one.workload not in names]
        if not self._open_cycle:
            held = self._not_waiting(held)
            if not free and not held:
                return []
        self.decisions += 1
        self.unit_of_work.dirty_control = True
        plan = self.plan(held or free)
        dropped = self.apply(free, now_s)
        record = DecisionRecord(
            self.decisions,
            now_s,
            self.unit_of_work.term,
            self.settings.placement.name,
            tuple(decision.changes),
            tuple(decision.refusals),
            (*dropped, *rejected),
            tuple(held),
            plan,
            gains_of(decision.outlook if self._open_cycle else None),
            _finite(decision.outlook.level) if self._open_cycle and decision.outlook is not None else None,
            provisioning=provisioned,
            slowed=tuple(decision.slowed),
            asks=self.approving.asks(held, provisioned),
            approvals=self.approving.standing(held, provisioned),
        )
        self.history.add(record)
        if not held:
            self.progress.follow(record, now_s)
        if record.asks:
            self.approving.wait(record, self._seen)
        self.unit_of_work.happened(now_s, "decided", f"{record.number}", f"{len(free)} changes, {len(held)} held")
        return [record]

    def _ask_for_room(self) -> None:
        """Have a cycle's decision made for applications that were just submitted and have too few instances: between
        cycles nobody gives way to them."""
        for web in self.cluster.web.values():
            if web.wants_room:
                web.wants_room = False
                short = self.cluster.seats_wanted(web.app.name) < web.app.min_instances
                if short and not self._open_cycle and not web.removed:
                    self.unit_of_work.place = self.unit_of_work.cycle = True

    def _independent(self, free: Sequence[Change]) -> tuple[list[Change], list[Change]]:
        """Part the changes that may be made at once into those that have room as things stand and those that wait for
        it with the changes that are held back."""
        room = {
            name: [node.room_mib(), node.inventory.cpu_mhz - node.wanted_mhz - unmanaged_mhz(node)]
            for name, node in self.cluster.nodes.items()
            if node.inventory is not None
        }
        now: list[Change] = []
        later: list[Change] = []
        for change in free:
            entry = self.cluster.active.get(change.workload)
            comes = change.kind in (ChangeKind.START, ChangeKind.RESUME)
            if entry is None or not comes or self._take_room(entry, change, room):
                now.append(change)
            else:
                later.append(change)
        return now, later

    def _take_room(self, entry: JobEntry, change: Change, room: Mapping[str, list[float]]) -> bool:
        """Whether all instances have room; then it is taken."""
        memory_mib = entry.job.memory_mib + self.cluster.vm_overhead_mib
        left = {name: list(values) for name, values in room.items()}
        for allotment in change.allotments:
            free = left.get(allotment.node)
            if free is None or memory_mib > free[0] + ROOM_SLACK or allotment.cpu_mhz > free[1] + ROOM_SLACK:
                return False
            free[0] -= memory_mib
            free[1] -= allotment.cpu_mhz
        for name, values in left.items():
            room[name][:] = values
        return True

    def _not_waiting(self, held: list[Change]) -> list[Change]:
        """Those that the last decision which held changes back does not hold already: it is not to be replaced by one
        that says less."""
        if self.settings.automation is Automation.CONFIRM:
            last = self.approving.pending
        else:
            last = next((record for record in self.history if record.held), None)
        waiting = {(one.workload, one.revision, one.kind) for one in last.held} if last is not None else ()
        return [one for one in held if (one.workload, one.revision, one.kind) not in waiting]

    def _starts(self, change: Change) -> bool:
        """Whether it is the start of a submitted workload; for a job that gave way to its environment's agreement going
        on is one too: nobody else has it go on."""
        if change.kind is not ChangeKind.RESUME:
            return change.kind is ChangeKind.START
        entry = self.cluster.job(change.workload)
        return entry is not None and bool(entry.job.environment)

    def _approved(self, record: DecisionRecord, now_s: float) -> list[Refusal]:
        """Carry out what the automation level held back."""
        dropped = self.apply(record.held, now_s)
        self.progress.follow(record, now_s)
        return dropped

    def plan(self, changes: Sequence[Change]) -> Plan:
        """The order in which changes that have not been made would be carried out as things stand."""
        needs: list[PlannedAction] = []
        holdings: dict[str, Headroom] = {}
        for change in changes:
            entry = self.cluster.active.get(change.workload)
            if entry is None or entry.revision != change.revision:
                continue
            needs += diff(sight_after(self.cluster, entry, change)).needs
            for instance in entry.instances:
                holdings[instance.vm] = Headroom(instance.memory_mib, instance.cpu_mhz)
        return order.plan(needs, rooms_of(self.cluster, needs), holdings, ceilings_of(self.settings.limits))

    def apply(self, changes: Sequence[Change], now_s: float) -> list[Refusal]:
        """Make changes the desired state; returns those dropped because their workload has changed since."""
        dropped = []
        crowded, units = self._crowded(changes), Units(self.cluster)
        for change in changes:
            entry = self.cluster.active.get(change.workload)
            stale = entry is None or entry.over or entry.revision != change.revision or change.workload in crowded
            if entry is not None and entry.left_alone(now_s) and change.reason.code is not ReasonCode.OPERATOR:
                dropped.append(why_left_alone(entry, now_s))
                continue
            ends = change.kind in (ChangeKind.SUSPEND, ChangeKind.STOP)
            if entry is not None and entry.adopted and ends and change.reason.code is not ReasonCode.OPERATOR:
                dropped.append(Refusal(change.workload, Reason(ReasonCode.ADOPTED)))
                continue
            unfit = "" if entry is None or stale else misfit(self.cluster, entry, change)
            if unfit:
                dropped.append(Refusal(change.workload, Reason(ReasonCode.MIGRATION_FIT)))
                self.unit_of_work.happened(now_s, "migration-unfit", change.workload, unfit)
                continue
            made = None if entry is None or stale else settled(self.cluster, entry, change)
            if entry is None or made is None or not self._lawful(entry, made) or not _entitled(entry, made, units):
                dropped.append(Refusal(change.workload, Reason(ReasonCode.STALE)))
                self.unit_of_work.happened(now_s, "change-stale", change.workload, change.kind.value)
                continue
            self._change(entry, made, now_s)
        return dropped

    def _lawful(self, entry: JobEntry, change: Change) -> bool:
        expected = {
            ChangeKind.START: (JobPhase.WAITING,),
            ChangeKind.RESUME: (JobPhase.SUSPENDED,),
            ChangeKind.SUSPEND: (JobPhase.RUNNING,),
            ChangeKind.MIGRATE: (JobPhase.RUNNING,),
            ChangeKind.RESIZE: (JobPhase.RUNNING,),
            ChangeKind.STOP: (JobPhase.RUNNING,),
        }
        if change.kind is (ChangeKind.SUSPEND if entry.job.app else ChangeKind.STOP):
            return False  # jobs are suspended, instances of web applications stopped
        ends = change.kind in (ChangeKind.SUSPEND, ChangeKind.STOP)
        counts = len(change.allotments) == (0 if ends else entry.job.instances)
        known = all(self._may_be_on(entry, allotment.node) for allotment in change.allotments)
        clear = change.kind is not ChangeKind.START or entry.clear
        return entry.phase in expected[change.kind] and counts and known and clear

    def _may_be_on(self, entry: JobEntry, name: str) -> bool:
        """Whether it is wanted on the node already, or the node serves its environment: it may have been handed over
        since the decision was asked for."""
        here = any(allotment.node == name for allotment in entry.allotments)
        node = self.cluster.nodes.get(name)
        return node is not None and (here or takes(self.cluster, node, entry.job.environment))

    def _crowded(self, changes: Sequence[Change]) -> frozenset[str]:
        """Changes that would bring two instances of a web application to one node: the other has come there since."""
        wanted = {change.workload: change for change in changes}
        apps = {entry.job.app for name in wanted if (entry := self.cluster.active.get(name)) is not None}
        crowded = set()
        for app in apps - {""}:
            places: dict[str, list[str]] = {}
            for seat in self.cluster.seats[app].values():
                change = wanted.get(seat.job.name)
                for allotment in seat.allotments if change is None else change.allotments:
                    places.setdefault(allotment.node, []).append(seat.job.name)
            crowded |= {name for names in places.values() if len(names) > 1 for name in names if name in wanted}
        return frozenset(crowded)

    def _change(self, entry: JobEntry, change: Change, now_s: float) -> None:
        match change.kind:
            case ChangeKind.START:
                _begin_anew(entry)
                transitions.start(self.cluster, entry, change.allotments, now_s)
            case ChangeKind.RESUME:
                transitions.resume(self.cluster, entry, change.allotments, now_s)
            case ChangeKind.SUSPEND:
                transitions.suspend(self.cluster, entry, change.allotments)
                self.unit_of_work.happened(now_s, "job-suspended", entry.job.name, str(change.reason))
            case ChangeKind.STOP:
                transitions.stop(self.cluster, entry, change.allotments)
                self.unit_of_work.happened(now_s, "web-instance-stopped", entry.job.name, str(change.reason))
            case _:
                transitions.reallot(self.cluster, entry, change.allotments)
        if change.kind is not ChangeKind.RESIZE:
            entry.changed_s = now_s
        self._ranks += 1
        entry.wanted_rank = self._ranks
        self.unit_of_work.change(entry)


def _entitled(entry: JobEntry, change: Change, units: Units) -> bool:
    """Whether its environment has units left for what comes to run: others may have been started since."""
    return change.kind not in (ChangeKind.START, ChangeKind.RESUME) or units.take(entry)


def _finite(level: float | None) -> float | None:
    return level if level is not None and math.isfinite(level) else None


def _begin_anew(entry: JobEntry) -> None:
    """A new attempt: guests start from their last checkpoint."""
    entry.attempt += 1
    step = entry.job.checkpoint_mcycles
    saved_mcycles = math.floor(entry.done_mcycles / step) * step if step > 0 else 0.0
    for instance in entry.instances:
        instance.ended = instance.sought = False
        instance.done_mcycles = saved_mcycles
        instance.counter_node, instance.counter_generation, instance.counter_s = "", -1, 0.0
