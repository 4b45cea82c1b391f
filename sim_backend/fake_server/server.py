"""Hosts a fake cluster in real time behind a Unix socket, so that VMs outlive the agents that started them."""

from __future__ import annotations

import os
import selectors
import socket
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

from shared.base.clock import SystemClock
from shared.base.errors import CodecError, InvalidInput, InvalidValue, Problem
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS, OperationCosts
from sim_backend.fake_server.cluster import FakeServerCore
from sim_backend.fake_server.wire import Answer, Call, Frames, Order, What, to_frame

RECEIVE_BYTES = 64 << 10
UNSENT_BYTES_MAX = 16 << 20  # what a client may leave unread before it is cut off
CLIENTS_MAX = 4_096
WAIT_MAX_S = 3_600.0  # a selector takes no wait of many days
PATH_BYTES_MAX = 107  # what the address of a Unix socket holds
SOCKET_MODE = 0o600


class WorldTime:
    """The time of the world: seconds since the epoch at its beginning, from there `factor` times as fast as real time.

    Factor 0: it stands still but for `advance`. Raises InvalidValue for a factor that is not from 0 to 100,000.
    """

    def __init__(self, factor: float) -> None:
        if not 0.0 <= factor <= 100_000.0:
            raise InvalidValue("time_factor", factor, "a number from 0 to 100000")
        self.factor = factor
        self._clock = SystemClock()
        self._begin_s, self._began_s = self._clock.now_s(), self._clock.monotonic_s()

    def now_s(self) -> float:
        """Return the world's time, which never decreases."""
        return self._begin_s + (self._clock.monotonic_s() - self._began_s) * self.factor

    def wait_s(self, due_s: float | None) -> float | None:
        """Return the real seconds until `due_s`, at most an hour; None when it is unknown or time does not advance on
        its own."""
        if due_s is None or self.factor == 0.0:
            return None
        return min(max(0.0, (due_s - self.now_s()) / self.factor), WAIT_MAX_S)

    def advance(self, by_s: float) -> None:
        """Advance a stopped clock. Raises InvalidValue when the clock runs, or for a number of seconds that is below 0
        or infinite."""
        if self.factor != 0.0:
            raise InvalidValue("seconds", by_s, "a server with time factor 0")
        if not 0.0 <= by_s < float("inf"):
            raise InvalidValue("seconds", by_s, "a finite number, 0 or above")
        self._begin_s += by_s


class _Client:
    """One connection. `node` is the one whose agent it is, "" for others."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.frames = Frames()
        self.rolled_back = bytearray()
        self.node = ""
        self.watched = selectors.EVENT_READ


class FakeServer:
    """One fake cluster of `nodes` behind the Unix socket `path` (mode 0600), for one agent per node and any number of
    control connections (`sim_backend.fake_server.control`).

    A new agent of a node replaces the previous one and starts from scratch: answers to calls of the previous agent are
    dropped, its VMs and operations continue. A host that dies disconnects its agent. `start` and `stop` run the server
    in a thread, `run` in the calling thread. Raises InvalidInput for a path that cannot be used, InvalidValue for an
    invalid `time_factor`.
    """

    def __init__(
        self,
        path: str | Path,
        nodes: Sequence[Node],
        costs: OperationCosts = COSTS["none"],
        time_factor: float = 1.0,
    ) -> None:
        self.path = Path(path)
        self._time = WorldTime(time_factor)
        self._core = FakeServerCore(nodes, costs, f"fake-{os.getpid()}-{self._time.now_s():.6f}")
        self._clients: dict[int, _Client] = {}
        self._agents: dict[str, _Client] = {}
        self._selector: selectors.BaseSelector
        self._door: socket.socket | None = None
        self._stopping = False
        self._stop: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and serve in a thread of its own until `stop`."""
        self.open()
        self._thread = threading.Thread(target=self.run, name="fake-server", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the service: every connection is closed and the socket removed. Safe in a signal handler."""
        if self._stop is not None and not self._stopping:
            self._stop[1].send(b"x")
        self._stopping = True
        if self._thread is not None:
            self._thread.join()

    def open(self) -> None:
        """Begin to listen. A socket that a dead server left behind is replaced."""
        if self._door is not None:
            return
        if len(os.fsencode(self.path)) > PATH_BYTES_MAX:
            raise InvalidInput(Problem(str(self.path), "too long for a socket", f"at most {PATH_BYTES_MAX} bytes"))
        _clear(self.path)
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            door.bind(str(self.path))
            os.chmod(self.path, SOCKET_MODE)  # before anyone can connect
            door.listen(128)
        except OSError as error:
            door.close()
            raise InvalidInput(
                Problem(str(self.path), f"cannot listen: {error.strerror}", "a path to write")
            ) from error
        door.setblocking(False)
        self._door, self._stop = door, socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(door, selectors.EVENT_READ)
        self._selector.register(self._stop[0], selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until `stop` is called."""
        self.open()
        try:
            while not self._stopping:
                for key, events in self._selector.select(self._time.wait_s(self._core.next_due_s())):
                    self._ready(key, events)
                self._tell()
        finally:
            self._shut()

    def _shut(self) -> None:
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.close()
        for end in (*(self._stop or ()), self._door):
            if end is not None:
                end.close()
        self.path.unlink(missing_ok=True)

    # --- connections ---------------------------------------------------------------------------------------------

    def _ready(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._door:
            self._accept()
        elif isinstance(key.data, _Client) and self._clients.get(key.fd) is key.data:
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ and self._clients.get(key.fd) is key.data:
                self._receive(key.data)

    def _accept(self) -> None:
        assert self._door is not None
        try:
            link, _ = self._door.accept()
        except (BlockingIOError, ConnectionError):
            return  # gone before it was taken in
        if len(self._clients) >= CLIENTS_MAX:
            link.close()
            return
        link.setblocking(False)
        client = _Client(link)
        self._clients[link.fileno()] = client
        self._selector.register(link, selectors.EVENT_READ, client)

    def _receive(self, client: _Client) -> None:
        try:
            data = client.link.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        try:
            calls = client.frames.feed(data, Call)
        except CodecError as error:
            self._send(client, Answer(error=str(error)))
            self._drop(client)
            return
        for call in calls:
            if client.link.fileno() < 0:
                return
            self._serve(client, call)

    def _serve(self, client: _Client, call: Call) -> None:
        """Process a call. The events that it causes are sent before its answer."""
        if call.what is What.HELLO and not client.node:
            reply: Answer | None = self._hello(client, call)
        elif call.control is not None and call.control.order is Order.ADVANCE:
            reply = self._advance(call, call.control.seconds)
        else:
            reply = self._core.handle(call, client.node, self._time.now_s())
        self._tell()
        if reply is not None:
            self._send(client, reply)
        if call.what is What.CONTROL:
            for node, agent in list(self._agents.items()):
                if not self._core.is_up(node):
                    self._drop(agent)

    def _hello(self, client: _Client, call: Call) -> Answer:
        earlier = self._agents.get(call.node)
        if earlier is not None:
            self._drop(earlier)
        reply = self._core.attach(call)
        if not reply.error:
            client.node = call.node
            self._agents[call.node] = client
        return reply

    def _advance(self, call: Call, seconds: float) -> Answer:
        try:
            self._time.advance(seconds)
        except InvalidValue as error:
            return Answer(call.call, error=str(error))
        return Answer(call.call, data={"now_s": self._time.now_s()})

    def _tell(self) -> None:
        for node, event in self._core.happened(self._time.now_s()):
            agent = self._agents.get(node)
            if agent is not None:
                self._send(agent, event)

    # --- out -----------------------------------------------------------------------------------------------------

    def _send(self, client: _Client, answer: Answer) -> None:
        if client.link.fileno() < 0:
            return
        try:
            client.rolled_back += to_frame(answer)
        except CodecError as error:
            client.rolled_back += to_frame(Answer(answer.call, error=f"cannot be sent: {error}"))
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            sent = client.link.send(client.rolled_back) if client.rolled_back else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        del client.rolled_back[:sent]
        if len(client.rolled_back) > UNSENT_BYTES_MAX:
            self._drop(client)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.rolled_back else 0)
        if wanted != client.watched:
            client.watched = wanted
            self._selector.modify(client.link, wanted, client)

    def _drop(self, client: _Client) -> None:
        """Close a connection; dropping it twice is fine."""
        if client.link.fileno() < 0:
            return
        self._selector.unregister(client.link)
        del self._clients[client.link.fileno()]
        client.link.close()
        if client.node:
            del self._agents[client.node]
            self._core.detach(client.node)


def _clear(path: Path) -> None:
    """Remove a socket that nobody listens on. InvalidInput when someone does, or when it is something else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(Problem(str(path), str(error.strerror), "a path to write")) from error
    if not stat.S_ISSOCK(mode):
        raise InvalidInput(Problem(str(path), "is there and no socket", "a path that is free"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise InvalidInput(Problem(str(path), "another server listens there", "a path of its own"))
