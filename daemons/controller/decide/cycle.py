"""When to decide, and what becomes of a decision: dropped where it is stale, held back by the automation level, or
made the desired state."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from daemons.controller.contract.computations import Answered, Computations
from daemons.controller.contract.feature import Alarm
from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.apply import DesiredState
from daemons.controller.decide.approval import Approvals
from daemons.controller.decide.decision_log import DecisionLog
from daemons.controller.decide.node_pool import NodePool, ServiceChange
from daemons.controller.decide.prediction_scores import PredictionScores
from daemons.controller.decide.predictions import utility_of_completed
from daemons.controller.decide.progress import Progress
from daemons.controller.decide.snapshot import SnapshotBuilder
from daemons.controller.decide.table_requests import TableRequests
from daemons.controller.measure.drift import why_left_alone
from daemons.controller.reconcile.reconciler import look_at_speed
from daemons.controller.state.availability import is_empty
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.tenancy import is_leaving, tenant_pool
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.usage import unmanaged_mhz
from daemons.controller.state.vm_terms import automation_of
from daemons.controller.state.web_app import utility_of
from daemons.decision.gains import columns_of, gains_of, with_measured
from daemons.decision.pipeline import DecideOutcome, DecideRequest, acts_on_events
from daemons.decision.recording import record_of
from daemons.models.shortage import Shortage
from daemons.values.records.cluster import (
    PLAN_STOP,
    REDISTRIBUTION,
    Approval,
    ControlRecord,
    DecisionRecord,
    Provisioned,
)
from daemons.values.settings import Automation, ControllerSettings, PolicyChoice
from daemons.values.view_format import Row, reason_view
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
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeService

ROOM_SLACK = 1e-6  # MiB or MHz: sums of floats
WORST_SHOWN = -10.0  # of utility: nobody needs to know by how much it is worse
MEASURED_CYCLES = 1.5  # later than so many cycles it is not what was predicted any more


@dataclass(frozen=True, slots=True)
class DecisionFailure:
    """Why a computation brought no decision. `what`: the code of the event that reported it."""

    at_s: float
    what: str
    detail: str


class DecisionCycle:
    """Asks for decisions, one at a time, and applies them.

    `refusals` are those of the last computation, made at `refused_s`; `trouble` is why it brought no decision.
    `due_s`: when the next cycle is (None: not known yet).
    """

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        desired: DesiredState,
        nodes: NodePool,
        features: FeatureSet,
        computations: Computations,
    ) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self.desired, self.nodes = desired, nodes
        self.builder = SnapshotBuilder(cluster, settings, features)
        self.preparing = TableRequests(unit_of_work, computations)
        self.enabled = True
        self.decisions = 0
        self.submissions = 0
        self.history = DecisionLog()
        self.progress = Progress(cluster)
        self.scores = PredictionScores(cluster)
        self.shortage: tuple[float, Shortage] | None = None
        self.approving = Approvals(cluster, unit_of_work, settings, nodes, self.history, self._approved)
        self.refusals: Sequence[Refusal] = ()
        self.refused_s = 0.0
        self.trouble: DecisionFailure | None = None
        self.due_s: float | None = None
        self._features, self._computations = features, computations
        self._open: int | None = None
        self._request: DecideRequest | None = None
        self._open_cycle = False
        self._again = False
        self._again_cycle = False
        self._states: dict[str, object] = {}
        self._seen: dict[str, int] = {}  # of nodes, when the decision under way was asked for

    def restore(self, record: ControlRecord) -> None:
        """Take over the switches and counts of an earlier leader."""
        self.enabled, self.decisions, self.submissions = record.deciding, record.decisions, record.submissions
        self.unit_of_work.acting = record.acting

    def control(self) -> ControlRecord:
        """Return the switches as the store keeps them."""
        return ControlRecord(self.enabled, self.decisions, self.submissions, self.unit_of_work.acting)

    def enable(self, on: bool, now_s: float) -> None:
        """Go on deciding, or pause."""
        if self.enabled is not on:
            self.enabled = on
            self.unit_of_work.dirty_control = True
            self.unit_of_work.place = on
            self.unit_of_work.emit(now_s, "deciding-resumed" if on else "deciding-paused", "controller")

    def next_submission(self) -> int:
        """Return the submission number of one more workload or environment."""
        self.submissions += 1
        self.unit_of_work.dirty_control = True
        return self.submissions

    def refusal_rows(self, names: Collection[str]) -> dict[str, Row]:
        """Return the last reasons that named these workloads, as plain data."""
        named = (one for one in self.refusals if one.workload in names)
        return {one.workload: reason_view(one.reason) | {"at_s": self.refused_s} for one in named}

    @property
    def pending(self) -> DecisionRecord | None:
        """The decision that waits for approval."""
        return self.approving.pending

    @property
    def in_progress(self) -> bool:
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
            self._features.before_decision(now_s)
            self._look_at_speeds(now_s)
            self._seen = self.nodes.seen(now_s)
        elif not self._worth():
            return
        self._request = self.request(now_s, cycle)
        self._open, self._open_cycle = self.assess(self._request, self._computed), cycle

    def next_cycle_s(self, now_s: float) -> float:
        """Return when to decide next, at most one cycle from now; also set `due_s` to it."""
        self.due_s = due_s = min(now_s + self.settings.decide_s, self._features.next_cycle_s(now_s))
        return due_s

    def _look_at_speeds(self, now_s: float) -> None:
        """Note how fast jobs of a class have run since the last cycle, for the job profiler."""
        for entry in self.cluster.active.values():
            if entry.job.job_class and entry.reading is not None:
                look_at_speed(entry, now_s)
                entry.reading = (now_s, entry.done_mcycles)

    def compute(self, now_s: float, answered: Answered) -> None:
        """Have a cycle's decision on the state as it is computed, from which nothing follows."""
        self.assess(self.request(now_s, True), answered)

    def assess(self, task: object, answered: Answered) -> int:
        """Have something computed within the time of a decision."""
        return self._computations.ask(task, self.settings.decide_limit_s, answered)

    def request(self, now_s: float, cycle: bool) -> DecideRequest:
        """Return the request for a decision now."""
        return DecideRequest(
            self.builder.build(now_s, cycle, self.scores.distrusted() if cycle else frozenset()),
            self.settings.placement,
            self._states.get("placement"),
            self.settings.provisioning if cycle else None,
            self._states.get("provisioning"),
            {window.name: window.analyser.params for window in self.settings.windows if window.analyser.params},
            self._scheduling(),
        )

    def _scheduling(self) -> dict[str, PolicyChoice]:
        """Return the placement policies of the environments with nodes of their own."""
        terms = {e.name: e.agreement.scheduling for e in self.cluster.environments.values() if e.running and e.by_node}
        return {name: PolicyChoice(wanted.policy, wanted.params) for name, wanted in terms.items()}

    def acts_on_events(self) -> bool:
        """Return whether the policy of any environment is also asked between cycles."""
        return any(acts_on_events(choice) for choice in self._scheduling().values())

    def _worth(self) -> bool:
        """Return whether a decision between cycles is worthwhile: only for a waiting job, a web application below its
        minimum of instances, or a node that is still to be evacuated."""
        nodes = self.cluster.nodes.values()
        if any((node.service is NodeService.DRAINING or is_leaving(node)) and not is_empty(node) for node in nodes):
            return True
        idle = (JobPhase.WAITING, JobPhase.SUSPENDED)
        waits = (
            e.phase in idle
            and not (e.held or e.awaits or e.job.app)
            and tenant_pool(self.cluster, e.job.environment) is not None
            for e in self.cluster.active.values()
        )
        return any(waits) or self.cluster.lacking()

    def next_start_s(self, now_s: float) -> float:
        """Return when the next job that may not be changed yet may be: its desired start or the end of its back-off
        (inf: none)."""
        due_s = math.inf
        for entry in self.cluster.active.values():
            if not (entry.over or entry.held or entry.awaits):
                at_s = max(entry.not_before_s, entry.job.desired_start_s)
                if now_s < at_s < due_s:
                    due_s = at_s
        return due_s

    # --- applying ---------------------------------------------------------------------------------------------------

    def _computed(self, outcome: DecideOutcome | None, error: str, now_s: float) -> None:
        """Take the answer of the computation in progress."""
        compute_id, self._open = self._open, None
        if self._again:
            self.unit_of_work.place, self.unit_of_work.cycle = True, self._again_cycle
            self._again = self._again_cycle = False
        if outcome is None:
            self._fail(now_s, "decision-failed", f"{compute_id}", error)
            return
        if outcome.skipped:
            self._fail(now_s, "decision-skipped", f"{compute_id}", outcome.skipped)
            return
        self.trouble = None
        self._told_by_part(f"{compute_id}", outcome, now_s)
        self.preparing.lacked(outcome.missing, now_s)
        placement = self._told_to_leave(outcome.placement, now_s)
        self.refusals, self.refused_s = placement.refusals, now_s
        if self._open_cycle:
            self._note_shortage(outcome.shortage, now_s)
        self._states = {"placement": outcome.placement_state, "provisioning": outcome.provisioning_state}
        records = self._measure(outcome.standing, now_s) if self._open_cycle else []
        provisioned = self._provision(outcome.provisioning, now_s) if outcome.provisioning is not None else None
        decided = self._decided(placement, provisioned, now_s, self.settings.placement.name)
        if self._open_cycle and self._request is not None:
            self.scores.promised(self._request.snapshot, now_s)
        self._ask_for_room()
        self.unit_of_work.effects += (
            record_of(decided, self._request, outcome) if self.settings.record_snapshots else []
        )
        self.unit_of_work.records += records + decided
        self._features.decided(outcome, now_s)

    def _told_to_leave(self, decision: PlacementDecision, now_s: float) -> PlacementDecision:
        """Return the decision with a refusal for each job whose reconciliation is paused after an external change."""
        alone = [why_left_alone(entry, now_s) for entry in self.cluster.active.values() if entry.left_alone(now_s)]
        if not alone:
            return decision
        names = {one.workload for one in alone}
        return replace(decision, refusals=(*(one for one in decision.refusals if one.workload not in names), *alone))

    def _measure(self, standing: Mapping[str, float], now_s: float) -> list[DecisionRecord]:
        """Put beside what the cycle before predicted for this moment what has come of it."""
        before = self._last_prediction()
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
        if self._request is not None:
            self.scores.measured(measured, self._request.snapshot, now_s)
        return [measured]

    def _note_shortage(self, shortage: Shortage | None, now_s: float) -> None:
        """Keep since when the cluster is too small."""
        since_s = now_s if self.shortage is None else self.shortage[0]
        self.shortage = None if shortage is None else (since_s, shortage)

    def alarms(self) -> Iterable[Alarm]:
        """Say that the cluster is too small, and whose predictions do not hold."""
        if self.shortage is not None:
            since_s, shortage = self.shortage
            yield (
                "cluster-too-small",
                "controller",
                since_s,
                _in_words(shortage, self.cluster.web, self._last_prediction()),
            )
        yield from self.scores.alarms()

    def _last_prediction(self) -> DecisionRecord | None:
        return next((record for record in self.history if len(record.gains)), None)

    def _fail(self, now_s: float, what: str, subject: str, detail: str) -> None:
        self.trouble = DecisionFailure(now_s, what, detail)
        self.unit_of_work.emit(now_s, what, subject, detail)

    def _told_by_part(self, compute_id: str, outcome: DecideOutcome, now_s: float) -> None:
        """Report why some environments have no decision although others have."""
        for what, reasons in (("decision-skipped", outcome.lacking), ("decision-failed", outcome.failed)):
            for name, why in reasons.items():
                self._fail(now_s, what, name or compute_id, why)

    def _provision(self, decision: ProvisioningDecision, now_s: float) -> Provisioned:
        """Make it the desired state where the automation level lets it; what it says of nodes that have changed since
        it was asked for is dropped."""
        service = self.nodes.change_to(decision.in_service, self._seen, now_s)
        service = self.approving.without_rejected(service, now_s)
        held = self.settings.automation is not Automation.AUTO
        if not held:
            self.nodes.apply(service, now_s)
        if service:
            what = "nodes-proposed" if held else "nodes-decided"
            changes = f"{len(service.added)} into service, {len(service.removed)} out of it"
            self.unit_of_work.emit(now_s, what, self.settings.provisioning.name, f"{changes}: {decision.reason}")
        return self._provisioned(decision, service, held)

    def proposed(self, decision: ProvisioningDecision | None, now_s: float) -> Provisioned | None:
        """Return what a decision on the current nodes would change if it were carried out."""
        if decision is None:
            return None
        return self._provisioned(
            decision, self.nodes.change_to(decision.in_service, self.nodes.seen(now_s), now_s), True
        )

    def _provisioned(self, decision: ProvisioningDecision, service: ServiceChange, held: bool) -> Provisioned:
        return Provisioned(
            service.added,
            service.removed,
            held,
            reason=decision.reason,
            policy=self.settings.provisioning.name,
            dropped=service.dropped,
            in_service=len(decision.in_service),
            windows=decision.windows,
            refused=decision.refused,
            predicted_cost=decision.predicted_cost,
        )

    def _decided(
        self, decision: PlacementDecision, provisioned: Provisioned | None, now_s: float, policy: str
    ) -> list[DecisionRecord]:
        if not decision.changes and not self._open_cycle:
            return []  # nothing new between cycles is not worth a record
        free: list[Change] = []
        held: list[Change] = []
        levels = {
            change.workload: automation_of(self.cluster.job(change.workload), self.settings.automation)
            for change in decision.changes
        }
        for change in decision.changes:
            starts = self._starts(change) and not self.settings.hold_starts
            (free if starts or levels[change.workload] is Automation.AUTO else held).append(change)
        free, dependent = self._independent(free) if held else (free, [])
        held += dependent
        rejected = self.approving.rejected([*free, *held], now_s)
        waits = any(levels[one.workload] is Automation.CONFIRM for one in held)
        if waits:  # what is only advised is not approved with the others
            rejected += [
                Refusal(one.workload, Reason(ReasonCode.AUTOMATION))
                for one in held
                if levels[one.workload] is Automation.ADVISE
            ]
        if rejected:
            names = {one.workload for one in rejected}
            free = [one for one in free if one.workload not in names]
            held = [one for one in held if one.workload not in names]
        if not self._open_cycle:
            held = self._not_waiting(held)
            if not free and not held:
                return []
        self.decisions += 1
        self.unit_of_work.dirty_control = True
        plan = self.desired.plan(held or free)
        dropped = self.desired.apply(free, now_s)
        record = DecisionRecord(
            self.decisions,
            now_s,
            self.unit_of_work.term,
            policy=policy,
            changes=tuple(decision.changes),
            refusals=tuple(decision.refusals),
            dropped=(*dropped, *rejected),
            held=tuple(held),
            plan=plan,
            gains=gains_of(decision.outlook if self._open_cycle else None),
            level=_finite(decision.outlook.level) if self._open_cycle and decision.outlook is not None else None,
            provisioning=provisioned,
            slowed=tuple(decision.slowed),
            asks=(waits and bool(held)) or self.approving.needs_approval(provisioned),
            approvals=self.approving.standing(held, provisioned),
        )
        self.history.add(record)
        if not held:
            self.progress.follow(record, now_s)
        if record.asks:
            self.approving.wait(record, self._seen)
        self.unit_of_work.emit(now_s, "decided", f"{record.number}", f"{len(free)} changes, {len(held)} held")
        return [record]

    def adjusted(self, changes: Sequence[Change], now_s: float) -> None:
        """Make changes of CPU between cycles, as a decision of its own; none while one is being computed."""
        if self.in_progress:
            return
        self._open_cycle = False
        self.unit_of_work.records += self._decided(PlacementDecision(tuple(changes)), None, now_s, REDISTRIBUTION)

    def stopped(self, changes: Sequence[Change], service: ServiceChange, by: Approval) -> None:
        """Record what an operator has stopped, of workloads and of nodes; it is not proposed again for a while."""
        if not (changes or service):
            return
        wanted = sum(node.wanted and not node.held for node in self.cluster.nodes.values())
        reason = Reason(ReasonCode.OPERATOR)
        self.decisions += 1
        self.unit_of_work.dirty_control = True
        record = DecisionRecord(
            self.decisions,
            by.at_s,
            self.unit_of_work.term,
            policy=PLAN_STOP,
            changes=(),
            refusals=(),
            dropped=(),
            held=tuple(changes),
            plan=Plan(()),
            provisioning=Provisioned(
                service.added, service.removed, held=True, reason=reason, policy=PLAN_STOP, in_service=wanted
            )
            if service
            else None,
            rejected=by,
        )
        self.history.add(record)
        self.approving.stopped(record)
        self.unit_of_work.records.append(record)

    def _ask_for_room(self) -> None:
        """Request a cycle's decision for applications that were just submitted and have too few instances. Decisions
        between cycles preempt nothing for them."""
        for web in self.cluster.web.values():
            if web.wants_room:
                web.wants_room = False
                short = len(self.cluster.replicas_wanted(web.app.name)) < web.app.min_instances
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
        """Return whether all instances have capacity on their nodes; reserve it if they do."""
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
        """Return the changes that the last decision with held changes does not hold already. That decision must not be
        replaced by one that contains less."""
        if self.settings.automation is Automation.CONFIRM or self.approving.pending is not None:
            last = self.approving.pending
        else:
            decisions = (record for record in self.history if not record.is_stop)
            last = next((record for record in decisions if record.held), None)
        waiting = {(one.workload, one.revision, one.kind) for one in last.held} if last is not None else ()
        return [one for one in held if (one.workload, one.revision, one.kind) not in waiting]

    def _starts(self, change: Change) -> bool:
        """Return whether the change is the start of a submitted workload. The resume of an environment's job that was
        preempted under its agreement counts too: nothing else resumes it."""
        if change.kind is not ChangeKind.RESUME:
            return change.kind is ChangeKind.START
        entry = self.cluster.job(change.workload)
        return entry is not None and bool(entry.job.environment)

    def _approved(self, record: DecisionRecord, now_s: float) -> list[Refusal]:
        """Carry out what the automation level held back."""
        dropped = self.desired.apply(record.held, now_s)
        self.progress.follow(record, now_s)
        return dropped


def _finite(level: float | None) -> float | None:
    return level if level is not None and math.isfinite(level) else None


def _in_words(shortage: Shortage, web: Collection[str], last: DecisionRecord | None) -> str:
    """Return as text how much capacity is missing, for how long, and what each side gets meanwhile."""
    share = f"applications {shortage.web_mhz:,.0f}, jobs {shortage.jobs_mhz:,.0f}"
    lasts = (
        f"for about {shortage.lasts_s / 3_600.0:.1f} h if no more jobs come"
        if math.isfinite(shortage.lasts_s)
        else "as long as the load of applications stays"
    )
    more = f"{shortage.missing_mhz:,.0f} MHz more than {shortage.capacity_mhz:,.0f}"
    said = f"{more} would meet all goals ({share}), {lasts}"
    if last is None:
        return said
    gains = columns_of(last.gains)
    worst = min((u for name, u in zip(gains.names, gains.predicted.tolist(), strict=True) if name in web), default=None)
    gets = [("applications", worst), ("jobs", last.level)]
    words = ", ".join(f"{side} a utility {_utility(value)}" for side, value in gets if value is not None)
    return f"{said}; until then {words}" if words else said


def _utility(value: float) -> str:
    return f"of {value:.2f}" if value > WORST_SHOWN else f"below {WORST_SHOWN:g}"
