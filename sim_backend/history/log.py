"""Reads a span of the recorded history as what a simulation needs: who was there, what was asked of it, what it cost.

Snapshots are read one after the other and only figures are kept of them, so that a month takes no more memory than the
jobs and demands that were in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from daemons.decision.pipeline import DecideRequest
from daemons.decision.request_codec import from_bytes
from daemons.store.reading import Reading
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput, Problem
from shared.policy_api.snapshot import Snapshot
from shared.values.nodes import Node
from sim_backend.history.apps import AppReader
from sim_backend.history.figures import utilities_of
from sim_backend.history.jobs import read_jobs
from sim_backend.history.values import Log, LoggedPower, LoggedPrices, Utilities

DAY_S = 86_400.0
ROWS_MAX = 1_000_000


def read_log(reader: Reading, from_s: float, to_s: float) -> Log:
    """Return the log of a span. Raises `InvalidInput` when the store has no snapshots of it."""
    first, begun = None, False
    seen = _Seen(from_s, to_s)
    for request in _requests(reader, from_s, to_s):
        if first is None:
            first = request
        begun = begun or request.snapshot.now_s >= from_s
        seen.take(request)
    if first is None or not begun:
        what = "the store keeps no snapshots of decisions in this span"
        raise InvalidInput(Problem(f"{reader.where}", what, "[store] record_snapshots = true, and a span since then"))
    from_s = max(from_s, first.snapshot.now_s)
    records = {record.name: record.inventory for record in reader.nodes() if record.inventory is not None}
    jobs, left_out = read_jobs(reader, first.snapshot, from_s, to_s)
    provisioning = seen.provisioning or PolicyChoice("static")
    return Log(
        from_s,
        to_s,
        _nodes(first.snapshot, records),
        jobs=jobs,
        apps=seen.apps.apps(reader.web()),
        power=seen.power(),
        prices=seen.prices(),
        placement=first.placement,
        provisioning=provisioning,
        costs=first.snapshot.costs,
        cycle_s=first.snapshot.cycle_s,
        overhead_mib=first.snapshot.vm_overhead_mib,
        snapshots=seen.count,
        utilities=tuple(each for each in seen.utilities if from_s <= each[0] < to_s),
        not_reproduced={**seen.odd(first.snapshot), **left_out},
    )


def _requests(reader: Reading, from_s: float, to_s: float) -> Iterator[DecideRequest]:
    """Yield the inputs of the span's decisions, oldest first, preceded by the input of the last earlier decision."""
    before = reader.snapshots(from_s - DAY_S, from_s, 1)
    rows = [*before, *reversed(reader.snapshots(from_s, to_s, ROWS_MAX))]
    for row in rows:
        body = reader.snapshot(row.number)
        if body is not None:
            yield from_bytes(body, f"snapshot {row.number}").request


class _Seen:
    """What the snapshots of a span have shown, one after the other."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self._from_s, self._to_s = from_s, to_s
        self.count = 0
        self.utilities: list[Utilities] = []
        self.apps = AppReader(from_s, to_s)
        self.provisioning: PolicyChoice | None = None
        self._policies: set[tuple[str, str]] = set()
        self._nodes: dict[str, None] = {}
        self._prices: list[tuple[float, float]] = []
        self._ahead: tuple[float, tuple[float, ...]] = (0.0, ())
        self._currency = "EUR"
        self._slept = False
        self._deploy_s: list[float] = []
        self._draws: dict[str, tuple[float, float, float]] = {}
        self._windows: set[str] = set()
        self._environments: set[str] = set()
        self._draining = 0

    def take(self, request: DecideRequest) -> None:
        """Look at one more."""
        seen = request.snapshot
        self.count += seen.now_s >= self._from_s
        self._nodes |= dict.fromkeys(seen.nodes.names)
        self._policies.add(("placement", request.placement.name))
        self._windows |= {window.name for window in seen.windows}
        self._environments |= set(seen.environments.names if seen.environments is not None else ())
        self.apps.take(seen)
        if request.provisioning is not None:
            self.provisioning = self.provisioning or request.provisioning
            self._policies.add(("provisioning", request.provisioning.name))
        if seen.at_cycle:
            self.utilities += utilities_of(seen)
            self._draining = max(self._draining, int(seen.nodes.draining.sum()))
            self._look_at_power(seen)
            self._look_at_prices(seen)

    def _look_at_power(self, seen: Snapshot) -> None:
        power = seen.power
        if power is None:
            return
        self._slept = self._slept or not bool(power.on.all())
        asleep = power.deploy_s[power.deploy_s > 0.0]
        self._deploy_s += [float(np.mean(asleep))] if len(asleep) else []
        for row, node_type in enumerate(power.types):
            if node_type not in self._draws:
                self._draws[node_type] = (power.idle_w.item(row), power.peak_w.item(row), power.off_w.item(row))

    def _look_at_prices(self, seen: Snapshot) -> None:
        prices = seen.prices
        if prices is None or not len(prices.per_kwh):
            return
        self._currency = prices.currency
        if not self._prices or seen.now_s > self._prices[-1][0]:
            self._prices.append((seen.now_s, prices.per_kwh.item(0)))
            self._ahead = (prices.interval_s, tuple(prices.per_kwh.tolist()))

    def power(self) -> LoggedPower:
        """Return the observations of nodes' power."""
        mean_s = float(np.mean(self._deploy_s)) if self._deploy_s else 0.0
        return LoggedPower(self._slept, mean_s, self._draws)

    def prices(self) -> LoggedPrices:
        """Prices as they were, and after the last snapshot as they were then expected."""
        if not self._prices:
            return LoggedPrices()
        last_s, interval_s = self._prices[-1][0], self._ahead[0]
        later = [(last_s + interval_s * at, price) for at, price in enumerate(self._ahead[1]) if at]
        points = [*self._prices, *later]
        begin_s = DAY_S * (min(self._from_s, points[0][0]) // DAY_S)
        if begin_s < points[0][0]:
            points.insert(0, (begin_s, points[0][1]))
        until_s = max(points[-1][0] + interval_s, self._to_s + DAY_S)
        return LoggedPrices(
            tuple(at_s for at_s, _ in points), tuple(price for _, price in points), until_s, self._currency
        )

    def odd(self, first: Snapshot) -> dict[str, str]:
        """Return the observations that a simulation does not reproduce."""
        found = {}
        if self._environments:
            found["environments"] = f"{len(self._environments)}: their jobs and applications run on all nodes"
        if self._windows:
            found["deadline windows"] = f"{len(self._windows)}: their jobs have no deadline"
        if len(self._policies) > 2:
            found["other policies"] = "the policies were changed in the span: those of its first decision are taken"
        later = len(self._nodes) - len(first.nodes.names)
        if later:
            found["nodes that came"] = f"{later}: those of the begin of the span are taken"
        if self._draining:
            found["drains"] = f"up to {self._draining} nodes at a time were being emptied"
        return found


def _nodes(first: Snapshot, records: Mapping[str, Node]) -> tuple[Node, ...]:
    """Return the nodes of a snapshot, described as in the store if they are there."""
    columns = first.nodes
    types = first.power.types if first.power is not None else ("",) * len(columns.names)
    made: dict[str, Any] = {}
    for row, name in enumerate(columns.names):
        known = records.get(name)
        made[name] = (
            replace(known, migration_has=(), hugepages=())
            if known is not None
            else Node(
                name,
                columns.cores.item(row),
                columns.core_mhz.item(row),
                memory_mib=int(columns.memory_mib.item(row)),
                labels=columns.labels[row],
                node_type=types[row],
            )
        )
    return tuple(made.values())
