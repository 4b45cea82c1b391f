"""What operators are told of costs: the keys that docs/reference/views.md names, days and their sums, and the
command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from daemons.values.records.cluster import CostRecord
from daemons.values.settings import PriceSettings
from shared.ports.effects import Effect, PricesRead, ReadPrices, TimerFired
from tests.support import parts
from tests.support.controller_harness import ControllerHarness
from tests.support.operator_harness import URL, Rig
from tests.unit.daemons.controller.views.test_registry import documented, view

DAY_S = 86_400.0
NOW_S = 20_000 * DAY_S
CYCLE = CostRecord(
    NOW_S,
    900.0,
    "EUR",
    kwh=2.0,
    cost=0.5,
    static_kwh=4.0,
    static_cost=1.0,
    in_service_node_s=1800.0,
    node_s=3600.0,
    node_starts=1,
    misses=2,
    penalty=3.0,
)


class ReadingHarness(ControllerHarness):
    """Counts how often prices are to be read."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.reads = 0

    def carry(self, effects: list[Effect]) -> None:
        self.reads += effects.count(ReadPrices())
        super().carry(effects)


@pytest.fixture
def harness() -> ControllerHarness:
    """Three days with costs, of which the last has two cycles and the first another currency."""
    made = ControllerHarness().lead()
    records = (
        replace(CYCLE, at_s=NOW_S - 2 * DAY_S, currency="CHF"),
        replace(CYCLE, at_s=NOW_S - DAY_S, static_cost=0.0),
        CYCLE,
        replace(CYCLE, at_s=NOW_S + 900.0, in_service_node_s=3600.0),
    )
    for record in records:
        parts.energy(made.controller).load(record)
    parts.energy(made.controller).begin(NOW_S)
    return made


def test_days_have_the_documented_keys(harness: ControllerHarness) -> None:
    data = view(harness, "costs")
    assert set(data["days"][0]) == documented("costs")
    assert set(data["sums"][0]) == documented("costs") - {"day"}
    page = {"watts", "per_kwh", "currency", "shape", "known_until_at_s", "trouble"}
    assert set(data["now"]) == page


def test_days_are_told_newest_first_with_their_sums(harness: ControllerHarness) -> None:
    data = view(harness, "costs")
    assert (data["total"], [row["day"] for row in data["days"]]) == (3, ["2024-10-04", "2024-10-03", "2024-10-02"])
    last, before, _ = data["days"]
    assert (last["kwh"], last["cost"], last["saved"], last["saved_frac"]) == (4.0, 1.0, 1.0, 0.5)
    assert (last["node_starts"], last["misses"], last["penalty"]) == (2, 4, 6.0)
    assert (last["mean_in_service"], last["mean_nodes"], last["measured_s"]) == (3.0, 4.0, 1800.0)
    assert (before["saved"], before["saved_frac"]) == (-0.5, None)
    euros, francs = data["sums"]
    assert (euros["currency"], francs["currency"]) == ("EUR", "CHF")
    assert (euros["cost"], euros["saved"], euros["saved_frac"]) == (1.5, 0.5, 0.25)
    assert euros["mean_in_service"] == pytest.approx((3.0 * 1800.0 + 2.0 * 900.0) / 2700.0)
    assert euros["node_starts"] == 3


def test_no_more_days_are_told_than_asked_for(harness: ControllerHarness) -> None:
    data = view(harness, "costs", limit=1)
    assert (data["total"], len(data["days"]), len(data["sums"])) == (3, 1, 1)


def test_nothing_is_told_of_days_that_were_not_measured() -> None:
    data = view(ControllerHarness().lead(), "costs")
    assert (data["days"], data["sums"], data["now"]["trouble"]) == ([], [], None)


def test_a_feed_that_fails_is_an_alarm_until_it_answers() -> None:
    """Given a series of prices, then a new leader has it read at once, and an error is an alarm."""
    harness = ReadingHarness(prices=PriceSettings(shape="series"))
    harness.lead()
    assert harness.reads == 1
    harness.feed(PricesRead(error="prices.csv: is away"))
    (alarm,) = view(harness, "status")["alarms"]
    assert (alarm["what"], alarm["subject"], alarm["detail"]) == ("prices-stale", "prices", "prices.csv: is away")
    harness.feed(TimerFired("prices"))
    assert harness.reads == 2
    starts = tuple(harness.now_s - 3600.0 + 3600.0 * at for at in range(48))
    harness.feed(PricesRead(starts, (0.25,) * 48, starts[-1] + 3600.0))
    assert view(harness, "status")["alarms"] == []
    assert view(harness, "costs")["now"]["per_kwh"] == 0.25


def test_the_command() -> None:
    """Given a cluster that has run for a while, then the command shows what that cost."""
    rig = Rig()
    rig.run(4_000.0)
    data: Any = rig.asked("costs", "--days", "3")
    (day,) = data["days"]
    assert day["kwh"] > 0.0
    assert day["cost"] == pytest.approx(0.30 * day["kwh"])
    assert day["cost"] == pytest.approx(day["static_cost"])
    assert day["mean_in_service"] == day["mean_nodes"] > 0.0
    text = CliRunner().invoke(main, ["costs"], obj=rig.access, env={"TRIMTAB_URL": URL}).output
    for words in ("1970-01-01", "sum", "(0 %)", "uniform"):
        assert words in text
