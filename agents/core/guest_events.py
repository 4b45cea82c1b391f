"""Unrequested changes of guests, made by themselves or by others. They are numbered without gaps, journaled, and sent
until a controller has stored them."""

from __future__ import annotations

from collections.abc import Callable

from agents.core.journal import EventsForgotten, GuestNoted, JournalRecord, JournalState, left_a_domain
from agents.core.outbox import Outbox
from shared.ports.effects import Effect, Forget, GuestChanged
from shared.protocol.messages import GuestEvent
from shared.values.actions import COMING, ActionKind, GuestChange
from shared.values.vms import VmStatus

DETAIL_CHARS_MAX = 500
STOPPING = frozenset({GuestChange.VANISHED, GuestChange.STOPPED})
Write = Callable[[JournalRecord, list[Effect]], None]


class Guests:
    """The part of an agent that notes guest events."""

    def __init__(
        self,
        node: str,
        boot_id: str,
        state: JournalState,
        outbox: Outbox,
        next_seq: Callable[[], int],
        write: Write,
    ) -> None:
        self._node, self._boot_id = node, boot_id
        self._state, self._outbox = state, outbox
        self._next_seq, self._write = next_seq, write

    def changed(self, changed: GuestChanged, now_s: float, effects: list[Effect]) -> None:
        """Handle a change of a managed guest that the hypervisor reports. If its end was noted already, only its
        definition is left to remove."""
        status = changed.status
        ended = self._state.over.get(status.vm) == status.generation
        if changed.change is GuestChange.LEFT:
            # One that was missed before its hypervisor said why is not lost after all.
            if (ended or status.vm in self._state.live) and not self._moves(status.vm):
                self.note(changed.change, status, now_s, effects, changed.detail)
        elif changed.change in COMING or not ended:
            self.note(changed.change, status, now_s, effects, changed.detail)
        elif left_a_domain(status) and not status.adopted:
            effects.append(Forget(status.vm))

    def _moves(self, vm: str) -> bool:
        """Return whether the VM is being migrated by an accepted order; the answer to that order names the target."""
        action = self._state.accepted.get(self._state.busy.get(vm, ""))
        return action is not None and action.kind is ActionKind.MIGRATE

    def note(
        self, change: GuestChange, status: VmStatus, now_s: float, effects: list[Effect], detail: str = ""
    ) -> None:
        """Give the event the next number, journal it and send it."""
        number = self._state.last_event + 1
        said = detail[:DETAIL_CHARS_MAX]
        event = GuestEvent(
            self._node,
            self._boot_id,
            self._next_seq(),
            clock_s=now_s,
            event=number,
            change=change,
            status=status,
            detail=said,
        )
        self._write(GuestNoted(event), effects)
        self._outbox.send(number, event, now_s, effects)
        if not status.adopted and (change is GuestChange.ENDED or (change in STOPPING and left_a_domain(status))):
            effects.append(Forget(status.vm))

    def stored(self, through: int, now_s: float, effects: list[Effect]) -> None:
        """Forget the events that a controller has stored.

        A number that this agent has not given yet means that an earlier journal was lost: numbering continues from
        there, and events that could not be sent get new numbers.
        """
        state = self._state
        if through <= state.last_event and (not state.events or through < next(iter(state.events))):
            return
        untold = list(state.events.values()) if through > state.last_event else []
        for number in [number for number in state.events if number <= through]:
            self._outbox.drop(number)
        self._write(EventsForgotten(through), effects)
        for event in untold:
            self.note(event.change, event.status, now_s, effects, event.detail)
