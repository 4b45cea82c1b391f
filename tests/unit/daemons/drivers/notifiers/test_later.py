"""A receiver that asks to be left alone for a while, and who does not wait for that."""

from __future__ import annotations

import pytest

from daemons.controller.notifications.delivery import RETRY_MAX_S
from daemons.values.settings import NotifyRule, QuietHours
from shared.ports.notices import Notified
from shared.protocol.operator_messages import RetryNotification, TryChannel
from tests.unit.daemons.controller.notifications.test_rules import ALL, Teller


def test_a_receiver_that_asks_to_be_left_alone_is_for_all_messages_but_for_no_longer_than_it_may_ask() -> None:
    teller = Teller(ALL)
    teller.fails = Notified("", "", False, False, "busy", 600.0)
    teller.happened("node-failed", "n1")
    asked_s = teller.now_s
    teller.fails = None
    teller.wait(60.0)
    teller.happened("node-failed", "n2")
    assert len(teller.sent) == 1
    teller.wait(600.0 - 60.0 - 1.0)
    assert len(teller.sent) == 1
    assert teller.notifying.next_due_s() == asked_s + 600.0
    teller.wait(2.0)
    assert [subject for _, subject in teller.told()] == ["n1", "n2", "n1"]

    teller.fails = Notified("", "", False, False, "busy", 1e9)
    teller.happened("node-failed", "n3")
    assert teller.notifying.boxes["ops"].next_due_s() == teller.now_s + RETRY_MAX_S


@pytest.mark.parametrize("by_hand", ["retry", "test"])
def test_who_tries_by_hand_does_not_wait_for_the_receiver_nor_for_quiet_hours(by_hand: str) -> None:
    quiet = QuietHours(0, 86_399)
    teller = Teller(NotifyRule(("node-*",), ("ops",), quiet=quiet), NotifyRule(("job-*",), ("ops",)))
    teller.fails = Notified("", "", False, False, "busy", 600.0)
    teller.happened("job-stalled", "j")
    teller.happened("node-failed", "n1")
    teller.fails = None
    assert [subject for _, subject in teller.told()] == ["j"]
    waiting = next(row["message"] for row in teller.rows("waiting") if row["subject"] == "n1")

    request = RetryNotification("r", waiting) if by_hand == "retry" else TryChannel("r", "ops")
    assert teller.notifying.handle(request, teller.now_s) == ("", "")
    teller.settle()

    assert teller.told()[1][1] == ("n1" if by_hand == "retry" else "ops")
