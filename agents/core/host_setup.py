"""The setup of the agent's own host when it is reassigned: the controller's request, until it is carried out and
answered (phoenixcloud.txt section 4.2).

An answered request is journaled with its answer, and a repeated request gets the same answer. A request that is stale,
or that has to wait its turn, is not answered: the controller asks again. A setup that an earlier process of this boot
began and did not end is carried out again. A setup that was begun in an earlier boot, or failed there, is not answered
either: the controller requests it again.
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
        """Whether a setup is in progress: no VM may be started meanwhile."""
        return self._state.setting_up is not None

    def start(self, now_s: float, effects: list[Effect]) -> None:
        """Carry out again, at the start of the process, a setup that was begun in this boot and did not end."""
        begun = self._state.setting_up
        if begun is None:
            return
        if begun.boot_id == self._boot_id:
            effects.append(SetUpHost(begun.request, begun.environment, begun.step, begun.setup))
        else:  # nothing has failed: who asked for it asks anew when it hears of this boot
            self._write(SetUpEnded(self._answer(begun, False, "the host rebooted while it ran", now_s)), effects)

    def asked(self, request: SetUpNode, now_s: float, effects: list[Effect]) -> bool:
        """Handle a controller's request; return true if a new reading has to decide, see `look`."""
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
        """Note the seq under which the deciding reading was requested."""
        self._seq = seq

    def seen(self, seq: int, reading: Observed, news: bool, now_s: float, effects: list[Effect]) -> None:
        """Take in a reading that was requested under `seq`; `news`: an operation has ended since."""
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
        """Handle the end of the setup."""
        effects: list[Effect] = []
        begun = self._state.setting_up
        if begun is not None and begun.request == answer.request:
            self._end(begun, answer.ok, answer.output, now_s, effects)
        return effects

    # --- inside ---------------------------------------------------------------------------------------------------

    def _is_stale(self, request: SetUpNode, now_s: float) -> bool:
        """Return whether the request is from a former leader, for another boot, or too late."""
        return bool(outdated(request, self._state.term, self._boot_id, now_s))

    def _end(self, request: SetUpNode, ok: bool, output: str, now_s: float, effects: list[Effect]) -> None:
        answer = self._answer(request, ok, output, now_s)
        self._write(SetUpEnded(answer), effects)
        self._outbox.send(_key(request.request), answer, now_s, effects)

    def _answer(self, request: SetUpNode, ok: bool, output: str, now_s: float) -> SetUpAnswer:
        said = output[-OUTPUT_CHARS_MAX:]
        return SetUpAnswer(self._node, request.boot_id, self._next_seq(), now_s, request.request, ok, said)


def _key(request: str) -> str:
    """Return the key of the answer in the outbox."""
    return f"setup:{request}"


def _alive(vms: Sequence[VmStatus]) -> str:
    """Return why a host with these VMs must not be set up; empty when it may. Unmanaged VMs do not count."""
    return on_it([vm.vm for vm in vms if vm.managed and vm.state in HOLDING_STATES])
