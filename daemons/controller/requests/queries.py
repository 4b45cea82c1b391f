"""Answers to those who only ask: views of what is known, and decisions that nothing follows from; and to those who may
not ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from daemons.access.delegation import asked_by, may_speak_for
from daemons.access.identity import Who, who
from daemons.controller.contract.replies import at_once, with_data
from daemons.controller.measure.screening import Violation
from daemons.controller.requests import authorization
from daemons.controller.requests.audit import Audit
from daemons.controller.requests.authorization import Refused
from daemons.controller.requests.impact import ImpactAssessor
from daemons.controller.requests.rule_check import rules_view
from daemons.controller.requests.vm_fit import ConstraintsAbout, VmFitQuestions
from daemons.controller.requests.vms import VmRequests
from daemons.controller.state.cluster import Cluster
from daemons.controller.views.context import ViewContext
from daemons.controller.views.decisions import decision_view
from daemons.controller.views.jobs import NOT_OVER
from daemons.controller.views.migration import is_listed
from daemons.controller.views.registry import VIEWS
from daemons.decision.gains import gains_of
from daemons.decision.impact import Assessment
from daemons.decision.pipeline import DecideOutcome
from daemons.values.records.cluster import DecisionRecord
from daemons.values.replies import unknown
from daemons.values.view_format import Row
from shared.base.errors import CodecError, InvalidValue
from shared.ports.effects import Acknowledge, DeadLetter, Effect, Received, Unreadable
from shared.protocol import topology
from shared.protocol.account_messages import Assess, OnBehalf
from shared.protocol.columns import folded
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import (
    BUSY,
    PAGED_QUERIES,
    QUERIES,
    CheckRules,
    CheckVmFit,
    DryRun,
    Query,
    Request,
)
from shared.values.jobs import JobPhase

LIMIT_MAX = 10_000
DRY_RUN_ROWS = 10_000
Computed = Assess | CheckVmFit  # questions that the worker answers


class QueryHandler:
    """Answers at once and writes nothing; one dry run at a time, computed beside the decisions proper."""

    def __init__(
        self, tables: ViewContext, auditing: Audit, vms: VmRequests, constraints_about: ConstraintsAbout
    ) -> None:
        self.tables, self.auditing = tables, auditing
        self.assessor = ImpactAssessor(tables.cluster, tables.deciding, vms)
        self.vm_fit = VmFitQuestions(tables.cluster, tables.deciding, constraints_about)
        self._views = tables.features.handlers("views")
        self._dry: tuple[DryRun | Computed, str] | None = None  # what is computed, and where the answer goes

    @property
    def dry_running(self) -> bool:
        """Return whether a dry run is in progress."""
        return self._dry is not None

    def opened(self, received: Received, message: OnBehalf, now_s: float) -> Received | list[Effect]:
        """Return the request that an account makes through a forwarder; or the reply to a sender that may not speak for
        the account, or whose message is no request."""
        sender = received.sender
        if may_speak_for(sender, message.account):
            try:
                return asked_by(received, message)
            except CodecError as problem:
                code, why = "invalid-value", str(problem)
        else:
            code, why = "not-allowed", f"{sender} may not ask on behalf of {message.account}"
        self.tables.screening.refused(sender, why, Violation.FORGERY, now_s)
        reply = Reply(message.request, False, code, why)
        self.auditing.forged(received, message, reply, now_s)
        effects: list[Effect] = [] if received.delivery is None else [DeadLetter(received.delivery, why)]
        if who(sender) is not None and topology.is_reply_queue_of(sender, received.reply_to):
            effects.append(at_once(received.reply_to, reply))
        return effects

    def busy(self, event: Unreadable) -> list[Effect]:
        """Return the replies to an account that exceeded its share, for some of its requests."""
        return [
            at_once(reply_to, Reply(request, False, BUSY, f"{event.reason}; ask again, and less at a time"))
            for request, reply_to in event.unanswered
            if who(event.sender) is not None and topology.is_reply_queue_of(event.sender, reply_to)
        ]

    def refused(self, message: Request, received: Received, asker: Who, now_s: float) -> list[Effect] | None:
        """Return the reply to a sender that may not ask for this; None when it may."""
        code, detail = authorization.refusal(asker, message, self.tables.cluster)
        if not code:
            return None
        self.tables.screening.refused(received.sender, f"{code}: {detail}", Violation.MISTAKE, now_s)
        reply = Reply(message.request, False, code, detail)
        self.auditing.answered(received, reply, now_s)
        effects = _taken(received)
        if received.reply_to:
            effects.append(at_once(received.reply_to, reply))
        return effects

    def ask(
        self, message: Query | CheckRules | DryRun | Computed, received: Received, asker: Who, now_s: float
    ) -> list[Effect]:
        """Take a question; a dry run's answer comes later."""
        effects = _taken(received)
        if not received.reply_to:
            return effects
        if isinstance(message, Query):
            return [*effects, self._view(received.reply_to, message, asker, now_s)]
        if isinstance(message, CheckRules):
            found = rules_view(self.tables.cluster, message)
            return [*effects, self._answer(received.reply_to, message.request, found, now_s)]
        code, detail = self._unanswerable(message)
        if code:
            effects.append(at_once(received.reply_to, Reply(message.request, False, code, detail)))
        elif self._dry is None:
            self._dry = (message, received.reply_to)
            self._begin(message, now_s)
        elif self._dry != (message, received.reply_to):  # else the same question came twice
            busy = Reply(
                message.request, False, "busy", "another dry run is in progress; try again when it is answered"
            )
            effects.append(at_once(received.reply_to, busy))
        return effects

    def _unanswerable(self, message: DryRun | Computed) -> Refused:
        if isinstance(message, CheckVmFit):
            return self.vm_fit.refuse(message)
        return self.assessor.refuse(message) if isinstance(message, Assess) else ("", "")

    def _begin(self, message: DryRun | Computed, now_s: float) -> None:
        """Have the answer computed."""
        deciding = self.tables.deciding
        if isinstance(message, Assess):
            deciding.assess(self.assessor.task(message, now_s), self._computed)
        elif isinstance(message, CheckVmFit):
            deciding.assess(self.vm_fit.task(message, now_s), self._computed)
        else:
            deciding.compute(now_s, self._computed)

    # --- views ------------------------------------------------------------------------------------------------------

    def _view(self, reply_to: str, query: Query, asker: Who, now_s: float) -> Effect:
        tables = replace(self.tables, cluster=authorization.seen(asker, self.tables.cluster, query.what))
        code, detail = self._refuse(query, tables.cluster)
        if code:
            return at_once(reply_to, Reply(query.request, False, code, detail))
        view = self._views.get(query.what)
        try:
            found = VIEWS[query.what](tables, query, now_s) if view is None else view(query, tables.cluster, now_s)
        except InvalidValue as problem:  # a policy whose state cannot be saved
            return at_once(reply_to, Reply(query.request, False, "invalid-value", f"{problem}"))
        if isinstance(found, tuple):
            return at_once(reply_to, Reply(query.request, False, *found))
        data = authorization.shown(asker, query.what, found)
        return self._answer(reply_to, query.request, folded(data) if query.columns else data, now_s)

    def _answer(self, reply_to: str, request: str, data: Row, now_s: float) -> Effect:
        return with_data(reply_to, request, {"at_s": now_s, "term": self.tables.unit_of_work.term} | data)

    def _refuse(self, query: Query, cluster: Cluster) -> Refused:
        subject = query.subject
        if query.what not in VIEWS and query.what not in self._views:
            return "unknown-query", f"{unknown('view', query.what, QUERIES)}; there are {', '.join(QUERIES)}"
        if not 1 <= query.limit <= LIMIT_MAX:
            return "invalid-value", f"limit is {query.limit}, expected 1 to {LIMIT_MAX}"
        if query.after and query.what not in PAGED_QUERIES:
            return "invalid-value", f"after is {query.after!r}, expected nothing: this view has no pages"
        if query.what == "jobs" and query.after and not is_number(query.after):
            return "invalid-value", f"after is {query.after!r}, expected the `next` of a page"
        if query.what == "jobs" and subject not in ("", NOT_OVER, *JobPhase):
            return "invalid-value", unknown("phase", subject, (*JobPhase, NOT_OVER))
        entry = cluster.job(subject)
        if query.what in ("job", "definition") and entry is None:
            return "unknown-job", unknown("job", subject, cluster.jobs)
        if query.what == "definition" and not (entry and entry.definition):
            return "no-definition", f"no definition of a VM of {subject!r} is known: only those of adopted VMs are kept"
        if query.what == "vm" and not (subject in cluster.instances or is_listed(cluster, subject)):
            return "unknown-vm", unknown("VM", subject, cluster.instances)
        node_named = query.what == "node" or (query.what == "vms" and subject)
        if node_named and subject not in cluster.nodes:
            return "unknown-node", unknown("node", subject, cluster.nodes)
        if query.what == "plan" and subject and not self._kept(subject):
            return "no-such-plan", f"decision {subject!r} is not kept; plan-history lists those that are"
        if query.what == "snapshot" and subject and not self.tables.pages.has(subject):
            return "invalid-value", f"page {subject!r} is not kept: another snapshot was saved since; request it again"
        return "", ""

    def _kept(self, number: str) -> bool:
        return is_number(number) and self.tables.deciding.history.find(int(number)) is not None

    # --- dry runs ---------------------------------------------------------------------------------------------------

    def _computed(self, outcome: Any, error: str, now_s: float) -> None:
        """Answer the dry run that was computed."""
        assert self._dry is not None
        (request, reply_to), self._dry = self._dry, None
        if outcome is None:
            effect = at_once(reply_to, Reply(request.request, False, "decision-failed", error))
        elif isinstance(request, Assess):
            effect = self._answer(reply_to, request.request, self._assessed(request, outcome), now_s)
        elif isinstance(request, CheckVmFit):
            effect = self._answer(reply_to, request.request, self.vm_fit.view(request, outcome), now_s)
        else:
            effect = self._answer(reply_to, request.request, self._decision(outcome, now_s), now_s)
        self.tables.unit_of_work.effects.append(effect)

    def _assessed(self, request: Assess, found: Assessment) -> Row:
        """Return the assessment of a manual change; only its refusal where its subject disappeared meanwhile."""
        code, detail = self.assessor.refuse(request)
        if code:
            return {"kind": request.kind, "subject": request.subject, "refused": {"code": code, "detail": detail}}
        return self.assessor.view(request, found)

    def _decision(self, outcome: DecideOutcome, now_s: float) -> Row:
        placement = outcome.placement
        changes = tuple(placement.changes)
        plan = self.tables.deciding.desired.plan(changes)
        policy = self.tables.settings.placement.name
        refusals = tuple(placement.refusals)
        gains = gains_of(placement.outlook)
        record = DecisionRecord(
            0,
            now_s,
            self.tables.unit_of_work.term,
            policy=policy,
            changes=changes,
            refusals=refusals,
            dropped=(),
            held=(),
            plan=plan,
            gains=gains,
            provisioning=self.tables.deciding.proposed(outcome.provisioning, now_s),
            slowed=tuple(placement.slowed),
        )
        return {
            "decision": decision_view(record, DRY_RUN_ROWS),
            "skipped": outcome.skipped,
            "failed": {**outcome.lacking, **outcome.failed},
            "in_service": None if outcome.provisioning is None else list(outcome.provisioning.in_service),
            "evaluations": placement.evaluations,
            "predicted_utility": placement.predicted_utility,
        }


def is_number(text: str) -> bool:
    """Return whether a text is a whole number of at most 19 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 19


def _taken(received: Received) -> list[Effect]:
    return [] if received.delivery is None else [Acknowledge(received.delivery)]
