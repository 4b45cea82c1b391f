"""Answers to those who only ask: views of what is known, and decisions that nothing follows from; and to those who may
not ask."""

from __future__ import annotations

from dataclasses import replace

from daemons import roles
from daemons.decide import DecideOutcome
from daemons.gains import gains_of
from daemons.names import unknown
from daemons.records import DecisionRecord
from daemons.roles import Refused, Who
from daemons.state import Cluster
from daemons.view_rows import Row, decision_view
from daemons.views import VIEWS, Tables
from shared.bus import topology
from shared.codec import encode
from shared.effects import Acknowledge, Computed, Effect, Publish, Received
from shared.errors import CodecError, InvalidValue
from shared.messages import QUERIES, DryRun, Query, Reply, Request
from shared.model import JobPhase

LIMIT_MAX = 10_000
DRY_RUN_ROWS = 10_000


class Answers:
    """Answers at once and writes nothing; one dry run at a time, computed beside the decisions proper."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._dry: tuple[int, DryRun, str] | None = None  # the computation, who asked, and where the answer goes

    @property
    def dry_running(self) -> bool:
        """A dry run is under way."""
        return self._dry is not None

    def refused(self, message: Request, received: Received, asker: Who, now_s: float) -> list[Effect] | None:
        """What goes to somebody who may not ask for this; None when it may."""
        code, detail = roles.refusal(asker, message, self.tables.cluster)
        if not code:
            return None
        self.tables.agenda.happened(now_s, "message-refused", received.sender, f"{code}: {detail}")
        effects = _taken(received)
        if received.reply_to:
            effects.append(_reply(received.reply_to, Reply(message.request, False, code, detail)))
        return effects

    def ask(self, message: Query | DryRun, received: Received, asker: Who, now_s: float) -> list[Effect]:
        """Take a question; a dry run's answer comes later."""
        effects = _taken(received)
        if not received.reply_to:
            return effects
        if isinstance(message, Query):
            return [*effects, _reply(received.reply_to, self._view(message, asker, now_s))]
        if self._dry is None:
            self._dry = (self.tables.deciding.compute(now_s, True), message, received.reply_to)
        elif self._dry[1:] != (message, received.reply_to):  # else the same question came twice
            busy = Reply(message.request, False, "busy", "another dry run is under way; try again when it is answered")
            effects.append(_reply(received.reply_to, busy))
        return effects

    # --- views ------------------------------------------------------------------------------------------------------

    def _view(self, query: Query, asker: Who, now_s: float) -> Reply:
        tables = replace(self.tables, cluster=roles.seen(asker, self.tables.cluster, query.what))
        code, detail = self._refuse(query, tables.cluster)
        if code:
            return Reply(query.request, False, code, detail)
        try:
            data = roles.shown(asker, query.what, VIEWS[query.what](tables, query, now_s))
            return self._answer(query.request, data, now_s)
        except InvalidValue as problem:  # a policy whose state cannot be saved
            return Reply(query.request, False, "invalid-value", f"{problem}")

    def _answer(self, request: str, data: Row, now_s: float) -> Reply:
        reply = Reply(request, True, data={"at_s": now_s, "term": self.tables.agenda.term} | data)
        try:
            encode(reply)
        except CodecError as problem:
            return Reply(request, False, "too-large", f"ask for fewer rows: {problem}")
        return reply

    def _refuse(self, query: Query, cluster: Cluster) -> Refused:
        subject = query.subject
        if query.what not in VIEWS:
            return "unknown-query", f"{unknown('view', query.what, QUERIES)}; there are {', '.join(QUERIES)}"
        if not 1 <= query.limit <= LIMIT_MAX:
            return "invalid-value", f"limit is {query.limit}, expected 1 to {LIMIT_MAX}"
        if query.what == "jobs" and subject not in ("", *JobPhase):
            return "invalid-value", unknown("phase", subject, JobPhase)
        if query.what == "web-app" and subject not in cluster.web:
            return "unknown-web-app", unknown("web application", subject, cluster.web)
        if query.what == "environment" and subject not in cluster.environments:
            return "unknown-environment", unknown("environment", subject, cluster.environments)
        if query.what == "job" and cluster.job(subject) is None:
            return "unknown-job", unknown("job", subject, cluster.jobs)
        node_named = query.what == "node" or (query.what == "vms" and subject)
        if node_named and subject not in cluster.nodes:
            return "unknown-node", unknown("node", subject, cluster.nodes)
        if query.what == "plan" and subject and not self._kept(subject):
            return "no-such-plan", f"decision {subject!r} is not kept; plan-history lists those that are"
        if query.what == "snapshot" and subject and not self.tables.shelf.has(subject):
            return "invalid-value", f"page {subject!r} is not kept: another snapshot was saved since; ask anew"
        return "", ""

    def _kept(self, number: str) -> bool:
        digits = number.isascii() and number.isdigit() and len(number) <= 18
        return digits and self.tables.deciding.history.find(int(number)) is not None

    # --- dry runs ---------------------------------------------------------------------------------------------------

    def computed(self, answer: Computed, now_s: float) -> bool:
        """Answer the dry run whose computation this is; false when it is not one."""
        if self._dry is None or answer.compute_id != self._dry[0]:
            return False
        (_, request, reply_to), self._dry = self._dry, None
        if answer.outcome is None:
            reply = Reply(request.request, False, "decision-failed", answer.error)
        else:
            reply = self._answer(request.request, self._decision(answer.outcome, now_s), now_s)
        self.tables.agenda.effects.append(_reply(reply_to, reply))
        return True

    def _decision(self, outcome: DecideOutcome, now_s: float) -> Row:
        placement = outcome.placement
        changes = tuple(placement.changes)
        plan = self.tables.deciding.plan(changes)
        policy = self.tables.settings.placement.name
        refusals = tuple(placement.refusals)
        gains = gains_of(placement.outlook)
        record = DecisionRecord(
            0,
            now_s,
            self.tables.agenda.term,
            policy,
            changes,
            refusals,
            (),
            (),
            plan,
            gains,
            provisioning=self.tables.deciding.proposed(outcome.provisioning, now_s),
        )
        return {
            "decision": decision_view(record, DRY_RUN_ROWS),
            "skipped": outcome.skipped,
            "failed": {**outcome.lacking, **outcome.failed},
            "in_service": None if outcome.provisioning is None else list(outcome.provisioning.in_service),
            "evaluations": placement.evaluations,
            "predicted_utility": placement.predicted_utility,
        }


def _reply(reply_to: str, reply: Reply) -> Effect:
    return Publish(topology.REPLIES, reply_to, reply)


def _taken(received: Received) -> list[Effect]:
    return [] if received.delivery is None else [Acknowledge(received.delivery)]
