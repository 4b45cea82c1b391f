"""What an agent writes down before it acts, and what that says when it is read again.

The agent's durable state is the fold of its records and nothing else, so a restart at any point finds exactly what
had been journaled.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from shared.protocol.messages import GuestEvent, Result, SetUpAnswer, SetUpNode
from shared.values.actions import COMING, Action, GuestChange
from shared.values.vms import LIVE_STATES, VmState, VmStatus

OVER_KEPT_MAX = 1024  # ended lives remembered; one forgotten too early costs a second event, which changes nothing
SLEPT_KEPT_MAX = 256  # requests agreed to and remembered: more than a host can follow before the first of them expires
SETUPS_KEPT_MAX = 256  # setups that have ended and are remembered; likewise
SEQ_NO_WORD = 0  # the seq of a result that says nothing about its VM


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent's process began for the `start`th time (from 1), in the host's boot `boot_id`."""

    start: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class TermSeen:
    """A controller of this term has spoken; orders of older terms are refused from here on."""

    term: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The action will be begun next."""

    action: Action


@dataclass(frozen=True, slots=True)
class Finished:
    """How an action ended or why it was refused. Kept until `forget_at_s` of the agent's clock and until reported."""

    result: Result
    forget_at_s: float


@dataclass(frozen=True, slots=True)
class Reported:
    """The broker has taken the action's result."""

    action: str


@dataclass(frozen=True, slots=True)
class GuestNoted:
    """A guest changed without a request; the event is sent until a controller has stored it."""

    event: GuestEvent


@dataclass(frozen=True, slots=True)
class EventsForgotten:
    """A controller has stored every event up to this number."""

    through: int


@dataclass(frozen=True, slots=True)
class VmSeen:
    """A VM was found in a state that no action or event explains (an agent's first look, say)."""

    status: VmStatus


@dataclass(frozen=True, slots=True)
class Baseline:
    """Ends a compacted journal: everything that the records before it do not say or would say wrongly.

    `over` are (vm, generation) pairs, oldest first.
    """

    starts: int
    boot_id: str
    term: int
    last_event: int
    clock_s: float
    live: tuple[VmStatus, ...]
    over: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SleepAgreed:
    """A request to sleep was agreed to: the same one again, from a queue, is not done again."""

    request: str


@dataclass(frozen=True, slots=True)
class SetUpBegun:
    """The host will be set up next."""

    request: SetUpNode


@dataclass(frozen=True, slots=True)
class SetUpEnded:
    """How a setup ended, or why it was refused; no part of it is in progress any more."""

    answer: SetUpAnswer


JournalRecord = (
    AgentStarted
    | TermSeen
    | Accepted
    | Finished
    | Reported
    | GuestNoted
    | EventsForgotten
    | VmSeen
    | SleepAgreed
    | SetUpBegun
    | SetUpEnded
    | Baseline
)
RECORDS: tuple[type[JournalRecord], ...] = (
    AgentStarted,
    TermSeen,
    Accepted,
    Finished,
    Reported,
    GuestNoted,
    EventsForgotten,
    VmSeen,
    SleepAgreed,
    SetUpBegun,
    SetUpEnded,
    Baseline,
)


class JournalState:
    """The fold of a journal's records.

    `accepted`: unfinished actions by id, `busy`: their ids by VM. `finished`: results by action id, `unreported`: those
    of them that the broker has not taken. `events`: guest events by number that no controller has acknowledged.
    `live`: the last journaled status of VMs that should be live here. `over`: the generation of lives whose end has
    been noted, by VM. `slept`: the last requests to sleep that were agreed to, oldest first: one may come again, late.
    `setting_up`: the setup of the host that was begun and has not ended. `ended_setups`: the answers to the last
    requests for one by id, oldest first.
    """

    __slots__ = (
        "_forget_at",
        "accepted",
        "boot_id",
        "busy",
        "clock_s",
        "ended_setups",
        "events",
        "finished",
        "last_event",
        "live",
        "over",
        "setting_up",
        "slept",
        "starts",
        "term",
        "unreported",
    )

    def __init__(self, records: Iterable[JournalRecord] = ()) -> None:
        self.starts = 0
        self.boot_id = ""
        self.slept: dict[str, None] = {}
        self.setting_up: SetUpNode | None = None
        self.ended_setups: dict[str, SetUpAnswer] = {}
        self.term = 0
        self.last_event = 0
        self.clock_s = 0.0
        self.accepted: dict[str, Action] = {}
        self.busy: dict[str, str] = {}
        self.finished: dict[str, Finished] = {}
        self.unreported: dict[str, None] = {}
        self.events: dict[int, GuestEvent] = {}
        self.live: dict[str, VmStatus] = {}
        self.over: dict[str, int] = {}
        self._forget_at: list[tuple[float, str]] = []
        for record in records:
            self.apply(record)

    def apply(self, record: JournalRecord) -> None:
        """Take one record in. Pure: depends on nothing but the records so far."""
        if isinstance(record, Accepted):
            self.accepted[record.action.id] = record.action
            self.busy[record.action.vm] = record.action.id
        elif isinstance(record, Finished):
            self._finish(record)
        elif isinstance(record, Reported):
            self._report(record.action)
        elif isinstance(record, GuestNoted):
            self._note(record.event)
        elif isinstance(record, EventsForgotten):
            self._forget_events(record.through)
        elif isinstance(record, VmSeen):
            self._see(record.status.vm, record.status)
        elif isinstance(record, TermSeen):
            self.term = max(self.term, record.term)
        elif isinstance(record, SleepAgreed):
            self._sleep(record.request)
        elif isinstance(record, SetUpBegun):
            self.setting_up = record.request
        elif isinstance(record, SetUpEnded):
            self._end_setup(record.answer)
        elif isinstance(record, AgentStarted):
            self.starts, self.boot_id = record.start, record.boot_id
        else:
            self._rebase(record)

    def compact(self) -> tuple[JournalRecord, ...]:
        """Return the shortest list of records whose fold is this state."""
        records: list[JournalRecord] = []
        for action, finished in self.finished.items():
            records.append(finished)
            if action not in self.unreported:
                records.append(Reported(action))
        records.extend(GuestNoted(event) for event in self.events.values())
        records.extend(Accepted(action) for action in self.accepted.values())
        records.extend(SleepAgreed(request) for request in self.slept)
        records.extend(SetUpEnded(answer) for answer in self.ended_setups.values())
        if self.setting_up is not None:
            records.append(SetUpBegun(self.setting_up))
        live, over = tuple(self.live.values()), tuple(self.over.items())
        records.append(Baseline(self.starts, self.boot_id, self.term, self.last_event, self.clock_s, live, over))
        return tuple(records)

    def _finish(self, record: Finished) -> None:
        result = record.result
        action = self.accepted.pop(result.action, None)
        if action is not None:
            del self.busy[action.vm]
        self.finished[result.action] = record
        self.unreported[result.action] = None
        if result.clock_s > self.clock_s:
            self.clock_s = result.clock_s
        if result.seq != SEQ_NO_WORD:
            self._see(result.vm, result.status)
        self._prune()

    def _report(self, action: str) -> None:
        if action in self.unreported:
            del self.unreported[action]
            heapq.heappush(self._forget_at, (self.finished[action].forget_at_s, action))
            self._prune()

    def _prune(self) -> None:
        while self._forget_at and self._forget_at[0][0] < self.clock_s:
            self.finished.pop(heapq.heappop(self._forget_at)[1], None)

    def _note(self, event: GuestEvent) -> None:
        self.last_event = event.event
        self.events[event.event] = event
        vm = event.status.vm
        if event.change in COMING:
            self._see(vm, event.status)
            return
        self.live.pop(vm, None)
        self.over.pop(vm, None)
        if event.change is GuestChange.LEFT:  # its life is not over, and may come back
            return
        self.over[vm] = event.status.generation
        if len(self.over) > OVER_KEPT_MAX:
            del self.over[next(iter(self.over))]

    def _sleep(self, request: str) -> None:
        self.slept.pop(request, None)
        self.slept[request] = None
        if len(self.slept) > SLEPT_KEPT_MAX:
            del self.slept[next(iter(self.slept))]

    def _end_setup(self, answer: SetUpAnswer) -> None:
        if self.setting_up is not None and self.setting_up.request == answer.request:
            self.setting_up = None
        self.ended_setups[answer.request] = answer
        if len(self.ended_setups) > SETUPS_KEPT_MAX:
            del self.ended_setups[next(iter(self.ended_setups))]

    def _forget_events(self, through: int) -> None:
        for number in [number for number in self.events if number <= through]:
            del self.events[number]
        self.last_event = max(self.last_event, through)

    def _see(self, vm: str, status: VmStatus | None) -> None:
        if status is not None and status.state in LIVE_STATES:
            self.live[vm] = status
            self.over.pop(vm, None)
        else:
            self.live.pop(vm, None)

    def _rebase(self, record: Baseline) -> None:
        self.starts, self.boot_id, self.term = record.starts, record.boot_id, record.term
        self.last_event, self.clock_s = record.last_event, record.clock_s
        self.live = {status.vm: status for status in record.live}
        self.over = dict(record.over)


def left_a_domain(status: VmStatus) -> bool:
    """Return whether a VM that is over still has a definition to remove."""
    return status.state in (VmState.ENDED, VmState.CRASHED)
