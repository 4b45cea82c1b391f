"""Energy and its cost: of nodes that run, sleep, wake and go, from what they report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.energy.metering import DAYS_KEPT, EnergyMeter
from daemons.controller.measure.reports import Measure
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.windows.window import WindowEntry
from daemons.models.prices import DAY_S
from daemons.values.calendar import weekly
from daemons.values.records.cluster import CostRecord
from daemons.values.settings import ControllerSettings, Draw, PowerSettings, PriceSettings, WindowSettings
from shared.ports.effects import PricesRead
from shared.protocol.messages import Report
from shared.values.nodes import Node, NodeCondition, NodeSample, NodeService

HOUR_S = 3600.0
NOW_S = 20_000 * DAY_S
DRAWS = {"default": Draw(100.0, 200.0, 10.0), "big": Draw(200.0, 600.0, 20.0)}


class Rig:
    """A cluster of two nodes, one of them of the type `big`, at a price of 0.5; cycles of an hour."""

    def __init__(self, prices: PriceSettings | None = None) -> None:
        prices = prices or PriceSettings(per_kwh=0.5, currency="CHF")
        self.settings = ControllerSettings(decide_s=HOUR_S, power=PowerSettings(draws=DRAWS), prices=prices)
        self.cluster = Cluster(0.0)
        self.unit_of_work = UnitOfWork()
        self.measure = Measure(self.cluster, self.unit_of_work, self.settings, FeatureSet())
        self.energy = EnergyMeter(self.cluster, self.unit_of_work, self.settings)
        self.book = self.energy.prices
        self.n1, self.n2 = self.add("n1"), self.add("n2", "big")
        self.seq = 0
        self.energy.begin(NOW_S)

    def add(self, name: str, node_type: str = "") -> NodeEntry:
        inventory = Node(name, 4, 2500.0, memory_mib=16_384, node_type=node_type)
        node = NodeEntry(name, NodeService.IN_SERVICE, NodeCondition.UP, inventory=inventory, boot_id="boot")
        self.cluster.nodes[name] = node
        return node

    def report(self, node: NodeEntry, cpu_frac: float, after_s: float) -> None:
        self.seq += 1
        sample = NodeSample(cpu_frac=cpu_frac)
        report = Report(node.name, "boot", self.seq, clock_s=NOW_S + after_s, term=0, sample=sample, vms=())
        self.measure.report(node, report, NOW_S + after_s)

    def turn(self, node: NodeEntry, service: NodeService, after_s: float) -> None:
        """A change of state, as the controller tells of it."""
        node.service = service
        self.energy.changed([node], NOW_S + after_s)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_cycle_costs_what_nodes_drew_at_their_mean_load(rig: Rig) -> None:
    """Given reports of 0, 50 and 100 % and none from the other, then those are 150 W and idle for an hour."""
    for at, load in enumerate((0.0, 0.5, 1.0)):
        rig.report(rig.n1, load, at + 1.0)
    record = rig.energy.cycle(NOW_S + HOUR_S)
    assert record == CostRecord(
        NOW_S,
        HOUR_S,
        "CHF",
        kwh=0.35,
        cost=0.175,
        static_kwh=0.35,
        static_cost=0.175,
        in_service_node_s=2 * HOUR_S,
        node_s=2 * HOUR_S,
    )
    assert rig.unit_of_work.records == [record]


def test_loads_count_in_the_cycle_in_which_they_were_reported(rig: Rig) -> None:
    rig.report(rig.n1, 1.0, 10.0)
    first = rig.energy.cycle(NOW_S + HOUR_S)
    rig.report(rig.n1, 0.0, HOUR_S + 10.0)
    second = rig.energy.cycle(NOW_S + 2 * HOUR_S)
    third = rig.energy.cycle(NOW_S + 3 * HOUR_S)  # silent: as it was
    assert [record.kwh for record in (first, second, third)] == pytest.approx([0.4, 0.3, 0.3])
    assert [record.at_s for record in (first, second, third)] == [NOW_S, NOW_S + HOUR_S, NOW_S + 2 * HOUR_S]


def test_a_node_that_sleeps_saves_what_it_would_draw_idle(rig: Rig) -> None:
    """Given a node that sleeps half of the hour and wakes for a quarter, then beside it stands what it would cost
    awake, and it came into service once."""
    rig.report(rig.n2, 0.5, 1.0)
    rig.turn(rig.n2, NodeService.OFF, 0.25 * HOUR_S)
    rig.turn(rig.n2, NodeService.WAKING, 0.75 * HOUR_S)
    rig.turn(rig.n2, NodeService.IN_SERVICE, HOUR_S)
    record = rig.energy.cycle(NOW_S + HOUR_S)
    assert record.kwh == pytest.approx(0.1 + 0.25 * 0.4 + 0.5 * 0.02 + 0.25 * 0.2)
    assert record.static_kwh == pytest.approx(0.1 + 0.25 * 0.4 + 0.75 * 0.2)
    assert record.cost == pytest.approx(0.5 * record.kwh)
    assert record.static_cost == pytest.approx(0.5 * record.static_kwh)
    assert (record.in_service_node_s, record.node_s, record.node_starts) == (1.25 * HOUR_S, 2 * HOUR_S, 1)


def test_the_same_load_with_every_node_on_leaves_sleeping_nodes_idle(rig: Rig) -> None:
    """A node that fell asleep busy is not taken for a busy one: its load went elsewhere."""
    rig.report(rig.n2, 1.0, 1.0)
    rig.turn(rig.n2, NodeService.OFF, 60.0)
    rig.energy.cycle(NOW_S + HOUR_S)
    record = rig.energy.cycle(NOW_S + 2 * HOUR_S)
    assert record.kwh == pytest.approx(0.1 + 0.02)
    assert record.static_kwh == pytest.approx(0.1 + 0.2)


def test_only_coming_into_service_is_a_start(rig: Rig) -> None:
    for at, service in enumerate(
        (
            NodeService.DRAINING,
            NodeService.IN_SERVICE,  # called back
            NodeService.DRAINING,
            NodeService.STANDBY,
            NodeService.IN_SERVICE,  # a start
            NodeService.FAILED,
            NodeService.STANDBY,
            NodeService.OFF,
            NodeService.WAKING,
            NodeService.IN_SERVICE,  # a start
        )
    ):
        rig.turn(rig.n1, service, 10.0 * at)
    rig.energy.changed([rig.n1], NOW_S + 500.0)  # nothing has changed
    assert rig.energy.cycle(NOW_S + HOUR_S).node_starts == 2


@pytest.mark.parametrize(
    ("service", "condition", "watts"),
    [
        (NodeService.IN_SERVICE, NodeCondition.UNKNOWN, 150.0),
        (NodeService.IN_SERVICE, NodeCondition.OFF, 10.0),
        (NodeService.STANDBY, NodeCondition.UP, 150.0),
        (NodeService.OFF, NodeCondition.UNKNOWN, 10.0),
        (NodeService.WAKING, NodeCondition.OFF, 100.0),
        (NodeService.FAILED, NodeCondition.UNKNOWN, 10.0),
        (NodeService.FAILED, NodeCondition.UP, 150.0),
    ],
)
def test_what_a_node_draws_in_each_state(
    rig: Rig, service: NodeService, condition: NodeCondition, watts: float
) -> None:
    rig.report(rig.n1, 0.5, 1.0)
    rig.n1.condition = condition
    rig.turn(rig.n1, service, 0.0)
    assert rig.energy.watts() == pytest.approx(watts + 200.0)


def test_costs_follow_the_price_within_a_cycle() -> None:
    """Given prices that change every half an hour, then what a node draws costs what it costs at that time."""
    rig = Rig(PriceSettings(shape="series", per_kwh=9.0))
    starts = tuple(NOW_S + 1800.0 * at for at in range(4))
    rig.book.read(PricesRead(starts, (1.0, -3.0, 2.0, 2.0), NOW_S + 2 * HOUR_S), NOW_S)
    rig.turn(rig.n2, NodeService.OFF, 1800.0)
    record = rig.energy.cycle(NOW_S + HOUR_S)
    assert record.cost == pytest.approx(0.05 * 1.0 + 0.05 * -3.0 + 0.1 * 1.0 + 0.01 * -3.0)
    assert record.static_cost == pytest.approx(0.15 * 1.0 + 0.15 * -3.0)


def test_nodes_come_and_go(rig: Rig) -> None:
    """A node counts from when it is added; one that is removed to the end of its cycle."""
    node = rig.add("n3")
    rig.energy.changed([node], NOW_S + HOUR_S / 2)
    del rig.cluster.nodes["n2"]
    rig.energy.changed([rig.n2], NOW_S + HOUR_S / 2)
    assert rig.energy.cycle(NOW_S + HOUR_S).kwh == pytest.approx(0.1 + 0.2 + 0.05)
    assert rig.energy.cycle(NOW_S + 2 * HOUR_S).kwh == pytest.approx(0.1 + 0.1)


def test_jobs_that_missed_a_deadline_count_once(rig: Rig) -> None:
    """Given what a window says of its last deadline, then a new leader counts it no more, and the next one does."""
    windows = {}
    for name, penalty in (("night", 1.5), ("day", 0.0)):
        periods = weekly("UTC", "22:00", "02:00", "06:00", range(7))
        windows[name] = WindowEntry(WindowSettings(name, name, periods, penalty=penalty), HOUR_S)
    windows["night"].record = replace(windows["night"].record, missed=9, missed_s=NOW_S - DAY_S)
    energy = EnergyMeter(rig.cluster, rig.unit_of_work, rig.settings, windows)
    energy.begin(NOW_S)
    assert energy.cycle(NOW_S + HOUR_S).misses == 0
    for missed, entry in zip((3, 1), windows.values(), strict=True):
        entry.record = replace(entry.record, missed=missed, missed_s=NOW_S + HOUR_S)
    record = energy.cycle(NOW_S + 2 * HOUR_S)
    assert (record.misses, record.penalty) == (4, 4.5)
    assert energy.cycle(NOW_S + 3 * HOUR_S).misses == 0


def test_a_clock_that_jumps_does_not_cost_a_year(rig: Rig) -> None:
    late_s = NOW_S + 365 * DAY_S
    record = rig.energy.cycle(late_s)
    assert (record.at_s, record.span_s) == (late_s - 2 * HOUR_S, 2 * HOUR_S)
    assert record.kwh == pytest.approx(0.6)


def test_a_reading_that_cannot_be_spoils_only_its_cycle(rig: Rig) -> None:
    rig.report(rig.n1, 1e300, 1.0)
    assert rig.energy.cycle(NOW_S + HOUR_S).kwh == pytest.approx(0.4)
    rig.report(rig.n1, 0.5, HOUR_S + 1.0)
    assert rig.energy.cycle(NOW_S + 2 * HOUR_S).kwh == pytest.approx(0.35)


def test_days_are_those_of_the_local_clock_and_come_back_from_the_store() -> None:
    """Given cycles around midnight in Brussels, then they count to the two days, of a new leader too."""
    settings = PriceSettings(per_kwh=0.5, timezone="Europe/Brussels")
    rig = Rig(settings)
    records = [rig.energy.cycle(NOW_S + HOUR_S * hour) for hour in range(1, 26)]
    assert [(day, record.span_s) for (day, _), record in rig.energy.days.items()] == [
        ("2024-10-04", 22 * HOUR_S),
        ("2024-10-05", 3 * HOUR_S),
    ]
    later = Rig(settings).energy
    for record in reversed(records):
        later.load(record)
    later.begin(NOW_S + DAY_S)
    assert {key: round(record.kwh, 9) for key, record in later.days.items()} == {
        key: round(record.kwh, 9) for key, record in rig.energy.days.items()
    }
    assert list(later.days) == list(rig.energy.days)


def test_no_more_days_than_that_are_kept(rig: Rig) -> None:
    for at in range(DAYS_KEPT + 9):
        rig.energy.load(CostRecord(NOW_S - DAY_S * at, HOUR_S))
    rig.energy.begin(NOW_S)
    days = [day for day, _ in rig.energy.days]
    assert (len(days), days[-1], days) == (DAYS_KEPT, "2024-10-04", sorted(days))
