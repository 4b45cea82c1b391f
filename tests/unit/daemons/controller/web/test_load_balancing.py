"""The load balancer is told which instances there are; no instance is stopped before it is drained, or too late."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from daemons.values.settings import BalancerSettings, PolicyChoice
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.ports.effects import Backend, Balance, Balanced
from shared.protocol.operator_messages import Query, RemoveWeb, SetDeciding, SubmitWeb
from shared.values.actions import ActionKind, GuestChange
from shared.values.jobs import Allotment
from shared.values.web_app import WebApp
from tests.support import parts
from tests.support.controller_harness import ControllerHarness

NODES = ("n1", "n2", "n3")
TELLS = BalancerSettings("test", drain_limit_s=60.0, poll_s=5.0, retry_s=5.0, retry_max_s=20.0, retell_s=0.0)
ONE, TWO = Backend("shop#0", "n1"), Backend("shop#1", "n2")


def shop(least: int = 2, most: int = 2) -> WebApp:
    return WebApp("shop", (), 1000, max_mhz=1000.0, min_instances=least, max_instances=most)


def led(balancer: BalancerSettings = TELLS, **settings: Any) -> ControllerHarness:
    """A leader of two instances that run, of which the balancer has not been told."""
    desk = ControllerHarness(
        NODES, placement=PolicyChoice("first-fit"), balancer=balancer, web_adjust_s=10_000.0, **settings
    ).lead()
    desk.ask(SubmitWeb("s", shop()))
    desk.obey()
    return desk


def told(desk: ControllerHarness) -> list[Balance]:
    """What the balancer was told since last asked."""
    balances, desk.balances = desk.balances, []
    return balances


def answer(desk: ControllerHarness, *drained: str, ok: bool = True, app: str = "shop") -> None:
    desk.feed(Balanced(app, ok, drained, "" if ok else "refused"))


def agreed(desk: ControllerHarness) -> ControllerHarness:
    """The balancer takes what it is told until there is nothing new."""
    while told(desk):
        answer(desk)
    return desk


def stop(desk: ControllerHarness, vm: str) -> None:
    entry = desk.controller.cluster.active[vm]
    change = Change(vm, entry.revision, ChangeKind.STOP, (), Reason(ReasonCode.ADJUSTMENT))
    assert not desk.controller.deciding.desired.apply([change], desk.now_s)
    desk.report("n3")


def stops(desk: ControllerHarness) -> list[str]:
    return [order.vm for order in desk.orders if order.kind is ActionKind.STOP]


def test_every_instance_that_runs_is_told_one_call_at_a_time() -> None:
    """Given a balancer that has not answered yet, then the instances wait; and then both are told at once."""
    desk = led()
    assert told(desk) == [Balance("shop", ())]
    desk.wait(30.0, NODES)
    assert told(desk) == []
    answer(desk)
    assert told(desk) == [Balance("shop", (ONE, TWO))]
    answer(desk)
    desk.wait(300.0, NODES)
    assert told(desk) == []


def test_an_instance_is_drained_before_it_is_stopped() -> None:
    desk = agreed(led())
    stop(desk, "shop#1")
    drain = Balance("shop", (ONE, Backend("shop#1", "n2", True)))
    assert (told(desk), stops(desk)) == ([drain], [])
    answer(desk)
    desk.wait(10.0, NODES)
    assert told(desk) == [drain]
    assert stops(desk) == []
    answer(desk, "shop#1")
    assert stops(desk) == ["shop#1"]
    desk.obey()
    assert told(desk) == [Balance("shop", (ONE,))]


def test_after_so_long_it_is_stopped_all_the_same() -> None:
    """Given requests that do not end, then the instance goes after the limit, and not before."""
    desk = agreed(led())
    stop(desk, "shop#1")
    for _ in range(11):
        desk.wait(5.0, NODES)
        if told(desk):
            answer(desk)
    assert stops(desk) == []
    desk.wait(10.0, NODES)
    assert stops(desk) == ["shop#1"]


def test_a_balancer_that_never_answers_holds_nothing_up_for_longer() -> None:
    desk = agreed(led())
    stop(desk, "shop#1")
    desk.wait(55.0, NODES)
    assert stops(desk) == []
    desk.wait(10.0, NODES)
    assert stops(desk) == ["shop#1"]
    desk.obey()
    desk.wait(120.0, NODES)
    assert told(desk)[-1] == Balance("shop", (ONE,))  # what was not answered is told again


def test_failures_are_told_and_tried_again_less_and_less_often() -> None:
    desk = led()
    told(desk)
    times = []
    for _ in range(80):
        answer(desk, ok=False)
        desk.wait(1.0, NODES)
        if told(desk):
            times.append(desk.now_s)
    gaps = [round(b - a) for a, b in pairwise(times)]
    assert gaps[:2] == [10, 20]
    assert set(gaps[2:]) == {20}
    assert [event.detail for event in desk.happenings("balancer-unreachable")] == ["refused"]
    alarms = [row for row in desk.ask(Query("q", "status")).data["alarms"] if row["what"] == "balancer-unreachable"]
    assert [(row["subject"], row["detail"]) for row in alarms] == [("shop", "refused")]
    desk.wait(20.0, NODES)
    answer(desk)
    assert len(desk.happenings("balancer-reachable")) == 1
    assert not any(row["what"] == "balancer-unreachable" for row in desk.ask(Query("q", "status")).data["alarms"])


def test_a_move_keeps_the_instance_and_tells_its_new_node() -> None:
    desk = agreed(led())
    entry = desk.controller.cluster.active["shop#1"]
    change = Change(
        "shop#1", entry.revision, ChangeKind.MIGRATE, (Allotment("n3", 1000.0),), Reason(ReasonCode.OPERATOR)
    )
    assert not desk.controller.deciding.desired.apply([change], desk.now_s)
    desk.report("n3")
    desk.obey()
    calls = told(desk)
    assert [backend.drain for call in calls for backend in call.backends] == [False] * 2 * len(calls)
    assert calls[-1] == Balance("shop", (ONE, Backend("shop#1", "n3")))


def test_a_lost_instance_is_taken_out_at_once() -> None:
    desk = agreed(led())
    desk.guest("n2", "shop#1", GuestChange.ENDED)
    assert told(desk) == [Balance("shop", (ONE,))]


def test_an_application_that_is_removed_leaves_nothing() -> None:
    desk = agreed(led())
    desk.ask(RemoveWeb("r", "shop"))
    assert told(desk) == [Balance("shop", (Backend("shop#0", "n1", True), Backend("shop#1", "n2", True)))]
    assert stops(desk) == []
    answer(desk, "shop#0", "shop#1")
    desk.obey()
    while calls := told(desk):
        last = calls[-1]
        answer(desk)
    assert last == Balance("shop", ())
    assert parts.balancing(desk.controller).states == {}
    assert "shop" not in desk.controller.cluster.web


def test_a_new_leader_tells_everything_once_and_still_drains() -> None:
    """Given a leader that knows nothing of what was told, then it tells all, and stops nothing undrained meanwhile."""
    before = agreed(led())
    desk = ControllerHarness(
        NODES, before.store, placement=PolicyChoice("first-fit"), balancer=TELLS, web_adjust_s=10_000.0
    )
    desk.now_s, desk.vms, desk.seqs = before.now_s, before.vms, before.seqs
    desk.lead()
    stop(desk, "shop#1")
    assert stops(desk) == []
    for _ in range(3):
        calls = told(desk)
        answer(desk)
    assert stops(desk) == []
    desk.wait(10.0, NODES)
    calls = told(desk)
    assert calls[-1].backends[-1] == Backend("shop#1", "n2", True)
    answer(desk, "shop#1")
    assert stops(desk) == ["shop#1"]


def test_without_a_driver_nobody_is_told_and_nothing_waits() -> None:
    desk = led(BalancerSettings())
    stop(desk, "shop#1")
    assert (told(desk), stops(desk)) == ([], ["shop#1"])


@pytest.mark.parametrize("ok", [True, False])
def test_an_answer_that_nobody_waits_for_says_nothing(ok: bool) -> None:
    desk = agreed(led())
    answer(desk, "shop#0", ok=ok)
    answer(desk, ok=ok, app="unknown")
    assert told(desk) == []
    assert not desk.happenings("balancer-unreachable")


def test_nothing_is_told_while_the_controller_only_observes() -> None:
    desk = led()
    desk.controller.unit_of_work.acting = False
    told(desk)
    answer(desk)
    desk.wait(60.0, NODES)
    assert told(desk) == []
    desk.ask(SetDeciding("on", True))
    desk.wait(10.0, NODES)
    assert told(desk) == [Balance("shop", (ONE, TWO))]
