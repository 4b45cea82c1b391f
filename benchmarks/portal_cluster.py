"""A cluster of 1,000 nodes with a month of history, and the portal before it: real processes on a broker of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks import history_store
from benchmarks.wire_broker import DRIVER, PASSWORD, vhost
from benchmarks.wire_load import Load
from daemons.access.identity import Role
from daemons.cli.connection import Access, ControllerConnection, OperatorBus, OperatorConfig
from daemons.config.portal import PortalConfig
from daemons.portal.auth.accounts import Accounts, State
from daemons.portal.auth.passwords import hashed
from daemons.portal.auth.schema import Base
from daemons.portal.auth.sessions import Sessions
from shared.base.clock import SystemClock
from shared.protocol import topology
from shared.protocol.operator_messages import CreateEnvironment, Query, SubmitWeb
from shared.values.agreement import Agreement, WorkloadType
from shared.values.web_app import Flow, WebApp
from tests.integration.harness import OPERATOR, Process, toml, wait_for
from tests.integration.private_broker import PrivateBroker
from tests.ports import free_ports

LOAD = Load(1_000)
REPORTED = Load(LOAD.nodes - 1)  # the reports of the last node are sent one by one, to see when they are shown
REPORT_S = 5.0
TERM = 2  # whoever made the store had the first
DECIDE_S = 12.0
APPS, ENVIRONMENTS = 20, 20
READERS = 20
LIMIT_S = 120.0
USER = topology.CONTROLLER_USER_PREFIX + "bench"
PORTAL_USER = topology.PORTAL_USER_PREFIX + "bench"
ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Cluster:
    """What runs. words: of sessions, one of each reader and one more. broker_url: of who may speak for every agent."""

    url: str
    words: tuple[str, ...]
    broker_url: str
    controller: Process
    portal: Process
    folder: Path

    def decided_s(self) -> list[float]:
        """How long each decision took so far that was computed for the cluster."""
        return [line["wall_s"] for line in log_of(self.controller) if line.get("event") == "decided"]


def log_of(process: Process) -> Iterator[dict[str, Any]]:
    """What a process has written to its log."""
    for line in process.log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def memory_mib(process: Process) -> dict[str, float]:
    """The memory (RSS) of a process ("") and of those that it has started, by their names."""
    whole = psutil.Process(process.pid)
    found = {"": whole.memory_info().rss / MIB}
    for number, child in enumerate(whole.children(recursive=True), 1):
        found[f"child {number}"] = child.memory_info().rss / MIB
    return found


def cpu_s(process: Process) -> dict[int, float]:
    """CPU time of a process and of those that it has started, by their numbers, its own first."""
    whole = psutil.Process(process.pid)
    times = {each.pid: each.cpu_times() for each in (whole, *whole.children(recursive=True))}
    return {pid: each.user + each.system for pid, each in times.items()}


@contextmanager
def cluster(broker: PrivateBroker, folder: Path, made: Path | None = None) -> Iterator[Cluster]:
    """Everything started and at work, ended at the end. made: a store that `history_store` has made; else one is made,
    which takes minutes."""
    name = vhost(broker, [USER, PORTAL_USER, OPERATOR])
    store = _store(folder, made)
    url = f"http://localhost:{free_ports(1)[0]}"
    controller = _controller(broker.url(USER, PASSWORD, name), store, folder)
    portal, words = _portal(broker.url(PORTAL_USER, PASSWORD, name), store, url, folder)
    driving = [sys.executable, "-m", "benchmarks.load_driver", broker.url(DRIVER, PASSWORD, name)]
    driving += [str(REPORTED.nodes), str(REPORT_S), str(TERM)]
    driver = Process("driver", ["env", f"PYTHONPATH={ROOT}", *driving], folder)
    found = Cluster(url, words, broker.url(DRIVER, PASSWORD, name), controller, portal, folder)
    try:
        for process in (controller, driver, portal):
            process.start()
        _settle(broker.url(OPERATOR, PASSWORD, name))
        yield found
    finally:
        for process in (portal, driver, controller):
            process.end()


def _store(folder: Path, made: Path | None) -> str:
    path = folder / "controller.db"
    url = f"sqlite:///{path}"
    if made is None:
        now_s = CLOCK.now_s()
        history_store.make(url, history_store.WHOLE, now_s - now_s % history_store.CYCLE_S)
    else:
        shutil.copyfile(made, path)
    path.chmod(0o600)
    return url


def _controller(bus_url: str, store: str, folder: Path) -> Process:
    settings: Mapping[str, Any] = {
        "name": USER.removeprefix(topology.CONTROLLER_USER_PREFIX),
        "store": {"url": store},
        "bus": {"url": bus_url},
        "automation": {"level": "advise"},
        "periods": {"report_s": REPORT_S, "decide_s": DECIDE_S},
        "timeouts": {"decide_limit_s": DECIDE_S - 2.0},
        "metrics": {"listen": ""},
    }
    return _daemon("controller", "daemons.service.main", settings, folder)


def _portal(bus_url: str, history: str, url: str, folder: Path) -> tuple[Process, tuple[str, ...]]:
    store = f"sqlite:///{folder}/portal.db"
    settings: Mapping[str, Any] = {
        "public_url": url,
        "server": {"port": int(url.rpartition(":")[2])},
        "store": {"url": store},
        "history": {"url": history},
        "what_if": {"folder": f"{folder}/what-if"},
        "bus": {"url": bus_url},
        "metrics": {"listen": ""},
    }
    return _daemon("portal", "daemons.portal.main", settings, folder), _sessions(store)


def _sessions(store: str) -> tuple[str, ...]:
    """Accounts that are logged in, of the provider."""
    base, now_s = Base(store), CLOCK.now_s()
    base.open()
    try:
        accounts, staying = Accounts(base), PortalConfig("").sessions
        sessions = Sessions(base, accounts, staying.idle_s, staying.absolute_s)
        password, words = hashed("unused " * 3), []
        for number in range(READERS + 1):
            account = accounts.add(f"reader{number}", Role.PROVIDER, password, State.ACTIVE, now_s)
            words.append(sessions.open(account, "127.0.0.1", now_s))
        return tuple(words)
    finally:
        base.close()


def _daemon(name: str, module: str, settings: Mapping[str, Any], folder: Path) -> Process:
    file = folder / f"{name}.toml"
    file.write_text(toml(settings), encoding="utf-8")
    file.chmod(0o600)  # it holds a password
    return Process(name, [sys.executable, "-P", "-m", module, "--config", str(file)], folder)


def _settle(bus_url: str) -> None:
    """Wait until every node is up; then there are environments and web applications too."""
    with ControllerConnection(Access(), OperatorConfig(30.0, OperatorBus(bus_url))) as line:
        wait_for(lambda: _nodes_up(line) >= REPORTED.nodes, LIMIT_S, f"{REPORTED.nodes} nodes up")
        for number in range(ENVIRONMENTS):
            agreement = Agreement(f"site{number}", f"owner{number % 5}", WorkloadType.BATCH, lower=5)
            line.ask(CreateEnvironment(line.new_id(), agreement))
        for number in range(APPS):
            flows = (Flow("page", mean_s=0.2, work_mcycles=40.0),)
            line.ask(SubmitWeb(line.new_id(), WebApp(f"shop{number}", flows, 1_024, max_mhz=2_400.0)))


def _nodes_up(line: ControllerConnection) -> int:
    return int(line.ask(Query(line.new_id(), "status"))["nodes"]["condition"].get("up", 0))
