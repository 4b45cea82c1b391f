"""Metrics as values, what a controller's and an agent's meter make of what passes through their shells."""

from __future__ import annotations

from typing import Any

import pytest

from agents.service import metrics as of_agent
from agents.service.metrics import AgentFacts, AgentMeter
from daemons.controller.admission import metrics as of_admission
from daemons.controller.environments import metrics as of_environments
from daemons.controller.web import metrics as of_web
from daemons.decision.pipeline import DecideRequest, PrepareRequest
from daemons.service import metrics as of_controller
from daemons.service.meter import ControllerMeter
from daemons.values.records.cluster import CostRecord
from shared.base.clock import ManualClock
from shared.base.errors import InvalidValue
from shared.metrics import meter as metering
from shared.metrics.book import Book, Timing
from shared.metrics.meter import Reader
from shared.metrics.values import DROPPED, Family, Metric, MetricKind, Scrape, Spread
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import Happened, Order, Result
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.nodes import Node, NodeSample, PowerOperation
from shared.values.vms import VmState, VmStatus
from tests.support.metrics_scene import START_S, leading, tables

THINGS = Metric("trimtab_things_total", MetricKind.COUNTER, "things", "Things.", ("what",), series_max=2)
LEVEL = Metric("trimtab_level", MetricKind.GAUGE, "things", "Level.", ("what",), series_max=2)
SPAN = Metric("trimtab_span_seconds", MetricKind.HISTOGRAM, "seconds", "Span.", buckets=(1.0, 5.0))
BOOT = "boot-1"


def flat(families: tuple[Family, ...]) -> dict[tuple[str, ...], Any]:
    """Every series by the name of its metric and its labels."""
    return {(family.metric.name, *labels): value for family in families for labels, value in family.series}


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [
        ("nodes", MetricKind.GAUGE, "nodes"),
        ("trimtab_things", MetricKind.COUNTER, "things"),
        ("trimtab_things_total", MetricKind.GAUGE, "things"),
        ("trimtab_span", MetricKind.GAUGE, "seconds"),
        ("trimtab_Nodes", MetricKind.GAUGE, "nodes"),
        ("trimtab_span_seconds", MetricKind.HISTOGRAM, "seconds"),
    ],
)
def test_names_that_break_the_conventions_are_refused(name: str, kind: MetricKind, unit: str) -> None:
    """No prefix, a counter without _total, a gauge with it, no unit at the end, capitals, no bounds of a histogram."""
    with pytest.raises(InvalidValue):
        Metric(name, kind, unit, "Wrong.")


def test_counters_and_histograms_add_up() -> None:
    book = Book((SPAN,))

    for what, more in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        book.add(THINGS, more, what)
    for took_s in (0.5, 1.0, 3.0, 60.0):
        book.observe(SPAN, took_s)

    assert flat(book.families()) == {
        ("trimtab_things_total", "a"): 4.0,
        ("trimtab_things_total", "b"): 2.0,
        ("trimtab_span_seconds",): Spread((2, 1, 1), 64.5),
    }


def test_series_are_bounded_and_what_is_left_out_is_told() -> None:
    """Given room for two series of each, when five come, then two stay and three are counted, in both kinds."""
    book, scrape = Book(), Scrape()

    for number in range(5):
        book.add(THINGS, 1.0, f"{number}")
        book.add(THINGS, 1.0, f"{number}")
        scrape.put(LEVEL, 1.0, f"{number}")

    found = flat(scrape.families(book.families()))
    assert [key for key in found if key[0] == LEVEL.name] == [(LEVEL.name, "0"), (LEVEL.name, "1")]
    assert found[THINGS.name, "1"] == 2.0
    assert (found[DROPPED.name, LEVEL.name], found[DROPPED.name, THINGS.name]) == (3.0, 3.0)


def test_what_never_ends_is_forgotten() -> None:
    """Given more beginnings than are kept, then the oldest has no end and the newest has."""
    clock = ManualClock(0.0)
    timing = Timing(clock.monotonic_s)
    for number in range(Timing.KEPT_MAX + 1):
        timing.begin(number, "x")
    clock.advance(2.0)

    assert (timing.end(0), timing.end(Timing.KEPT_MAX)) == (None, (2.0, "x"))
    assert len(timing) == Timing.KEPT_MAX - 1


# --- the controller -------------------------------------------------------------------------------------------------


class Metered:
    """A meter of a leader with two nodes, on a clock of its own."""

    def __init__(self, nodes: int = 2, **more: int) -> None:
        self.clock = ManualClock(0.0)
        self.core = leading(nodes, **more)
        self.meter = ControllerMeter(tables(self.core), "1.0", self.clock.monotonic_s)

    def read(self) -> dict[tuple[str, ...], Any]:
        scrape = Scrape()
        self.meter.read(scrape, START_S + 1.0)
        return flat(scrape.families(self.meter.book.families()))


def order(number: int, kind: ActionKind = ActionKind.START) -> fx.Publish:
    action = Action(
        f"a-{number}",
        kind,
        "node-0000",
        vm="j#0",
        term=1,
        boot_id=BOOT,
        expires_at_s=START_S + 60.0,
        expects=0,
        generation=1,
    )
    return fx.Publish(topology.ACTIONS, "node-0000", Order(action, 0))


def result(number: int, sender: str = "agent.node-0000") -> fx.Received:
    message = Result(
        "node-0000",
        BOOT,
        1,
        clock_s=START_S,
        term=1,
        action=f"a-{number}",
        kind=ActionKind.START,
        vm="j#0",
        outcome=Outcome.OK,
    )
    return fx.Received(1, sender, message)


def test_actions_are_timed_from_order_to_result_once() -> None:
    """Given two orders, when one is answered twice, one by another node's agent, and a third was never ordered, then
    one action has ended."""
    metered = Metered()
    for number in (1, 2):
        metered.meter.effect(order(number))
    metered.clock.advance(3.0)

    for answer in (result(1), result(1), result(2, "agent.node-0001"), result(3)):
        metered.meter.input(answer)

    found = metered.read()
    assert found[of_controller.ORDERS.name, "start"] == 2.0
    assert found[of_controller.ACTIONS.name, "start", "ok"] == 1.0
    assert found[of_controller.ACTION.name, "start"].total == 3.0
    assert found[metering.RECEIVED.name, "result"] == 4.0


def test_computations_are_counted_by_how_they_end() -> None:
    metered = Metered()
    asked = metered.core.deciding.request(START_S, cycle=True)
    assert isinstance(asked, DecideRequest)
    for number, request in ((1, asked), (2, PrepareRequest(()))):
        metered.meter.effect(fx.Compute(number, request, 60.0))
    metered.clock.advance(2.0)

    metered.meter.input(fx.Computed(1, None, "out of time"))
    metered.meter.input(fx.Computed(2, "tables"))
    metered.meter.input(fx.Computed(9, None, "of a process before"))

    found = metered.read()
    assert found[of_controller.COMPUTATIONS.name, "decide", "failed"] == 1.0
    assert found[of_controller.COMPUTATIONS.name, "tables", "decided"] == 1.0
    assert found[of_controller.COMPUTATIONS.name, "decide", "decided"] == 0.0  # there from the beginning
    assert found[of_controller.COMPUTATION.name, "decide"].total == 2.0


def test_writes_energy_events_and_power_are_counted() -> None:
    metered = Metered()
    cost = CostRecord(START_S, 900.0, "EUR", kwh=2.0, cost=-0.5, static_kwh=3.0, static_cost=0.75)

    metered.meter.effect(fx.Write(1, 1, (cost, cost)))
    metered.clock.advance(0.2)
    metered.meter.input(fx.Written(1, True))
    metered.meter.effect(fx.Write(2, 1, ()))
    metered.meter.input(fx.Written(2, False, False, "the disk is full"))
    metered.meter.effect(fx.Publish(topology.EVENTS, "leading", Happened(START_S, "leading", "a", 1)))
    metered.meter.input(fx.PowerDone("node-0000", PowerOperation.FENCE, False, "no answer"))

    found = metered.read()
    assert found[of_controller.WRITE.name,].total == pytest.approx(0.2)
    assert found[of_controller.WRITES_FAILED.name, "unavailable"] == 1.0
    assert found[of_controller.RECORDS.name,] == 2.0
    assert found[of_controller.ENERGY.name, "actual"] == pytest.approx(4.0 * 3.6e6)
    assert found[of_controller.SPENT.name, "actual", "EUR"] == -1.0  # prices may be negative: no counter
    assert found[of_controller.EVENTS.name, "leading"] == 1.0
    assert found[of_controller.POWER.name, "fence", "failed"] == 1.0


def test_the_tables_of_a_leader_are_read() -> None:
    """Given 3 nodes with 5 jobs in 8 VMs each, an application and an environment, then all of that is told."""
    metered = Metered(3, apps=1, environments=1)
    metered.core.cluster.nodes["node-0002"].skewed = True

    found = metered.read()

    assert found[of_controller.LEADING.name,] == found[of_controller.TERM.name,] == 1.0
    assert found[of_controller.NODES.name, "up"] == found[of_controller.SERVICES.name, "in-service"] == 3.0
    assert found[of_controller.NODE_UP.name, "node-0001"] == 1.0
    assert found[of_controller.NODE_REPORT.name, "node-0001"] == START_S
    assert found[of_controller.JOBS.name, "running"] == 15.0
    assert found[of_controller.VMS.name, "yes"] == 24.0
    assert found[of_controller.CPU.name, "total"] == 3 * 8 * 2.4e9
    assert found[of_controller.CPU.name, "promised"] == 24 * 1.2e9
    assert found[of_web.UTILITY.name, "app-0"] == pytest.approx((0.5 - 0.4) / 0.5)
    assert found[of_web.RATES.name, "app-0", "rejected"] == 0.5
    assert found[of_web.INSTANCES.name, "app-0", "wanted"] == 0.0
    assert found[of_environments.ENVIRONMENTS.name, "running"] == 1.0
    assert found[of_admission.UNITS.name, "env-0", "size"] == 1.0
    assert found[of_admission.PROMISED.name, "env-0", "1", "guaranteed"] == 1.0
    assert found[of_controller.ALARMS.name, "clock-skewed"] == 1.0


def test_a_standby_tells_nothing_of_the_cluster() -> None:
    metered = Metered()
    metered.core.leadership.role = type(metered.core.leadership.role).STANDBY

    found = metered.read()

    assert found[of_controller.LEADING.name,] == 0.0
    assert not [key for key in found if key[0] in (of_controller.NODES.name, of_controller.ALARMS.name)]


def test_jobs_add_no_series_and_applications_are_bounded() -> None:
    """Given 10 times the nodes and jobs, then 3 series more for each node; given 300 applications, 200 are told of."""
    small, large = Metered(2).read(), Metered(20).read()
    many = Metered(1, apps=300).read()

    assert len(large) - len(small) == 3 * 18
    assert sum(key[0] == of_web.INSTANCES.name for key in many) == 2 * of_web.APPS_MAX
    assert many[DROPPED.name, of_web.UTILITY.name] == 100.0


def test_trouble_beside_the_core_is_an_alarm_until_it_is_over() -> None:
    metered = Metered()

    tables(metered.core).note("metrics-unserved", "127.0.0.1:9460: Address already in use", START_S)
    assert metered.read()[of_controller.ALARMS.name, "metrics-unserved"] == 1.0

    tables(metered.core).note("metrics-unserved", "", START_S)
    assert (of_controller.ALARMS.name, "metrics-unserved") not in metered.read()


# --- the agent ------------------------------------------------------------------------------------------------------


def test_an_agent_tells_of_its_node_its_calls_and_its_actions() -> None:
    clock = ManualClock(0.0)
    meter = AgentMeter("fake", "1.0", clock.monotonic_s, lambda: AgentFacts("n1", 2, 4096))
    action = Action(
        "a-1",
        ActionKind.MIGRATE,
        "n1",
        vm="j#0",
        term=1,
        boot_id=BOOT,
        expires_at_s=60.0,
        expects=1,
        generation=1,
        to_node="n2",
    )
    sample = NodeSample(cpu_frac=0.5, iowait_frac=0.25, disk_free_mib=1.0, disk_busy_s=7.0)
    vms = (
        VmStatus("j#0", VmState.RUNNING, 1, attempt=1, memory_mib=1000, vcpus=1, cpu_mhz=1000.0),
        VmStatus("x", VmState.PAUSED, 0, attempt=0, memory_mib=1, vcpus=1, cpu_mhz=1.0),
    )

    meter.input(fx.Observed(sample, vms, Node("n1", 4, 1000.0, memory_mib=8_000)))
    meter.effect(fx.Operate(action))
    clock.advance(30.0)
    meter.input(fx.Operated("a-1", Outcome.TIMED_OUT))
    meter.input(fx.Probed("j#0", 1, False, "refused"))
    meter.called("read", 0.02, True)
    meter.called("read", 5.0, False)

    scrape = Scrape()
    meter.read(scrape, 0.0)
    found = flat(scrape.families(meter.book.families()))
    assert found[of_agent.CPU.name,] == 0.5
    assert found[of_agent.DISK_FREE.name,] == 1024.0**2
    assert found[of_agent.DISK_BUSY.name,] == 7.0
    assert found[of_agent.VMS.name, "running", "yes"] == 1.0
    assert found[of_agent.ACTIONS.name, "migrate", "timed-out"] == 1.0
    assert found[of_agent.ACTION.name, "migrate"].total == 30.0
    assert found[of_agent.PROBES.name, "failed"] == 1.0
    assert sum(found[of_agent.CALL.name, "read"].counts) == 2
    assert (found[of_agent.FAILURES.name, "read"], found[of_agent.FAILURES.name, "poll"]) == (1.0, 0.0)
    assert (found[of_agent.OUTBOX.name,], found[of_agent.JOURNAL.name,]) == (2.0, 4096.0)


# --- reading --------------------------------------------------------------------------------------------------------


def test_the_loop_is_asked_once_a_second() -> None:
    clock, asked = ManualClock(0.0), []

    def ask(act: Any) -> None:
        asked.append(act)
        act()

    reader = Reader(Book(), ask, lambda scrape: scrape.put(LEVEL, 1.0, "x"), clock.monotonic_s)

    first, again = reader.families(), reader.families()
    clock.advance(metering.FRESH_S)
    reader.families()

    assert first is again
    assert flat(first)[metering.RESPONDING.name,] == 1.0
    assert len(asked) == 2


def test_a_loop_that_hangs_is_told_and_asked_no_more_than_once() -> None:
    """Given a loop that does not answer, when it is scraped twice, then it has one question before it, and what is
    counted is told."""
    clock, asked = ManualClock(0.0), list[Any]()
    book = Book()
    book.add(THINGS, 1.0, "x")
    reader = Reader(book, asked.append, lambda scrape: scrape.put(LEVEL, 1.0, "x"), clock.monotonic_s, answer_s=0.01)

    found = flat(reader.families())
    clock.advance(metering.FRESH_S)
    reader.families()

    assert (found[metering.RESPONDING.name,], found[THINGS.name, "x"]) == (0.0, 1.0)
    assert (LEVEL.name, "x") not in found
    assert len(asked) == 1
    asked[0]()
    clock.advance(metering.FRESH_S)
    assert flat(reader.families())[metering.RESPONDING.name,] == 1.0


def test_a_defect_of_a_reading_does_not_end_the_loop() -> None:
    def read(scrape: Scrape) -> None:
        scrape.put(LEVEL, 1.0, "x")
        raise KeyError("gone")

    found = flat(Reader(Book(), lambda act: act(), read, ManualClock(0.0).monotonic_s).families())

    assert (found[metering.RESPONDING.name,], found[LEVEL.name, "x"]) == (0.0, 1.0)
