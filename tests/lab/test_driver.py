"""The driver `libvirt` on real QEMU when others, or libvirtd itself, do what nobody ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shared.base.errors import TransientError
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.vms import VmState, VmStatus
from sim_backend.conformance.hypervisor_bench import VM, Bench
from tests.lab.hosts import Lab
from tests.lab.test_conformance import SHARED, Harness, harness, running_lab

pytestmark = [pytest.mark.full, pytest.mark.alone]


@pytest.fixture(scope="module")
def lab(lab_tools: None) -> Iterator[Lab]:  # noqa: ARG001  looks for what is needed
    with running_lab() as made:
        yield made


@pytest.fixture
def bench(lab: Lab) -> Iterator[Bench]:
    with harness(lab, SHARED) as surroundings:
        yield Bench(surroundings)


def until(bench: Bench, ready: Callable[[], bool]) -> None:
    bench.harness.until(ready)
    assert ready()


def statuses(bench: Bench) -> dict[str, VmStatus]:
    """What the first node has, nothing while it cannot be read."""
    try:
        return {status.vm: status for status in bench.node.vms(0.0)}
    except TransientError:
        return {}


def test_what_others_do_is_told_as_what_it_is(lab: Lab, bench: Bench) -> None:
    first, second = lab.hosts
    bench.start()
    first.virsh("migrate", "--live", "--p2p", "--unsafe", "--persistent", VM, second.uri)
    left = bench.change(VM)
    assert (left.change, left.status.state) == (GuestChange.LEFT, VmState.RUNNING)
    assert bench.find() is None
    assert bench.change(VM, bench.peer).change is GuestChange.ARRIVED
    assert bench.status(on=bench.peer).generation == 1
    until(bench, lambda: VM not in first.virsh("list", "--all", "--name").split())
    second.virsh("destroy", VM)
    until(bench, lambda: len(changes(bench, "h2")) > 1)
    assert [change.change for change in changes(bench, "h2")] == [GuestChange.ARRIVED, GuestChange.STOPPED]
    second.virsh("start", VM)
    until(bench, lambda: len(changes(bench, "h2")) > 2)
    assert changes(bench, "h2")[-1].change is GuestChange.STARTED


def changes(bench: Bench, node: str) -> list[GuestChanged]:
    """All that was told of guests on a node."""
    bench._collect()
    return bench.changes.get(node, [])


def test_guests_outlive_libvirtd_and_are_known_again(lab: Lab, bench: Bench) -> None:
    first = lab.hosts[0]
    bench.start(spec=bench.spec(attempt=4))
    bench.start("other#0", paused=True)
    first.kill_libvirtd()
    until(bench, lambda: not statuses(bench))
    first.start_libvirtd()
    until(bench, lambda: len(statuses(bench)) == 2)
    found = statuses(bench)
    assert (found[VM].state, found[VM].generation, found[VM].attempt) == (VmState.RUNNING, 1, 4)
    assert found["other#0"].state is VmState.PAUSED
    assert changes(bench, "h1") == []
    bench.must(Outcome.OK, ActionKind.STOP, expects=1)


def test_an_agent_that_comes_anew_finds_what_is_there(lab: Lab, bench: Bench) -> None:
    bench.start(spec=bench.spec(attempt=4))
    bench.start("other#0")
    bench.must(Outcome.OK, ActionKind.SUSPEND, "other#0", expects=1, generation=1)
    harness = bench.harness
    assert isinstance(harness, Harness)
    again = harness.another(lab)
    found = {status.vm: (status.state, status.generation, status.attempt) for status in again.vms(0.0)}
    assert found == {VM: (VmState.RUNNING, 1, 4), "other#0": (VmState.SUSPENDED, 1, 1)}


@pytest.mark.parametrize("which", [0, 1])
def test_a_libvirtd_killed_during_a_migration_loses_nothing(lab: Lab, bench: Bench, which: int) -> None:
    """Whoever has it in the end, it runs on one node, and the answer says so."""
    bench.start(memory_mib=256)
    call = bench.begin(ActionKind.MIGRATE, expects=1, generation=1, to_node="h2")
    until(bench, lambda: bench.find(on=bench.peer) is not None)
    victim = lab.hosts[which]
    victim.kill_libvirtd()
    victim.start_libvirtd()
    answer = bench.answer(call)
    until(bench, lambda: len(executing(lab)) == 1)
    assert executing(lab) == (["h2"] if answer.outcome is Outcome.OK else ["h1"]), answer


def executing(lab: Lab) -> list[str]:
    """The hosts on which the VM runs."""
    return [host.name for host in lab.hosts if host.virsh("domstate", VM, check=False) == "running"]


def test_a_migration_is_given_up(bench: Bench) -> None:
    before = bench.start(memory_mib=512)
    call = bench.begin(ActionKind.MIGRATE, expects=1, generation=1, to_node="h2")
    until(bench, lambda: bench.find(on=bench.peer) is not None)
    bench.node.abort(VM, 0.0)
    answer: Operated = bench.answer(call)
    if answer.outcome is Outcome.OK:
        pytest.skip("it had moved already")
    assert answer.outcome is Outcome.TIMED_OUT
    assert bench.status().state is before.state
    until(bench, lambda: bench.find(on=bench.peer) is None)
