"""A whole cluster of real processes on one machine: a fake server, agents, controllers, and an operator to ask them.

Everything lies in one temporary folder (configuration, journals, store, one log per process) and every process has a
group of its own, which is ended with the lab whatever happened in it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable, TransientError
from shared.ports import plugins
from shared.ports.bus import Bus, Delivery
from shared.protocol import topology
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Request
from shared.protocol.topology import QueueSpec
from shared.runtime import startup
from shared.runtime.shell import BEGIN_ANEW
from sim_backend.fake_server.control import FakeControl
from sim_backend.fake_server.driver import from_config

CLOCK = SystemClock()
PAUSE_S = 0.05
START_S = 20.0
STOP_S = 15.0
ASK_S = 20.0
RESEND_S = 2.0
LOG_TAIL = 3_000  # characters of each log in a failure
OPERATOR = topology.OPERATOR_USER_PREFIX + "lab"

Section = Mapping[str, Any]
T = TypeVar("T")

# Quick enough for a test, slow enough for two loaded cores: there a broker takes seconds to bring a probe back, and who
# misses it leads no more.
CONTROLLER: Mapping[str, Section] = {
    "periods": {"report_s": 0.5, "reconcile_s": 0.5, "decide_s": 10.0, "probe_s": 3.0},
    "timeouts": {
        "unreachable_after_s": 4.0,
        "fence_after_s": 8.0,
        "gang_timeout_s": 30.0,
        "action_ttl_s": 20.0,
        "operation_timeout_s": 30.0,
        "stall_after_s": 120.0,
        "decide_limit_s": 8.0,
    },
    "automation": {"level": "auto"},
    "memory": {"vm_overhead_mib": 0},
    "metrics": {"listen": ""},  # several on one machine: the port of one is busy for the next
}
QUICK_LEADERS: Mapping[str, Section] = {"periods": {"probe_s": 0.5}}  # for tests of who leads
AGENT: Mapping[str, Section] = {
    "periods": {"report_s": 0.5},
    "timeouts": {"operation_timeout_s": 30.0},
    "node": {"reserve_mib": 0},
    "metrics": {"listen": ""},
}


def need_driver() -> None:
    """Skip the test, or with CI=true fail it, where the installation does not know the fake server's driver yet."""
    if plugins.load(plugins.HYPERVISORS, "fake") is from_config:
        return
    reason = "the driver `fake` of this installation is not that of fake servers: make setup"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def wait_for(ready: Callable[[], T], timeout_s: float, what: str = "what was waited for") -> T:
    """Look until it is true, and return that. AssertionError after `timeout_s`; see also `Lab.wait_for`."""
    until_s = CLOCK.monotonic_s() + timeout_s
    while True:
        found = ready()
        if found:
            return found
        if CLOCK.monotonic_s() >= until_s:
            raise AssertionError(f"{what} did not come about within {timeout_s:g} s")
        CLOCK.sleep(PAUSE_S)


def toml(sections: Mapping[str, Any], within: str = "") -> str:
    """A configuration file: plain values first, then one table per section, which may have sections of its own."""
    lines = [f"{key} = {_word(value)}\n" for key, value in sections.items() if not isinstance(value, Mapping)]
    for name, section in sections.items():
        if isinstance(section, Mapping):
            lines.append(f"[{within}{name}]\n" + toml(section, f"{within}{name}."))
    return "".join(lines)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_word, value)) + "]"
    return repr(value)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Sections laid over one another; the last word of a key counts."""
    made: dict[str, Any] = {}
    for layer in layers:
        for name, section in layer.items():
            made[name] = {**made.get(name, {}), **section} if isinstance(section, Mapping) else section
    return made


def user_url(broker: str, user: str) -> str:
    """The broker's URL for a user, with the password that `broker` has."""
    parts = urlsplit(broker)
    place = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{parts.password or ''}@{place}"))


class Process:
    """A command that can be started, killed, frozen and started again; `log` has what all its lives wrote.

    A life that is over is not reaped before the next begins or `end`, so that its group's number stays its own.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self.lives = name, 0
        self.log = folder / f"{name}.log"
        self.command, self._folder = list(command), folder
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the present or last life."""
        assert self._child is not None, f"{self.name} was never started"
        return self._child.pid

    @property
    def exit_status(self) -> int | None:
        """How the last life ended, negative for a signal; None while it lasts."""
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    @property
    def alive(self) -> bool:
        """Whether it runs, or is frozen."""
        return self._child is not None and self.exit_status is None

    def start(self) -> None:
        """Begin a new life; whatever is left of the one before is ended."""
        self.end()
        self.lives += 1
        with self.log.open("ab") as log:
            log.write(f"--- life {self.lives} of {self.name}\n".encode())
            log.flush()
            self._child = subprocess.Popen(
                self.command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 of the process alone; what it had started is left to notice."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(STOP_S)

    def freeze(self) -> None:
        """SIGSTOP to it and all that it has started."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Until it has ended; returns the exit status."""
        wait_for(lambda: not self.alive, timeout_s, f"the end of {self.name}")
        status = self.exit_status
        assert status is not None
        return status

    def end(self) -> None:
        """Kill the whole group and forget the life; nothing happens when there is none."""
        if self._child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(STOP_S)
        self._child = None

    def tail(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-LOG_TAIL:] if self.log.exists() else ""


class Operator:
    """Sends requests and waits for their answers; connects when it has to."""

    def __init__(self, url: str) -> None:
        self._connect = startup.broker(url)
        self._bus: Bus | None = None
        self._queue = ""
        self._ids = count(1)

    def new_id(self) -> str:
        """An id for a request."""
        return f"lab-{os.getpid()}-{next(self._ids)}"

    def ask(self, request: Request, wait_s: float = RESEND_S) -> Reply | None:
        """Send a request; the reply, done or refused, None when none comes in time or there is no connection."""
        try:
            return self._try(request, wait_s)
        except BusUnavailable:
            self._bus = None
            return None

    def close(self) -> None:
        """End the connection."""
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _try(self, request: Request, wait_s: float) -> Reply | None:
        bus = self._bus or self._new_bus()
        bus.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, encode(request), None, self._queue)
        until_s = CLOCK.monotonic_s() + wait_s
        while (left_s := until_s - CLOCK.monotonic_s()) > 0:
            for event in bus.poll(left_s):
                message = decode(event.body) if isinstance(event, Delivery) else None
                if isinstance(message, Reply) and message.request == request.request:
                    return message
        return None

    def _new_bus(self) -> Bus:
        bus = self._connect()
        self._queue = f"reply.{bus.user}.{self.new_id()}"
        bus.declare(QueueSpec(self._queue, (), durable=False, exclusive=True))
        bus.consume(self._queue, 100, acknowledged=False)
        self._bus = bus
        return bus


class Lab:
    """Processes around one broker and one fake server; see `lab`.

    `nodes` is what `python -m sim_backend.fake_server --nodes` takes. `broker` is a URL whose password is that
    of all `users`; they and the exchanges must be there before agents and controllers can work. `agent` and
    `controller` are sections laid over those of this module; with `supervised` a process that ends with 75 is started
    again by `wait_for` and `tend`, as systemd would. The control channel is `fake`, the operator's `operator`.
    """

    def __init__(
        self,
        folder: Path,
        broker: str,
        nodes: str,
        *,
        controllers: Sequence[str] = ("c1",),
        costs: str = "none",
        time_factor: float = 1.0,
        agent: Mapping[str, Section] | None = None,
        controller: Mapping[str, Section] | None = None,
        store: str = "",
        supervised: bool = True,
    ) -> None:
        self.folder, self.broker, self.supervised = folder, broker, supervised
        self.nodes = tuple(part.split(":")[0] for part in nodes.split(","))
        self.socket = folder / "fake.socket"
        options = ["--socket", str(self.socket), "--nodes", nodes, "--costs", costs, "--time-factor", str(time_factor)]
        self.server = Process("fake-server", [sys.executable, "-m", "sim_backend.fake_server", *options], folder)
        self.agents = {node: self._agent(node, agent or {}) for node in self.nodes}
        url = store or f"sqlite:///{folder}/controller.db"
        self.controllers = {name: self._controller(name, url, controller or {}) for name in controllers}
        self.operator = Operator(user_url(broker, OPERATOR))
        self.tenders: list[Callable[[], object]] = []
        self._fake: FakeControl | None = None

    @property
    def users(self) -> tuple[str, ...]:
        """Everyone that connects to the broker."""
        agents = map(topology.agent_user, self.nodes)
        return (*agents, *(topology.CONTROLLER_USER_PREFIX + name for name in self.controllers), OPERATOR)

    @property
    def processes(self) -> tuple[Process, ...]:
        """All of them, started or not."""
        return (self.server, *self.agents.values(), *self.controllers.values())

    @property
    def fake(self) -> FakeControl:
        """The control channel of the fake server."""
        assert self._fake is not None, "the fake server has not been started"
        return self._fake

    # --- life ----------------------------------------------------------------------------------------------------

    def start_server(self) -> None:
        """Start the fake server and wait until it answers. Agents of an earlier one have to be started anew."""
        self.server.start()
        self._fake = self.wait_for(self._connected, START_S, "the fake server")

    def start(self) -> None:
        """Start the fake server, then all agents and controllers; waits for the server alone."""
        self.start_server()
        for process in (*self.agents.values(), *self.controllers.values()):
            process.start()

    def close(self) -> None:
        """End every process, with all that it started."""
        self.operator.close()
        if self._fake is not None:
            self._fake.close()
        for process in self.processes:
            process.end()

    def tend(self) -> None:
        """Start again what asked for it by ending with 75, and call what a test has put among `tenders`."""
        for tender in self.tenders:
            tender()
        for process in (*self.agents.values(), *self.controllers.values()):
            if self.supervised and process.lives and process.exit_status == BEGIN_ANEW:
                process.start()

    def wait_for(self, ready: Callable[[], T], timeout_s: float, what: str = "what was waited for") -> T:
        """As the function of this module, and meanwhile `tend`; a failure shows the ends of all logs."""

        def look() -> T:
            self.tend()
            return ready()

        try:
            return wait_for(look, timeout_s, what)
        except AssertionError as error:
            logs = "\n".join(f"=== {process.name}\n{process.tail()}" for process in self.processes if process.lives)
            raise AssertionError(f"{error}\n{logs}") from error

    def ask(self, make: Callable[[str], Request], timeout_s: float = ASK_S) -> Reply:
        """Send the request that `make` makes with an id, again and again until it is answered."""
        request = make(self.operator.new_id())
        reply = self.wait_for(lambda: self.operator.ask(request), timeout_s, f"an answer to {request}")
        assert reply is not None
        return reply

    # --- the fake world ------------------------------------------------------------------------------------------

    def truth(self, node: str) -> dict[str, Any]:
        """What is true of a node, see docs/reference/fake-server.md."""
        (found,) = [state for state in self.fake.state()["nodes"] if state["node"] == node]
        return dict(found)

    def homes(self) -> dict[str, list[str]]:
        """Where each VM is live: its nodes, of which there must never be two."""
        found: dict[str, list[str]] = {}
        for state in self.fake.state()["nodes"]:
            for vm in state["domains"]:
                if vm["state"] in ("running", "paused"):
                    found.setdefault(vm["vm"], []).append(state["node"])
        return found

    def power_off(self, node: str) -> None:
        """The host dies, and with it its agent."""
        self.fake.host_dies(node)
        if self.agents[node].alive:
            self.agents[node].kill()

    def power_on(self, node: str) -> None:
        """The host is back under another boot id, and its agent begins."""
        self.fake.host_returns(node)
        self.agents[node].start()

    # --- inside --------------------------------------------------------------------------------------------------

    def _connected(self) -> FakeControl | None:
        assert self.server.alive, f"the fake server has ended\n{self.server.tail()}"
        try:
            return FakeControl(self.socket)
        except TransientError:
            return None

    def _agent(self, node: str, changes: Mapping[str, Section]) -> Process:
        own: Mapping[str, Section] = {
            "node": {"name": node},
            "hypervisor": {"driver": "fake", "uri": f"unix://{self.socket}?node={node}"},
            "journal": {"path": f"{self.folder}/{node}.journal"},
            "bus": {"url": user_url(self.broker, topology.agent_user(node))},
        }
        return self._daemon(f"agent-{node}", "agents.service.main", merged(AGENT, own, changes))

    def _controller(self, name: str, store: str, changes: Mapping[str, Section]) -> Process:
        own: Mapping[str, Any] = {
            "name": name,
            "store": {"url": store},
            "bus": {"url": user_url(self.broker, topology.CONTROLLER_USER_PREFIX + name)},
        }
        return self._daemon(f"controller-{name}", "daemons.service.main", merged(CONTROLLER, own, changes))

    def _daemon(self, name: str, module: str, sections: Mapping[str, Any]) -> Process:
        file = self.folder / f"{name}.toml"
        file.write_text(toml(sections))
        file.chmod(0o600)  # it holds a password
        return Process(name, [sys.executable, "-P", "-m", module, "--config", str(file)], self.folder)


@contextmanager
def lab(broker: str, nodes: str, **options: Any) -> Iterator[Lab]:
    """A lab in a folder of its own, not yet started; both are gone at the end. `options` as of `Lab`."""
    folder = Path(tempfile.mkdtemp(prefix="lab-"))  # short: the path of a socket has 107 bytes
    try:
        made = Lab(folder, broker, nodes, **options)
        try:
            yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
