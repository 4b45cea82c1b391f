"""The harness of the bus server: one in a thread of its own, behind a socket in a folder of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path

from shared.base.clock import SystemClock
from shared.base.errors import ContractViolation
from shared.bus.buses import find_bus
from shared.ports.bus import Bus
from shared.protocol.dead_letter import DeadMessage
from sim_backend.bus_server.client import SocketConnection
from sim_backend.bus_server.server import BusServer

START_S = 10.0


class ServerThread:
    """A `BusServer` and the event loop that it runs in."""

    def __init__(self, path: Path) -> None:
        self.server = BusServer(path)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="bus-server")

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), self.loop).result(START_S)

    def restart(self) -> None:
        """As a restart of a broker: connections and what is not durable are lost."""

        async def restarted() -> None:
            self.server.restart()

        asyncio.run_coroutine_threadsafe(restarted(), self.loop).result(START_S)

    def stop(self) -> None:
        """End the server and its loop."""
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(START_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class SocketHarness:
    """A `BusHarness` over a bus server, in real time."""

    supports_restart = True
    enforces_permissions = True

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bus-"))  # short: the path of a socket has 107 bytes
        self.path = self.folder / "bus.socket"
        self._server = ServerThread(self.path)
        self._connections: list[SocketConnection] = []
        self._server.start()
        self._runs = True

    def connect(self, user: str) -> Bus:
        """A connection of its own, found by the scheme of its URL as everywhere."""
        url = f"unix://{user}@{self.path}"
        connection = find_bus(url)(url)
        assert isinstance(connection, SocketConnection)
        self._connections.append(connection)
        return connection

    def settle(self, seconds: float) -> None:
        """Let real time pass."""
        SystemClock().sleep(seconds)

    def kill(self, connection: Bus) -> None:
        """End a connection without a farewell."""
        if not isinstance(connection, SocketConnection):
            raise ContractViolation(f"not a connection of this harness: {connection!r}")
        connection.kill()

    def restart_broker(self) -> None:
        """Stop and start."""
        self._server.restart()

    def dead_letters(self) -> tuple[DeadMessage, ...]:
        """What the dead queue holds."""
        return self._server.server.broker.dead_letters()

    def close_server(self) -> None:
        """End the server alone; twice is fine."""
        if self._runs:
            self._server.stop()
        self._runs = False

    def close(self) -> None:
        """End every connection and the server."""
        for connection in self._connections:
            connection.kill()
        self.close_server()
        shutil.rmtree(self.folder)
