"""How fast reports are taken: a real controller that leads, beside a bare pika consumer of the same bodies."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.runner import Figure, cpu_s
from benchmarks.wire_broker import DRIVER, PASSWORD, PREFETCH, BareConsumer, Driver, vhost
from benchmarks.wire_load import Load
from daemons.controller.core.controller import Controller
from daemons.controller.core.leadership import Role
from daemons.service.main import ControllerShell
from daemons.values.records.cluster import ControlRecord, Deleted
from daemons.values.settings import ControllerSettings
from shared.base.clock import SystemClock, perf_s
from shared.bus.rabbitmq.bus import connect
from shared.ports import effects as fx
from shared.ports.bus import Bus
from shared.protocol import topology
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Probe
from shared.runtime.connection_thread import ConnectionSpec
from sim_backend.fakes.store import MemoryStore
from tests.integration.private_broker import PrivateBroker

REPORTS = 6_000  # in one run; the broker keeps the newest 10,000, for 15 s
CORE_REPORTS = 5_000
FEW, MANY = 10, 1_000
ROUNDS = 3
SHARE_MIN = 0.25
GROWTH_MAX = 1.25
SETTLE_EVERY = 20  # reports in an instant of the core alone: as many as 1,000 nodes send in 0.1 s
LIMIT_S = 60.0
PAUSE_S = 0.002
NAME = "bench"
USER = topology.CONTROLLER_USER_PREFIX + NAME
START_S = 1_700_000_000.0


def core_figures() -> list[Figure]:
    """What a report costs from its bytes to the knowledge of the core, with few nodes and with many: best of each."""
    costs: dict[int, list[float]] = {FEW: [], MANY: []}
    decoding_s: list[float] = []
    for _ in range(ROUNDS):
        for nodes, found in costs.items():
            decode_s, handle_s = _core_run(Load(nodes))
            found.append(handle_s)
            decoding_s.append(decode_s)
    few_us, many_us = (min(found) * 1e6 for found in costs.values())
    decode_us = min(decoding_s) * 1e6
    bench, growth = "reports, core alone", (decode_us + many_us) / (decode_us + few_us)
    return [
        Figure(bench, "decode one report", decode_us, "us"),
        Figure(bench, f"apply one report of {FEW} nodes", few_us, "us"),
        Figure(bench, f"apply one report of {MANY} nodes", many_us, "us"),
        Figure(bench, f"apply alone at {MANY} nodes / at {FEW}", many_us / few_us, ""),
        Figure(bench, f"decode and apply at {MANY} nodes / at {FEW}", growth, ""),
    ]


def broker_figures(broker: PrivateBroker) -> list[Figure]:
    """Reports a second through the broker, best of each, taken in turn: bare, few nodes, many nodes."""
    bare: list[_Run] = []
    ours: dict[int, list[_Run]] = {FEW: [], MANY: []}
    for _ in range(ROUNDS):
        bare.append(_bare_run(broker))
        for nodes, found in ours.items():
            found.append(_broker_run(broker, Load(nodes)))
    few, many = max(run.rate for run in ours[FEW]), max(run.rate for run in ours[MANY])
    alone = max(run.rate for run in bare)
    few_us, many_us = (min(run.cpu_us for run in found) for found in ours.values())
    bench = "reports, through RabbitMQ"
    return [
        Figure(bench, "bare pika consumer", alone, "/s"),
        Figure(bench, f"leading controller, {FEW} nodes", few, "/s"),
        Figure(bench, f"leading controller, {MANY} nodes", many, "/s"),
        Figure(bench, f"controller / bare, {MANY} nodes", many / alone, "", least=SHARE_MIN),
        Figure(bench, "CPU time of a report, bare", min(run.cpu_us for run in bare), "us"),
        Figure(bench, f"CPU time of a report, controller, {FEW} nodes", few_us, "us"),
        Figure(bench, f"CPU time of a report, controller, {MANY} nodes", many_us, "us"),
        Figure(bench, f"cost at {MANY} nodes / at {FEW}, by the rate", few / many, "", most=GROWTH_MAX),
        Figure(bench, f"cost at {MANY} nodes / at {FEW}, by the CPU time", many_us / few_us, "", most=GROWTH_MAX),
    ]


# --- the core alone -----------------------------------------------------------------------------------------------


def _core_run(load: Load) -> tuple[float, float]:
    """Seconds to decode and to apply one report, the first of each node apart."""
    core = Controller(NAME, ControllerSettings())
    core.start(START_S)
    core.handle(fx.Received(1, USER, Probe(NAME, 1)), START_S)
    core.handle(fx.LeadTaken(1, load.records(START_S)), START_S)
    rounds = 1 + -(-CORE_REPORTS // load.nodes)
    reports = [(one.node, encode(one)) for seq in range(1, rounds + 1) for one in load.round(seq, START_S, 1)]
    for node, body in reports[: load.nodes]:
        core.handle(fx.Received(None, topology.agent_user(node), decode(body)), START_S)
    core.handle(fx.TimerFired("settle"), START_S)
    gc.collect()
    decode_s = handle_s = 0.0
    rest = reports[load.nodes :]
    for number, (node, body) in enumerate(rest):
        begun_s = perf_s()
        message = decode(body)
        decoded_s = perf_s()
        effects = core.handle(fx.Received(None, topology.agent_user(node), message), START_S)
        if effects and number % SETTLE_EVERY == 0:
            core.handle(fx.TimerFired("settle"), START_S)
        handle_s += perf_s() - decoded_s
        decode_s += decoded_s - begun_s
    assert all(node.report_seq == rounds and node.echoed for node in core.cluster.nodes.values())
    return decode_s / len(rest), handle_s / len(rest)


# --- through the broker -------------------------------------------------------------------------------------------


class _StandingClock(SystemClock):
    """The date stands still, so that reports written beforehand are of now; the second hand runs."""

    def now_s(self) -> float:
        return START_S


class _NoDecider:
    """Nothing is to be decided."""

    def warm(self) -> bool:
        return True

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        return None, f"not in {limit_s} s: {type(request).__name__}"

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Running:
    core: Controller
    bus: Bus
    queue: str


@dataclass(frozen=True, slots=True)
class _Run:
    """Reports a second, and what one cost this process: other work on the machine lowers the rate alone."""

    rate: float
    cpu_us: float


def _timed(work: Callable[[], object]) -> _Run:
    begun_s, used_s = perf_s(), cpu_s()
    work()
    return _Run(REPORTS / (perf_s() - begun_s), (cpu_s() - used_s) / REPORTS * 1e6)


def _bare_run(broker: PrivateBroker) -> _Run:
    url = broker.url(DRIVER, PASSWORD, vhost(broker, [USER]))
    driver, consumer = Driver(url), BareConsumer(url)
    try:
        _fill(driver, Load(MANY))
        return _timed(lambda: consumer.receive(REPORTS))
    finally:
        consumer.close()
        driver.close()


def _broker_run(broker: PrivateBroker, load: Load) -> _Run:
    """Reports that wait in the queue, taken by a controller that leads: received, decoded, applied."""
    name = vhost(broker, [USER])
    driver = Driver(broker.url(DRIVER, PASSWORD, name))
    try:
        with _leading(broker.url(USER, PASSWORD, name), load) as running:
            rounds = _fill(driver, load)
            nodes = [*running.core.cluster.nodes.values()]
            last = nodes[-1]
            gc.collect()

            def take() -> None:
                running.bus.consume(running.queue, PREFETCH, acknowledged=False)
                _wait(lambda: last.report_seq == rounds, "the last report")

            run = _timed(take)
            assert all(node.report_seq == rounds and node.echoed for node in nodes)
            return run
    finally:
        driver.close()


def _fill(driver: Driver, load: Load) -> int:
    """Publish REPORTS reports, in rounds; the number of rounds."""
    rounds = REPORTS // load.nodes
    for seq in range(2, rounds + 2):
        driver.send(load.round(seq, START_S, 1))
    return rounds + 1


@contextmanager
def _leading(url: str, load: Load) -> Iterator[_Running]:
    """A controller's shell in a thread, as it runs in its process, that leads; its queue of reports is not read yet."""
    store = MemoryStore(Deleted)
    store.write(0, (*load.records(START_S)[1:], ControlRecord(False, 0, load.workloads)))
    core = Controller(NAME, ControllerSettings())
    buses: list[Bus] = []
    queue = topology.report_queue(NAME)

    def set_up(bus: Bus) -> None:
        bus.declare(queue)
        bus.consume(topology.CONTROLLER_QUEUE, PREFETCH)
        buses.append(bus)

    link = ConnectionSpec(lambda: connect(url), set_up, frozenset({queue.name}))
    shell = ControllerShell(core, link, store, _NoDecider(), seed=1, clock=_StandingClock())
    thread = threading.Thread(target=shell.run, daemon=True)
    thread.start()
    try:
        _wait(lambda: core.leadership.role is Role.LEADING, "leadership")
        for report in load.round(1, START_S, 1):  # the first of each node is not what is measured: it comes up
            shell.post(fx.Received(None, topology.agent_user(report.node), report))
        _wait(lambda: all(node.echoed for node in core.cluster.nodes.values()), "every node")
        yield _Running(core, buses[0], queue.name)
    finally:
        shell.stop()
        thread.join(LIMIT_S)


def _wait(ready: Callable[[], bool], what: str) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + LIMIT_S
    while not ready():
        if clock.monotonic_s() >= until_s:
            raise RuntimeError(f"{what} did not come within {LIMIT_S:g} s")
        clock.sleep(PAUSE_S)


def figures(broker: PrivateBroker) -> Sequence[Figure]:
    """Everything about reports."""
    return [*core_figures(), *broker_figures(broker)]
