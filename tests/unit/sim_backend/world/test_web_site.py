"""The truth of web applications: work is conserved, answers take what a queue takes, overload queues and rejects."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shared.values.nodes import Node
from shared.values.web_app import FlowSample, ModelForm
from sim_backend.world.demand import Demand, constant, steps
from sim_backend.world.web_site import BUSY_MAX, TrueFlow, TrueWeb, WebSite
from sim_backend.world.world import World

CORE_MHZ = 1_000.0
PERIOD_S = 20.0
WORK_MCYCLES = 50.0


def world(hosts: int = 2) -> World:
    made = World()
    for index in range(hosts):
        made.add_host(Node(f"h{index}", 4, CORE_MHZ, memory_mib=8_000))
    return made


def place(made: World, index: int, host: str, at_s: float, weight_mhz: float = 1_000.0, vcpus: int = 4) -> None:
    made.place(f"shop#{index}", host, at_s, weight_mhz, math.inf, vcpus, 500)


def truth(demand: Demand, **changes: object) -> TrueWeb:
    exact = TrueWeb((TrueFlow("browse", demand, WORK_MCYCLES, 0.01),), noise_frac=0.0, chance=False)
    return replace(exact, **changes)  # type: ignore[arg-type]


def looks(site: WebSite, made: World, until_s: float, from_s: float = 0.0) -> list[FlowSample]:
    """Look every period; the samples of the only flow."""
    found: list[FlowSample] = []
    for step in range(round((until_s - from_s) / PERIOD_S) + 1):
        at_s = from_s + step * PERIOD_S
        made.advance(at_s)
        found += site.look(at_s, at_s + PERIOD_S)
    return found


def test_one_server_answers_as_processor_sharing_does() -> None:
    """Given 10 requests/s of 50 Mcycles on one vCPU of 1,000 MHz, then t = t_min + d / (W - L), and the CPU is L."""
    made = world()
    place(made, 0, "h0", 0.0, vcpus=1)
    site = WebSite("shop", truth(constant(10.0)), made)

    samples = looks(site, made, 200.0)

    assert [(s.offered, s.served, s.rejected, s.queued) for s in samples] == [(200, 200, 0, 0)] * 10
    assert samples[-1].mean_s == pytest.approx(0.01 + 50.0 / 500.0)
    assert made.cpu_time_s("shop#0", 200.0) == pytest.approx(10.0 * 50.0 * 200.0 / CORE_MHZ)
    assert site.looks[-1].used_mhz == pytest.approx(500.0)


@pytest.mark.parametrize("form", [ModelForm.PROCESSOR_SHARING, ModelForm.MULTI_SERVER])
def test_many_servers(form: ModelForm) -> None:
    """Given two instances of four vCPUs, 80 requests/s: half of the CPU is used, by each alike."""
    made = world()
    place(made, 0, "h0", 0.0)
    place(made, 1, "h1", 0.0)
    site = WebSite("shop", truth(constant(80.0), form=form), made)

    sample = looks(site, made, 100.0)[-1]

    waits = 0.5 ** (math.sqrt(2 * 9) - 1) / (8 * 0.5)
    alone = {ModelForm.PROCESSOR_SHARING: 50.0 / 4_000.0, ModelForm.MULTI_SERVER: 0.05 * (1 + waits)}
    assert sample.mean_s == pytest.approx(0.01 + alone[form])
    assert made.share_mhz("shop#0") == made.share_mhz("shop#1") == pytest.approx(2_000.0)


def test_a_request_never_runs_faster_than_one_core() -> None:
    made = world()
    place(made, 0, "h0", 0.0)
    site = WebSite("shop", truth(constant(0.1)), made)
    assert looks(site, made, 100.0)[-1].mean_s == pytest.approx(0.01 + WORK_MCYCLES / CORE_MHZ, rel=1e-3)


def test_instances_are_used_alike_for_what_they_can_have() -> None:
    """Given one instance that shares its host with a job, then it gets less of the requests, in proportion."""
    made = world()
    made.add_task("job", [(1e9, 4_000.0)], 1)
    made.place("job#0", "h0", 0.0, 3_000.0, math.inf, 4, 100)
    place(made, 0, "h0", 0.0)
    place(made, 1, "h1", 0.0)
    assert made.available_mhz("shop#0") == pytest.approx(1_000.0)
    site = WebSite("shop", truth(constant(50.0)), made)

    sample = looks(site, made, 100.0)[-1]

    assert (sample.served, sample.queued) == (1_000, 0)
    assert made.share_mhz("shop#0") == pytest.approx(500.0)
    assert made.share_mhz("shop#1") == pytest.approx(2_000.0)
    assert made.share_mhz("job#0") == pytest.approx(3_500.0)  # what the requests leave, it takes


def test_overload_queues_then_rejects_and_drains_when_it_is_over() -> None:
    """Given 30 requests/s where 19.6 can be answered, then the queue grows to `queue_s` of work and the rest is turned
    away; nothing is lost from the books."""
    made = world()
    place(made, 0, "h0", 0.0, vcpus=1)
    site = WebSite("shop", truth(steps([(0.0, 30.0), (400.0, 5.0)]), queue_s=15.0), made)

    samples = looks(site, made, 1_000.0)

    loaded, last = samples[15], samples[-1]
    assert loaded.served == pytest.approx(BUSY_MAX * CORE_MHZ / WORK_MCYCLES * PERIOD_S, abs=1)
    assert loaded.queued == pytest.approx(15.0 * CORE_MHZ / WORK_MCYCLES, abs=1)
    assert loaded.rejected == pytest.approx(600 - loaded.served, abs=2)
    assert loaded.mean_s > 15.0
    assert (last.queued, last.rejected, last.served) == (0, 0, 100)
    assert last.mean_s == pytest.approx(0.01 + 50.0 / 750.0)
    assert sum(s.offered for s in samples) == sum(s.served + s.rejected for s in samples)


def test_without_instances_everything_is_rejected() -> None:
    made = world()
    site = WebSite("shop", truth(constant(10.0)), made)

    samples = looks(site, made, 60.0)

    assert {(s.offered, s.served, s.rejected, s.queued, s.mean_s) for s in samples} == {(200, 0, 200, 0, 0.0)}
    assert site.looks[-1].mean_s == (None,)


def test_instances_that_come_move_pause_and_go() -> None:
    made = world()
    site = WebSite("shop", truth(constant(10.0)), made)
    place(made, 0, "h0", 0.0, vcpus=1)
    first = looks(site, made, 100.0)
    made.move("shop#0", "h1", 105.0)
    assert made.cpu_time_s("shop#0", 105.0) == 0.0
    moved = looks(site, made, 200.0, 120.0)
    made.set_running("shop#0", False, 205.0)
    place(made, 1, "h0", 210.0, vcpus=1)
    paused = looks(site, made, 300.0, 220.0)
    made.remove("shop#1", 305.0)
    made.set_running("shop#0", True, 305.0)
    looks(site, made, 400.0, 320.0)

    assert [s.served for s in (*first, *moved)] == [200] * 10
    assert [s.served for s in paused] == [200] * 5  # the router sent to the other what the paused one did not finish
    assert [look.instances for look in site.looks] == [1] * 20


def test_work_that_an_instance_loses_to_others_is_sent_elsewhere() -> None:
    """Given a job that comes to one host between two looks, then nobody waits, and the CPU adds up later."""
    made = world()
    made.add_task("job", [(1e9, 4_000.0)], 1)
    place(made, 0, "h0", 0.0)
    place(made, 1, "h1", 0.0)
    site = WebSite("shop", truth(constant(80.0)), made)
    calm = looks(site, made, 40.0)[-1]
    made.place("job#0", "h0", 45.0, 3_000.0, math.inf, 4, 100)

    disturbed, after = looks(site, made, 80.0, 60.0)

    assert (disturbed.served, disturbed.queued) == (after.served, after.queued) == (1_600, 0)
    assert calm.mean_s < disturbed.mean_s == pytest.approx(after.mean_s)
    assert site.looks[2].used_mhz < 4_000.0 < site.looks[3].used_mhz
    done = sum(made.done_without_task_mcycles(f"shop#{index}", 80.0) for index in range(2))
    assert done == pytest.approx(80.0 * 80.0 * WORK_MCYCLES)


def test_noise_is_the_seeds() -> None:
    def run(seed: int) -> list[FlowSample]:
        made = world()
        place(made, 0, "h0", 0.0)
        noisy = truth(constant(20.0), noise_frac=0.1, chance=True, seed=seed)
        return looks(WebSite("shop", noisy, made), made, 4_000.0)

    samples = run(1)
    assert samples == run(1)
    assert samples != run(2)
    assert sum(s.offered for s in samples) == pytest.approx(20.0 * 4_000.0, rel=0.02)
    assert len({s.offered for s in samples}) > 20
    assert len({s.mean_s for s in samples}) == len(samples)


def test_percentiles_have_an_exponential_tail() -> None:
    made = world()
    place(made, 0, "h0", 0.0, vcpus=1)
    flow = TrueFlow("buy", constant(10.0), WORK_MCYCLES, 0.01, percentile=0.95)
    site = WebSite("shop", truth(constant(0.0), flows=(flow,)), made)
    sample = looks(site, made, 40.0)[-1]
    assert sample.percentile_s == pytest.approx(0.01 + (sample.mean_s - 0.01) * math.log(20.0))


def test_flows_are_answered_in_proportion() -> None:
    made = world()
    place(made, 0, "h0", 0.0, vcpus=1)
    flows = (TrueFlow("a", constant(6.0), 100.0), TrueFlow("b", constant(30.0), 20.0))
    site = WebSite("shop", truth(constant(0.0), flows=flows, queue_s=1.0), made)
    for step in range(10):
        made.advance(step * PERIOD_S)
        samples = site.look(step * PERIOD_S, (step + 1) * PERIOD_S)
    a, b = samples
    assert a.served * 100.0 + b.served * 20.0 == pytest.approx(BUSY_MAX * CORE_MHZ * PERIOD_S, rel=0.01)
    assert b.served == pytest.approx(5 * a.served, abs=5)
