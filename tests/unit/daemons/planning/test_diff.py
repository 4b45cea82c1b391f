"""What separates a workload from its desired state, one case after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemons.planning import order
from daemons.planning.diff import diff
from daemons.planning.observed import Ceilings, Headroom, ObservedInstance, ObservedWorkload, VmCopy
from shared.values.actions import ActionKind
from shared.values.jobs import JobPhase
from shared.values.vms import VmState


def copy(node: str, state: VmState = VmState.RUNNING, **fields: object) -> VmCopy:
    return replace(VmCopy(node, state, attempt=1, generation=1, cpu_mhz=1000.0, usable=True), **fields)  # type: ignore[arg-type]


def instance(index: int = 0, want: str = "n1", copies: tuple[VmCopy, ...] = (), **fields: object) -> ObservedInstance:
    observed = ObservedInstance(
        f"j#{index}",
        want,
        1000.0,
        memory_mib=512.0,
        copies=copies,
        busy=False,
        unknown=False,
        issued=False,
        ended=False,
    )
    return replace(observed, **fields)  # type: ignore[arg-type]


def workload(*instances: ObservedInstance, phase: JobPhase = JobPhase.RUNNING, attempt: int = 1) -> ObservedWorkload:
    return ObservedWorkload("j", phase, attempt, instances)


def kinds(observed: ObservedWorkload) -> list[tuple[ActionKind, str]]:
    return [(need.kind, need.node) for need in diff(observed).needs]


def test_an_instance_that_is_nowhere_is_started_unpaused_when_alone() -> None:
    need = diff(workload(instance())).needs[0]
    assert (need.kind, need.node, need.expects, need.paused) == (ActionKind.START, "n1", 0, False)
    assert (need.memory_mib, need.cpu_mhz) == (512.0, 1000.0)


@pytest.mark.parametrize(("is_now", "wanted"), [(False, True), (True, False), (True, True)])
def test_an_adopted_vm_is_labelled_again_when_it_is_to_stay_off_or_no_more(is_now: bool, wanted: bool) -> None:
    one = instance(copies=(copy("n1", stays_off=is_now),), adopted=True, defined=True, stays_off=wanted)
    assert kinds(workload(one)) == [(ActionKind.ADOPT, "n1")] * (is_now is not wanted)


def test_a_gang_is_prepared_paused_and_released_together() -> None:
    two = workload(instance(0), instance(1, want="n2"))
    assert [need.paused for need in diff(two).needs] == [True, True]
    half = workload(instance(0, copies=(copy("n1", VmState.PAUSED),)), instance(1, want="n2", busy=True, issued=True))
    assert kinds(half) == []
    ready = workload(
        instance(0, copies=(copy("n1", VmState.PAUSED),)), instance(1, want="n2", copies=(copy("n2", VmState.PAUSED),))
    )
    assert diff(ready).together
    assert kinds(ready) == [(ActionKind.UNPAUSE, "n1"), (ActionKind.UNPAUSE, "n2")]


def test_one_unknown_instance_pauses_the_others() -> None:
    lost_copies = workload(
        instance(0, copies=(copy("n1"),)), instance(1, want="n2", unknown=True, copies=(copy("n2", usable=False),))
    )
    assert kinds(lost_copies) == [(ActionKind.PAUSE, "n1")]


@pytest.mark.parametrize("held_back", [{"unknown": True}, {"busy": True}])
def test_what_is_unknown_or_busy_is_never_started(held_back: dict[str, Any]) -> None:
    difference = diff(workload(instance(**held_back)))
    assert difference.needs == ()
    assert not difference.lost


def test_an_instance_that_was_started_and_is_proven_nowhere_is_lost() -> None:
    difference = diff(workload(instance(issued=True)))
    assert difference.lost
    assert difference.needs == ()


def test_an_ended_instance_needs_nothing_and_does_not_hold_up_its_gang() -> None:
    observed = workload(instance(0, ended=True, issued=True), instance(1, copies=(copy("n1"),)))
    difference = diff(observed)
    assert difference.together
    assert difference.needs == ()


def test_a_running_vm_moves_to_where_it_is_wanted_then_gets_its_cpu() -> None:
    assert kinds(workload(instance(want="n2", copies=(copy("n1"),)))) == [(ActionKind.MIGRATE, "n1")]
    assert kinds(workload(instance(want="n2", copies=(copy("n1", cpu_mhz=400.0),)))) == [(ActionKind.MIGRATE, "n1")]


def test_a_vm_that_is_to_have_less_has_less_before_it_moves() -> None:
    """It arrives with the CPU that it left with, and there is only so much where it goes."""
    observed = workload(instance(want="n2", copies=(copy("n1", cpu_mhz=1500.0),)))
    (need,) = diff(observed).needs
    assert (need.kind, need.node, need.cpu_mhz, need.set_mhz) == (ActionKind.SET_CPU, "n1", -500.0, 1000.0)
    rooms = {"n1": Headroom(0.0, 0.0), "n2": Headroom(512.0, 1000.0)}
    plan = order.plan([need], rooms, {"j#0": Headroom(512.0, 1500.0)}, Ceilings())
    assert [(step.kind, step.to_node, step.wave) for step in plan.steps] == [
        (ActionKind.SET_CPU, "", 0),
        (ActionKind.MIGRATE, "n2", 1),
    ]
    assert (rooms["n1"].cpu_mhz, rooms["n2"].cpu_mhz) == (1500.0, 0.0)
    need = diff(workload(instance(copies=(copy("n1", cpu_mhz=600.0),)))).needs[0]
    assert (need.kind, need.cpu_mhz, need.set_mhz) == (ActionKind.SET_CPU, 400.0, 1000.0)


def test_an_image_is_resumed_where_it_is_wanted_and_its_source_goes_only_when_the_vm_is_seen() -> None:
    image = copy("n1", VmState.SUSPENDED)
    need = diff(workload(instance(want="n2", copies=(image,), issued=True))).needs[0]
    assert (need.kind, need.node, need.from_node, need.expects) == (ActionKind.RESUME, "n2", "n1", 1)
    assert kinds(workload(instance(want="n2", copies=(image,), issued=True, busy=True))) == []
    seen = instance(want="n2", copies=(image, copy("n2", generation=2)), issued=True)
    assert kinds(workload(seen)) == [(ActionKind.DISCARD_IMAGE, "n1")]


def test_an_image_on_a_node_that_is_unknown_is_waited_for() -> None:
    image = copy("n1", VmState.SUSPENDED, usable=False)
    difference = diff(workload(instance(want="n2", copies=(image,), issued=True)))
    assert difference.needs == ()
    assert not difference.lost


def test_vms_of_a_past_attempt_are_stopped() -> None:
    stale = copy("n3", attempt=1)
    observed = workload(instance(copies=(copy("n1", attempt=2), stale)), attempt=2)
    assert kinds(observed) == [(ActionKind.STOP, "n3")]


def test_suspending_goes_for_live_vms_and_keeps_images() -> None:
    both = workload(
        instance(0, copies=(copy("n1"),)),
        instance(1, copies=(copy("n2", VmState.SUSPENDED),)),
        phase=JobPhase.SUSPENDED,
    )
    assert kinds(both) == [(ActionKind.SUSPEND, "n1")]


def test_a_suspended_job_whose_image_is_proven_gone_is_lost() -> None:
    assert diff(workload(instance(), phase=JobPhase.SUSPENDED)).lost


@pytest.mark.parametrize("phase", [JobPhase.WAITING, JobPhase.COMPLETED, JobPhase.CANCELLED])
def test_what_is_not_wanted_is_taken_away(phase: JobPhase) -> None:
    observed = workload(instance(0, copies=(copy("n1"), copy("n2", VmState.SUSPENDED))), phase=phase)
    assert kinds(observed) == [(ActionKind.STOP, "n1"), (ActionKind.DISCARD_IMAGE, "n2")]


def test_nothing_is_asked_of_a_node_that_is_not_usable() -> None:
    for phase in JobPhase:
        assert kinds(workload(instance(want="n2", copies=(copy("n1", usable=False),)), phase=phase)) == []
