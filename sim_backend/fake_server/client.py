"""The driver `fake`: one node of a fake server, for agents that are processes of their own.

Light, since agents load it: it knows the protocol and nothing of the world behind it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

from shared.base.errors import CodecError, InvalidInput, InvalidValue, Problem, TransientError
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, Outcome
from shared.values.nodes import Node
from shared.values.scalars import check_name
from shared.values.vms import VmStatus
from sim_backend.fake_server.link import ServerConnection
from sim_backend.fake_server.wire import Answer, Call, What

URI_FORM = "unix:///path/of/socket?node=NAME"
REPLY_WITHIN_S = 10.0


def parse_uri(uri: str) -> tuple[str, str]:
    """Return the path of the socket and the node that `uri` names. Raises InvalidInput for anything but `URI_FORM`."""
    try:
        parts = urlsplit(uri)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)
        if parts.scheme != "unix" or parts.netloc or parts.fragment or not parts.path.startswith("/"):
            raise ValueError("not a Unix socket")
        if [key for key, _ in query] != ["node"]:
            raise ValueError("not one node")
        check_name("node", query[0][1])
    except (ValueError, InvalidValue) as error:
        raise InvalidInput(Problem("hypervisor.uri", f"is {uri[:200]!r}: {error}", URI_FORM)) from error
    return parts.path, query[0][1]


class RemoteHypervisor:
    """`shared.ports.agent.Hypervisor` of one node of a fake server.

    `wake` is called from a thread of this driver when `poll` has something, and once when the server is lost. Times
    are the server's: `now_s` is not used. A lost server stays lost for this object: `vms` and `inventory` raise
    TransientError, and no operation is answered any more: that it failed, or that its VM is gone, is not known.

    Raises InvalidInput for a bad `uri`, TransientError when there is no server, or not this node, or it is down.
    """

    def __init__(
        self, uri: str = "", wake: Callable[[], None] | None = None, reply_within_s: float = REPLY_WITHIN_S
    ) -> None:
        path, self.node = parse_uri(uri)
        self.wake = wake
        self.boot_id = ""
        self._reply_within_s = reply_within_s
        self._lock = threading.Lock()
        self._events: deque[Operated | GuestChanged] = deque()
        self._waiting: dict[int, tuple[threading.Event, list[Answer]]] = {}
        self._calls = 0
        self._lost = ""
        self._link = ServerConnection(path, reply_within_s)
        self._reader = threading.Thread(target=self._read, name="fake-hypervisor", daemon=True)
        self._reader.start()
        try:
            self.boot_id = self._ask(What.HELLO).boot_id
        except TransientError:
            self.close()
            raise

    # --- the port ------------------------------------------------------------------------------------------------

    def inventory(self) -> Node:
        """Return the capacity and labels with which the server was started."""
        node = self._ask(What.INVENTORY).node
        if node is None:
            raise TransientError(f"the fake server said nothing of {self.node}")
        return node

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        """Return every VM and image on the node, as of now on the server."""
        del now_s
        return self._ask(What.VMS).vms

    def begin(self, action: Action, now_s: float) -> None:
        """Begin an action. Without a server nothing happens and nothing is ever answered."""
        del now_s
        try:
            self._tell_if_there(Call(What.BEGIN, action=action))
        except CodecError as error:
            self._refuse(action, str(error))

    def abort(self, vm: str, now_s: float) -> None:
        """Abort the operation in progress on `vm`."""
        del now_s
        self._tell_if_there(Call(What.ABORT, vm=vm))

    def forget(self, vm: str, now_s: float) -> None:
        """Remove the definition of an ENDED or CRASHED VM."""
        del now_s
        self._tell_if_there(Call(What.FORGET, vm=vm))

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:
        """Return the server's events since the last call, in order."""
        del now_s
        with self._lock:
            happened = tuple(self._events)
            self._events.clear()
        return happened

    def next_due_s(self) -> float | None:
        """Return None: the time is unknown, and `wake` announces events."""
        return None

    def close(self) -> None:
        """Leave the node to the next agent. VMs and operations go on. Closing twice is fine."""
        self._link.close()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    # --- inside --------------------------------------------------------------------------------------------------

    def _tell(self, call: Call) -> None:
        if self._lost:
            raise TransientError(self._lost)
        self._link.send(call)

    def _tell_if_there(self, call: Call) -> None:
        try:
            self._tell(call)
        except TransientError:
            return  # the next reading says so

    def _refuse(self, action: Action, reason: str) -> None:
        """Have the server answer an action that cannot be sent: only it knows the VM's state."""
        stub = replace(action, expires_at_s=0.0, spec=None, cpu_mhz=0.0, cap_mhz=None)
        try:
            self._tell_if_there(Call(What.BEGIN, action=stub, refused=reason))
        except CodecError:
            self._keep(Operated(action.id, Outcome.REFUSED, detail=reason))  # no VM can have such a name

    def _ask(self, what: What) -> Answer:
        replied, slot = threading.Event(), list[Answer]()
        with self._lock:
            if self._lost:
                raise TransientError(self._lost)
            self._calls += 1
            number = self._calls
            self._waiting[number] = (replied, slot)
        try:
            self._tell(Call(what, number, node=self.node if what is What.HELLO else ""))
            replied.wait(self._reply_within_s)
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if not slot:
            raise TransientError(self._lost or f"the fake server did not answer within {self._reply_within_s:g} s")
        if slot[0].error:
            raise TransientError(slot[0].error)
        return slot[0]

    def _keep(self, event: Operated | GuestChanged) -> None:
        with self._lock:
            self._events.append(event)
        if self.wake is not None:
            self.wake()

    def _read(self) -> None:
        reason = "the reader of the fake server's answers has failed"
        try:
            while True:
                self._take(self._link.receive())
        except TransientError as error:
            reason = str(error)
        finally:
            self._lose(reason)

    def _take(self, answers: list[Answer]) -> None:
        news = False
        with self._lock:
            for answer in answers:
                if answer.call:
                    waiting = self._waiting.pop(answer.call, None)
                    if waiting is not None:
                        waiting[1].append(answer)
                        waiting[0].set()
                elif event := answer.operated or answer.changed:
                    self._events.append(event)
                    news = True
        if news and self.wake is not None:
            self.wake()

    def _lose(self, reason: str) -> None:
        with self._lock:
            self._lost = reason
            waiting = list(self._waiting.values())
        for replied, _ in waiting:
            replied.set()
        if self.wake is not None:
            self.wake()
