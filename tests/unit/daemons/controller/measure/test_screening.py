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


def alarms(harness: ControllerHarness, what: str = "message-refused") -> list[dict[str, Any]]:
    """The alarms of a kind that `trimtab status` shows."""
    return [row for row in harness.ask(Query("q", "status")).data["alarms"] if row["what"] == what]


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
    harness = submitted(ControllerHarness().lead(), job())
    before = [record for record in harness.store.records() if not isinstance(record, Deleted)]
    node = harness.controller.cluster.nodes["n1"]
    seen = (node.report_seq, node.seen_s, node.events_seen)
    assert alarms(harness) == []

    number = harness.say(message, sender)

    assert [delivery for delivery, _ in harness.dead] == [number]
    (alarm,) = alarms(harness)
    assert (alarm["subject"], alarm["since_s"]) == (sender, harness.now_s)
    (event,) = harness.happenings("message-refused")
    assert event.subject == sender
    assert event.detail in alarm["detail"]
    assert (node.report_seq, node.seen_s, node.events_seen) == seen
    assert [record for record in harness.store.records() if not isinstance(record, Deleted)] == before
    harness.wait(ALARM_S)
    assert alarms(harness) == []


def test_no_node_answers_for_an_action_of_another() -> None:
    """Given a start on n1, when n2 says in its own name that it has failed, then n1 is waited for as before."""
    harness = submitted(ControllerHarness().lead(), job())
    (start,) = harness.take_orders()
    assert start.node == "n1"
    forged = Result(
        "n2", "boot-2", 99, clock_s=0.0, term=1, action=start.id, kind=start.kind, vm=start.vm, outcome=Outcome.BUSY
    )

    number = harness.say(forged, "agent.n2")

    assert [delivery for delivery, _ in harness.dead] == [number]
    assert start.id in harness.controller.cluster.actions
    assert start.id in alarms(harness)[0]["detail"]
    harness.result(start)
    assert start.id not in harness.controller.cluster.actions
    assert len(harness.dead) == 1


@pytest.mark.parametrize("sender", ["agent.n2", ""])
def test_what_is_no_message_raises_an_alarm_too(sender: str) -> None:
    harness = ControllerHarness().lead()

    harness.feed(fx.Unreadable(sender, "noise"))

    (alarm,) = alarms(harness)
    assert (alarm["subject"], alarm["detail"]) == (sender, "1 messages, the last: noise")


def test_a_node_that_was_not_added_is_told_and_no_alarm() -> None:
    """Its agent runs already, or still: that happens whenever nodes come and go."""
    harness = ControllerHarness().lead()

    harness.say(report("n9"), "agent.n9")

    assert [event.subject for event in harness.happenings("message-refused")] == ["agent.n9"]
    assert alarms(harness) == []


def test_slips_of_the_hand_are_no_alarm_and_many_are() -> None:
    """An owner asks for what only the provider may, again and again."""
    harness = ControllerHarness().lead()
    for number in range(MISTAKES_MAX):
        assert alarms(harness) == []
        harness.say(CancelJob(f"r{number}", "nobodys"), "user.joe")
        harness.say(Query(f"q{number}", "nodes"), "owner.kim")
    assert {row["subject"] for row in alarms(harness)} >= {"owner.kim"}
    assert harness.dead == []


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_flood_is_counted_and_told_once_a_minute() -> None:
    """Given 10,000 forged messages within two minutes, then there are three events, and the alarm has the number."""
    harness = ControllerHarness().lead()
    for number in range(10_000):
        harness.now_s = 1_000.0 + number * 2.01 * TELL_AGAIN_S / 9_999
        harness.feed(fx.Received(None, "agent.n2", report("n1")))

    told = harness.happenings("message-refused")

    assert [round(event.at_s) for event in told] == [1_000, 1_060, 1_120]
    assert "more since the last event" in told[-1].detail
    (alarm,) = alarms(harness)
    assert alarm["detail"].startswith("10000 messages")
    assert harness.controller.screening.count("agent.n2") == 10_000


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
    harness = submitted(ControllerHarness().lead(), job())
    (start,) = harness.take_orders()
    suspects, cluster = harness.controller.screening, harness.controller.cluster

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
    harness = ControllerHarness(fence_after_s=30.0).lead()
    node = harness.controller.cluster.nodes["n1"]
    seq = node.report_seq

    for _ in range(60):
        harness.report("n1", term=1 << 60)
        harness.wait(5.0, reporting=("n2",))

    assert harness.exits == []
    assert node.report_seq == seq
    assert harness.powers == []  # it is not silent
    (alarm,) = alarms(harness, "term-ahead")
    assert alarm["subject"] == "n1"
    assert str(1 << 60) in alarm["detail"]
    assert len(harness.happenings("term-ahead")) == 1
    submitted(harness, job())
    assert [order.node for order in harness.orders] == ["n2"]


def test_another_leader_ends_it_at_once() -> None:
    """The store knows: the first report that echoes the new term is enough."""
    harness = ControllerHarness().lead()
    harness.store.take_lead("b")
    harness.store_fails = (True, "")

    harness.report("n1", term=2)

    assert len(harness.exits) == 1


def test_the_store_is_not_asked_for_every_report() -> None:
    asked = []

    def write(term: int, records: tuple[Any, ...]) -> None:
        if not records:
            asked.append(term)

    harness = ControllerHarness().lead()
    assert isinstance(harness.store, MemoryStore)
    harness.store.on_write = write

    for _ in range(100):
        harness.report("n1", term=9)

    assert asked == [1]
