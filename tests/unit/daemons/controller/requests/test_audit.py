"""Who asked for what: one record of every request that changes something, done or refused, and of none else."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from daemons.access.delegation import on_behalf
from daemons.controller.requests.audit import (
    DETAIL_LENGTH_MAX,
    FORWARDED_PER_MINUTE,
    REFUSALS_PER_MINUTE,
    asked_of,
    audited,
    subject_of,
)
from daemons.store.history import PENDING_MAX, Batch, History
from shared.ports import effects as fx
from shared.ports.audit import Audited
from shared.protocol.account_messages import OnBehalf, RejectPlan
from shared.protocol.messages import Message, Reply
from shared.protocol.operator_messages import (
    CancelJob,
    Change,
    DrainNode,
    DryRun,
    MoveVm,
    Query,
    ResizeEnvironment,
    SetDeciding,
    SubmitJob,
)
from tests.support.controller_harness import OPERATOR, ControllerHarness, job


class AuditHarness(ControllerHarness):
    """Keeps the records."""

    def carry(self, effects: list[fx.Effect]) -> None:
        """As any harness does, and keep what was audited."""
        self.kinds: list[type] = [*getattr(self, "kinds", ()), *map(type, effects)]
        self.audits: list[Audited] = [*getattr(self, "audits", ()), *(e for e in effects if isinstance(e, Audited))]
        super().carry(effects)


@pytest.fixture
def harness() -> AuditHarness:
    """One that leads, before anybody has asked for anything."""
    made = AuditHarness()
    made.lead()
    made.audits.clear()
    return made


def test_a_change_that_is_done_is_recorded_with_who_and_why(harness: AuditHarness) -> None:
    harness.now_s = 7.0
    harness.say(on_behalf("operator.jane", DrainNode("r1", "n1", True), "new disks"), "portal.p")
    assert harness.audits == [
        Audited(
            7.0,
            "operator.jane",
            "portal.p",
            request="r1",
            kind="drain-node",
            subject="n1",
            why="new disks",
            done=True,
            code="",
            detail="on=True",
        )
    ]


def test_a_plain_request_is_recorded_without_a_reason(harness: AuditHarness) -> None:
    harness.ask(SubmitJob("s1", job("j")))
    assert harness.audits == [
        Audited(0.0, OPERATOR, OPERATOR, request="s1", kind="submit-job", subject="j", why="", done=True)
    ]


def test_refusals_are_recorded_whoever_refuses(harness: AuditHarness) -> None:
    harness.ask(CancelJob("c1", "nope"))
    harness.say(DrainNode("d1", "n1", True), "user.bob")
    harness.say(on_behalf("operator.jane", DrainNode("d2", "n1", True), "ha"), "owner.acme")
    found = [(one.account, one.via, one.kind, one.subject, one.done, one.code) for one in harness.audits]
    assert found == [
        (OPERATOR, OPERATOR, "cancel-job", "nope", False, "unknown-job"),
        ("user.bob", "user.bob", "drain-node", "n1", False, "not-allowed"),
        ("operator.jane", "owner.acme", "on-behalf", "", False, "not-allowed"),
    ]


def test_questions_are_not_recorded(harness: AuditHarness) -> None:
    harness.ask(Query("q", "status"))
    harness.ask(DryRun("d"))
    harness.say(Query("q2", "nodes"), "user.bob")
    assert harness.audits == []


def test_a_request_that_comes_twice_is_recorded_once(harness: AuditHarness) -> None:
    for _ in range(3):
        harness.ask(DrainNode("r1", "n1", True))
        harness.ask(CancelJob("c1", "nope"))
    assert [one.request for one in harness.audits] == ["r1", "c1"]


def test_another_request_under_an_id_that_was_used_is_recorded_too(harness: AuditHarness) -> None:
    for node in ("n1", "n2", "n2", "n1"):
        harness.ask(DrainNode("r1", node, True))
    assert [(one.request, one.subject) for one in harness.audits] == [("r1", "n1"), ("r1", "n2"), ("r1", "n1")]


def test_an_account_of_a_portal_hides_no_refusals_of_others_there(harness: AuditHarness) -> None:
    for number in range(REFUSALS_PER_MINUTE + 40):
        harness.say(on_behalf("user.bob", DrainNode(f"d{number}", "n1", True)), "portal.p")
    harness.say(on_behalf("owner.acme", DrainNode("other", "n1", True)), "portal.p")
    assert len(harness.audits) == REFUSALS_PER_MINUTE + 1
    assert harness.audits[-1].account == "owner.acme"


def test_a_portal_that_asks_for_ever_new_accounts_is_bounded(harness: AuditHarness) -> None:
    for number in range(FORWARDED_PER_MINUTE + 40):
        harness.say(on_behalf(f"user.u{number}", DrainNode(f"d{number}", "n1", True)), "portal.p")
    assert len(harness.audits) == FORWARDED_PER_MINUTE


def test_what_is_done_is_recorded_when_it_is_stored_and_before_it_is_acknowledged(harness: AuditHarness) -> None:
    harness.kinds.clear()
    harness.ask(DrainNode("r1", "n1", True))
    kinds = harness.kinds
    assert kinds.index(fx.Write) < kinds.index(Audited) < kinds.index(fx.Acknowledge)


def test_refusals_without_end_fill_no_store(harness: AuditHarness) -> None:
    for number in range(REFUSALS_PER_MINUTE + 40):
        harness.say(DrainNode(f"d{number}", "n1", True), "user.bob")
    assert len(harness.audits) == REFUSALS_PER_MINUTE
    harness.say(DrainNode("another", "n1", True), "user.kim")
    harness.now_s += 61.0
    harness.say(DrainNode("late", "n1", True), "user.bob")
    assert [one.request for one in harness.audits[-2:]] == ["another", "late"]
    assert harness.audits[-1].detail.endswith("(40 refusals before it are not recorded)")


def test_what_a_request_is_about_is_a_function_of_it() -> None:
    cases: list[tuple[Message, str, str]] = [
        (MoveVm("r", "j#0", "n2"), "j#0", "node=n2"),
        (ResizeEnvironment("r", "web", 2), "web", "lower=2"),
        (SetDeciding("r", False), "", "on=False"),
        (RejectPlan("r", 12, "no"), "12", ""),
        (SubmitJob("r", job("j")), "j", ""),
    ]
    assert [(subject_of(message), asked_of(message)) for message, _, _ in cases] == [case[1:] for case in cases]


def test_every_change_has_a_subject_but_those_of_deciding() -> None:
    named = {"job", "app", "environment", "agreement", "vm", "node", "decision", "notification", "channel"}
    assert [cls.KIND for cls in get_args(Change) if not named & set(cls.__dataclass_fields__)] == [
        "set-deciding",
        "stop-plan",
        "decide-now",
    ]


def test_records_are_bounded() -> None:
    message = OnBehalf("x" * 4000, "operator.jane", "w" * 500, b"")
    received = fx.Received(None, "operator.jane", message, via="portal.p", why=message.why)
    record = audited(received, Reply("x" * 4000, False, "not-allowed", "y" * 4000), 1.0, 3)
    assert max(len(getattr(record, name)) for name in ("request", "account", "via", "subject")) <= 200
    assert len(record.detail) == DETAIL_LENGTH_MAX
    assert len(record.why) == 500


def test_history_keeps_them_in_order_and_drops_the_oldest_when_nobody_stores_them() -> None:
    one = Audited(1.0, "operator.a", "operator.a", request="r", kind="drain-node", subject="n1", why="", done=True)
    history = History()
    for number in range(PENDING_MAX + 5):
        history.audit(replace(one, at_s=float(number)))
    assert history.dropped == 5
    batch = history.take(0.0)
    assert isinstance(batch, Batch)
    assert len(batch.audits) == PENDING_MAX
    assert not history.take(0.0)
    history.give_back(batch)
    history.audit(replace(one, at_s=1e9))
    assert [audit.at_s for audit in history.take(0.0).audits][-2:] == [float(PENDING_MAX + 4), 1e9]
