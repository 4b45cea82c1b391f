"""The setup of the agent's own host when it changes hands: what a controller asked, until it is carried out and
answered (phoenixcloud.txt section 4.2).

A request that is answered was journaled, with its answer, and the same one again is answered so. One that is stale, or
that has to wait its turn, is not answered: its asker asks again. What an earlier process of this boot had begun and not
ended is carried out again; what was begun in an earlier boot, or failed there, is not answered either: it is asked for
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.core.host_sleep import on_it
from agents.core.journal import JournalRecord, JournalState, SetUpBegun, SetUpEnded
from agents.core.outbox import Outbox
from agents.core.outdated import outdated
from shared.ports.effects import Effect, HostSetUp, Observed, SetUpHost
from shared.protocol.messages import SetUpAnswer, SetUpNode
from shared.values.vms import HOLDING_STATES, VmStatus

OUTPUT_CHARS_MAX = 4096
Write = Callable[[JournalRecord, list[Effect]], None]


class SettingUp:
    """The part of an agent that has setup policies carried out, one at a time. `goes_down`: whether the host is about
    to sleep."""

    def __init__(
        self,
        node: str,
        boot_id: str,
        state: JournalState,
        outbox: Outbox,
        next_seq: Callable[[], int],
        write: Write,
        goes_down: Callable[[], bool],
    ) -> None:
        self._node, self._boot_id = node, boot_id
        self._state, self._outbox = state, outbox
        self._next_seq, self._write, self._goes_down = next_seq, write, goes_down
        self._request: SetUpNode | None = None
        self._seq = 0

    @property
    def running(self) -> bool:
        """Whether a setup is under way: no VM may come to life meanwhile."""
        return self._state.setting_up is not None

    def start(self, now_s: float, effects: list[Effect]) -> None:
        """The process begins: carry out again what was begun in this boot and not ended."""
        begun = self._state.setting_up
        if begun is None:
            return
        if begun.boot_id == self._boot_id:
            effects.append(SetUpHost(begun.request, begun.environment, begun.step, begun.setup))
        else:  # nothing has failed: who asked for it asks anew when it hears of this boot
            self._write(
                SetUpEnded(self._answer(begun, False, "the host was started anew while it ran", now_s)), effects
            )

    def asked(self, request: SetUpNode, now_s: float, effects: list[Effect]) -> bool:
        """A controller asks; true when a new reading is to decide, see `look`."""
        known = self._state.ended_setups.get(request.request)
        if known is not None and not known.ok and known.boot_id != self._boot_id:
            return False
        if known is not None:
            self._outbox.send(_key(request.request), known, now_s, effects)
            return False
        if self.running or self._goes_down() or self._is_stale(request, now_s):
            return False
        looking = self._request is not None and self._request.request == request.request
        self._request = request
        return not looking

    def look(self, seq: int) -> None:
        """The reading that decides is asked for, under this seq."""
        self._seq = seq

    def seen(self, seq: int, reading: Observed, news: bool, now_s: float, effects: list[Effect]) -> None:
        """A reading that was asked for under `seq`; `news`: an operation has ended since."""
        request = self._request
        if request is None or seq < self._seq:
            return
        if self._goes_down() or self._is_stale(request, now_s):
            self._request = None
        elif why := _alive(reading.vms):
            self._request = None
            self._end(request, False, why, now_s, effects)
        elif not (self._state.accepted or news):  # else a later reading decides
            self._request = None
            self._write(SetUpBegun(request), effects)
            effects.append(SetUpHost(request.request, request.environment, request.step, request.setup))

    def done(self, answer: HostSetUp, now_s: float) -> list[Effect]:
        """The setup has ended."""
        effects: list[Effect] = []
        begun = self._state.setting_up
        if begun is not None and begun.request == answer.request:
            self._end(begun, answer.ok, answer.output, now_s, effects)
        return effects

    # --- inside ---------------------------------------------------------------------------------------------------

    def _is_stale(self, request: SetUpNode, now_s: float) -> bool:
        """Of a controller that leads no more, for another boot, or too late."""
        return bool(outdated(request, self._state.term, self._boot_id, now_s))

    def _end(self, request: SetUpNode, ok: bool, output: str, now_s: float, effects: list[Effect]) -> None:
        answer = self._answer(request, ok, output, now_s)
        self._write(SetUpEnded(answer), effects)
        self._outbox.send(_key(request.request), answer, now_s, effects)

    def _answer(self, request: SetUpNode, ok: bool, output: str, now_s: float) -> SetUpAnswer:
        said = output[-OUTPUT_CHARS_MAX:]
        return SetUpAnswer(self._node, request.boot_id, self._next_seq(), now_s, request.request, ok, said)


def _key(request: str) -> str:
    """Of the answer in the outbox."""
    return f"setup:{request}"


def _alive(vms: Sequence[VmStatus]) -> str:
    """Why a host with these VMs must not be set up; empty when it may. VMs that are not ours do not count."""
    return on_it([vm.vm for vm in vms if vm.managed and vm.state in HOLDING_STATES])
