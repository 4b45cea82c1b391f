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
TELLS = BalancerSettings("test", drain_limit_s=60.0, poll_s=5.0, retry_s=5.0, retry_max_s=20.0, resend_s=0.0)
ONE, TWO = Backend("shop#0", "n1"), Backend("shop#1", "n2")


def shop(least: int = 2, most: int = 2) -> WebApp:
    return WebApp("shop", (), 1000, max_mhz=1000.0, min_instances=least, max_instances=most)


def led(balancer: BalancerSettings = TELLS, **settings: Any) -> ControllerHarness:
    """A leader of two instances that run, of which the balancer has not been told."""
    harness = ControllerHarness(
        NODES, placement=PolicyChoice("first-fit"), balancer=balancer, web_adjust_s=10_000.0, **settings
    ).lead()
    harness.ask(SubmitWeb("s", shop()))
    harness.obey()
    return harness


def told(harness: ControllerHarness) -> list[Balance]:
    """What the balancer was told since last asked."""
    balances, harness.balances = harness.balances, []
    return balances


def answer(harness: ControllerHarness, *drained: str, ok: bool = True, app: str = "shop") -> None:
    harness.feed(Balanced(app, ok, drained, "" if ok else "refused"))


def agreed(harness: ControllerHarness) -> ControllerHarness:
    """The balancer takes what it is told until there is nothing new."""
    while told(harness):
        answer(harness)
    return harness


def stop(harness: ControllerHarness, vm: str) -> None:
    entry = harness.controller.cluster.active[vm]
    change = Change(vm, entry.revision, ChangeKind.STOP, (), Reason(ReasonCode.ADJUSTMENT))
    assert not harness.controller.deciding.desired.apply([change], harness.now_s)
    harness.report("n3")


def stops(harness: ControllerHarness) -> list[str]:
    return [order.vm for order in harness.orders if order.kind is ActionKind.STOP]


def test_every_instance_that_runs_is_told_one_call_at_a_time() -> None:
    """Given a balancer that has not answered yet, then the instances wait; and then both are told at once."""
    harness = led()
    assert told(harness) == [Balance("shop", ())]
    harness.wait(30.0, NODES)
    assert told(harness) == []
    answer(harness)
    assert told(harness) == [Balance("shop", (ONE, TWO))]
    answer(harness)
    harness.wait(300.0, NODES)
    assert told(harness) == []


def test_an_instance_is_drained_before_it_is_stopped() -> None:
    harness = agreed(led())
    stop(harness, "shop#1")
    drain = Balance("shop", (ONE, Backend("shop#1", "n2", True)))
    assert (told(harness), stops(harness)) == ([drain], [])
    answer(harness)
    harness.wait(10.0, NODES)
    assert told(harness) == [drain]
    assert stops(harness) == []
    answer(harness, "shop#1")
    assert stops(harness) == ["shop#1"]
    harness.obey()
    assert told(harness) == [Balance("shop", (ONE,))]


def test_after_so_long_it_is_stopped_all_the_same() -> None:
    """Given requests that do not end, then the instance goes after the limit, and not before."""
    harness = agreed(led())
    stop(harness, "shop#1")
    for _ in range(11):
        harness.wait(5.0, NODES)
        if told(harness):
            answer(harness)
    assert stops(harness) == []
    harness.wait(10.0, NODES)
    assert stops(harness) == ["shop#1"]


def test_a_balancer_that_never_answers_holds_nothing_up_for_longer() -> None:
    harness = agreed(led())
    stop(harness, "shop#1")
    harness.wait(55.0, NODES)
    assert stops(harness) == []
    harness.wait(10.0, NODES)
    assert stops(harness) == ["shop#1"]
    harness.obey()
    harness.wait(120.0, NODES)
    assert told(harness)[-1] == Balance("shop", (ONE,))  # what was not answered is told again


def test_failures_are_told_and_tried_again_less_and_less_often() -> None:
    harness = led()
    told(harness)
    times = []
    for _ in range(80):
        answer(harness, ok=False)
        harness.wait(1.0, NODES)
        if told(harness):
            times.append(harness.now_s)
    gaps = [round(b - a) for a, b in pairwise(times)]
    assert gaps[:2] == [10, 20]
    assert set(gaps[2:]) == {20}
    assert [event.detail for event in harness.happenings("balancer-unreachable")] == ["refused"]
    alarms = [row for row in harness.ask(Query("q", "status")).data["alarms"] if row["what"] == "balancer-unreachable"]
    assert [(row["subject"], row["detail"]) for row in alarms] == [("shop", "refused")]
    harness.wait(20.0, NODES)
    answer(harness)
    assert len(harness.happenings("balancer-reachable")) == 1
    assert not any(row["what"] == "balancer-unreachable" for row in harness.ask(Query("q", "status")).data["alarms"])


def test_a_move_keeps_the_instance_and_tells_its_new_node() -> None:
    harness = agreed(led())
    entry = harness.controller.cluster.active["shop#1"]
    change = Change(
        "shop#1", entry.revision, ChangeKind.MIGRATE, (Allotment("n3", 1000.0),), Reason(ReasonCode.OPERATOR)
    )
    assert not harness.controller.deciding.desired.apply([change], harness.now_s)
    harness.report("n3")
    harness.obey()
    calls = told(harness)
    assert [backend.drain for call in calls for backend in call.backends] == [False] * 2 * len(calls)
    assert calls[-1] == Balance("shop", (ONE, Backend("shop#1", "n3")))


def test_a_lost_instance_is_taken_out_at_once() -> None:
    harness = agreed(led())
    harness.guest("n2", "shop#1", GuestChange.ENDED)
    assert told(harness) == [Balance("shop", (ONE,))]


def test_an_application_that_is_removed_leaves_nothing() -> None:
    harness = agreed(led())
    harness.ask(RemoveWeb("r", "shop"))
    assert told(harness) == [Balance("shop", (Backend("shop#0", "n1", True), Backend("shop#1", "n2", True)))]
    assert stops(harness) == []
    answer(harness, "shop#0", "shop#1")
    harness.obey()
    while calls := told(harness):
        last = calls[-1]
        answer(harness)
    assert last == Balance("shop", ())
    assert parts.balancing(harness.controller).states == {}
    assert "shop" not in harness.controller.cluster.web


def test_a_new_leader_tells_everything_once_and_still_drains() -> None:
    """Given a leader that knows nothing of what was told, then it tells all, and stops nothing undrained meanwhile."""
    before = agreed(led())
    harness = ControllerHarness(
        NODES, before.store, placement=PolicyChoice("first-fit"), balancer=TELLS, web_adjust_s=10_000.0
    )
    harness.now_s, harness.vms, harness.seqs = before.now_s, before.vms, before.seqs
    harness.lead()
    stop(harness, "shop#1")
    assert stops(harness) == []
    for _ in range(3):
        calls = told(harness)
        answer(harness)
    assert stops(harness) == []
    harness.wait(10.0, NODES)
    calls = told(harness)
    assert calls[-1].backends[-1] == Backend("shop#1", "n2", True)
    answer(harness, "shop#1")
    assert stops(harness) == ["shop#1"]


def test_without_a_driver_nobody_is_told_and_nothing_waits() -> None:
    harness = led(BalancerSettings())
    stop(harness, "shop#1")
    assert (told(harness), stops(harness)) == ([], ["shop#1"])


@pytest.mark.parametrize("ok", [True, False])
def test_an_answer_that_nobody_waits_for_says_nothing(ok: bool) -> None:
    harness = agreed(led())
    answer(harness, "shop#0", ok=ok)
    answer(harness, ok=ok, app="unknown")
    assert told(harness) == []
    assert not harness.happenings("balancer-unreachable")


def test_nothing_is_told_while_the_controller_only_observes() -> None:
    harness = led()
    harness.controller.unit_of_work.acting = False
    told(harness)
    answer(harness)
    harness.wait(60.0, NODES)
    assert told(harness) == []
    harness.ask(SetDeciding("on", True))
    harness.wait(10.0, NODES)
    assert told(harness) == [Balance("shop", (ONE, TWO))]
