"""A stand-in for the balancer of a web application: it divides the requests and says what it measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared.base.errors import BusUnavailable
from shared.ports.bus import BusEvent
from shared.ports.effects import Backend
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import WebReport
from shared.values.web_app import FlowSample
from sim_backend.bus.memory import MemoryBroker, MemoryConnection
from sim_backend.engine import Engine
from sim_backend.world.web_site import WebSite

LEAST_S = 1e-6  # between two looks
LOOK_PRIORITY = 1  # after what is submitted at the same instant
LOOKS_KEPT = 1_000  # of one that nobody measures


class Balancer:
    """Measures the site every `period_s` and pushes the samples; a sample that cannot be sent is lost.

    `catch_up(now_s)` brings the world up to date. With `push` false nothing is sent and `scrape` returns the samples
    instead. In both cases `measure` returns all requests together.
    """

    def __init__(
        self,
        site: WebSite,
        engine: Engine,
        broker: MemoryBroker,
        catch_up: Callable[[float], None],
        period_s: float,
        push: bool = True,
    ) -> None:
        self.user = topology.web_user(site.app)
        self.site = site
        self._engine, self._broker, self._catch_up = engine, broker, catch_up
        self._period_s, self.push = period_s, push
        self._connection: MemoryConnection | None = None
        self._seq = 0
        self._unread: dict[str, list[FlowSample]] = {}
        self._passed: list[FlowSample] = []
        self.stopped = False
        self._next_s = 0.0

    def start(self) -> None:
        """Begin to look, now and from then on."""
        self._engine.at(self._engine.now_s, LOOK_PRIORITY, self._look)

    def stop(self) -> None:
        """Stop measuring: the application was removed."""
        self.stopped = True

    def handle_bus(self, connection: MemoryConnection, event: BusEvent) -> None:
        """Ignore events: nothing is sent to it, and a lost connection is noticed at its next use."""

    def scrape(self) -> tuple[FlowSample, ...]:
        """Return the measurements since the last scrape."""
        read, self._unread = self._unread, {}
        return tuple(_joined(samples) for samples in read.values())

    def measure(self) -> FlowSample | None:
        """Return the results of all requests since the last call as one flow without a name (None: there was no
        look)."""
        passed, self._passed = self._passed, []
        return _joined(passed) if passed else None

    def _look(self) -> None:
        if self.stopped:
            return
        now_s = self._engine.now_s
        self._catch_up(now_s)
        self._next_s = now_s + self._period_s
        self._tell(self.site.look(now_s, self._next_s))
        self._engine.at(self._next_s, LOOK_PRIORITY, self._look)

    def route(self, backends: Sequence[Backend]) -> None:
        """Send requests to these instances and no others, from now on."""
        now_s = self._engine.now_s
        self._catch_up(now_s)
        self._tell(self.site.route(backends, now_s, max(self._next_s, now_s + LEAST_S)))

    def _tell(self, flows: tuple[FlowSample, ...]) -> None:
        if flows:
            self._passed = [*self._passed, _whole(flows)][-LOOKS_KEPT:]
        if flows and self.push:
            self._send(flows)
        elif flows:
            for sample in flows:
                self._unread.setdefault(sample.flow, []).append(sample)

    def _send(self, flows: tuple[FlowSample, ...]) -> None:
        self._seq += 1
        body = encode(WebReport(self.site.app, self._seq, self._engine.clock_s, flows))
        try:
            if self._connection is None or self._connection.ended:
                self._connection = self._broker.connect(self.user)
            self._connection.publish(topology.REPORTS, topology.web_key(self.site.app), body)
        except BusUnavailable:
            self._connection = None


def _joined(samples: list[FlowSample]) -> FlowSample:
    served = sum(sample.served for sample in samples)

    def mean(values: list[float]) -> float:
        return sum(value * sample.served for value, sample in zip(values, samples, strict=True)) / served

    return FlowSample(
        samples[0].flow,
        sum(sample.window_s for sample in samples),
        sum(sample.offered for sample in samples),
        served=served,
        rejected=sum(sample.rejected for sample in samples),
        queued=samples[-1].queued,
        mean_s=mean([sample.mean_s for sample in samples]) if served else 0.0,
        percentile_s=mean([sample.percentile_s for sample in samples]) if served else 0.0,
    )


def _whole(flows: Sequence[FlowSample]) -> FlowSample:
    """Return the flows of one look combined into one."""
    served = sum(flow.served for flow in flows)
    return FlowSample(
        "",
        flows[0].window_s,
        sum(flow.offered for flow in flows),
        served=served,
        rejected=sum(flow.rejected for flow in flows),
        queued=sum(flow.queued for flow in flows),
        mean_s=sum(flow.served * flow.mean_s for flow in flows) / served if served else 0.0,
    )
