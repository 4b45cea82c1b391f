"""The sleep of the agent's own host: the controller's request and its answer, until the host sleeps or fails to.

A request goes through three steps: the agent takes a new reading, its answer is on the way to the broker, the host is
going down. From the second step on, no order is begun. A request is journaled only when it is agreed to: if this
process dies before it answers, the controller asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from agents.core.journal import JournalRecord, JournalState, SleepAgreed
from agents.core.outbox import Key, Outbox
from agents.core.outdated import outdated
from shared.ports.effects import Effect, Observed, SleepEnded, SleepHost
from shared.protocol.messages import GoToSleep, SleepAnswer
from shared.values.vms import HOLDING_STATES, VmStatus

Write = Callable[[JournalRecord, list[Effect]], None]


class _Step(Enum):
    LOOKING = "looking"
    ANSWERING = "answering"
    GOING = "going"


class Sleeping:
    """The part of an agent that puts its host to sleep. `keep_s`: a request that expires later than that is refused.
    `set_up`: whether the host is being set up."""

    def __init__(
        self,
        node: str,
        boot_id: str,
        state: JournalState,
        outbox: Outbox,
        keep_s: float,
        next_seq: Callable[[], int],
        write: Write,
        set_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._node, self._boot_id = node, boot_id
        self._state, self._outbox, self._keep_s = state, outbox, keep_s
        self._next_seq, self._write, self._set_up = next_seq, write, set_up
        self._step = _Step.LOOKING
        self._request: GoToSleep | None = None
        self._seq = 0

    @property
    def decided(self) -> bool:
        """Whether the host is to sleep, as far as the agent can say."""
        return self._request is not None and self._step is not _Step.LOOKING

    def asked(self, request: GoToSleep, now_s: float, effects: list[Effect]) -> bool:
        """Handle a controller's request; return true if a new reading has to decide, see `look`. A later request
        replaces an earlier one."""
        before = self._request
        if before is not None and before.request == request.request:
            return False  # a second delivery
        why = self._refusal(request, now_s)
        if why:
            self._answer(request, why, now_s, effects)
        elif self.decided:
            self._agree(request, now_s, effects)
        else:
            self._request, self._step = request, _Step.LOOKING
            return True
        return False

    def look(self, seq: int) -> None:
        """Note the seq under which the deciding reading was requested."""
        self._seq = seq

    def seen(self, seq: int, reading: Observed, news: bool, now_s: float, effects: list[Effect]) -> None:
        """Take in a reading that was requested under `seq`; `news`: something has ended since."""
        request = self._request
        if request is None or self.decided or seq < self._seq:
            return
        why = self._refusal(request, now_s) or _alive(reading.vms) or self._open_business(news)
        if why:
            self._request = None
            self._answer(request, why, now_s, effects)
        else:
            self._agree(request, now_s, effects)

    def published(self, key: Key | None, now_s: float, effects: list[Effect]) -> None:
        """Handle the broker's confirmation of the message with that key. Once the answer is confirmed, the controller
        expects this node to stop reporting: sleep."""
        request = self._request
        if request is None or self._step is not _Step.ANSWERING or key != _key(request):
            return
        if now_s > request.expires_at_s:
            self._request = None
            self._answer(request, "expired before the broker took the answer", now_s, effects)
            return
        self._step = _Step.GOING
        effects.append(SleepHost(request.mode))

    def ended(self, ended: SleepEnded, now_s: float, effects: list[Effect]) -> None:
        """Handle the end of the sleep: the host is awake again, or did not go to sleep."""
        request, self._request = self._request, None
        if request is not None and not ended.ok:
            self._answer(request, ended.detail or "the host did not go to sleep", now_s, effects)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _refusal(self, request: GoToSleep, now_s: float) -> str:
        """Return why a request must not be followed, independent of the VMs on the host; empty when it may."""
        if why := outdated(request, self._state.term, self._boot_id, now_s):
            return why
        if request.expires_at_s > now_s + self._keep_s:
            return f"expires more than {self._keep_s:g} s from now"
        if request.request in self._state.slept:
            return "was agreed to before, and is over"
        if self._set_up():
            return "the host is being set up"
        return ""

    def _open_business(self, news: bool) -> str:
        if self._state.accepted or news:
            return "an operation is in progress, or has just ended"
        if self._state.events or self._state.unreported:
            return "not everything that has happened on it is known yet"
        return ""

    def _agree(self, request: GoToSleep, now_s: float, effects: list[Effect]) -> None:
        """Agree that the host goes to sleep, or continues to."""
        if self._request is not None:
            self._outbox.drop(_key(self._request))
        if not self.decided:
            self._step = _Step.ANSWERING
        self._request = request
        self._write(SleepAgreed(request.request), effects)
        self._answer(request, "", now_s, effects)

    def _answer(self, request: GoToSleep, why: str, now_s: float, effects: list[Effect]) -> None:
        answer = SleepAnswer(self._node, self._boot_id, self._next_seq(), now_s, request.request, not why, why)
        self._outbox.send(_key(request), answer, now_s, effects)


def _key(request: GoToSleep) -> str:
    """Return the key of the answer in the outbox."""
    return f"sleep:{request.request}"


def _alive(vms: Sequence[VmStatus]) -> str:
    """Return why a host with these VMs, managed or unmanaged, must not sleep; empty when it may."""
    return on_it([vm.vm for vm in vms if vm.state in HOLDING_STATES or vm.busy])


def on_it(kept: Sequence[str]) -> str:
    """Says which VMs are on a host, empty when there are none."""
    if not kept:
        return ""
    more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    return f"{kept[0]}{more} on it"
