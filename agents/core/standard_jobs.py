"""What a controller asks of the standard jobs of a node, until it is answered; a part of the agent without I/O.

Nothing is journaled: a run that the agent's end cuts short is never answered.
"""

from __future__ import annotations

from collections.abc import Callable

from agents.core.journal import JournalState
from agents.core.outbox import Outbox
from agents.core.outdated import outdated
from shared.ports.effects import Effect, RunStandard, StandardRan
from shared.protocol.messages import RunStandardJob, StandardJobEnded
from shared.values.scalars import TEXT_LENGTH_MAX

ANSWERS_KEPT = 64


class StandardJobs:
    """The part of an agent that has standard jobs run, one at a time. `in_use`: why the host is not to be measured
    now, empty when it may be."""

    def __init__(
        self,
        node: str,
        boot_id: str,
        state: JournalState,
        outbox: Outbox,
        next_seq: Callable[[], int],
        in_use: Callable[[], str],
    ) -> None:
        self._node, self._boot_id = node, boot_id
        self._state, self._outbox = state, outbox
        self._next_seq, self._in_use = next_seq, in_use
        self._running = ""
        self._answers: dict[str, StandardJobEnded] = {}

    def asked(self, message: RunStandardJob, now_s: float, effects: list[Effect]) -> None:
        """Handle a controller's request. A repeated request gets the same answer as before, or none while it runs."""
        request = message.request
        if request == self._running:
            return
        known = self._answers.get(request)
        if known is not None:
            self._outbox.send(_key(request), known, now_s, effects)
            return
        why = self._refusal(message, now_s)
        if why:
            self._answer(StandardRan(request, False, detail=why), now_s, effects)
            return
        self._running = request
        effects.append(RunStandard(request, message.run))

    def ran(self, ended: StandardRan, now_s: float) -> list[Effect]:
        """Handle the end of the copies, or the failure to run them."""
        effects: list[Effect] = []
        if ended.request == self._running:
            self._running = ""
            self._answer(ended, now_s, effects)
        return effects

    def _refusal(self, message: RunStandardJob, now_s: float) -> str:
        """Return why the benchmark must not run now; empty when it may."""
        if why := outdated(message, self._state.term, self._boot_id, now_s):
            return why
        if self._running:
            return f"{self._running} is still running"
        return self._in_use()

    def _answer(self, ended: StandardRan, now_s: float, effects: list[Effect]) -> None:
        answer = StandardJobEnded(
            self._node,
            self._boot_id,
            self._next_seq(),
            clock_s=now_s,
            request=ended.request,
            ok=ended.ok,
            paces=ended.paces,
            detail=ended.detail[:TEXT_LENGTH_MAX],
        )
        self._answers[ended.request] = answer
        if len(self._answers) > ANSWERS_KEPT:
            del self._answers[next(iter(self._answers))]
        self._outbox.send(_key(ended.request), answer, now_s, effects)


def _key(request: str) -> str:
    """Return the key of the answer in the outbox."""
    return f"standard:{request}"
