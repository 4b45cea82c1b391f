"""Notifies people and programs of what happens: events and alarms in, messages for channels out. Pure, time is an
argument.

Every notification is stored before it is sent, and a successor continues from there. Each arrives at least once, under
an id by which a receiver detects duplicates. The store also records which alarms were reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from daemons.controller.notifications.delivery import DeliveryQueues, Letter
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.calendar import next_time_of_day_s, time_of_day_s
from daemons.values.records.notifications import NoticeState, NotificationRecord, message_of, trial_id
from daemons.values.replies import unknown
from daemons.values.settings import ControllerSettings, NotifyRule, QuietHours
from shared.ports.notices import Notice, Notified, Notify
from shared.protocol.messages import Happened
from shared.protocol.operator_messages import DropNotification, RetryNotification, TryChannel

ALARM, CLEARED, TEST = "alarm:", "cleared:", "test"
LOOK_S = 10.0  # how often alarms are looked at
GRACE_FACTOR = 2.0  # a new leader has heard of nobody yet: so many times `unreachable_after_s` go by before it looks
NOTICES_MAX = 100_000  # kept of what was told, so that it is not told again at once
LOST_AGAIN_S = 60.0  # between two events about messages of one channel
TEXT_MAX, NAME_MAX = 2_000, 200  # characters
# What the notifications themselves tell of: never over the channel that it is about.
OF_CHANNELS = ("notifications-dead", "notification-dead")

Refused = tuple[str, str]
Alarms = Callable[[float], Iterable[Mapping[str, Any]]]
Ask = RetryNotification | DropNotification | TryChannel
_Target = tuple[int, str]  # a rule by its place, and a channel
_Key = tuple[str, str, str]  # a channel, a code and a subject


@dataclass(slots=True)
class _LastNotice:
    """The last notification to a channel about a subject: its time and, for an alarm, whether it is active (`up`).
    `seen`: whether it was active at the last check; `more`: changes, or events, since then that were not reported."""

    at_s: float
    up: bool = False
    seen: bool = False
    more: int = 0


class NotificationRules:
    """`alarms` gives what is wrong now. It does nothing where no rule is configured."""

    def __init__(self, unit_of_work: UnitOfWork, settings: ControllerSettings, alarms: Alarms) -> None:
        self.unit_of_work, self.settings = unit_of_work, settings.notify
        self.alarms = alarms
        self._loaded: dict[str, list[NotificationRecord]] = {}
        self.boxes = {name: DeliveryQueues(name, self.settings.waiting_max) for name in self.settings.channels}
        self._grace_s = GRACE_FACTOR * settings.unreachable_after_s
        self._look_s = math.inf
        self._targets: dict[str, tuple[_Target, ...]] = {}
        self._last_notices: dict[_Key, _LastNotice] = {}
        self._open: dict[_Target, Letter] = {}
        self._lost_s: dict[str, float] = {}
        self._count = 0
        if self.boxes and self.settings.rules:
            unit_of_work.subscribe(self.heard)

    # --- leading ----------------------------------------------------------------------------------------------------

    def load(self, record: NotificationRecord) -> None:
        """Take over what an earlier leader has left."""
        if record.channel in self.boxes:
            self._loaded.setdefault(record.message, []).append(record)

    def loaded(self, now_s: float) -> None:
        """Continue from the stored notifications. Alarms are reported again only if they were not reported before."""
        found, self._loaded = self._loaded, {}
        for records in sorted(found.values(), key=lambda records: records[0].at_s):
            records.sort(key=lambda record: _place(record.id))
            for record in records:
                self._remember(record)
            self.boxes[records[0].channel].load(_letter(records, now_s))
        if self.settings.watches_alarms:
            self._look_s = now_s + self._grace_s

    def _remember(self, record: NotificationRecord) -> None:
        kind, _, what = record.what.rpartition(":")
        if kind:
            up = record.what.startswith(ALARM)
            self._last_notices[record.channel, ALARM + what, record.subject] = _LastNotice(record.at_s, up, up)

    # --- what is to be told -----------------------------------------------------------------------------------------

    def heard(self, event: Happened) -> None:
        """Something has happened."""
        reached: set[str] = set()
        for target in self._targets_of(event.what):
            rule, channel = self.settings.rules[target[0]], target[1]
            itself = _is_of_itself(event.what, event.subject, channel)
            if channel in reached or itself or not _is_about(rule, event.subject):
                continue
            reached.add(channel)
            key = (channel, event.what, event.subject)
            last = self._last_notices.get(key)
            if last is not None and event.at_s < last.at_s + rule.deduplicate_s:
                last.more += 1
                continue
            more = f" ({last.more} more since the last message)" if last is not None and last.more else ""
            self._keep(key, _LastNotice(event.at_s), event.at_s)
            self._tell(target, event.what, event.subject, event.detail + more, event.at_s)

    def _look(self, now_s: float) -> None:
        """Notify of alarms that are new, that persist, and that are resolved."""
        standing: set[_Key] = set()
        for alarm in self.alarms(now_s):
            what, subject = ALARM + str(alarm["what"]), _name(str(alarm["subject"]))
            for target in self._targets_of(what):
                rule, channel = self.settings.rules[target[0]], target[1]
                key = (channel, what, subject)
                if key in standing or not _is_about(rule, subject) or _is_of_itself(what, subject, channel):
                    continue
                standing.add(key)
                self._stands(key, target, str(alarm["detail"]), now_s)
        for key, last in list(self._last_notices.items()):
            if key not in standing and key[1].startswith(ALARM):
                self._is_over(key, last, now_s)

    def _stands(self, key: _Key, target: _Target, detail: str, now_s: float) -> None:
        rule, last = self.settings.rules[target[0]], self._last_notices.get(key)
        if last is None:
            last = _LastNotice(now_s)
        else:
            last.more += not last.seen
            last.seen = True
            wait_s = rule.at_least_every_s if last.up else rule.deduplicate_s
            if (last.up and wait_s <= 0.0) or now_s < last.at_s + wait_s:
                return
        lasts = "still: " if last.up else ""
        self._tell(target, key[1], key[2], f"{lasts}{detail}{_changes(last)}", now_s)
        self._keep(key, _LastNotice(now_s, True, True), now_s)

    def _is_over(self, key: _Key, last: _LastNotice, now_s: float) -> None:
        last.more += last.seen
        last.seen = False
        target = self._target_of(key)
        deduplicate_s = 0.0 if target is None else self.settings.rules[target[0]].deduplicate_s
        if now_s < last.at_s + deduplicate_s:
            return
        if last.up and target is not None:
            self._tell(target, CLEARED + key[1].removeprefix(ALARM), key[2], _changes(last).strip(" ()"), now_s)
            self._keep(key, _LastNotice(now_s), now_s)
        else:
            del self._last_notices[key]

    def _target_of(self, key: _Key) -> _Target | None:
        """Return the rule by which a channel is notified of a subject (None: no rule matches any more)."""
        found = (target for target in self._targets_of(key[1]) if target[1] == key[0])
        return next((target for target in found if _is_about(self.settings.rules[target[0]], key[2])), None)

    def _targets_of(self, what: str) -> tuple[_Target, ...]:
        """Return the rules and channels that may match an event or an alarm."""
        found = self._targets.get(what)
        if found is None:
            found = self._targets[what] = tuple(
                (place, channel)
                for place, rule in enumerate(self.settings.rules)
                if any(_matches(what, pattern) for pattern in rule.events)
                for channel in dict.fromkeys(rule.channels)
                if channel in self.boxes
            )
        return found

    def _keep(self, key: _Key, last: _LastNotice, now_s: float) -> None:
        self._last_notices.pop(key, None)
        self._last_notices[key] = last  # the last one: what was told longest ago comes first
        if len(self._last_notices) <= NOTICES_MAX:
            return
        longest_s = max(rule.deduplicate_s for rule in self.settings.rules)
        self._last_notices = {
            key: each for key, each in self._last_notices.items() if each.up or now_s < each.at_s + longest_s
        }
        if len(self._last_notices) > NOTICES_MAX:
            for old in list(islice(self._last_notices, NOTICES_MAX // 2)):
                del self._last_notices[old]

    # --- messages ---------------------------------------------------------------------------------------------------

    def _tell(self, target: _Target, what: str, subject: str, detail: str, now_s: float) -> None:
        """Put it into the message that its rule gathers, or into a new one."""
        rule, box = self.settings.rules[target[0]], self.boxes[target[1]]
        letter = self._open.get(target)
        if letter is None or not box.is_open(letter, now_s):
            next_s = _end_of_quiet_s(rule.quiet, now_s + rule.digest_s)
            letter = self._open[target] = Letter(self._new_id(now_s), box.name, now_s, next_s=next_s, notices=[])
        notice = f"{letter.id}.{len(letter.notices)}"
        letter.notices.append(Notice(notice, now_s, what, _name(subject), _text(detail, TEXT_MAX)))
        self.unit_of_work.records += letter.records()[-1:]
        self._lost(box.add(letter, now_s), now_s)

    def _new_id(self, now_s: float) -> str:
        self._count += 1
        return f"{self.unit_of_work.term}-{now_s:.0f}-{self._count}"

    def _lost(self, gone: Iterable[Letter], now_s: float) -> None:
        for letter in gone:
            self.unit_of_work.records += letter.records()
            self._happened(letter, now_s)

    def _happened(self, letter: Letter, now_s: float) -> None:
        """Emit an event for a message that was given up, at most once a minute per channel: its own notification may
        fail as well."""
        if now_s < self._lost_s.get(letter.channel, -math.inf) + LOST_AGAIN_S:
            return
        self._lost_s[letter.channel] = now_s
        first = letter.notices[0]
        detail = f"{letter.id}, {len(letter.notices)} in it, the first {first.what} {first.subject}: {letter.error}"
        self.unit_of_work.emit(now_s, "notification-dead", letter.channel, detail[:TEXT_MAX])

    # --- sending ----------------------------------------------------------------------------------------------------

    def next_due_s(self) -> float:
        """Return when the next action is due (inf: never)."""
        return min((self._look_s, *(box.next_due_s() for box in self.boxes.values())))

    def run(self, now_s: float) -> None:
        """Look at alarms when that is due, and have sent what is; it goes out when it is in the store."""
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            self._look(now_s)
        for box in self.boxes.values():
            letter = box.take(now_s)
            if letter is not None:
                notices = tuple(letter.notices)
                self.unit_of_work.stored.append(
                    Notify(box.name, letter.id, self.settings.cluster, notices, letter.tries + 1)
                )

    def notified(self, answer: Notified, now_s: float) -> None:
        """Handle the result of a delivery."""
        box = self.boxes.get(answer.channel)
        letter = None if box is None else box.flying
        if box is None or letter is None or letter.id != answer.message:
            return
        box.flying = None
        if answer.ok:
            box.sent(letter, now_s)
            letter.error = _text(answer.detail, TEXT_MAX)
            self.unit_of_work.records += letter.records()
            return
        again = self._is_tried_again(letter, answer, now_s)
        error = _text(answer.detail, TEXT_MAX) or "no reason was given"
        gone = box.failed(letter, error, again, now_s, answer.after_s)
        self.unit_of_work.records += letter.records()
        if letter.state is NoticeState.DEAD:
            self._happened(letter, now_s)
        self._lost(gone, now_s)

    def _is_tried_again(self, letter: Letter, answer: Notified, now_s: float) -> bool:
        if answer.final or letter.once or letter.tries + 1 >= self.settings.attempts_max:
            return False
        return now_s < letter.since_s + self.settings.give_up_s

    # --- operators --------------------------------------------------------------------------------------------------

    def handle(self, request: Ask, now_s: float) -> Refused:
        """Do what an operator asks for, or say why not."""
        if isinstance(request, TryChannel):
            return self._test(request, now_s)
        wanted = message_of(request.notification)
        for box in self.boxes.values():
            letter = box.find(wanted)
            if letter is not None and letter is box.flying:
                return "notification-busy", f"{wanted} is being sent just now"
            if letter is not None:
                if isinstance(request, RetryNotification):
                    box.again(letter, now_s)
                else:
                    box.end(letter, NoticeState.DROPPED)
                self.unit_of_work.records += letter.records()
                return "", ""
        return "unknown-notification", f"{wanted} neither waits nor was given up"

    def _test(self, request: TryChannel, now_s: float) -> Refused:
        box = self.boxes.get(request.channel)
        if box is None:
            return "unknown-channel", unknown("channel", request.channel, self.boxes)
        letter = Letter(trial_id(request.request), box.name, now_s, next_s=now_s, notices=[], once=True)
        if letter.id not in box.waiting:
            letter.notices.append(Notice(f"{letter.id}.0", now_s, TEST, box.name, "a test of this channel"))
            self._lost(box.add(letter, now_s), now_s)
            self.unit_of_work.records += letter.records()
        return "", ""


def _letter(records: list[NotificationRecord], now_s: float) -> Letter:
    first = records[0]
    notices = [Notice(it.id, it.at_s, it.what, it.subject, it.detail) for it in records]
    next_s = now_s if first.next_s is None else first.next_s
    once = first.what == TEST
    state = NoticeState(first.state)
    return Letter(
        first.message,
        first.channel,
        first.at_s,
        next_s=next_s,
        notices=notices,
        state=state,
        tries=first.tries,
        error=first.error,
        once=once,
    )


def _place(notice: str) -> int:
    place = notice.rpartition(".")[2]
    return int(place) if place.isdecimal() else 0


def _matches(what: str, pattern: str) -> bool:
    """Return whether a code matches a pattern. `alarm:` is part of the code: patterns for events do not match
    alarms."""
    return what.startswith(ALARM) is pattern.startswith(ALARM) and fnmatchcase(what, pattern)


def _is_about(rule: NotifyRule, subject: str) -> bool:
    return not rule.subjects or any(fnmatchcase(subject, pattern) for pattern in rule.subjects)


def _is_of_itself(what: str, subject: str, channel: str) -> bool:
    return subject == channel and what.removeprefix(ALARM) in OF_CHANNELS


def _changes(last: _LastNotice) -> str:
    return f" (changed {last.more} times since the last message)" if last.more > 1 else ""


def _end_of_quiet_s(quiet: QuietHours | None, at_s: float) -> float:
    """Return `at_s`, or the end of the quiet hours that it falls into."""
    if quiet is None:
        return at_s
    clock_s, length_s = time_of_day_s(at_s, quiet.zone), (quiet.until_s - quiet.from_s) % 86_400
    if (clock_s - quiet.from_s) % 86_400 >= length_s:
        return at_s
    return next_time_of_day_s(at_s, quiet.until_s, quiet.zone)


def _name(text: str) -> str:
    return _text(text, NAME_MAX)


def _text(text: str, most: int) -> str:
    """Return the text in one line, without characters that a terminal, a header or a database could interpret."""
    cut = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(c if c.isprintable() else " " for c in cut)
