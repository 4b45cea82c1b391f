"""Energy, its prices and what cycles cost as a feature of the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from daemons.controller.contract.feature import NO_PART, Alarm, Feature, SnapshotPart
from daemons.controller.energy import metrics
from daemons.controller.energy.metering import Deadline, EnergyMeter, NodeValue
from daemons.controller.energy.views import costs_view
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import CostRecord
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.metrics.values import Scrape
from shared.ports.effects import PricesRead
from shared.protocol.operator_messages import Query


class EnergyFeature(Feature):
    """Meters the energy of nodes, keeps prices, and supplies decisions with the costs of nodes."""

    metrics = metrics.METRICS

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        windows: Mapping[str, Deadline],
        web_loss: NodeValue | None,
    ) -> None:
        self._unit_of_work = unit_of_work
        self.meter = EnergyMeter(cluster, unit_of_work, settings, windows, web_loss)
        self.records = {CostRecord: lambda record, _now_s: self.meter.load(record)}
        self.answers = {PricesRead: self.meter.prices.read}
        self.timers = {"prices": self.meter.prices.due}
        self.views = {"costs": self._view}

    def lead(self, now_s: float) -> None:
        """Meter from now on."""
        self.meter.begin(now_s)

    def commit(self, now_s: float) -> None:
        """Close the meters of nodes that are in another state now."""
        if self._unit_of_work.dirty_nodes:
            self.meter.changed(self._unit_of_work.dirty_nodes.values(), now_s)

    def cycle(self, now_s: float) -> None:
        """Have what the cycle cost stored."""
        self.meter.cycle(now_s)

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return the prices of the coming intervals."""
        return SnapshotPart({"prices": self.meter.prices.view(now_s)}) if at_cycle else NO_PART

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Prices that should be known and are not."""
        prices = self.meter.prices
        if prices.trouble:
            yield "prices-stale", "prices", prices.trouble_s, prices.trouble

    def read_metrics(self, scrape: Scrape, now_s: float) -> None:
        """Take the readings of power and price."""
        metrics.read(self.meter, scrape, now_s)

    def _view(self, query: Query, _cluster: Cluster, now_s: float) -> Row:
        """Return the energy costs of the last days."""
        return costs_view(self.meter, query.limit, now_s)
