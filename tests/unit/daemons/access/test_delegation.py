"""Requests on behalf of accounts: who may speak for whom, and that nothing can be done so that could not be else."""

from __future__ import annotations

import pytest

from daemons.access.delegation import asked_by, on_behalf
from shared.base.errors import CodecError, InvalidValue
from shared.ports.effects import Received
from shared.protocol.account_messages import OnBehalf
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Hello, Reply
from shared.protocol.operator_messages import ApprovePlan, DrainNode, Query, RemoveNode, SubmitJob
from shared.protocol.permissions import grant_of
from tests.support.controller_harness import ControllerHarness, job

PORTAL = "portal.p"


def code_of(reply: Reply | None) -> str:
    """Of an answer that there was."""
    assert reply is not None
    return reply.code


def told(harness: ControllerHarness, sender: str, message: OnBehalf) -> Reply | None:
    """Send it; the answer, if there was one."""
    count = len(harness.replies)
    harness.say(message, sender)
    return harness.replies[-1] if len(harness.replies) > count else None


def test_a_portal_asks_for_an_account_and_is_answered_itself() -> None:
    harness = ControllerHarness().lead()
    reply = told(harness, PORTAL, on_behalf("operator.jane", DrainNode("r1", "n1", True), "new disks"))
    assert reply == Reply("r1", True)
    assert harness.controller.cluster.nodes["n1"].held


def test_anybody_may_give_his_own_request_a_reason() -> None:
    harness = ControllerHarness().lead()
    assert told(harness, "operator.jane", on_behalf("operator.jane", DrainNode("r1", "n1", True), "why not"))
    assert harness.controller.cluster.nodes["n1"].held


@pytest.mark.parametrize("sender", ["operator.joe", "owner.acme", "user.bob", "controller.a", "agent.n1", "web.shop"])
def test_nobody_but_a_portal_speaks_for_others(sender: str) -> None:
    harness = ControllerHarness().lead()
    reply = told(harness, sender, on_behalf("operator.jane", DrainNode("r1", "n1", True)))
    assert not harness.controller.cluster.nodes["n1"].held
    assert (reply is None) == sender.startswith(("agent.", "web."))
    assert reply is None or (reply.done, reply.code) == (False, "not-allowed")
    assert [event.subject for event in harness.events if event.what == "message-refused"] == [sender]
    assert harness.dead[-1][1] == f"{sender} may not ask on behalf of operator.jane"


@pytest.mark.parametrize(
    "account",
    ["controller.a", "agent.n1", "web.shop", "portal.q", "operator.", "operator.a b", "operator.a.b", "x", ""],
)
def test_a_portal_speaks_for_people_alone(account: str) -> None:
    harness = ControllerHarness().lead()
    reply = told(harness, PORTAL, on_behalf(account, DrainNode("r1", "n1", True)))
    assert code_of(reply) == "not-allowed"
    assert not harness.controller.cluster.nodes["n1"].held


def test_a_portal_for_itself_only_reads_but_all_of_it() -> None:
    harness = ControllerHarness().lead()
    reply = told(harness, PORTAL, on_behalf(PORTAL, Query("q", "nodes")))
    assert reply is not None
    assert reply.data["total"] == 2
    refused = told(harness, PORTAL, on_behalf(PORTAL, RemoveNode("r", "n1")))
    assert code_of(refused) == "not-allowed"
    assert "n1" in harness.controller.cluster.nodes


@pytest.mark.parametrize("request_", [Query("q", "status"), DrainNode("r", "n1", True), ApprovePlan("a", 1)])
def test_a_portal_says_nothing_but_on_behalf(request_: Query | DrainNode | ApprovePlan) -> None:
    harness = ControllerHarness().lead()
    count = len(harness.replies)
    harness.say(request_, PORTAL)
    assert len(harness.replies) == count
    assert harness.dead[-1][1] == f"{PORTAL} may not ask for {request_.KIND}"


def test_an_account_may_do_no_more_through_a_portal() -> None:
    harness = ControllerHarness().lead()
    for number, account in enumerate(("owner.acme", "user.bob")):
        reply = told(harness, PORTAL, on_behalf(account, DrainNode(f"r{number}", "n1", True)))
        assert code_of(reply) == "not-allowed"
        view = told(harness, PORTAL, on_behalf(account, Query(f"q{number}", "nodes")))
        assert code_of(view) == "not-allowed"
        submitted = told(harness, PORTAL, on_behalf(account, SubmitJob(f"s{number}", job())))
        assert code_of(submitted) == "not-allowed"
    assert not harness.controller.cluster.nodes["n1"].held
    assert not harness.controller.cluster.jobs


def test_an_answer_goes_to_the_portals_own_queue_alone() -> None:
    harness = ControllerHarness().lead()
    count = len(harness.replies)
    asked = on_behalf("operator.jane", DrainNode("r", "n1", True))
    harness.feed(Received(harness.delivery(), PORTAL, asked, "reply.operator.jane"))
    assert len(harness.replies) == count
    assert not harness.controller.cluster.nodes["n1"].held


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        encode(Hello(1)),
        encode(Query("other", "status")),
        encode(OnBehalf("r", PORTAL, "", encode(Query("r", "status")))),
    ],
)
def test_what_is_in_it_is_one_request_of_that_id(body: bytes) -> None:
    message = OnBehalf("r", PORTAL, "", body)
    with pytest.raises(CodecError):
        asked_by(Received(None, PORTAL, message), message)
    harness = ControllerHarness().lead()
    reply = told(harness, PORTAL, message)
    assert reply == Reply("r", False, "invalid-value", reply.detail if reply else "")


def test_reasons_are_bounded_and_survive_the_way() -> None:
    message = on_behalf("operator.jane", Query("q", "status"), "ü" * 500)
    assert decode(encode(message)) == message
    with pytest.raises(InvalidValue, match="500"):
        on_behalf("operator.jane", Query("q", "status"), "x" * 501)
    with pytest.raises(InvalidValue, match="160"):
        on_behalf("o" * 161, Query("q", "status"))


def test_what_a_portal_may_do_on_the_broker() -> None:
    grant = grant_of(PORTAL)
    assert grant.may_publish("trimtab.requests", "controller")
    assert grant.may_consume("reply.portal.p.1")
    for exchange in ("trimtab.reports", "trimtab.actions", "trimtab.results", "trimtab.events", "trimtab.dead", ""):
        assert not grant.may_publish(exchange, "x")
    others = ("controller", "dead", "agent.n1", "reply.portal.q", "reply.operator.jane", "events.operator.jane")
    for queue in (*others, "events.portal.p.1"):
        assert not grant.may_consume(queue)
    assert grant_of("portal.") == grant_of("portal.a.b") == grant_of("nobody")
