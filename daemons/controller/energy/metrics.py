"""Energy metrics."""

from __future__ import annotations

from daemons.controller.energy.metering import EnergyMeter
from shared.metrics.values import Metric, MetricKind, Scrape

WATTS = Metric(
    "trimtab_power_watts", MetricKind.GAUGE, "watts", "What all nodes draw, by their last reports and their curves."
)
PRICE = Metric("trimtab_energy_price_per_kwh", MetricKind.GAUGE, "currency", "The price of energy now.", ("currency",))
METRICS = (WATTS, PRICE)


def read(meter: EnergyMeter, scrape: Scrape, now_s: float) -> None:
    """Take the readings. O(nodes)."""
    scrape.put(WATTS, meter.watts())
    scrape.put(PRICE, meter.prices.price(now_s), meter.prices.settings.currency)
