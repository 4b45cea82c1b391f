"""Messages of those who may not say them: refused, told once, shown as alarms, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.measure.screening import (
    ALARM_S,
    MISTAKES_MAX,
    SUSPECTS_MAX,
    TELL_AGAIN_S,
    THE_REST,
    UNASKED_MAX,
    Screening,
    Violation,
)
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import Deleted
from shared.ports import effects as fx
from shared.protocol.messages import (
    GuestEvent,
    Hello,
    Message,
    Report,
    Result,
    SetUpAnswer,
    SleepAnswer,
    StandardJobEnded,
)
from shared.protocol.operator_messages import CancelJob, Query, SubmitJob
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.nodes import NodeSample
from shared.values.vms import VmState, VmStatus
from sim_backend.fakes.store import MemoryStore
from tests.support.controller_harness import ControllerHarness, job
from tests.unit.daemons.controller.core.test_controller import submitted


def alarms(desk: ControllerHarness, what: str = "message-refused") -> list[dict[str, Any]]:
    """The alarms of a kind that `trimtab status` shows."""
    return [row for row in desk.ask(Query("q", "status")).data["alarms"] if row["what"] == what]


def report(node: str, term: int = 1) -> Report:
    return Report(node, "boot-9", 99, clock_s=0.0, term=term, sample=NodeSample(), vms=())


FORGED: dict[str, tuple[str, Message]] = {
    "a report for another node": ("agent.n2", report("n1")),
    "a report in a node's name by an operator": ("operator.ann", report("n1")),
    "a result for another node": (
        "agent.n2",
        Result(
            "n1", "boot-1", 99, clock_s=0.0, term=1, action="a1", kind=ActionKind.START, vm="j#0", outcome=Outcome.OK
        ),
    ),
    "an event of another node's guest": (
        "agent.n2",
        GuestEvent(
            "n1", "boot-1", 99, clock_s=0.0, event=1, change=GuestChange.ENDED, status=VmStatus("j#0", VmState.RUNNING)
        ),
    ),
    "that another node sleeps": ("agent.n2", SleepAnswer("n1", "boot-1", 99, 0.0, "r", True)),
    "that another node is set up": ("agent.n2", SetUpAnswer("n1", "boot-1", 99, 0.0, "r", True)),
    "a measurement of another node": (
        "agent.n2",
        StandardJobEnded("n1", "boot-1", 99, clock_s=0.0, request="r", ok=True),
    ),
    "a request by an agent": ("agent.n2", SubmitJob("r", job())),
    "a question by an agent": ("agent.n2", Query("r", "status")),
    "a request by a web application": ("web.shop", CancelJob("r", "j")),
    "a request by an account of no role": ("nobody", CancelJob("r", "j")),
    "what only controllers say": ("agent.n2", Hello(9, 0)),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_message_changes_nothing_and_raises_an_alarm(case: str) -> None:
    """Given a cluster with a job, then it is as it was, the sender is named, and the delivery is among the dead."""
    sender, message = FORGED[case]
    desk = submitted(ControllerHarness().lead(), job())
    before = [record for record in desk.store.records() if not isinstance(record, Deleted)]
    node = desk.controller.cluster.nodes["n1"]
    seen = (node.report_seq, node.seen_s, node.events_seen)
    assert alarms(desk) == []

    number = desk.say(message, sender)

    assert [delivery for delivery, _ in desk.dead] == [number]
    (alarm,) = alarms(desk)
    assert (alarm["subject"], alarm["since_s"]) == (sender, desk.now_s)
    (event,) = desk.happenings("message-refused")
    assert event.subject == sender
    assert event.detail in alarm["detail"]
    assert (node.report_seq, node.seen_s, node.events_seen) == seen
    assert [record for record in desk.store.records() if not isinstance(record, Deleted)] == before
    desk.wait(ALARM_S)
    assert alarms(desk) == []


def test_no_node_answers_for_an_action_of_another() -> None:
    """Given a start on n1, when n2 says in its own name that it has failed, then n1 is waited for as before."""
    desk = submitted(ControllerHarness().lead(), job())
    (start,) = desk.take_orders()
    assert start.node == "n1"
    forged = Result(
        "n2", "boot-2", 99, clock_s=0.0, term=1, action=start.id, kind=start.kind, vm=start.vm, outcome=Outcome.BUSY
    )

    number = desk.say(forged, "agent.n2")

    assert [delivery for delivery, _ in desk.dead] == [number]
    assert start.id in desk.controller.cluster.actions
    assert start.id in alarms(desk)[0]["detail"]
    desk.result(start)
    assert start.id not in desk.controller.cluster.actions
    assert len(desk.dead) == 1


@pytest.mark.parametrize("sender", ["agent.n2", ""])
def test_what_is_no_message_raises_an_alarm_too(sender: str) -> None:
    desk = ControllerHarness().lead()

    desk.feed(fx.Unreadable(sender, "noise"))

    (alarm,) = alarms(desk)
    assert (alarm["subject"], alarm["detail"]) == (sender, "1 messages, the last: noise")


def test_a_node_that_was_not_added_is_told_and_no_alarm() -> None:
    """Its agent runs already, or still: that happens whenever nodes come and go."""
    desk = ControllerHarness().lead()

    desk.say(report("n9"), "agent.n9")

    assert [event.subject for event in desk.happenings("message-refused")] == ["agent.n9"]
    assert alarms(desk) == []


def test_slips_of_the_hand_are_no_alarm_and_many_are() -> None:
    """An owner asks for what only the provider may, again and again."""
    desk = ControllerHarness().lead()
    for number in range(MISTAKES_MAX):
        assert alarms(desk) == []
        desk.say(CancelJob(f"r{number}", "nobodys"), "user.joe")
        desk.say(Query(f"q{number}", "nodes"), "owner.kim")
    assert {row["subject"] for row in alarms(desk)} >= {"owner.kim"}
    assert desk.dead == []


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_flood_is_counted_and_told_once_a_minute() -> None:
    """Given 10,000 forged messages within two minutes, then there are three events, and the alarm has the number."""
    desk = ControllerHarness().lead()
    for number in range(10_000):
        desk.now_s = 1_000.0 + number * 2.01 * TELL_AGAIN_S / 9_999
        desk.feed(fx.Received(None, "agent.n2", report("n1")))

    told = desk.happenings("message-refused")

    assert [round(event.at_s) for event in told] == [1_000, 1_060, 1_120]
    assert "more since the last event" in told[-1].detail
    (alarm,) = alarms(desk)
    assert alarm["detail"].startswith("10000 messages")
    assert desk.controller.screening.count("agent.n2") == 10_000


def test_no_more_accounts_are_kept_than_can_be_looked_at() -> None:
    """The rest are counted together; when the first are forgotten there is room again."""
    unit_of_work = UnitOfWork()
    suspects = Screening(unit_of_work)
    for number in range(3 * SUSPECTS_MAX):
        suspects.refused(f"agent.n{number}", "x" * 10_000, Violation.FORGERY, 1.0)

    shown = list(suspects.alarms(1.0))

    assert len(shown) == SUSPECTS_MAX + 1
    assert suspects.count(THE_REST) == 2 * SUSPECTS_MAX
    assert len(unit_of_work.effects) == SUSPECTS_MAX + 1
    assert all(len(detail) < 400 for _, _, _, detail in shown)
    suspects.refused("agent.new", "y", Violation.FORGERY, 1.0 + ALARM_S)
    assert [subject for _, subject, _, _ in suspects.alarms(1.0 + ALARM_S)] == ["agent.new"]


def test_answers_that_nobody_waits_for_fill_no_history() -> None:
    """Given 10,000 of them in two minutes, then a hundred a minute may be kept, and what is waited for always."""
    desk = submitted(ControllerHarness().lead(), job())
    (start,) = desk.take_orders()
    suspects, cluster = desk.controller.screening, desk.controller.cluster

    def kept(action: str, at_s: float) -> bool:
        result = Result(
            "n1", "boot-1", 99, clock_s=0.0, term=1, action=action, kind=ActionKind.START, vm="j#0", outcome=Outcome.OK
        )
        return suspects.is_worth_keeping(result, cluster, at_s)

    told = sum(kept(f"a{number}", number * 2.0 * TELL_AGAIN_S / 10_000) for number in range(10_000))

    assert told == 2 * UNASKED_MAX
    assert kept(start.id, 2.0 * TELL_AGAIN_S - 1.0)
    assert kept("later", 3.0 * TELL_AGAIN_S)


# --- terms -----------------------------------------------------------------------------------------------------------


def test_an_agent_alone_cannot_end_a_controller() -> None:
    """Given a node that says it has seen a later term, when the store knows of none, then the controller leads on, says
    so, takes nothing of the report, and does not take the node for silent."""
    desk = ControllerHarness(fence_after_s=30.0).lead()
    node = desk.controller.cluster.nodes["n1"]
    seq = node.report_seq

    for _ in range(60):
        desk.report("n1", term=1 << 60)
        desk.wait(5.0, reporting=("n2",))

    assert desk.exits == []
    assert node.report_seq == seq
    assert desk.powers == []  # it is not silent
    (alarm,) = alarms(desk, "term-ahead")
    assert alarm["subject"] == "n1"
    assert str(1 << 60) in alarm["detail"]
    assert len(desk.happenings("term-ahead")) == 1
    submitted(desk, job())
    assert [order.node for order in desk.orders] == ["n2"]


def test_another_leader_ends_it_at_once() -> None:
    """The store knows: the first report that echoes the new term is enough."""
    desk = ControllerHarness().lead()
    desk.store.take_lead("b")
    desk.store_fails = (True, "")

    desk.report("n1", term=2)

    assert len(desk.exits) == 1


def test_the_store_is_not_asked_for_every_report() -> None:
    asked = []

    def write(term: int, records: tuple[Any, ...]) -> None:
        if not records:
            asked.append(term)

    desk = ControllerHarness().lead()
    assert isinstance(desk.store, MemoryStore)
    desk.store.on_write = write

    for _ in range(100):
        desk.report("n1", term=9)

    assert asked == [1]
