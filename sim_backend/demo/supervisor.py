"""The process of a demo: bus, fake hosts, and the real daemons as processes below it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from daemons.access.identity import Role
from daemons.cli.connection import Access, ControllerConnection, OperatorBus, OperatorConfig
from daemons.portal.auth.accounts import Accounts, State
from daemons.portal.auth.passwords import hashed
from daemons.portal.auth.schema import Base
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, PermanentError, Problem, TransientError, TrimtabError
from shared.bus.buses import find_bus
from shared.ports.bus import Bus
from shared.protocol import topology
from shared.protocol.operator_messages import AddNode, Query
from shared.values.operation_costs import OperationCosts
from sim_backend.bus_server.server import BusServer
from sim_backend.demo.children import Child
from sim_backend.demo.layout import ACCOUNT, COSTS, Layout
from sim_backend.fake_server.control import FakeControl
from sim_backend.fake_server.server import FakeServer

READY_S = 90.0  # a loaded machine takes long to start so many processes
LOOK_S = 0.2
ASK_S = 20.0
LOOPBACK = "127.0.0.1"
PORTAL, CONTROLLER = "portal", "controller"
PASSWORD_BYTES = 8
T = TypeVar("T")


class Demo:
    """One demo. `run` in the main thread: it starts everything, takes orders until one stops it, and removes
    everything. `say` is called with each step of the start."""

    def __init__(self, layout: Layout, say: Callable[[str], None]) -> None:
        self.layout, self._say = layout, say
        self.password = secrets.token_hex(PASSWORD_BYTES)
        self._clock = SystemClock()
        self._stopping = asyncio.Event()
        self._bus = BusServer(layout.bus_socket)
        self._hosts = FakeServer(layout.hosts_socket, layout.nodes, OperationCosts(**COSTS))
        logs = layout.logs
        self._agents = {
            host: Child(f"agent-{host}", "agents.service.main", layout.agent_file(host), logs) for host in layout.hosts
        }
        self._controller = Child(CONTROLLER, "daemons.service.main", layout.controller_file, logs)
        self._portal = Child(PORTAL, "daemons.portal.main", layout.portal_file, logs)
        self._server: asyncio.Server | None = None
        self._farewells: list[asyncio.StreamWriter] = []

    @property
    def children(self) -> tuple[Child, ...]:
        """All processes."""
        return (self._controller, *self._agents.values(), self._portal)

    async def run(self, on_ready: Callable[[dict[str, Any]], None]) -> None:
        """Start, call `on_ready` with what there is, and return when it has been stopped. Raises InvalidInput for a
        folder or a port that cannot be used, PermanentError when a demo runs there, or when a daemon does not start."""
        lock = self.layout.take()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            _check_port(self.layout.port)
            starting = loop.create_task(self._start())
            stopping = loop.create_task(self._stopping.wait())
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                on_ready(self.status())
                await stopping
            starting.cancel()
            stopping.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
        finally:
            self._stopping.set()
            await self._end()
            self.layout.remove()
            os.close(lock)
            for writer in self._farewells:
                writer.close()

    def status(self) -> dict[str, Any]:
        """Return what there is: hosts, processes, addresses."""
        state = self._fake_state()
        hosts = [
            {
                "host": host,
                "power": "on" if state.get(host, False) else "off",
                "agent_pid": self._agents[host].pid,
            }
            for host in self.layout.hosts
        ]
        return {
            "folder": str(self.layout.folder),
            "env": str(self.layout.env_file),
            "config": str(self.layout.operator_file),
            "portal": self.layout.portal_url,
            "account": ACCOUNT,
            "password": self.password,
            "logs": str(self.layout.logs),
            "hosts": hosts,
            "controller_pid": self._controller.pid,
            "portal_pid": self._portal.pid,
        }

    # --- start and end -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self.layout.write()
        await self._bus.start()
        self._declare_queues()
        self._hosts.start()
        self._server = await asyncio.start_unix_server(self._listen, self.layout.control_socket)
        self._say("starting the controller and the agents")
        for child in (self._controller, *self._agents.values()):
            child.start()
        account, adding = _in_thread(self._make_account), _in_thread(self._add_nodes)
        await self._until(account.done, "the account of the portal")
        await account
        self._portal.start()
        await self._until(adding.done, "the controller")
        await adding
        self._say("waiting for the hosts")
        await self._until_up()
        self._say("waiting for the portal")
        await self._until(self._portal_listens, "the portal")

    def _declare_queues(self) -> None:
        """Declare the queues as `trimtab broker setup` does: messages sent before the controller starts are not
        lost."""
        broker = self._bus.broker.connect(topology.CONTROLLER_USER_PREFIX + "setup")
        for queue in (topology.CONTROLLER, *map(topology.agent_queue, self.layout.hosts)):
            broker.declare(queue)
        broker.close()

    def _make_account(self) -> None:
        base = Base(self.layout.portal_store)
        base.open()
        try:
            now_s = self._clock.now_s()
            Accounts(base).add(ACCOUNT, Role.PROVIDER, hashed(self.password), State.ACTIVE, now_s)
        finally:
            base.close()

    def _operator(self) -> ControllerConnection:
        url = self.layout.bus_url(topology.OPERATOR_USER_PREFIX + ACCOUNT)
        access = Access(connect=self._connect)
        return ControllerConnection(access, OperatorConfig(READY_S, OperatorBus(url)), say=lambda _: None)

    def _connect(self, bus: OperatorBus, limit_s: float) -> Bus:
        """Connect, but not again while the demo stops: threads that ask must end."""
        if self._stopping.is_set():
            raise PermanentError("the demo stops")
        return find_bus(bus.url)(bus.url, opening_s=limit_s)

    def _add_nodes(self) -> None:
        with self._operator() as line:
            line.ask_all([AddNode(line.new_id(), host) for host in self.layout.hosts])

    def _up(self) -> set[str]:
        with self._operator() as line:
            view = line.ask(Query(line.new_id(), "nodes"))
        return {row["name"] for row in view["nodes"] if row["condition"] == "up"}

    async def _until_up(self) -> None:
        """Wait until the controller has reports of every host."""
        up: set[str] = set()
        while up < set(self.layout.hosts):
            asking = _in_thread(self._up)
            await self._until(asking.done, f"{len(self.layout.hosts) - len(up)} hosts")
            up = await asking
            await asyncio.sleep(LOOK_S)

    def _portal_listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.layout.port)) == 0

    async def _until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until something is true. Raises PermanentError when a daemon ends meanwhile, or after READY_S."""
        until_s = self._clock.monotonic_s() + READY_S
        while not ready():
            for child in self.children:
                if child.has_failed:
                    raise PermanentError(f"{child.name} ended with status {child.exit_status}:\n{child.tail()}")
            if self._clock.monotonic_s() >= until_s:
                raise PermanentError(f"{what} did not start within {READY_S:g} s: see {self.layout.logs}")
            await asyncio.sleep(LOOK_S)

    async def _end(self) -> None:
        """Stop all processes, then what they connect to."""
        await asyncio.gather(*(child.stop() for child in self.children))
        if self._server is not None:
            self._server.close()
        await self._bus.stop()
        await asyncio.to_thread(self._hosts.stop)

    # --- orders ------------------------------------------------------------------------------------------------------

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            order = json.loads(await reader.readline() or b"{}")
            if order.get("order") == "stop":
                self._farewells.append(writer)  # closed when everything has ended
                self._stopping.set()
                return
            answer = await self._carry_out(str(order.get("order")), str(order.get("host", "")))
        except TrimtabError as error:
            answer = {"error": str(error)}
        except (OSError, ValueError) as error:
            answer = {"error": f"no order: {error}"}
        writer.write(json.dumps(answer).encode() + b"\n")
        with suppress(OSError):
            await writer.drain()
        writer.close()

    async def _carry_out(self, order: str, host: str) -> dict[str, Any]:
        if order == "status":
            return self.status()
        if host not in self._agents:
            known = ", ".join(self.layout.hosts)
            raise InvalidInput(Problem("HOST", f"there is no {host!r}", f"one of {known}"))
        if order == "kill-host":
            return await self._kill_host(host)
        if order == "start-host":
            return self._start_host(host)
        if order == "fence":
            return await self._fence(host)
        raise InvalidInput(Problem("order", f"there is no {order!r}"))

    async def _kill_host(self, host: str) -> dict[str, Any]:
        """Cut the power: the agent and all VMs are gone at once."""
        if not self._fake_state().get(host, False):
            raise PermanentError(f"{host} is off already")
        await self._agents[host].kill()
        return {"host": host, "vms": self._with_hosts(lambda hosts: hosts.host_dies(host))}

    def _start_host(self, host: str) -> dict[str, Any]:
        if self._fake_state().get(host, False):
            raise PermanentError(f"{host} is on already")
        self._with_hosts(lambda hosts: hosts.host_returns(host))
        self._agents[host].start()
        return {"host": host}

    async def _fence(self, host: str) -> dict[str, Any]:
        """Fence the host as a power driver does: it is confirmed off."""
        await self._agents[host].kill()
        return {"host": host, "off": self._with_hosts(lambda hosts: hosts.fence(host))}

    def _with_hosts(self, act: Callable[[FakeControl], Any]) -> Any:
        hosts = FakeControl(self.layout.hosts_socket, ASK_S)
        try:
            return act(hosts)
        finally:
            hosts.close()

    def _fake_state(self) -> dict[str, bool]:
        """Return whether each host has power."""
        try:
            state: dict[str, Any] = self._with_hosts(lambda hosts: hosts.state())
        except TransientError:
            return {}
        return {node["node"]: bool(node["up"]) for node in state["nodes"]}


def _in_thread(call: Callable[[], T]) -> asyncio.Task[T]:
    """Call in a thread. Only a task that awaits the result gets an error; nobody needs to."""
    task = asyncio.get_running_loop().create_task(asyncio.to_thread(call))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the portal does
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            what = f"{LOOPBACK}:{port} cannot be used: {error.strerror}"
            raise InvalidInput(Problem("--port", what, "a free port")) from error
