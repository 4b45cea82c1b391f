"""What the daemons themselves cost: a controller that 1,000 nodes report to, its answers meanwhile, an idle agent."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.runner import Figure
from benchmarks.wire_broker import DRIVER, PASSWORD, vhost
from benchmarks.wire_load import VMS, Load
from daemons.cli.connection import Access, ControllerConnection, OperatorBus, OperatorConfig
from daemons.store import SqlStore
from shared.base.clock import SystemClock, perf_s
from shared.protocol import topology
from shared.protocol.operator_messages import AddNode, Query, SubmitJob
from shared.values.jobs import Job, Stage
from tests.integration.harness import OPERATOR, Lab, Process, lab, toml, wait_for
from tests.integration.private_broker import PrivateBroker

NODES = 1_000
PERIOD_S = 5.0
WINDOW_S = 60.0
AGENT_WINDOW_S = 30.0
QUESTIONS = 200
LIMIT_S = 60.0
CORE_MAX = 0.5
AGENT_CORE_MAX = 0.01
AGENT_RSS_MAX_MIB = 50.0
MIB = 1 << 20
NAME = "bench"
USER = topology.CONTROLLER_USER_PREFIX + NAME
ROOT = Path(__file__).resolve().parents[1]
TRIMTAB = str(Path(sys.executable).with_name("trimtab"))
CLOCK = SystemClock()


# --- the controller -----------------------------------------------------------------------------------------------


def controller_figures(broker: PrivateBroker) -> Iterator[Figure]:
    """A controller process on a SQLite store, with a driver that reports for all nodes."""
    load = Load(NODES)
    name = vhost(broker, [USER, OPERATOR])
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder, _loaded(broker, name, load, folder) as process:
        config = OperatorConfig(30.0, OperatorBus(broker.url(OPERATOR, PASSWORD, name)))
        with ControllerConnection(Access(), config) as line:
            wait_for(lambda: _nodes_up(line) == NODES, LIMIT_S, f"{NODES} nodes up")
            CLOCK.sleep(2 * PERIOD_S)
            share, children = _used_share(process, WINDOW_S)
            if _nodes_up(line) != NODES:
                raise RuntimeError("nodes fell silent meanwhile: the figures are not those of a loaded controller")
            bench = f"controller, {NODES} nodes, {load.workloads} workloads"
            yield Figure(
                bench, f"its share of a core, reports of {VMS} VMs every {PERIOD_S:g} s", share, "", most=CORE_MAX
            )
            yield Figure(bench, "share of the process that decides", children, "")
            yield Figure(bench, "its memory (RSS)", _rss_mib(process), "MiB")
            yield from _answers(line, bench)
            yield Figure(bench, "`trimtab status`, the whole command", _command_s(config.bus.url) * 1e3, "ms")


@contextmanager
def _loaded(broker: PrivateBroker, name: str, load: Load, folder: str) -> Iterator[psutil.Process]:
    """A controller's process under load; both processes are ended at the end."""
    place = Path(folder)
    url = f"sqlite:///{place}/controller.db"
    store = SqlStore(url)
    term = store.take_lead("before").term
    store.write(term, load.records(CLOCK.now_s()))
    file = place / "controller.toml"
    bus = {"url": broker.url(USER, PASSWORD, name)}
    file.write_text(toml({"name": NAME, "store": {"url": url}, "bus": bus, "automation": {"level": "auto"}}))
    file.chmod(0o600)  # it holds a password
    controller = Process(
        "controller", [sys.executable, "-P", "-m", "daemons.service.main", "--config", str(file)], place
    )
    driving = [sys.executable, "-m", "benchmarks.load_driver", broker.url(DRIVER, PASSWORD, name)]
    driving += [str(load.nodes), str(PERIOD_S), str(term + 1)]
    driver = Process("driver", ["env", f"PYTHONPATH={ROOT}", *driving], place)
    try:
        controller.start()
        driver.start()
        yield psutil.Process(controller.pid)
    finally:
        driver.end()
        controller.end()


def _nodes_up(line: ControllerConnection) -> int:
    found: Mapping[str, Any] = line.ask(Query(line.new_id(), "status"))
    return int(found["nodes"]["condition"].get("up", 0))


def _answers(line: ControllerConnection, bench: str) -> Iterator[Figure]:
    """Questions one after the other, each when the one before was answered."""
    times_ms = []
    for _ in range(QUESTIONS):
        begun_s = perf_s()
        line.ask(Query(line.new_id(), "status"))
        times_ms.append((perf_s() - begun_s) * 1e3)
    yield Figure(bench, "status, request to answer, median", median(times_ms), "ms")
    yield Figure(bench, "status, request to answer, 99th percentile", quantiles(times_ms, n=100)[98], "ms")


def _command_s(url: str) -> float:
    begun_s = perf_s()
    environment = {**os.environ, "TRIMTAB_URL": url}
    subprocess.run([TRIMTAB, "status"], env=environment, capture_output=True, timeout=LIMIT_S, check=True)
    return perf_s() - begun_s


# --- an agent -----------------------------------------------------------------------------------------------------


def agent_figures(broker: PrivateBroker) -> Iterator[Figure]:
    """An agent of a fake hypervisor that runs 8 VMs which a real controller has started; nothing else happens."""
    periods = {"periods": {"report_s": PERIOD_S}}
    slow = {**periods, "timeouts": {"unreachable_after_s": 15.0, "fence_after_s": 60.0}}
    users = [topology.agent_user("n1"), topology.CONTROLLER_USER_PREFIX + "c1", OPERATOR]
    name = vhost(broker, users, ["n1"])
    with lab(broker.url("any", PASSWORD, name), "n1:8x2400:32768", agent=periods, controller=slow) as made:
        made.start()
        _fill(made)
        CLOCK.sleep(2 * PERIOD_S)
        process = psutil.Process(made.agents["n1"].pid)
        share, _ = _used_share(process, AGENT_WINDOW_S)
        bench = f"idle agent, {VMS} VMs, a report every {PERIOD_S:g} s"
        yield Figure(bench, "its share of a core", share, "", most=AGENT_CORE_MAX)
        yield Figure(bench, "its memory (RSS)", _rss_mib(process), "MiB", most=AGENT_RSS_MAX_MIB)


def _fill(made: Lab) -> None:
    made.ask(lambda request: AddNode(request, "n1"))
    work = 1e9
    for number in range(VMS):
        job = Job(f"job-{number}", (Stage(work, 1_000.0, memory_mib=1_000),), template=f"fake:work={work:g};max=1000")
        made.ask(lambda request, job=job: SubmitJob(request, job))  # type: ignore[misc]
    made.wait_for(lambda: len(made.homes()) == VMS, LIMIT_S, f"{VMS} VMs")


# --- both ---------------------------------------------------------------------------------------------------------


def _used_share(process: psutil.Process, window_s: float) -> tuple[float, float]:
    """CPU time of a process, and of those that it started, by wall time."""
    family = [process, *process.children(recursive=True)]
    begun_s = perf_s()
    before_s = [_cpu_s(one) for one in family]
    CLOCK.sleep(window_s)
    used_s = [_cpu_s(one) - before for one, before in zip(family, before_s, strict=True)]
    wall_s = perf_s() - begun_s
    return used_s[0] / wall_s, sum(used_s[1:]) / wall_s


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _rss_mib(process: psutil.Process) -> float:
    return float(process.memory_info().rss / MIB)
