"""A feature that the product does not know is plugged into a controller, and found again by the next leader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytest

from daemons.controller.contract.feature import DONE, Alarm, Caller, Feature, Refused, SnapshotPart
from daemons.controller.core.wiring import Spine
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.views.alarms import alarms
from daemons.service.metrics import read_tables
from daemons.values.records.cluster import Record
from daemons.values.settings import PolicyChoice
from daemons.values.view_format import Row
from shared.metrics.values import Metric, MetricKind, Scrape
from shared.ports.effects import Received
from shared.protocol import topology
from shared.protocol.messages import Message
from shared.protocol.operator_messages import Query, Request, SubmitJob
from shared.values.jobs import Constraint, ConstraintKind
from tests.support.controller_harness import OPERATOR, ControllerHarness, job

TIMER = "wind"
READ_S = 60.0
APC = PolicyChoice("apc")
LIMIT_M_S = 20.0
WIND = Metric("trimtab_wind_speed", MetricKind.GAUGE, "metres per second", "The wind at a node.", ("node",))


@dataclass(frozen=True, slots=True)
class LimitWind:
    """A request: jobs are kept off a node while the wind there is above `m_s`."""

    KIND: ClassVar[str] = "limit-wind"

    request: str
    m_s: float


@dataclass(frozen=True, slots=True)
class WindMeasured:
    """A message of an agent."""

    KIND: ClassVar[str] = "wind-measured"

    node: str
    m_s: float


@dataclass(frozen=True, slots=True)
class WindRecord:
    """What outlives a leader."""

    limit_m_s: float

    @property
    def key(self) -> tuple[str, str]:
        return "wind", ""


class WindFeature(Feature):
    """Keeps jobs off nodes that stand in the wind, and lets no job called `kite` in."""

    metrics = (WIND,)

    def __init__(self, spine: Spine) -> None:
        self._unit_of_work = spine.unit_of_work
        self.limit_m_s = LIMIT_M_S
        self.m_s: dict[str, float] = {}
        self.looks = self.cycles = 0
        self.requests = {LimitWind: self._limit}
        self.messages = {WindMeasured: self._measured}
        self.records = {WindRecord: self._load}
        self.timers = {TIMER: self._look}
        self.views = {"wind": self._view}

    def _limit(self, request: LimitWind, caller: Caller, now_s: float) -> Refused:
        if request.m_s <= 0.0:
            return "invalid-value", f"m_s is {request.m_s:g}, expected more than 0"
        self.limit_m_s = request.m_s
        self._unit_of_work.records.append(cast(Record, WindRecord(request.m_s)))
        self._unit_of_work.emit(now_s, "wind-limited", "wind", f"{request.m_s:g} by {caller.sender}")
        return DONE

    def _measured(self, message: WindMeasured, _now_s: float) -> None:
        self.m_s[message.node] = message.m_s

    def _load(self, record: WindRecord, _now_s: float) -> None:
        self.limit_m_s = record.limit_m_s

    def lead(self, now_s: float) -> None:
        self._look(now_s)

    def _look(self, now_s: float) -> None:
        self.looks += 1
        self._unit_of_work.start_timer(TIMER, now_s + READ_S)

    def refuse(self, request: Request, caller: Caller, now_s: float) -> Refused:
        del caller, now_s
        return ("windy", "no kites") if isinstance(request, SubmitJob) and request.job.name == "kite" else DONE

    def cycle(self, now_s: float) -> None:
        del now_s
        self.cycles += 1

    def windy(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, m_s in self.m_s.items() if m_s > self.limit_m_s))

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        del nodes, now_s, at_cycle
        off = self.windy()
        bound = tuple(Constraint(ConstraintKind.FORBID, (each.job.name,), off) for each in jobs if off)
        return SnapshotPart({"constraints": bound})

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        return ((f"{TIMER}-strong", name, now_s, f"{self.m_s[name]:g} m/s") for name in self.windy())

    def read_metrics(self, scrape: Scrape, now_s: float) -> None:
        del now_s
        for name, m_s in self.m_s.items():
            scrape.put(WIND, m_s, name)

    def _view(self, query: Query, cluster: Cluster, now_s: float) -> Row | Refused:
        if query.subject and query.subject not in cluster.nodes:
            return "unknown-node", f"there is no node {query.subject!r}"
        return {"limit_m_s": self.limit_m_s, "nodes": dict(self.m_s), "read_age_s": now_s % READ_S}


class Scene:
    """A controller with the feature, and what is said to it."""

    def __init__(self, harness: ControllerHarness | None = None) -> None:
        self.made: list[WindFeature] = []
        self.harness = ControllerHarness(
            store=None if harness is None else harness.store, plug_ins=(self._make,), decide_s=900.0, placement=APC
        )
        self.wind = self.made[0]
        self.harness.lead()

    def _make(self, spine: Spine) -> WindFeature:
        self.made.append(WindFeature(spine))
        return self.made[-1]

    def ask(self, request: Any, sender: str = OPERATOR) -> Any:
        self.harness.say(cast(Message, request), sender)
        return self.harness.replies[-1]

    def blow(self, node: str, m_s: float, sender: str = "") -> None:
        self.harness.say(cast(Message, WindMeasured(node, m_s)), sender or topology.agent_user(node))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_request_is_carried_out_once_answered_audited_and_told(scene: Scene) -> None:
    assert scene.ask(LimitWind("w1", 12.0)).done
    assert scene.ask(LimitWind("w2", 15.0)).done
    assert scene.ask(LimitWind("w1", 12.0)).done  # a repeat that comes late
    assert scene.wind.limit_m_s == 15.0
    assert [event.detail for event in scene.harness.happenings("wind-limited")] == [
        f"{v} by {OPERATOR}" for v in (12, 15)
    ]
    refused = scene.ask(LimitWind("w3", -1.0))
    assert (refused.code, refused.detail) == ("invalid-value", "m_s is -1, expected more than 0")


def test_who_may_not_ask_is_refused(scene: Scene) -> None:
    assert scene.ask(LimitWind("w1", 12.0), "user.joe").code == "not-allowed"
    assert scene.wind.limit_m_s == LIMIT_M_S


def test_only_a_nodes_agent_speaks_for_it(scene: Scene) -> None:
    scene.blow("n1", 30.0)
    scene.blow("n2", 30.0, topology.agent_user("n1"))
    scene.blow("n9", 30.0)
    assert scene.wind.m_s == {"n1": 30.0}
    assert [reason for _, reason in scene.harness.dead] == [
        f"{topology.agent_user('n1')} may not speak for node n2",
        "node n9 has not been added",
    ]


def test_a_message_is_acknowledged(scene: Scene) -> None:
    before = len(scene.harness.acknowledged)
    scene.blow("n1", 30.0)
    assert len(scene.harness.acknowledged) == before + 1


def test_its_view_alarm_and_metric_are_shown(scene: Scene) -> None:
    scene.blow("n1", 30.0)
    shown = scene.ask(Query("q1", "wind"))
    assert shown.data["nodes"] == {"n1": 30.0}
    assert scene.ask(Query("q2", "wind", "n7")).code == "unknown-node"
    found = [row for row in alarms(scene.harness.controller.queries.tables, 0.0) if row["what"] == "wind-strong"]
    assert [(row["subject"], row["detail"]) for row in found] == [("n1", "30 m/s")]
    scrape = Scrape()
    read_tables(scene.harness.controller.queries.tables, scrape, 0.0)
    (family,) = [family for family in scrape.families() if family.metric is WIND]
    assert family.series == ((("n1",), 30.0),)


def test_its_timer_and_cycle_are_called(scene: Scene) -> None:
    assert scene.wind.looks == 1
    scene.harness.wait(2 * READ_S)
    assert scene.wind.looks == 3
    scene.harness.wait(900.0, reporting=("n1", "n2"))
    assert scene.wind.cycles == 1


def test_its_columns_decide_where_jobs_run(scene: Scene) -> None:
    scene.blow("n1", 30.0)
    scene.ask(SubmitJob("s1", job("a")))
    assert [order.node for order in scene.harness.take_orders()] == ["n2"]


def test_it_refuses_what_others_would_carry_out(scene: Scene) -> None:
    assert scene.ask(SubmitJob("s1", job("kite"))).code == "windy"
    assert "kite" not in scene.harness.controller.cluster.jobs


def test_the_next_leader_finds_it_as_it_was(scene: Scene) -> None:
    scene.ask(LimitWind("w1", 12.0))
    later = Scene(scene.harness)
    assert later.harness.controller.unit_of_work.term == 2
    assert later.wind.limit_m_s == 12.0
    assert later.wind.looks == 1


def test_two_features_with_a_handler_for_the_same_are_refused() -> None:
    def make(spine: Spine) -> WindFeature:
        return WindFeature(spine)

    with pytest.raises(ValueError, match="two features have timers for"):
        ControllerHarness(plug_ins=(make, _Other))


class _Other(Feature):
    """Wants the timer of another."""

    def __init__(self, spine: Spine) -> None:
        del spine
        self.timers = {TIMER: lambda _now_s: None}


def test_a_feature_that_holds_a_request_answers_it_later() -> None:
    held: list[Received] = []

    class Holding(Feature):
        def __init__(self, spine: Spine) -> None:
            del spine

        def holds(self, received: Received, now_s: float) -> bool:
            del now_s
            held.append(received)
            return True

    harness = ControllerHarness((), plug_ins=(Holding,)).lead()
    harness.say(SubmitJob("s1", job("a")), OPERATOR)
    assert [received.message.KIND for received in held] == ["submit-job"]
    assert (harness.replies, harness.acknowledged[1:]) == ([], [])
