"""Meters the energy of every node and its cost: one record per cycle, one row per local day.

A node's power is that of its mean load since its state last changed, read from its curve. Asleep it draws its sleep
power; waking it draws as much as without load. Each figure comes with the cost of the same load with every node on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np

from daemons.controller.energy.prices import PriceBook
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.power_curve import DEFAULT, Draws, curve_of
from daemons.values.calendar import local_text
from daemons.values.records.cluster import CostRecord, WindowRecord
from daemons.values.settings import ControllerSettings, Draw, WindowSettings
from shared.policy_api.snapshot import Floats
from shared.values.nodes import NodeCondition, NodeService

DAYS_KEPT = 100
CYCLES_MAX = 2.0  # a clock that jumps further than so many cycles has been set
KWH = 3.6e6  # watt-seconds
_OUT = (NodeService.OFF, NodeService.STANDBY, NodeService.WAKING)
_IN = (NodeService.IN_SERVICE, NodeService.DRAINING)
_SUMMED = tuple(field.name for field in fields(CostRecord) if field.name not in ("at_s", "currency"))


@dataclass(slots=True)
class _Meter:
    """A node, and what it is since `since_s`."""

    node: NodeEntry
    since_s: float
    service: NodeService
    asleep: bool


class Deadline(Protocol):
    """A deadline window, as far as it costs something."""

    @property
    def record(self) -> WindowRecord:
        """What was missed last, and when."""
        ...

    @property
    def settings(self) -> WindowSettings:
        """What each job that misses it costs."""
        ...


class NodeValue(Protocol):
    """What nodes are worth to somebody by the hour."""

    def note(self, now_s: float) -> None:
        """Remember the present demand."""
        ...

    def added(self, interval_s: float, begins_s: Floats) -> Floats:
        """Return what a node that is taken in intervals that begin then costs, in currency."""
        ...


class EnergyMeter:
    """Keeps a meter for each node. `days`: what each local day cost, by its date and currency, oldest first."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        windows: Mapping[str, Deadline] | None = None,
        web_loss: NodeValue | None = None,
    ) -> None:
        self.cluster, self.unit_of_work, self.cycle_s = cluster, unit_of_work, settings.decide_s
        self.windows = {} if windows is None else windows
        self.prices = PriceBook(unit_of_work, settings, None if web_loss is None else web_loss.added)
        self.web_loss = web_loss
        draws = {DEFAULT: Draw(), **settings.power.draws}
        self._draws = Draws(
            {name: curve_of(draw.idle_w, draw.peak_w, draw.off_w, draw.curve_w) for name, draw in draws.items()}
        )
        self._meters: dict[str, _Meter] = {}
        self._deadlines_s: dict[str, float] = {}
        self._sum = CostRecord(0.0, 0.0)
        self.days: dict[tuple[str, str], CostRecord] = {}

    # --- metering ---------------------------------------------------------------------------------------------------

    def load(self, record: CostRecord) -> None:
        """Take over what an earlier cycle cost."""
        self._count(record)

    def begin(self, now_s: float) -> None:
        """Meter from now on, and have prices read."""
        self._sum = CostRecord(now_s, 0.0, self.prices.settings.currency)
        self._meters = {}
        self._deadlines_s = {name: entry.record.missed_s for name, entry in self.windows.items()}
        self._follow(self.cluster.nodes.values(), now_s)
        if self.prices.is_read:
            self.prices.due(now_s)

    def changed(self, nodes: Collection[NodeEntry], now_s: float) -> None:
        """Handle nodes that may have changed their state at this moment."""
        due = []
        for node in nodes:
            meter = self._meters.get(node.name)
            if meter is not None and (meter.service is not node.service or meter.asleep != _is_asleep(node)):
                starts = node.service is NodeService.IN_SERVICE and meter.service in _OUT
                self._add(node_starts=int(starts))
                due.append(meter)
        if due:
            self._close(due, now_s)
        self._follow(nodes, now_s)

    def cycle(self, now_s: float) -> CostRecord:
        """Return the cost since the last cycle, as a record to store."""
        self._close(list(self._meters.values()), now_s)
        self._look_at_deadlines()
        if self.web_loss is not None:
            self.web_loss.note(now_s)
        for name, meter in list(self._meters.items()):
            if self.cluster.nodes.get(name) is not meter.node:
                del self._meters[name]
        self._follow(self.cluster.nodes.values(), now_s)
        begun_s = max(self._sum.at_s, now_s - CYCLES_MAX * self.cycle_s)
        record = replace(self._sum, at_s=begun_s, span_s=now_s - begun_s)
        self._sum = CostRecord(now_s, 0.0, record.currency)
        self._count(record)
        self.unit_of_work.records.append(record)
        return record

    def watts(self) -> float:
        """Return the power that all nodes draw now, in watts, by their last reports."""
        meters = list(self._meters.values())
        return float(self._drawn(meters, np.array([_load(meter.node) for meter in meters]))[0].sum())

    def _look_at_deadlines(self) -> None:
        """Count the jobs of windows that were not done by a deadline since the last look."""
        for name, entry in self.windows.items():
            if entry.record.missed_s != self._deadlines_s.get(name):
                self._deadlines_s[name] = entry.record.missed_s
                missed = entry.record.missed
                self._add(misses=missed, penalty=missed * entry.settings.penalty)

    def _follow(self, nodes: Iterable[NodeEntry], now_s: float) -> None:
        for node in nodes:
            if node.name not in self._meters and self.cluster.nodes.get(node.name) is node:
                self._meters[node.name] = _Meter(node, now_s, node.service, _is_asleep(node))
                node.cpu_sum, node.cpu_readings = 0.0, 0

    def _close(self, meters: list[_Meter], now_s: float) -> None:
        """Add what nodes drew since their meters started, and restart the meters."""
        if not meters:
            return
        least_s = now_s - CYCLES_MAX * self.cycle_s
        since_s = np.array([max(meter.since_s, least_s) for meter in meters])
        watts, static_w = self._drawn(meters, np.array([_mean_load(meter) for meter in meters]))
        spans_s = now_s - since_s
        begins, rows = np.unique(since_s, return_inverse=True)
        cost_of_kw = np.array([self.prices.kw_cost(begin_s, now_s) for begin_s in begins.tolist()])[rows]
        served = np.array([meter.service in _IN for meter in meters])
        self._add(
            kwh=float(watts @ spans_s) / KWH,
            cost=float(watts @ cost_of_kw) / 1_000.0,
            static_kwh=float(static_w @ spans_s) / KWH,
            static_cost=float(static_w @ cost_of_kw) / 1_000.0,
            in_service_node_s=float(spans_s[served].sum()),
            node_s=float(spans_s.sum()),
        )
        for meter in meters:
            node = meter.node
            meter.since_s, meter.service, meter.asleep = now_s, node.service, _is_asleep(node)
            node.cpu_sum, node.cpu_readings = 0.0, 0

    def _drawn(self, meters: list[_Meter], loads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Watts of nodes at their loads, and of the same with every node on."""
        types = [meter.node.inventory.node_type if meter.node.inventory else "" for meter in meters]
        asleep = np.array([meter.asleep for meter in meters], dtype=np.bool_)
        waking = np.array([meter.service is NodeService.WAKING for meter in meters], dtype=np.bool_)
        on = self._draws.watts(types, np.where(asleep | waking, 0.0, loads))
        off = np.array([self._draws.of(node_type).off_w for node_type in types])
        return np.where(asleep, off, on), on

    def _add(self, **more: float) -> None:
        self._sum = replace(self._sum, **{name: getattr(self._sum, name) + value for name, value in more.items()})

    # --- days -------------------------------------------------------------------------------------------------------

    def _count(self, record: CostRecord) -> None:
        day = local_text(record.at_s, self.prices.settings.timezone)[:10]
        key = (day, record.currency)
        before = self.days.get(key)
        if before is None:
            self.days[key] = record
            if len(self.days) > DAYS_KEPT or (len(self.days) > 1 and key < max(self.days)):
                self.days = dict(sorted(self.days.items())[-DAYS_KEPT:])
        else:
            summed = {name: getattr(before, name) + getattr(record, name) for name in _SUMMED}
            self.days[key] = replace(before, at_s=min(before.at_s, record.at_s), **summed)


def _is_asleep(node: NodeEntry) -> bool:
    """Return whether it draws no more than a sleeping node does."""
    if node.service is NodeService.FAILED:
        return node.condition is not NodeCondition.UP
    return node.service is NodeService.OFF or (
        node.condition is NodeCondition.OFF and node.service is not NodeService.WAKING
    )


def _load(node: NodeEntry) -> float:
    return min(1.0, max(0.0, node.last.sample.cpu_frac)) if node.last is not None else 0.0


def _mean_load(meter: _Meter) -> float:
    """Return the mean of the reports since the meter started, otherwise the last one before."""
    node = meter.node
    return node.cpu_sum / node.cpu_readings if node.cpu_readings else _load(node)
