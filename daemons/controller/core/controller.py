"""The controller: measure -> decide -> reconcile, as a state machine without I/O (architecture, rule 2).

Inputs change what is known and wanted; the consequences are drawn at the end of the instant by the timer `settle`:
reconcile what was touched, write what changed, and only when that is in the store send orders, answer operators and
acknowledge deliveries. A controller that finds another leading ends its process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from daemons.access.identity import who
from daemons.controller.core.leadership import Backlog, Role
from daemons.controller.core.restore import load
from daemons.controller.core.wiring import MakeFeature, wire
from daemons.controller.measure.screening import OF_AGENTS, Heard, Violation, is_of_agent, is_request, refusal
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import SAID_MAX
from daemons.decision import pipeline
from daemons.values.settings import ControllerSettings
from shared.ports.effects import (
    Computed,
    DeadLetter,
    Effect,
    Input,
    LeadTaken,
    Pruned,
    Publish,
    Published,
    Received,
    Reconnected,
    TimerFired,
    Unreadable,
    Written,
)
from shared.protocol import topology
from shared.protocol.account_messages import Assess, OnBehalf
from shared.protocol.messages import AgentMessage, EventsSeen, GuestEvent, NoReading, Probe, Report, Result
from shared.protocol.operator_messages import CheckRules, CheckVmFit, DryRun, Query
from shared.values.nodes import NodeCondition

_LEADING = Role.LEADING
READS_A_TURN = 4  # of those that a new leader finds waiting: each may be a view of a large cluster


class Controller:
    """One controller. `name` is unique among the controllers of a cluster. plug_ins: features besides its own."""

    def __init__(self, name: str, settings: ControllerSettings, plug_ins: Sequence[MakeFeature] = ()) -> None:
        self.name, self.settings = name, settings
        self.event_driven = pipeline.check(settings.placement, settings.provisioning)
        parts = wire(name, settings, plug_ins)
        self.leadership, self.backlog = parts.leadership, Backlog()
        self.cluster, self.unit_of_work = parts.spine.cluster, parts.spine.unit_of_work
        self.features, self.computations = parts.spine.features, parts.spine.computations
        self.measure, self.reconciler, self.deciding = parts.spine.measure, parts.spine.reconciler, parts.spine.deciding
        self.replies, self.screening, self.heartbeats = parts.spine.replies, parts.screening, parts.heartbeats
        self.lease_proofs = parts.lease_proofs
        self.requests, self.queries, self.committing = parts.requests, parts.queries, parts.commit
        self._messages = self.features.handlers("messages")
        self._answers = self.features.handlers("answers")
        self._heard = Heard(self._messages.keys(), self.features.handlers("requests").keys())
        self._timed: dict[str, Callable[[float], None]] = {
            "settle": self._settle,
            "place": self._place,
            "decide": self._cycle,
            "silence": self._check_silence,
            "hello": self._send_hellos,
            "backlog": self._catch_up,
            **self.features.handlers("timers"),
        }

    def start(self, now_s: float) -> list[Effect]:
        """Return the first effects of a fresh process: a standby that probes."""
        return self.leadership.probe(now_s)

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        """Take one input and return what the shell must do, in order."""
        if isinstance(event, Received):
            early = self._received(event, now_s)
        elif isinstance(event, TimerFired):
            early = self._timer(event.name, now_s)
        elif isinstance(event, Written):
            early = self.committing.written(event, now_s)
        elif isinstance(event, LeadTaken):
            early = self._lead(event, now_s)
        else:
            early = self._answered(event, now_s)
        return self._drain(early, now_s)

    def _drain(self, early: list[Effect], now_s: float) -> list[Effect]:
        """Return the effects of this input, and make sure that its consequences are drawn at the end of the instant."""
        unit_of_work = self.unit_of_work
        if unit_of_work.effects:
            early += unit_of_work.effects
            unit_of_work.effects = []
        if unit_of_work.timers.get("settle", math.inf) > now_s and unit_of_work.unsettled:
            early.append(unit_of_work.timer("settle", now_s))
        return early

    # --- leading ----------------------------------------------------------------------------------------------------

    def _lead(self, answer: LeadTaken, now_s: float) -> list[Effect]:
        if not self.leadership.taken(answer, now_s):
            return []
        unit_of_work = self.unit_of_work
        unit_of_work.term = answer.term
        load(answer.image, self.cluster, self.deciding, self.features, now_s)
        unit_of_work.emit(now_s, "leading", self.name)
        self.features.lead(now_s)
        return [
            unit_of_work.timer("decide", self.deciding.next_cycle_s(now_s)),
            unit_of_work.timer("silence", now_s + self.settings.unreachable_after_s),
            unit_of_work.timer("hello", now_s),
            unit_of_work.timer("backlog", now_s),
        ]

    def _catch_up(self, now_s: float) -> None:
        """Deal with what came in before this controller led, a few questions a turn: in between it hears its own
        probes, reports and what else is new."""
        reads = 0
        while reads < READS_A_TURN and (received := self.backlog.take()) is not None:
            self.unit_of_work.effects += self._take(received, now_s)
            reads += isinstance(received.message, Query | OnBehalf)
        if self.backlog:
            self.unit_of_work.start_timer("backlog", now_s)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _received(self, received: Received, now_s: float) -> list[Effect]:
        message = received.message
        if received.delivery is not None:
            self.leadership.heard(now_s if received.arrived_s is None else received.arrived_s)
        if isinstance(message, Probe):
            return self.leadership.returned(received, message, now_s)
        if self.leadership.role is not _LEADING or (received.delivery is not None and self.backlog):
            return [] if received.delivery is None else self.backlog.add(received)
        return self._take(received, now_s)

    def _take(self, received: Received, now_s: float) -> list[Effect]:
        message = received.message
        if isinstance(message, OnBehalf):
            opened = self.queries.opened(received, message, now_s)
            if isinstance(opened, list):
                return opened
            received, message = opened, opened.message
        sender, via, heard = received.sender, received.via, self._heard
        refused, offence = refusal(sender, message, received.reply_to, self.cluster, via, heard)
        if refused:
            self.screening.refused(via or sender, refused, offence, now_s)
            return [] if received.delivery is None else [DeadLetter(received.delivery, refused)]
        if isinstance(message, OF_AGENTS) or is_of_agent(message, heard):
            return self._hear(received, message, now_s)
        if not is_request(message, heard):
            self._messages[type(message)](message, now_s)
            self.replies.when_stored(received, None, now_s)
            return []
        asker = who(sender)
        if asker is not None:
            told = self.queries.refused(message, received, asker, now_s)
            if told is not None:
                return told
            if isinstance(message, Query | DryRun | Assess | CheckVmFit | CheckRules):
                return self.queries.ask(message, received, asker, now_s)
        if not self.features.holds(received, now_s):
            self.requests.carry_out(received, now_s)
        return []

    def _hear(self, received: Received, message: AgentMessage, now_s: float) -> list[Effect]:
        """Handle a message from a node's agent. Raise an alarm if an agent sends more than an honest one can."""
        unit_of_work, node = self.unit_of_work, message.node
        effects: list[Effect] = []
        unit_of_work.speaker = node
        if isinstance(message, Report):
            effects = self._report(message, now_s, received.arrived_s)
        elif isinstance(message, NoReading):
            self.measure.no_reading(self.cluster.nodes[node], message, now_s)
        else:
            if isinstance(message, Result):
                self._result(message, now_s)
            elif isinstance(message, GuestEvent):
                self.measure.guest_event(self.cluster.nodes[node], message, now_s)
            else:
                self._messages[type(message)](message, now_s)
            self.replies.when_stored(received, None, now_s)
        unit_of_work.speaker = ""
        if unit_of_work.unsaid:
            why = f"more than {SAID_MAX} events a minute of one node"
            self.screening.refused(received.sender, why, Violation.FORGERY, now_s, unit_of_work.unsaid)
            unit_of_work.unsaid = 0
        return effects

    def _result(self, result: Result, now_s: float) -> None:
        instance = self.measure.result(self.cluster.nodes[result.node], result, now_s)
        self.deciding.progress.answered(result, now_s)
        self.unit_of_work.records += self.cluster.operation_times.answered(result, now_s)
        if instance is not None:
            self.reconciler.outcome(instance, result, now_s)

    def _report(self, report: Report, now_s: float, arrived_s: float | None = None) -> list[Effect]:
        node = self.cluster.nodes[report.node]
        if report.term > self.unit_of_work.term:
            return self._ahead(node, report.term, now_s)
        if node.term_ahead:
            self.measure.set_ahead(node, 0)
        self.measure.report(node, report, now_s, arrived_s)
        if report.leases and node.condition is NodeCondition.UP:
            self.lease_proofs.reported(node, report.leases, now_s)
        if not node.echoed and node.condition is not NodeCondition.OFF and now_s >= node.hello_s + node.hello_wait_s:
            return [self.heartbeats.hello(node, now_s)]
        if report.events and report.events[0].event <= node.events_seen:
            seen = EventsSeen(self.unit_of_work.term, node.events_seen)
            return [Publish(topology.ACTIONS, node.name, seen)]
        return []

    def _ahead(self, node: NodeEntry, term: int, now_s: float) -> list[Effect]:
        """Handle a node that has seen a newer term. Another controller leads only if the store confirms it: an agent
        alone is not believed, but it still counts as reachable."""
        if node.silent_s is not None:
            node.silent_s = now_s
        self.measure.set_ahead(node, term)
        return self.committing.ask_term() if self.screening.ahead(node.name, term, now_s) else []

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, event: Input, now_s: float) -> list[Effect]:
        if isinstance(event, Published):
            return self.committing.published(event, now_s)
        if isinstance(event, Reconnected):
            return self.committing.again()
        if isinstance(event, Unreadable):
            return self._unreadable(event, now_s)
        if isinstance(event, Computed):
            self.computations.answer(event, now_s)
        elif isinstance(event, Pruned):
            self._forget(event.before_s)
        else:
            self._answers[type(event)](event, now_s)
        return []

    def _unreadable(self, event: Unreadable, now_s: float) -> list[Effect]:
        if event.queue == topology.CONTROLLER_QUEUE:
            self.leadership.heard(now_s)
        if self.leadership.role is not _LEADING:
            return []
        self.screening.refused(event.sender, event.reason, Violation.FORGERY, now_s, event.count)
        return self.queries.busy(event)

    def _forget(self, before_s: float) -> None:
        """Drop what retention has deleted, and free its names; what is still to be stored stays."""
        jobs = self.cluster.forget_jobs(before_s, self.unit_of_work.dirty_jobs)
        environments = self.cluster.forget_environments(before_s, self.unit_of_work.dirty_environments)
        self.features.forget(jobs, environments)

    # --- timers -----------------------------------------------------------------------------------------------------

    def _timer(self, name: str, now_s: float) -> list[Effect]:
        self.unit_of_work.timers.pop(name, None)
        if name == "probe":
            return self.leadership.probe(now_s)
        if self.leadership.role is Role.LEADING and name in self._timed:
            self._timed[name](now_s)
        return []

    def _settle(self, now_s: float) -> None:
        """Draw the consequences of this instant and write them."""
        unit_of_work = self.unit_of_work
        self.features.prepare(now_s)
        self.reconciler.run(now_s)
        self.features.settle(now_s)
        self.features.commit(now_s)
        unit_of_work.settling = False
        self.committing.write()
        if unit_of_work.place:
            unit_of_work.place = False
            if unit_of_work.cycle or self._acts_on_events():
                unit_of_work.start_timer("place", now_s)
        due_s = min(self.reconciler.next_due_s(), self.features.next_due_s())
        if self.reconciler.blocked:
            due_s = min(due_s, now_s + self.settings.reconcile_s)
        if due_s < math.inf:
            unit_of_work.start_timer("settle", max(due_s, now_s))

    def _place(self, now_s: float) -> None:
        cycle, self.unit_of_work.cycle = self.unit_of_work.cycle, False
        self._ask(now_s, cycle)

    def _cycle(self, now_s: float) -> None:
        self.unit_of_work.start_timer("decide", self.deciding.next_cycle_s(now_s))
        self.features.cycle(now_s)
        self._ask(now_s, True)

    def _ask(self, now_s: float, cycle: bool) -> None:
        self.deciding.ask(now_s, cycle)
        start_s = self.deciding.next_start_s(now_s)
        if start_s < math.inf and self._acts_on_events():
            self.unit_of_work.start_timer("place", start_s)

    def _acts_on_events(self) -> bool:
        """Return whether a placement policy, the controller's or an environment's, is also asked between cycles."""
        return self.event_driven or self.deciding.acts_on_events()

    def _check_silence(self, now_s: float) -> None:
        self.unit_of_work.start_timer("silence", self.heartbeats.check(now_s))

    def _send_hellos(self, now_s: float) -> None:
        if self.heartbeats.send_hellos(now_s):
            self.unit_of_work.start_timer("hello", now_s + self.settings.reconcile_s)
