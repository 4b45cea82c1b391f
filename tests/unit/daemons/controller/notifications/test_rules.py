"""What is told of events and alarms, when, and what becomes of it: the core alone, by its clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from daemons.controller.notifications.delivery import DEAD_MAX, FIRST_RETRY_S, NOTICES_MAX, RETRY_MAX_S, retry_s
from daemons.controller.notifications.rules import LOOK_S, NotificationRules
from daemons.controller.notifications.views import DROPPED_ALARM_S, notification_alarms, notifications_view
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.notifications import NotificationRecord, trial_id
from daemons.values.settings import ControllerSettings, NotifyRule, NotifySettings, QuietHours
from shared.ports.notices import Notified, Notify
from shared.protocol.operator_messages import DropNotification, RetryNotification, TryChannel

GRACE_S = 30.0
ALL = NotifyRule(("*", "alarm:*"), ("ops",))


class Teller:
    """A `NotificationRules` whose effects are carried out by hand: `sent`: what went out, `store`: the last record of
    each."""

    def __init__(self, *rules: NotifyRule, image: Iterable[Any] = (), channels: Iterable[str] = ("ops",), **keys: Any):
        settings = ControllerSettings(notify=NotifySettings(dict.fromkeys(channels, "webhook"), rules, **keys))
        self.unit_of_work = UnitOfWork()
        self.unit_of_work.term = 7
        self.notifying = NotificationRules(self.unit_of_work, settings, self._standing)
        self.standing: dict[tuple[str, str], str] = {}
        self.sent: list[Notify] = []
        self.store: dict[str, NotificationRecord] = {}
        self.now_s = 1_000_000.0
        self.fails: Notified | None = None
        self.answers = True
        for record in image:
            self.notifying.load(record)
        self.notifying.loaded(self.now_s)

    def _standing(self, _now_s: float) -> list[dict[str, Any]]:
        found = self.standing.items()
        return [{"what": what, "subject": subject, "detail": detail} for (what, subject), detail in found]

    def happened(self, what: str, subject: str = "n1", detail: str = "") -> None:
        self.unit_of_work.emit(self.now_s, what, subject, detail)
        self.settle()

    def settle(self) -> None:
        """Carry out what is due now; a channel answers at once unless told otherwise."""
        while True:
            self.notifying.run(self.now_s)
            self.store |= {each.id: each for each in self.unit_of_work.records if isinstance(each, NotificationRecord)}
            out = [each for each in self.unit_of_work.stored if isinstance(each, Notify)]
            self.unit_of_work.records, self.unit_of_work.stored = [], []
            self.sent += out
            for each in out if self.answers else ():
                self.answer(each)
            if not (out and self.answers):
                return

    def answer(self, message: Notify) -> None:
        given = self.fails or Notified("", "", True)
        answer = Notified(message.channel, message.message, given.ok, given.final, given.detail, given.after_s)
        self.notifying.notified(answer, self.now_s)

    def wait(self, seconds: float) -> None:
        """Let time pass from one thing that is due to the next."""
        end_s = self.now_s + seconds
        while (due_s := self.notifying.next_due_s()) <= end_s:
            self.now_s = max(self.now_s, due_s)
            self.settle()
        self.now_s = end_s

    def told(self) -> list[tuple[str, str]]:
        """Code and subject of everything that went out."""
        return [(notice.what, notice.subject) for message in self.sent for notice in message.notices]

    def rows(self, state: str = "") -> list[dict[str, Any]]:
        return list(notifications_view(self.notifying, state, 10_000)["notifications"])

    def alarms(self) -> list[tuple[str, str]]:
        return [(what, why) for what, _, _, why in notification_alarms(self.notifying, self.now_s)]


FAILS = Notified("", "", False, False, "no route")
REFUSES = Notified("", "", False, True, "not wanted")


# --- rules ----------------------------------------------------------------------------------------------------------


def test_an_event_goes_to_the_channels_of_the_rules_that_name_it() -> None:
    teller = Teller(
        NotifyRule(("node-*",), ("ops", "mail")),
        NotifyRule(("node-failed", "job-stalled"), ("mail",), subjects=("big-*",)),
        channels=("ops", "mail"),
    )
    teller.happened("node-failed", "n1", "no answer")
    teller.happened("job-stalled", "big-1")
    teller.happened("job-stalled", "small")
    teller.happened("leading", "a")

    told = [(message.channel, [(it.what, it.subject, it.detail) for it in message.notices]) for message in teller.sent]
    assert told == [
        ("ops", [("node-failed", "n1", "no answer")]),
        ("mail", [("node-failed", "n1", "no answer")]),
        ("mail", [("job-stalled", "big-1", "")]),
    ]
    assert len({message.message for message in teller.sent}) == 3


def test_rules_for_events_say_nothing_of_alarms() -> None:
    teller = Teller(NotifyRule(("node-unreachable", "*"), ("ops",)))
    teller.standing["node-unreachable", "n1"] = "2 VMs"
    teller.wait(100.0)

    assert teller.sent == []


def test_without_rules_nothing_is_heard_and_nothing_looked_at() -> None:
    teller = Teller()
    teller.happened("node-failed")
    teller.wait(3_600.0)

    assert teller.sent == []
    assert teller.notifying.next_due_s() == float("inf")


def test_the_same_event_of_the_same_subject_is_damped_and_counted() -> None:
    teller = Teller(NotifyRule(("*",), ("ops",), deduplicate_s=60.0))
    for _ in range(4):
        teller.happened("action-failed", "vm1", "no room")
    teller.happened("action-failed", "vm2", "no room")
    teller.wait(60.0)
    teller.happened("action-failed", "vm1", "no room")

    assert teller.told() == [("action-failed", "vm1"), ("action-failed", "vm2"), ("action-failed", "vm1")]
    assert teller.sent[-1].notices[0].detail == "no room (3 more since the last message)"


def test_names_are_one_line_of_text_whatever_they_are() -> None:
    teller = Teller(ALL)
    teller.happened("node-failed", "n1\r\nBcc: x\x00\u202e", "a\nb" + "c" * 5_000)

    notice = teller.sent[0].notices[0]
    assert notice.subject == "n1  Bcc: x  "
    assert notice.detail.startswith("a b")
    assert len(notice.detail) == 2_000


# --- alarms ---------------------------------------------------------------------------------------------------------


def test_an_alarm_is_told_when_it_is_raised_and_when_it_is_over() -> None:
    teller = Teller(NotifyRule(("alarm:node-unreachable",), ("ops",), deduplicate_s=0.0))
    teller.standing = {("node-unreachable", "n1"): "2 VMs", ("node-off", "n2"): ""}
    teller.wait(GRACE_S)
    assert teller.told() == [("alarm:node-unreachable", "n1")]
    teller.wait(1_000.0)
    del teller.standing["node-unreachable", "n1"]
    teller.wait(LOOK_S)

    assert teller.told() == [("alarm:node-unreachable", "n1"), ("cleared:node-unreachable", "n1")]


def test_a_new_leader_does_not_look_at_alarms_before_it_can_have_heard_of_the_nodes() -> None:
    teller = Teller(ALL)
    teller.standing["node-unreachable", "n1"] = ""
    teller.wait(GRACE_S - 1.0)
    assert teller.sent == []
    del teller.standing["node-unreachable", "n1"]
    teller.wait(100.0)

    assert teller.sent == []


def test_a_flapping_alarm_is_one_message_and_then_the_truth() -> None:
    """Given an alarm that comes and goes every 20 s for 10 minutes, when deduplicate_s is 300, then there are three
    messages, and the last one says how it is."""
    teller = Teller(NotifyRule(("alarm:*",), ("ops",), deduplicate_s=300.0))
    teller.wait(GRACE_S)
    for _ in range(15):
        teller.standing["clock-skewed", "n1"] = "3 s"
        teller.wait(20.0)
        teller.standing.clear()
        teller.wait(20.0)
    teller.wait(600.0)

    whats = [what for what, _ in teller.told()]
    assert 2 <= len(whats) <= 4
    assert whats[0] == "alarm:clock-skewed"
    assert whats[-1] == "cleared:clock-skewed"
    assert "changed" in " ".join(message.notices[0].detail for message in teller.sent)
    times_s = [message.notices[0].at_s for message in teller.sent]
    assert all(later - earlier >= 300.0 for earlier, later in itertools.pairwise(times_s))


def test_an_alarm_that_lasts_is_told_again() -> None:
    teller = Teller(NotifyRule(("alarm:*",), ("ops",), at_least_every_s=3_600.0))
    teller.standing["not-acting", "controller"] = "it only observes"
    teller.wait(GRACE_S + 3 * 3_600.0 + LOOK_S)

    details = [message.notices[0].detail for message in teller.sent]
    assert details == ["it only observes", *["still: it only observes"] * 3]


def test_what_stands_after_a_handover_is_not_told_again_and_what_is_over_is() -> None:
    before = Teller(ALL)
    before.standing = {("node-unreachable", "n1"): "", ("node-unreachable", "n2"): ""}
    before.wait(GRACE_S)
    after = Teller(ALL, image=before.store.values())
    after.standing = {("node-unreachable", "n1"): "", ("node-off", "n3"): ""}
    after.now_s = before.now_s
    after.wait(1_000.0)

    assert sorted(after.told()) == [("alarm:node-off", "n3"), ("cleared:node-unreachable", "n2")]


# --- gathering ------------------------------------------------------------------------------------------------------


def test_a_digest_gathers_and_then_goes_as_one_message() -> None:
    teller = Teller(NotifyRule(("*",), ("ops",), digest_s=60.0))
    for node in ("n1", "n2", "n3"):
        teller.happened("node-failed", node)
        teller.wait(10.0)
    assert teller.sent == []
    teller.wait(30.0)
    teller.happened("node-failed", "n4")

    assert [[it.subject for it in message.notices] for message in teller.sent] == [["n1", "n2", "n3"]]


def test_what_comes_at_one_moment_goes_together_up_to_a_bound() -> None:
    teller = Teller(NotifyRule(("alarm:*",), ("ops",)))
    teller.standing = {("node-unreachable", f"n{number:03}"): "" for number in range(250)}
    teller.wait(GRACE_S)

    assert [len(message.notices) for message in teller.sent] == [NOTICES_MAX, NOTICES_MAX, 50]
    assert len({it.id for message in teller.sent for it in message.notices}) == 250


@pytest.mark.parametrize(
    ("at", "goes_at"),
    [
        ("2026-01-10T20:59:00", "2026-01-10T20:59:00"),  # 21:59 in Berlin
        ("2026-01-10T21:00:00", "2026-01-11T06:00:00"),
        ("2026-01-11T05:59:00", "2026-01-11T06:00:00"),
        ("2026-01-11T06:00:00", "2026-01-11T06:00:00"),
        ("2026-03-28T23:30:00", "2026-03-29T05:00:00"),  # the night in which the clock is put forward
        ("2026-10-24T23:30:00", "2026-10-25T06:00:00"),  # and back
    ],
)
def test_messages_wait_for_the_end_of_the_quiet_hours(at: str, goes_at: str) -> None:
    from datetime import UTC, datetime

    def epoch_s(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    quiet = QuietHours(22 * 3_600, 7 * 3_600, "Europe/Berlin")
    teller = Teller(NotifyRule(("*",), ("ops",), quiet=quiet))
    teller.now_s = epoch_s(at)
    teller.happened("node-failed")
    due_s = teller.now_s if teller.sent else teller.notifying.next_due_s()

    assert due_s == epoch_s(goes_at)


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_message_that_fails_is_tried_again_later_and_later_until_it_arrives() -> None:
    teller = Teller(ALL)
    teller.fails = FAILS
    teller.happened("node-failed")
    teller.wait(3_600.0)
    tries = len(teller.sent)
    (row,) = teller.rows("waiting")
    assert 10 <= tries <= 25
    assert (row["tries"], row["error"]) == (tries, "no route")
    assert 0.0 < row["next_at_s"] - teller.now_s <= RETRY_MAX_S
    assert [message.tries for message in teller.sent] == list(range(1, tries + 1))
    teller.fails = None
    teller.wait(RETRY_MAX_S)

    assert {message.message for message in teller.sent} == {row["message"]}
    assert [(each["state"], each["error"]) for each in teller.rows()] == [("sent", "")]
    assert teller.store[row["id"]].state == "sent"
    assert teller.alarms() == []


def test_tries_are_spread_by_chance_within_bounds() -> None:
    waits_s = [retry_s(f"7-1-{number}", 3) for number in range(200)]

    assert all(2.0 <= wait_s <= 4.0 for wait_s in waits_s)
    assert max(waits_s) - min(waits_s) > 1.5
    assert all(RETRY_MAX_S / 2 <= retry_s("x", tries) <= RETRY_MAX_S for tries in (11, 50, 10_000))
    assert FIRST_RETRY_S / 2 <= retry_s("x", 1) <= FIRST_RETRY_S


@pytest.mark.parametrize(
    ("keys", "fails", "tries"),
    [({"attempts_max": 3}, FAILS, 3), ({"give_up_s": 10.0}, FAILS, None), ({}, REFUSES, 1)],
)
def test_a_message_is_given_up_in_the_end_and_an_alarm_says_so(
    keys: dict[str, Any], fails: Notified, tries: int | None
) -> None:
    teller = Teller(NotifyRule(("node-failed",), ("ops",)), **keys)
    teller.fails = fails
    teller.happened("node-failed")
    teller.wait(3_600.0)

    (row,) = teller.rows("dead")
    assert tries is None or (row["tries"], len(teller.sent)) == (tries, tries)
    assert (row["next_at_s"], row["error"]) == (None, fails.detail)
    assert teller.store[row["id"]].state == "dead"
    assert teller.alarms() == [("notifications-dead", f"1 given up; the last: {fails.detail}")]
    events = [getattr(effect, "message", None) for effect in teller.unit_of_work.effects]
    assert [event.subject for event in events if event.what == "notification-dead"] == ["ops"]  # type: ignore[union-attr]


def test_what_is_wrong_with_a_channel_is_told_over_the_others_alone() -> None:
    teller = Teller(NotifyRule(("*", "alarm:*"), ("ops", "mail")), channels=("ops", "mail"))
    teller.standing["notifications-dead", "ops"] = "1 given up"
    teller.fails = REFUSES
    teller.happened("notification-dead", "ops")
    teller.wait(GRACE_S)

    about_ops = [message.channel for message in teller.sent for it in message.notices if it.subject == "ops"]
    assert set(about_ops) == {"mail"}
    assert ("alarm:notifications-dead", "ops") in teller.told()


def test_two_channels_that_fail_do_not_tell_of_each_other_for_ever() -> None:
    teller = Teller(NotifyRule(("*",), ("ops", "mail"), deduplicate_s=0.0), channels=("ops", "mail"), waiting_max=10)
    teller.answers = False
    for number in range(200):
        teller.happened("node-failed", f"n{number}")

    assert all(channel["waiting"] <= 11 for channel in notifications_view(teller.notifying, "", 1)["channels"])


def test_one_message_of_a_channel_is_in_progress_and_others_wait_for_no_other_channel() -> None:
    teller = Teller(
        NotifyRule(("*",), ("slow",)), NotifyRule(("*",), ("fast",)), channels=("slow", "fast"), waiting_max=50
    )
    teller.answers = False
    teller.happened("node-failed", "n0")
    slow = next(message for message in teller.sent if message.channel == "slow")
    for number in range(1, 100):
        fast = next(message for message in reversed(teller.sent) if message.channel == "fast")
        teller.notifying.notified(Notified("fast", fast.message, True), teller.now_s)
        teller.wait(1.0)
        teller.happened("node-failed", f"n{number}")

    assert sum(message.channel == "slow" for message in teller.sent) == 1
    assert sum(message.channel == "fast" for message in teller.sent) == 100
    rows = [row for row in teller.rows() if row["channel"] == "slow"]
    waiting = [row["subject"] for row in rows if row["state"] == "waiting"]
    assert sorted(waiting, key=lambda name: int(name[1:])) == ["n0", *(f"n{number}" for number in range(51, 100))]
    dropped = [row for row in rows if row["state"] == "dropped"]
    assert len(dropped) == 50
    assert all(teller.store[row["id"]].state == "dropped" for row in dropped)
    assert [what for what, _ in teller.alarms()] == ["notifications-dead"]
    teller.now_s += DROPPED_ALARM_S
    assert teller.alarms() == []
    teller.answers = True
    teller.answer(slow)
    teller.settle()
    assert sum(message.channel == "slow" for message in teller.sent) == 50


def test_what_is_given_up_is_bounded_too() -> None:
    rule = NotifyRule(("node-failed",), ("ops",))
    dead = [
        NotificationRecord(
            f"6-{at}-1.0",
            at,
            "ops",
            what="node-off",
            subject="n",
            detail="",
            state="dead",
            tries=1,
            next_s=None,
            error="",
        )
        for at in range(DEAD_MAX)
    ]
    teller = Teller(rule, image=dead)
    teller.fails = REFUSES
    teller.happened("node-failed", "n1")

    assert len(teller.rows("dead")) == DEAD_MAX
    assert [(each.id, each.state) for each in teller.store.values() if each.at_s == 0.0] == [("6-0-1.0", "dropped")]


def test_an_answer_that_nobody_waits_for_means_nothing() -> None:
    teller = Teller(ALL)
    teller.answers = False
    teller.happened("node-failed")
    (message,) = teller.sent
    for wrong in (Notified("ops", "7-1-9", True), Notified("gone", message.message, True)):
        teller.notifying.notified(wrong, teller.now_s)
    assert [row["state"] for row in teller.rows()] == ["waiting"]
    for _ in range(2):
        teller.notifying.notified(Notified("ops", message.message, True), teller.now_s)

    assert [row["state"] for row in teller.rows()] == ["sent"]


# --- handover -------------------------------------------------------------------------------------------------------


def test_what_waits_and_what_is_dead_goes_on_under_its_id_with_the_next_leader() -> None:
    before = Teller(NotifyRule(("*",), ("ops",), digest_s=60.0), attempts_max=2)
    before.fails = FAILS
    before.happened("node-failed", "lost")
    before.wait(600.0)
    before.happened("node-failed", "n1")
    before.happened("node-off", "n2")
    after = Teller(image=before.store.values(), attempts_max=2)
    after.now_s = before.now_s
    after.wait(60.0)

    assert after.told() == [("node-failed", "n1"), ("node-off", "n2")]
    assert len(after.sent) == 1
    assert {it.id for it in after.sent[0].notices} <= before.store.keys()
    assert [row["subject"] for row in after.rows("dead")] == ["lost"]


def test_of_a_channel_that_is_configured_no_more_nothing_is_sent() -> None:
    before = Teller(ALL)
    before.answers = False
    before.happened("node-failed")
    after = Teller(ALL, image=before.store.values(), channels=("other",))
    after.wait(100.0)

    assert after.sent == []


# --- operators ------------------------------------------------------------------------------------------------------


def dead_letter(teller: Teller) -> str:
    teller.fails = REFUSES
    teller.happened("node-failed")
    teller.fails = None
    return str(teller.rows("dead")[0]["id"])


def test_what_is_dead_can_be_tried_again() -> None:
    teller = Teller(NotifyRule(("node-failed",), ("ops",)))
    notice = dead_letter(teller)

    assert teller.notifying.handle(RetryNotification("r", notice), teller.now_s) == ("", "")
    teller.settle()
    assert (teller.store[notice].state, teller.store[notice].tries) == ("sent", 1)
    assert teller.alarms() == []
    assert teller.notifying.handle(RetryNotification("r", notice), teller.now_s)[0] == "unknown-notification"


def test_what_is_dead_can_be_dropped_by_the_id_of_its_message() -> None:
    teller = Teller(NotifyRule(("node-failed",), ("ops",)))
    notice = dead_letter(teller)
    message = notice.partition(".")[0]

    assert teller.notifying.handle(DropNotification("r", message), teller.now_s) == ("", "")
    teller.settle()
    assert teller.store[notice].state == "dropped"
    assert teller.alarms() == []
    assert len(teller.sent) == 1


def test_what_is_in_progress_cannot_be_dropped() -> None:
    teller = Teller(ALL)
    teller.answers = False
    teller.happened("node-failed")

    refused = teller.notifying.handle(DropNotification("r", teller.sent[0].message), teller.now_s)
    assert refused[0] == "notification-busy"


def test_a_channel_is_tried_once_whatever_comes_of_it() -> None:
    teller = Teller(ALL)
    teller.fails = FAILS
    assert teller.notifying.handle(TryChannel("id.1", "ops"), teller.now_s) == ("", "")
    teller.wait(3_600.0)

    (row,) = teller.rows()
    assert (row["message"], row["what"], row["state"], row["error"]) == (
        trial_id("id.1"),
        "test",
        "dropped",
        "no route",
    )
    assert len(teller.sent) == 1
    assert teller.alarms() == []
    code, detail = teller.notifying.handle(TryChannel("id.2", "opps"), teller.now_s)
    assert code == "unknown-channel"
    assert "'ops'" in detail
