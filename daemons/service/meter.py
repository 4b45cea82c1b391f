"""Counts what passes through a controller's shell: computations, orders and their results, events, writes, energy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daemons.controller.measure.screening import speaks_for_itself
from daemons.controller.views.context import ViewContext
from daemons.decision.admitting import AdmissionTask
from daemons.decision.impact import AssessTask
from daemons.decision.pipeline import DecideOutcome, DecideRequest, PrepareRequest
from daemons.decision.spare_capacity import SpareCapacityTask
from daemons.decision.vm_fit import VmFitTask
from daemons.service import metrics
from daemons.values.records.cluster import CostRecord
from shared.metrics.book import Timing
from shared.metrics.meter import ShellMeter
from shared.metrics.values import Scrape
from shared.ports import effects as fx
from shared.protocol.messages import Happened, Order, Result

JOULES_PER_KWH = 3.6e6
_REQUESTS: dict[type, str] = {
    DecideRequest: "decide",
    AdmissionTask: "admission",
    PrepareRequest: "tables",
    AssessTask: "assess",
    VmFitTask: "vm-fit",
    SpareCapacityTask: "spare-capacity",
}


class ControllerMeter(ShellMeter):
    """The meter of a controller whose tables are `tables`; in the core's thread, but for what a book counts."""

    def __init__(self, tables: ViewContext, version: str, monotonic_s: Callable[[], float]) -> None:
        plugged_in = (metric for feature in tables.features for metric in feature.metrics)
        super().__init__("controller", version, tuple(dict.fromkeys((*metrics.METRICS, *plugged_in))))
        self._tables = tables
        self._computing, self._writing, self._ordered = Timing(monotonic_s), Timing(monotonic_s), Timing(monotonic_s)
        self.begin(metrics.WRITES_FAILED, "stale", "unavailable")
        for request in _REQUESTS.values():
            for outcome in ("decided", "failed", "skipped"):
                self.book.add(metrics.COMPUTATIONS, 0.0, request, outcome)
        self._spent: dict[tuple[str, str], float] = {}
        self.on |= {
            fx.Received: self._message,
            fx.Publish: self._published_message,
            fx.Compute: self._compute,
            fx.Computed: self._computed,
            fx.Write: self._write,
            fx.Written: self._written,
            fx.PowerDone: self._power_done,
        }

    def read(self, scrape: Scrape, now_s: float) -> None:
        """Read the tables and the energy costs."""
        super().read(scrape, now_s)
        metrics.read_tables(self._tables, scrape, now_s)
        for (plan, currency), spent in self._spent.items():
            scrape.put(metrics.SPENT, spent, plan, currency)

    # --- actions ----------------------------------------------------------------------------------------------------

    def _published_message(self, publish: fx.Publish) -> None:
        message = publish.message
        if isinstance(message, Order):
            self._ordered.begin(message.action.id, message.action.kind.value)
            self.book.add(metrics.ORDERS, 1.0, message.action.kind.value)
        elif isinstance(message, Happened):
            self.book.add(metrics.EVENTS, 1.0, message.what)

    def _message(self, received: fx.Received) -> None:
        self._received(received)
        message = received.message
        if isinstance(message, Result) and speaks_for_itself(received.sender, message):
            ended = self._ordered.end(message.action)  # what comes again, or was never ordered here, is not counted
            if ended is not None:
                took_s, kind = ended
                self.book.observe(metrics.ACTION, took_s, kind)
                self.book.add(metrics.ACTIONS, 1.0, kind, message.outcome.value)

    def _power_done(self, done: fx.PowerDone) -> None:
        self.book.add(metrics.POWER, 1.0, done.operation.value, "done" if done.ok else "failed")

    # --- computations -----------------------------------------------------------------------------------------------

    def _compute(self, effect: fx.Compute) -> None:
        self._computing.begin(effect.compute_id, _REQUESTS.get(type(effect.request), "other"))

    def _computed(self, answer: fx.Computed) -> None:
        ended = self._computing.end(answer.compute_id)
        if ended is None:
            return
        took_s, request = ended
        self.book.observe(metrics.COMPUTATION, took_s, request)
        self.book.add(metrics.COMPUTATIONS, 1.0, request, _outcome(answer.outcome))

    # --- the store --------------------------------------------------------------------------------------------------

    def _write(self, effect: fx.Write) -> None:
        self._writing.begin(effect.write_id)
        self.book.add(metrics.RECORDS, float(len(effect.records)))
        for record in effect.records:
            if isinstance(record, CostRecord):
                self._cost(record)

    def _written(self, answer: fx.Written) -> None:
        ended = self._writing.end(answer.write_id)
        if ended is not None:
            self.book.observe(metrics.WRITE, ended[0])
        if not answer.ok:
            self.book.add(metrics.WRITES_FAILED, 1.0, "stale" if answer.stale else "unavailable")

    def _cost(self, record: CostRecord) -> None:
        plans = (("actual", record.kwh, record.cost), ("static", record.static_kwh, record.static_cost))
        for plan, kwh, cost in plans:
            self.book.add(metrics.ENERGY, max(0.0, kwh) * JOULES_PER_KWH, plan)
            key = (plan, record.currency)
            self._spent[key] = self._spent.get(key, 0.0) + cost


def _outcome(outcome: Any) -> str:
    if outcome is None:
        return "failed"
    return "skipped" if isinstance(outcome, DecideOutcome) and outcome.skipped else "decided"
