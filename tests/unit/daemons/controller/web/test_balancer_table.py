"""What the load balancer is told of an application: addresses, weights, limits, how it is served and watched; and all
of it again in turns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from daemons.controller.web.balancer_table import steady
from daemons.controller.web.load_balancing import WORDS_S
from daemons.values.settings import BalancerSettings, PolicyChoice
from shared.ports.effects import Backend, Balance, Balanced, Received
from shared.protocol import topology
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import RemoveWeb, SubmitWeb
from shared.values.health import Probe, ProbeKind
from shared.values.jobs import Allotment
from shared.values.web_app import Distribution, Flow, FlowSample, Limits, Serving, WebApp
from tests.support import parts
from tests.support.controller_harness import ControllerHarness

NODES = ("n1", "n2", "n3")
ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3"}
SERVING = Serving(8080, 80, Distribution.LEAST_CONNECTIONS)
PROBE = Probe(ProbeKind.HTTP, 8080, "/health")
QUIET = BalancerSettings("test", resend_s=0.0)


def shop(**fields: Any) -> WebApp:
    given: dict[str, Any] = {
        "flows": (),
        "memory_mib": 1000,
        "max_mhz": 1000.0,
        "min_instances": 2,
        "max_instances": 2,
        "serving": SERVING,
        "probe": PROBE,
    }
    return WebApp("shop", **(given | fields))


def harness_of(app: WebApp, balancer: BalancerSettings = QUIET) -> ControllerHarness:
    """A leader of two instances that run, each under an address of its own."""
    harness = unheard(app, balancer)
    address(harness)
    return harness


def unheard(app: WebApp, balancer: BalancerSettings = QUIET) -> ControllerHarness:
    """A leader of two instances that run, of which no node has said the address."""
    harness = fresh(balancer).lead()
    harness.ask(SubmitWeb("s", app))
    harness.obey()
    return harness


def fresh(balancer: BalancerSettings = QUIET, **fields: Any) -> ControllerHarness:
    return ControllerHarness(
        NODES, placement=PolicyChoice("first-fit"), balancer=balancer, web_adjust_s=10_000.0, **fields
    )


def address(harness: ControllerHarness) -> None:
    """Every node has found out where its guests are."""
    for node, vms in harness.vms.items():
        for vm in vms:
            harness.change(node, vm, address=ADDRESSES[node])
        harness.report(node)


def settled(harness: ControllerHarness) -> Balance:
    """What the balancer is told in the end."""
    last = Balance("nothing", ())
    while harness.balances:
        last, harness.balances = harness.balances[-1], []
        harness.feed(Balanced(last.app, True))
    return last


def measured(harness: ControllerHarness, seq: int, rate_per_s: float, flow: str = "browse") -> None:
    count = int(5 * rate_per_s)
    report = WebReport(
        "shop", seq, harness.now_s, (FlowSample(flow, 5.0, count, served=count, rejected=0, queued=0, mean_s=0.1),)
    )
    harness.feed(Received(None, topology.web_user("shop"), report))
    harness.wait(5.0, NODES)


def test_all_that_a_balancer_needs_is_told() -> None:
    told = settled(harness_of(shop()))
    backends = Backend("shop#0", "n1", address="10.0.0.1"), Backend("shop#1", "n2", address="10.0.0.2")
    assert told == Balance("shop", backends, SERVING, Limits(), PROBE)


def test_an_address_that_changes_is_told_at_once() -> None:
    harness = harness_of(shop())
    settled(harness)
    harness.change("n2", "shop#1", address="10.0.7.7")
    harness.report("n2")
    assert [backend.address for backend in settled(harness).backends] == ["10.0.0.1", "10.0.7.7"]


def test_an_address_is_kept_while_its_node_does_not_know_it() -> None:
    """Given an instance whose new node cannot say yet where it is, then it stays in rotation; in another life it does
    not."""
    harness = harness_of(shop())
    settled(harness)
    harness.change("n2", "shop#1", address="")
    harness.report("n2")
    settled(harness)
    assert known(harness) == ["10.0.0.1", "10.0.0.2"]
    harness.controller.cluster.instances["shop#1"].address_generation = 99
    give(harness, "shop#1", 900.0)
    settled(harness)
    assert known(harness) == ["10.0.0.1", ""]


def successor(harness: ControllerHarness) -> ControllerHarness:
    """The controller dies and another one leads, to which nobody has reported yet."""
    other = fresh(store=harness.store)
    other.now_s, other.boots, other.seqs, other.vms = harness.now_s, harness.boots, harness.seqs, harness.vms
    other.carry(other.controller.start(other.now_s))
    return other


def test_the_next_leader_knows_the_addresses_before_anyone_reports() -> None:
    """Otherwise it would have all instances taken out that serve."""
    other = successor(harness_of(shop()))
    assert [backend.address for backend in settled(other).backends] == ["10.0.0.1", "10.0.0.2"]


def test_the_next_leader_waits_for_addresses_that_are_not_stored() -> None:
    """Given a store without them, then nothing is told before nodes have spoken, for some seconds."""
    heard = successor(unheard(shop()))
    assert heard.balances == []
    address(heard)
    assert [backend.address for backend in settled(heard).backends] == ["10.0.0.1", "10.0.0.2"]


def test_the_next_leader_waits_for_addresses_no_longer_than_some_seconds() -> None:
    other = successor(unheard(shop()))
    other.wait(WORDS_S - 1.0)
    assert other.balances == []
    other.wait(1.0)
    assert [backend.address for backend in settled(other).backends] == ["", ""]


def known(harness: ControllerHarness) -> list[str]:
    """The addresses by the last answer."""
    served = parts.balancing(harness.controller).states["shop"].served
    assert served is not None
    return [backend.address for backend in served.backends]


def test_how_it_is_served_changes_at_once_and_goes_with_the_application() -> None:
    harness = harness_of(shop())
    settled(harness)
    other = replace(SERVING, listen=8_000, distribution=Distribution.SOURCE)
    harness.ask(SubmitWeb("t", shop(serving=other, probe=None)))
    told = settled(harness)
    assert (told.serving, told.probe) == (other, None)
    harness.ask(RemoveWeb("r", "shop"))
    drained = harness.balances.pop()
    assert (drained.serving, [backend.drain for backend in drained.backends]) == (other, [True, True])
    harness.feed(Balanced("shop", True, ("shop#0", "shop#1")))
    harness.obey()
    assert settled(harness) == Balance("shop", ())
    assert not parts.balancing(harness.controller).states


def test_an_application_that_never_ran_is_taken_out_too() -> None:
    harness = ControllerHarness((), balancer=QUIET).lead()
    harness.ask(SubmitWeb("s", shop()))
    assert settled(harness) == Balance("shop", (), SERVING, Limits(), PROBE)
    harness.ask(RemoveWeb("r", "shop"))
    assert settled(harness) == Balance("shop", ())


def test_an_application_is_forgotten_when_the_balancer_has_taken_it_out() -> None:
    """Given a controller that ends between the last instance and the balancer's answer, then the next one tells it."""
    before = ControllerHarness((), balancer=QUIET).lead()
    before.ask(SubmitWeb("s", shop()))
    settled(before)
    before.ask(RemoveWeb("r", "shop"))
    assert before.balances == [Balance("shop", ())]
    assert not before.happenings("web-removed")
    harness = ControllerHarness((), before.store, balancer=QUIET).lead()
    assert harness.balances == [Balance("shop", ())]
    harness.feed(Balanced("shop", True))
    assert len(harness.happenings("web-removed")) == 1
    assert not parts.balancing(harness.controller).states


def test_a_balancer_that_is_gone_keeps_no_application() -> None:
    harness = ControllerHarness((), balancer=QUIET).lead()
    harness.ask(SubmitWeb("s", shop()))
    settled(harness)
    harness.ask(RemoveWeb("r", "shop"))
    begun_s = harness.now_s
    for _ in range(20):
        if harness.balances:
            harness.balances.clear()
            harness.feed(Balanced("shop", False, (), "no way there"))
        harness.wait(10.0)
    (removed,) = harness.happenings("web-removed")
    assert 120.0 <= removed.at_s - begun_s <= 130.0
    harness.wait(30.0)
    assert settled(harness) == Balance("shop", ())  # it is told all the same once it is there
    assert not parts.balancing(harness.controller).states


def test_weights_follow_the_cpu_where_they_count() -> None:
    """Given 1,000 and 250 MHz, then the smaller weighs a quarter; where the balancer does not weigh, both weigh 1."""
    for distribution, expected in ((Distribution.WEIGHTED, [1.0, 0.25]), (Distribution.ROUND_ROBIN, [1.0, 1.0])):
        harness = harness_of(shop(serving=replace(SERVING, distribution=distribution)))
        give(harness, "shop#1", 250.2)
        assert [backend.weight for backend in settled(harness).backends] == expected


def give(harness: ControllerHarness, vm: str, cpu_mhz: float) -> None:
    """Another allotment of CPU for an instance."""
    entry = harness.controller.cluster.active[vm]
    node = entry.allotments[0].node
    harness.controller.cluster.set_allotments(entry, (Allotment(node, cpu_mhz),))
    harness.controller.unit_of_work.change(entry)
    harness.report(node)


def test_a_weight_that_hardly_changes_is_not_told() -> None:
    harness = harness_of(shop(serving=replace(SERVING, distribution=Distribution.WEIGHTED)))
    give(harness, "shop#1", 500.0)
    settled(harness)
    give(harness, "shop#1", 501.0)
    assert harness.balances == []
    give(harness, "shop#1", 510.0)
    assert [backend.weight for backend in settled(harness).backends] == [1.0, 131 / 256]


def test_limits_come_from_the_model_as_soon_as_it_knows_enough() -> None:
    """Given 20 Mcycles a request, 1,000 MHz an instance and a goal of 0.5 s, then 24 of the 25 requests that can be
    answered in it are let in to each instance and one waits for each."""
    harness = harness_of(shop(flows=(Flow("browse", mean_s=0.5, work_mcycles=20.0),)), BalancerSettings("test"))
    assert settled(harness).limits == Limits()
    measured(harness, 1, 10.0)
    assert settled(harness).limits == Limits(24, 2)


def test_limits_of_the_file_come_before_those_of_the_model() -> None:
    flows = (Flow("browse", mean_s=0.5, work_mcycles=20.0),)
    harness = harness_of(shop(flows=flows, serving=replace(SERVING, instance_max=5)), BalancerSettings("test"))
    settled(harness)
    measured(harness, 1, 10.0)
    assert settled(harness).limits == Limits(None, 2)


def test_no_limits_while_the_work_of_a_request_is_not_known() -> None:
    harness = harness_of(shop(flows=(Flow("browse", mean_s=0.5),)), BalancerSettings("test"))
    measured(harness, 1, 10.0)
    assert settled(harness).limits == Limits()


def test_limits_that_hardly_change_are_not_told() -> None:
    told = Limits(100, 20)
    assert steady(told, Limits(109, 19)) == told
    assert steady(told, Limits(110, 20)) == Limits(110, 20)
    assert steady(told, Limits(100, 18)) == Limits(100, 18)
    assert steady(told, Limits()) == Limits()
    assert steady(Limits(), told) == told
    assert steady(Limits(1, 1), Limits(1, 2)) == Limits(1, 2)


@pytest.mark.full
def test_everything_is_told_again_in_turns() -> None:
    """Given forty applications and a period of 5 s, then each is told again every 5 s, and not all at one instant."""
    harness = ControllerHarness(NODES, balancer=BalancerSettings("test", resend_s=5.0), web_adjust_s=1e6).lead()
    names = [f"app{index}" for index in range(40)]
    for name in names:
        harness.ask(
            SubmitWeb(name, WebApp(name, (), 10, max_mhz=10.0, min_instances=0, max_instances=1, serving=SERVING))
        )
    times: dict[str, list[float]] = {name: [] for name in names}
    most = 0
    end_s = harness.now_s + 60.0
    while harness.now_s < end_s:
        balances, harness.balances = harness.balances, []
        most = max(most, len(balances)) if harness.now_s > end_s - 50.0 else 0
        for balance in balances:
            times[balance.app].append(harness.now_s)
            harness.feed(Balanced(balance.app, True))
        harness.now_s = min(harness.timers["balance"], end_s)
        harness.settle()
    gaps = [b - a for told in times.values() for a, b in pairwise(told[1:])]
    assert all(len(told) in (12, 13, 14) for told in times.values())
    assert max(abs(gap - 5.0) for gap in gaps) < 1e-6
    assert 1 <= most <= 8


def test_a_balancer_that_is_back_is_told_within_half_a_minute() -> None:
    """Given one that could not be reached for an hour, then it is tried again every 30 s at the latest."""
    harness = harness_of(shop(), BalancerSettings("test"))
    for _ in range(720):
        if harness.balances:
            harness.balances.clear()
            harness.feed(Balanced("shop", False, (), "no way there"))
        harness.wait(5.0, NODES)
    waited_s = 0.0
    while not harness.balances:
        harness.wait(5.0, NODES)
        waited_s += 5.0
    assert waited_s <= 30.0
