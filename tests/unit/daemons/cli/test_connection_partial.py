"""Requests of which a controller answers only some: what is known is kept, the rest has no answer."""

from __future__ import annotations

import json

import pytest

from daemons.cli.connection import WINDOW, NoAnswer
from shared.base.clock import ManualClock
from shared.base.errors import BusUnavailable
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import AddNode, Request
from tests.support.fake_controller import FakeController, line_to, trimtab

COUNT = 2 * WINDOW + 5


def answering(count: int) -> FakeController:
    """A controller that answers the first requests alone."""
    answered: set[str] = set()

    def answer(request: Request) -> Reply | None:
        if len(answered) >= count:
            return None
        answered.add(request.request)
        return Reply(request.request, True)

    return FakeController(ManualClock(100.0), answer)


@pytest.mark.parametrize("known", [1, WINDOW, WINDOW + 1])
def test_what_was_answered_is_kept(known: int) -> None:
    bus = answering(known)

    with line_to(bus) as line:
        replies = line.ask_all([AddNode(f"a{number}", f"n{number}") for number in range(COUNT)])

    assert [reply.request for reply in replies] == [f"a{number}" for number in range(COUNT)]
    assert [reply.done for reply in replies] == [True] * known + [False] * (COUNT - known)
    assert {reply.code for reply in replies[known:]} == {"no-answer"}
    sent = 2 * WINDOW if known >= WINDOW else WINDOW
    assert {*bus.asked} == {f"a{number}" for number in range(sent)}
    assert all("may still be carried out" in reply.detail for reply in replies[known:sent])
    assert all("was not sent" in reply.detail for reply in replies[sent:])


def test_a_lost_connection_keeps_what_was_answered() -> None:
    def answer(request: Request) -> Reply | None:
        if request.request == "a2":
            bus.lost = True
        return Reply(request.request, True)

    bus = FakeController(ManualClock(100.0), answer)
    with line_to(bus) as line:
        line.ask_all([AddNode("a1", "n1")])
        with pytest.raises(BusUnavailable):
            line.ask_all([AddNode("a2", "n1")])
    bus.lost = False
    with line_to(bus) as line:
        replies = line.ask_all([AddNode(f"b{number}", "n1") for number in range(WINDOW)] + [AddNode("a2", "n1")])
    assert [reply.code for reply in replies] == [""] * WINDOW + ["no-answer"]
    assert replies[-1].detail == "cut; it may still be carried out"


def test_silence_alone_is_an_error() -> None:
    with line_to(answering(0)) as line, pytest.raises(NoAnswer, match="2 requests wait in the queue"):
        line.ask_all([AddNode("a1", "n1"), AddNode("a2", "n2")])


def test_a_command_lists_what_has_no_answer() -> None:
    outcome = trimtab(answering(1), "nodes", "add", "n1", "n2", "-o", "json")

    assert outcome.exit_code == 1
    found = json.loads(outcome.stdout)
    assert (found["done"], [(row["name"], row["code"]) for row in found["refused"]]) == (["n1"], [("n2", "no-answer")])
    assert "hint: Check that a controller runs" in outcome.stderr
