"""The controller: measure -> decide -> reconcile, as a state machine without I/O (architecture, rule 2).

Inputs change what is known and wanted; the consequences are drawn at the end of the instant by the timer `settle`:
reconcile what was touched, write what changed, and only when that is in the store send orders, answer operators and
acknowledge deliveries. A controller that finds another leading ends its process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from daemons.access.identity import who
from daemons.controller.admission.admission import Admission
from daemons.controller.core.commit import Commit
from daemons.controller.core.leadership import Backlog, Leadership, Role
from daemons.controller.core.restore import load
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.energy.metering import EnergyMeter
from daemons.controller.environments.coordination import Coordination
from daemons.controller.environments.reclaim import Preemption
from daemons.controller.environments.requests import TIMER, Environments
from daemons.controller.measure.heartbeats import Heartbeats
from daemons.controller.measure.reports import Measure
from daemons.controller.measure.screening import OF_AGENTS, Screening, Violation, refusal
from daemons.controller.nodes.drain import Drain
from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.notifications.rules import NotificationRules
from daemons.controller.reconcile.reconciler import Reconciler
from daemons.controller.requests.audit import Audit
from daemons.controller.requests.dispatch import Requests
from daemons.controller.requests.queries import QueryHandler
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.entries import JobEntry, NodeEntry
from daemons.controller.state.unit_of_work import SAID_MAX, UnitOfWork
from daemons.controller.views.cluster import ViewContext
from daemons.controller.web.apps import WebApps
from daemons.controller.web.autoscaling import Autoscaler, units_wanted
from daemons.controller.web.health import HealthChecks
from daemons.controller.web.load_balancing import LoadBalancing
from daemons.controller.web.node_value import WebLoss
from daemons.decision import pipeline
from daemons.values.settings import ControllerSettings
from shared.policy_api.decision import Change
from shared.ports.effects import (
    Balanced,
    Computed,
    DeadLetter,
    Effect,
    Input,
    LeadTaken,
    PowerDone,
    PricesRead,
    Pruned,
    Publish,
    Published,
    Received,
    Reconnected,
    Scraped,
    StartTimer,
    TimerFired,
    Unreadable,
    Written,
)
from shared.ports.notices import Notified
from shared.protocol import topology
from shared.protocol.account_messages import Assess, OnBehalf
from shared.protocol.messages import (
    AgentMessage,
    EventsSeen,
    GuestEvent,
    NoReading,
    Probe,
    Reply,
    Report,
    Result,
    SetUpAnswer,
    SleepAnswer,
    StandardJobEnded,
    WebReport,
)
from shared.protocol.operator_messages import DryRun, Query, Request
from shared.values.nodes import NodeCondition, PowerOperation

_LEADING = Role.LEADING
READS_A_TURN = 4  # of those that a new leader finds waiting: each may be a view of a large cluster


class Controller:
    """One controller. `name` is unique among the controllers of a cluster."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        self.name, self.settings = name, settings
        self.event_driven = pipeline.check(settings.placement, settings.provisioning)
        self.leadership, self.backlog = Leadership(name, settings.probe_s), Backlog()
        self.cluster = Cluster(settings.vm_overhead_mib)
        self.unit_of_work = UnitOfWork()
        self.suspects, self.notifying = Screening(self.unit_of_work), NotificationRules(self.unit_of_work, settings)
        self.auditing = Audit(self.unit_of_work)
        self.measure = Measure(self.cluster, self.unit_of_work, settings)
        self.watch = Heartbeats(self.cluster, self.unit_of_work, self.measure, settings)
        self.reconciler = self.make_reconciler()
        self.deployment = self._make_deployment()
        self.deciding = DecisionCycle(self.cluster, self.unit_of_work, settings, self.deployment)
        valued = settings.prices.per_utility > 0.0
        web_loss = WebLoss(self.cluster, self.unit_of_work, settings.prices) if valued else None
        self.energy = EnergyMeter(self.cluster, self.unit_of_work, settings, self.deciding.windows.entries, web_loss)
        self.deciding.builder.prices = self.energy.prices.view
        self.measure.on_window = self.deciding.loadings.window
        self.web = WebApps(self.cluster, self.unit_of_work, self.deciding, settings)
        self.adjusting = Autoscaler(self.cluster, self.unit_of_work, settings, self.deciding.apply)
        self.balancing = LoadBalancing(self.cluster, self.unit_of_work, settings.balancer)
        self.reconciler.may_stop, self.web.may_forget = self.balancing.may_stop, self.balancing.may_forget
        self.monitoring = HealthChecks(self.cluster, self.measure, settings, self.deciding)
        self.coordinating = self._make_coordinating()
        self.environments = Environments(
            self.cluster, self.unit_of_work, self.deciding, self.web, self.deployment.handovers.give
        )
        self.environments.changed = self.coordinating.changed
        self.admission = Admission(name, self.cluster, self.unit_of_work, settings, self._carry_out)
        self.admission.audit = self.auditing.answered
        self.admission.join(self.coordinating, self.environments)
        self.requests = Requests(
            self.cluster, self.unit_of_work, self.measure, self.deciding, self.web, self.environments, self.notifying
        )
        self.outgoing = Commit(self.cluster, self.unit_of_work, self.deciding, self.reconciler)
        self.answers = QueryHandler(self._tables(), self.auditing)
        self._timers: dict[str, float] = {}
        self._timed: dict[str, Callable[[float], None]] = {
            "settle": self._settle,
            "place": self._place,
            "decide": self._cycle,
            "silence": self._check_silence,
            "hello": self._greet,
            "backlog": self._catch_up,
            "scrape": self._scrape,
            "adjust": self._adjust,
            "balance": self.balancing.wake,
            "deploy": self._deploy_soon,
            "coordinate": self.coordinating.wake,
            TIMER: self._environments_due,
            "assurance": self.admission.assurance.due,
            "windows": self._windows_due,
            "standard-jobs": self.deciding.probes.due,
            "prices": self.energy.prices.due,
        }

    def make_reconciler(self) -> Reconciler:
        """The part that issues orders."""
        return Reconciler(self.cluster, self.unit_of_work, self.settings)

    def _make_deployment(self) -> NodeLifecycle:
        """The part that brings nodes into service and out of it."""

        def lose(entry: JobEntry, now_s: float) -> None:
            self.reconciler.take_back(entry, now_s, keep_images=False)

        def apply(changes: Sequence[Change], now_s: float) -> object:
            return self.deciding.apply(changes, now_s)

        emptying = Drain(self.cluster, self.unit_of_work, self.settings, lose, apply)
        return NodeLifecycle(self.cluster, self.unit_of_work, self.settings, emptying)

    def _make_coordinating(self) -> Coordination:
        """The part that sizes environments and says which nodes they are to have."""
        reclaiming = Preemption(self.cluster, self.unit_of_work, self.deciding.apply, self.reconciler.take_back)
        give = self.deployment.handovers.give
        return Coordination(self.cluster, self.unit_of_work, self.settings, reclaiming, units_wanted, give)

    def _tables(self) -> ViewContext:
        return ViewContext(
            self.name,
            self.leadership,
            self.settings,
            self.cluster,
            self.unit_of_work,
            self.deciding,
            self.reconciler,
            self.energy,
            self.coordinating,
            lambda: self.environments.life.short,
            self.outgoing.counts,
            lambda: self.answers.dry_running,
            self.admission,
            self.suspects,
            self.notifying,
        )

    def start(self, now_s: float) -> list[Effect]:
        """The first effects of a fresh process: a standby that probes."""
        return self.leadership.probe(now_s)

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        """Take one input and return what the shell must do, in order."""
        if isinstance(event, Received):
            early = self._received(event, now_s)
        elif isinstance(event, TimerFired):
            early = self._timer(event.name, now_s)
        elif isinstance(event, Written):
            early = self.outgoing.written(event, now_s)
        elif isinstance(event, LeadTaken):
            early = self._lead(event, now_s)
        else:
            early = self._answered(event, now_s)
        return self._drain(early, now_s)

    def _drain(self, early: list[Effect], now_s: float) -> list[Effect]:
        """The effects of this input; makes sure that its consequences are drawn at the end of the instant."""
        unit_of_work = self.unit_of_work
        if unit_of_work.effects:
            early += unit_of_work.effects
            unit_of_work.effects = []
        if self._timers.get("settle", math.inf) > now_s and self._unsettled():
            early.append(self._set_timer("settle", now_s))
        return early

    def _unsettled(self) -> bool:
        unit_of_work = self.unit_of_work
        return bool(
            unit_of_work.touched
            or unit_of_work.dirty_jobs
            or unit_of_work.stored
            or unit_of_work.place
            or unit_of_work.scrape
            or unit_of_work.adjust
            or self.balancing.due
            or self.monitoring.due
            or unit_of_work.deploy
            or self.coordinating.due
            or self.outgoing.changed
        )

    def _set_timer(self, name: str, at_s: float) -> Effect:
        self._timers[name] = at_s
        return StartTimer(name, at_s)

    def _at(self, name: str, due_s: float) -> None:
        """Set a timer (inf: it is not needed), unless it is set to that."""
        if due_s < math.inf and due_s != self._timers.get(name):
            self.unit_of_work.effects.append(self._set_timer(name, due_s))

    # --- leading ----------------------------------------------------------------------------------------------------

    def _lead(self, answer: LeadTaken, now_s: float) -> list[Effect]:
        if not self.leadership.taken(answer, now_s):
            return []
        self.unit_of_work.term = answer.term
        load(answer.image, self.cluster, self.deciding, self.web, now_s)
        self.admission.loaded(answer.image, now_s)
        self.deployment.loaded(now_s)
        self.environments.loaded(now_s)
        self.coordinating.loaded(now_s)
        self.balancing.loaded(now_s)
        self.monitoring.loaded()
        self.notifying.loaded(answer.image, now_s)
        self.unit_of_work.happened(now_s, "leading", self.name)
        self.energy.begin(answer.image, now_s)
        self.deciding.windows.tick(now_s)
        self._set_windows_timer(now_s)
        return [
            self._set_timer("decide", self.deciding.windows.next_cycle_s(now_s)),
            self._set_timer("silence", now_s + self.settings.silent_after_s),
            self._set_timer("hello", now_s),
            self._set_timer("backlog", now_s),
        ]

    def _catch_up(self, now_s: float) -> None:
        """Deal with what came in before this controller led, a few questions a turn: in between it hears its own
        probes, reports and what else is new."""
        reads = 0
        while reads < READS_A_TURN and (received := self.backlog.take()) is not None:
            self.unit_of_work.effects += self._take(received, now_s)
            reads += isinstance(received.message, Query | OnBehalf)
        if self.backlog:
            self.unit_of_work.effects.append(self._set_timer("backlog", now_s))

    # --- messages ---------------------------------------------------------------------------------------------------

    def _received(self, received: Received, now_s: float) -> list[Effect]:
        message = received.message
        if received.delivery is not None:
            self.leadership.heard(now_s if received.arrived_s is None else received.arrived_s)
        if isinstance(message, Probe):
            return self.leadership.returned(received, message, now_s)
        if self.leadership.role is not _LEADING or (self.backlog and received.delivery is not None):
            return [] if received.delivery is None else self.backlog.add(received)
        return self._take(received, now_s)

    def _take(self, received: Received, now_s: float) -> list[Effect]:
        message = received.message
        if isinstance(message, OnBehalf):
            opened = self.answers.opened(received, message, now_s)
            if isinstance(opened, list):
                return opened
            received, message = opened, opened.message
        refused, offence = refusal(received.sender, message, received.reply_to, self.cluster, received.via)
        if refused:
            self.suspects.refused(received.via or received.sender, refused, offence, now_s)
            return [] if received.delivery is None else [DeadLetter(received.delivery, refused)]
        if isinstance(message, OF_AGENTS):
            return self._hear(received, message, now_s)
        asker = who(received.sender)
        if isinstance(message, Request) and asker is not None:
            told = self.answers.refused(message, received, asker, now_s)
            if told is not None:
                return told
            if isinstance(message, Query | DryRun | Assess):
                return self.answers.ask(message, received, asker, now_s)
        if not self.admission.takes(received, now_s):
            self._carry_out(received, now_s)
        return []

    def _hear(self, received: Received, message: AgentMessage, now_s: float) -> list[Effect]:
        """What a node's agent says; more than it can honestly have to tell is an alarm."""
        unit_of_work, effects = self.unit_of_work, list[Effect]()
        unit_of_work.speaker = message.node
        if isinstance(message, Report):
            effects = self._report(message, now_s, received.arrived_s)
        elif isinstance(message, NoReading):
            self.cluster.nodes[message.node].trouble = (now_s, message.detail)
        else:
            self._carry_out(received, now_s)
        unit_of_work.speaker = ""
        if unit_of_work.unsaid:
            why = f"more than {SAID_MAX} events a minute of one node"
            self.suspects.refused(received.sender, why, Violation.FORGERY, now_s, unit_of_work.unsaid)
            unit_of_work.unsaid = 0
        return effects

    def _carry_out(self, received: Received, now_s: float) -> None:
        self.admission.answered(received, self._handle_message(received, now_s), now_s)

    def _handle_message(self, received: Received, now_s: float) -> Reply | None:
        message = received.message
        if isinstance(message, Result):
            instance = self.measure.result(self.cluster.nodes[message.node], message, now_s)
            self.deciding.progress.answered(message, now_s)
            if instance is not None:
                self.reconciler.outcome(instance, message, now_s)
            return None
        if isinstance(message, GuestEvent):
            self.measure.guest_event(self.cluster.nodes[message.node], message, now_s)
            return None
        if isinstance(message, WebReport):
            self.web.report(message, now_s)
            return None
        if isinstance(message, SleepAnswer):
            self.deployment.sleep_answer(message, now_s)
            return None
        if isinstance(message, SetUpAnswer):
            self.deployment.handovers.answer(message, now_s)
            return None
        if isinstance(message, StandardJobEnded):
            self.deciding.probes.answer(message, now_s)
            return None
        assert isinstance(message, Request)
        return self.requests.handle(message, now_s, received.sender, received.why)

    def _report(self, report: Report, now_s: float, arrived_s: float | None = None) -> list[Effect]:
        node = self.cluster.nodes[report.node]
        if report.term > self.unit_of_work.term:
            return self._ahead(node, report.term, now_s)
        if node.term_ahead:
            self.measure.set_ahead(node, 0)
        self.measure.report(node, report, now_s, arrived_s)
        if not node.echoed and node.condition is not NodeCondition.OFF and now_s >= node.hello_s + node.hello_wait_s:
            return [self.watch.hello(node, now_s)]
        if report.events and report.events[0].event <= node.events_seen:
            seen = EventsSeen(self.unit_of_work.term, node.events_seen)
            return [Publish(topology.ACTIONS, node.name, seen)]
        return []

    def _ahead(self, node: NodeEntry, term: int, now_s: float) -> list[Effect]:
        """A node has seen a newer term: another controller leads if the store says so too; an agent alone is not
        believed, but it is not silent either."""
        if node.silent_s is not None:
            node.silent_s = now_s
        self.measure.set_ahead(node, term)
        return self.outgoing.ask_term() if self.suspects.ahead(node.name, term, now_s) else []

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, event: Input, now_s: float) -> list[Effect]:
        if isinstance(event, Published):
            return self.outgoing.published(event, now_s)
        if isinstance(event, Computed):
            if not (self.answers.computed(event, now_s) or self.admission.computed(event, now_s)):
                self.outgoing.records += self.deciding.computed(event.compute_id, event.outcome, event.error, now_s)
                if isinstance(event.outcome, pipeline.DecideOutcome):
                    self.adjusting.decided(event.outcome)
        elif isinstance(event, PowerDone):
            self._powered(event, now_s)
        elif isinstance(event, PricesRead):
            self.energy.prices.read(event, now_s)
        elif isinstance(event, Scraped):
            self.web.scraped(event, now_s)
        elif isinstance(event, Unreadable):
            if event.queue == topology.CONTROLLER_QUEUE:
                self.leadership.heard(now_s)
            if self.leadership.role is _LEADING:
                self.suspects.refused(event.sender, event.reason, Violation.FORGERY, now_s, event.count)
                return self.answers.busy(event)
        elif isinstance(event, Balanced):
            self.balancing.balanced(event, now_s)
        elif isinstance(event, Notified):
            self.notifying.notified(event, now_s)
        elif isinstance(event, Pruned):
            self._forget(event.before_s)
        elif isinstance(event, Reconnected):
            return self.outgoing.again()
        return []

    def _forget(self, before_s: float) -> None:
        """What retention has deleted is known no longer, and its name is free; what is to be stored again stays."""
        jobs = self.cluster.forget_jobs(before_s, self.unit_of_work.dirty_jobs)
        self.deciding.windows.successors.forget(jobs)
        self.admission.assurance.forget(
            self.cluster.forget_environments(before_s, self.unit_of_work.dirty_environments)
        )

    def _powered(self, event: PowerDone, now_s: float) -> None:
        if event.operation is not PowerOperation.FENCE:
            self.deployment.powered(event, now_s)
            return
        node = self.cluster.nodes.get(event.node)
        if node is None:
            return
        node.fencing = False
        if event.ok and node.condition is not NodeCondition.UP:
            self.measure.proven_off(node, now_s)
        elif not event.ok:
            self.unit_of_work.happened(now_s, "fence-failed", node.name, event.detail)

    # --- timers -----------------------------------------------------------------------------------------------------

    def _timer(self, name: str, now_s: float) -> list[Effect]:
        self._timers.pop(name, None)
        if name == "probe":
            return self.leadership.probe(now_s)
        if self.leadership.role is Role.LEADING and name in self._timed:
            self._timed[name](now_s)
        return []

    def _settle(self, now_s: float) -> None:
        unit_of_work = self.unit_of_work
        if unit_of_work.deploy or self.deployment.emptied():
            self._at("deploy", max(self.deployment.run(now_s), now_s))
        self.monitoring.run(now_s)
        self.reconciler.run(now_s)
        self.deciding.note(unit_of_work.dirty_jobs.values(), now_s)
        self._coordinate(now_s)
        if self.web.untidy:
            self.web.tidy(now_s)
        self.environments.run(now_s)
        self._set_environments_timer()
        self._at("assurance", self.admission.settle(now_s))
        if unit_of_work.scrape:
            unit_of_work.scrape = False
            if "scrape" not in self._timers:
                unit_of_work.effects.append(self._set_timer("scrape", now_s))
        if unit_of_work.adjust:
            unit_of_work.adjust = False
            if "adjust" not in self._timers:
                unit_of_work.effects.append(self._set_timer("adjust", now_s + self.settings.web_adjust_s))
        self._at("standard-jobs", self.deciding.probes.next_due_s())
        self.energy.changed(unit_of_work.dirty_nodes.values(), now_s)
        self._balance(now_s)
        self.monitoring.tell(now_s)
        self.notifying.run(now_s)
        self.outgoing.write()
        if unit_of_work.place:
            unit_of_work.place = False
            if unit_of_work.cycle or self._acts_on_events():
                unit_of_work.effects.append(self._set_timer("place", now_s))
        due_s = min(self.reconciler.next_due_s(), self.notifying.next_due_s())
        if self.reconciler.blocked:
            due_s = min(due_s, now_s + self.settings.reconcile_s)
        if due_s < math.inf:
            unit_of_work.effects.append(self._set_timer("settle", max(due_s, now_s)))

    def _coordinate(self, now_s: float) -> None:
        """After the jobs that end at this instant, and before what is written: sizes, who is to have which node and
        whose jobs give way are stored together."""
        self.environments.pair(now_s)
        self._at("coordinate", self.coordinating.run(now_s))

    def _environments_due(self, now_s: float) -> None:
        self.environments.due(now_s)
        self._set_environments_timer()

    def _set_environments_timer(self) -> None:
        self._at(TIMER, self.environments.next_due_s())

    def _deploy_soon(self, _now_s: float) -> None:
        self.unit_of_work.deploy = True

    def _place(self, now_s: float) -> None:
        cycle, self.unit_of_work.cycle = self.unit_of_work.cycle, False
        self._ask(now_s, cycle)

    def _windows_due(self, now_s: float) -> None:
        self.deciding.windows.due(now_s)
        self._set_windows_timer(now_s)

    def _set_windows_timer(self, now_s: float) -> None:
        self._at("windows", self.deciding.windows.next_due_s(now_s))

    def _cycle(self, now_s: float) -> None:
        self.unit_of_work.effects.append(self._set_timer("decide", self.deciding.windows.next_cycle_s(now_s)))
        self.energy.cycle(now_s)
        self.deciding.loadings.cycle()
        self._ask(now_s, True)

    def _ask(self, now_s: float, cycle: bool) -> None:
        self.deciding.ask(now_s, cycle)
        start_s = self.deciding.next_start_s(now_s)
        if start_s < math.inf and self._acts_on_events():
            self.unit_of_work.effects.append(self._set_timer("place", start_s))

    def _acts_on_events(self) -> bool:
        """Whether a placement policy, its own or an environment's, is asked between cycles too."""
        return self.event_driven or self.deciding.acts_on_events()

    def _scrape(self, now_s: float) -> None:
        if self.web.has_counters():
            self.unit_of_work.effects += self.web.scrapes(now_s)
            self.unit_of_work.effects.append(self._set_timer("scrape", now_s + self.settings.scrape_s))

    def _balance(self, now_s: float) -> None:
        unit_of_work = self.unit_of_work
        self.balancing.note(unit_of_work.dirty_jobs.values())
        self.balancing.note_apps((*unit_of_work.dirty_web, *unit_of_work.removed_web, *unit_of_work.readdressed))
        unit_of_work.readdressed.clear()
        self.balancing.run(now_s)
        self._at("balance", self.balancing.next_due_s())

    def _adjust(self, now_s: float) -> None:
        if self.adjusting.needed():
            self.adjusting.tick(now_s, self.deciding.enabled and self.unit_of_work.acting)
            self.unit_of_work.effects.append(self._set_timer("adjust", now_s + self.settings.web_adjust_s))

    def _check_silence(self, now_s: float) -> None:
        self.unit_of_work.effects.append(self._set_timer("silence", self.watch.check(now_s)))

    def _greet(self, now_s: float) -> None:
        if self.watch.greet(now_s):
            self.unit_of_work.effects.append(self._set_timer("hello", now_s + self.settings.reconcile_s))
