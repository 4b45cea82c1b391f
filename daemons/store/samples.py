"""What is kept of the nodes' samples: one row per node and five minutes, one per hour after a week. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from shared.values.nodes import NodeSample

FINE_S = 300.0
COARSE_S = 3600.0
DONE_MAX = 100_000  # rows that wait for a store that does not answer
SUM_MAX = (1 << 63) - 1  # what a column holds


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node's use over `span_s` seconds from `from_s` on, made of `readings` samples.

    Means over the readings, but `_max` and `_min`; `disk_busy_s` and `_bytes` are what was added in that time.
    """

    node: str
    from_s: float
    span_s: float
    readings: int
    cpu_frac: float
    cpu_frac_max: float
    iowait_frac: float
    load_1min: float
    memory_used_mib: float
    memory_used_mib_max: float
    swap_used_mib_max: float
    disk_free_mib_min: float
    disk_busy_s: float
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int


MEANS = ("cpu_frac", "iowait_frac", "load_1min", "memory_used_mib")
MOST = ("cpu_frac_max", "memory_used_mib_max", "swap_used_mib_max")
SUMS = ("disk_busy_s", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")


def merge(uses: Iterable[NodeUse], from_s: float, span_s: float) -> NodeUse:
    """Merge one node's use over a longer time from its parts (at least one), which must not overlap."""
    parts = list(uses)
    readings = sum(part.readings for part in parts)
    values: dict[str, float] = {}
    for name in MEANS:
        values[name] = math.fsum(part.readings * getattr(part, name) for part in parts) / readings
    for name in MOST:
        values[name] = max(getattr(part, name) for part in parts)
    for name in SUMS:
        values[name] = min(SUM_MAX, sum(getattr(part, name) for part in parts))
    free_mib = min(part.disk_free_mib_min for part in parts)
    return NodeUse(parts[0].node, from_s, span_s, readings=readings, disk_free_mib_min=free_mib, **values)  # type: ignore[arg-type]


def slot_s(at_s: float, span_s: float) -> float:
    """Return when the slot of length `span_s` that includes `at_s` began."""
    return math.floor(at_s / span_s) * span_s


def _added(now: float, before: float) -> float:
    """Return the increase of a cumulative counter; one that fell was reset."""
    return now - before if now >= before else now


class SampleBook:
    """Gathers the samples of reports until their five minutes are over. One per shell; it does no I/O."""

    def __init__(self) -> None:
        self._latest: dict[str, NodeSample] = {}
        self._open: dict[str, NodeUse] = {}
        self._done: list[NodeUse] = []

    def add(self, node: str, sample: NodeSample, at_s: float) -> None:
        """Take in a node's sample received at `at_s`; times of one node never decrease."""
        use = self._reading(node, sample, slot_s(at_s, FINE_S))
        self._latest[node] = sample
        known = self._open.get(node)
        if known is not None and known.from_s == use.from_s:
            use = merge((known, use), use.from_s, FINE_S)
        elif known is not None:
            self._done.append(known)
        self._open[node] = use

    def take(self, now_s: float) -> tuple[NodeUse, ...]:
        """Take the samples that are complete at `now_s` and were not taken before; infinity: everything."""
        for node, use in list(self._open.items()):
            if use.from_s + FINE_S <= now_s:
                self._done.append(self._open.pop(node))
        done, self._done = self._done, []
        return tuple(done)

    def give_back(self, uses: Iterable[NodeUse]) -> None:
        """Take back what could not be stored, as long as there is room; the oldest goes first."""
        self._done[:0] = uses
        del self._done[: max(0, len(self._done) - DONE_MAX)]

    def _reading(self, node: str, sample: NodeSample, from_s: float) -> NodeUse:
        before = self._latest.get(node, sample)  # a counter's first reading says nothing about these five minutes
        return NodeUse(
            node,
            from_s,
            FINE_S,
            readings=1,
            cpu_frac=sample.cpu_frac,
            cpu_frac_max=sample.cpu_frac,
            iowait_frac=sample.iowait_frac,
            load_1min=sample.load_1min,
            memory_used_mib=sample.memory_used_mib,
            memory_used_mib_max=sample.memory_used_mib,
            swap_used_mib_max=sample.swap_used_mib,
            disk_free_mib_min=sample.disk_free_mib,
            disk_busy_s=_added(sample.disk_busy_s, before.disk_busy_s),
            disk_read_bytes=int(_added(sample.disk_read_bytes, before.disk_read_bytes)),
            disk_write_bytes=int(_added(sample.disk_write_bytes, before.disk_write_bytes)),
            net_rx_bytes=int(_added(sample.net_rx_bytes, before.net_rx_bytes)),
            net_tx_bytes=int(_added(sample.net_tx_bytes, before.net_tx_bytes)),
        )
