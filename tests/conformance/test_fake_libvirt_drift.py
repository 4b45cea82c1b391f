"""What others do behind the libvirt driver's back is told once, and told right, also when events go astray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.vms import VmState
from sim_backend.conformance.hypervisor_bench import VM, Bench
from sim_backend.fake_libvirt.events import Delivery
from sim_backend.fake_libvirt.faults import Fault
from tests.conformance.fake_libvirt_rig import Fakes, Harness, fakes


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Fakes]:
    with fakes(tmp_path, durations_s={}) as surroundings:
        yield surroundings


def bench_of(made: Fakes) -> Bench:
    bench = Bench(Harness(made))
    for driver in made.drivers.values():
        driver.vms(0.0)  # a first reading tells no changes
    bench.start()
    return bench


def told(made: Fakes, bench: Bench, name: str, count: int = 1) -> list[GuestChanged]:
    """The first changes of a host, and no more than they."""
    driver, found = made.drivers[name], list[GuestChanged]()

    def enough() -> bool:
        driver.vms(0.0)
        found.extend(event for event in driver.poll(0.0) if isinstance(event, GuestChanged))
        return len(found) >= count

    bench.harness.until(enough)
    made.cluster.events.settle()
    driver.vms(0.0)
    found.extend(event for event in driver.poll(0.0) if isinstance(event, GuestChanged))
    return found


def changes(found: list[GuestChanged]) -> list[GuestChange]:
    return [each.change for each in found]


@pytest.mark.parametrize("delivery", ["plain", "twice", "late", "lost"])
def test_a_destroyed_vm_was_stopped(made: Fakes, delivery: Delivery) -> None:
    bench = bench_of(made)
    made.cluster.events.delivery = delivery
    made.drift("h1").destroy(VM)
    found = told(made, bench, "h1")
    made.cluster.events.deliver_late()
    assert changes([*found, *told(made, bench, "h1", 0)]) == [GuestChange.STOPPED]
    assert bench.status().state is VmState.CRASHED


@pytest.mark.parametrize("delivery", ["plain", "lost"])
def test_a_vm_whose_emulator_dies_vanished(made: Fakes, delivery: Delivery) -> None:
    bench = bench_of(made)
    made.cluster.events.delivery = delivery
    assert made.drift("h1").crash(VM)
    assert changes(told(made, bench, "h1")) == [GuestChange.VANISHED]
    assert bench.status().state is VmState.CRASHED


@pytest.mark.parametrize("delivery", ["plain", "twice", "late", "lost"])
def test_a_guest_that_shut_down_ended(made: Fakes, delivery: Delivery) -> None:
    bench = bench_of(made)
    made.cluster.events.delivery = delivery
    assert made.drift("h1").guest_ends(VM)
    assert changes(told(made, bench, "h1")) == [GuestChange.ENDED]
    assert bench.status().state is VmState.ENDED


@pytest.mark.parametrize("delivery", ["plain", "twice"])
def test_a_vm_that_somebody_moved_left_and_arrived(made: Fakes, delivery: Delivery) -> None:
    bench = bench_of(made)
    made.cluster.events.delivery = delivery
    made.drift("h1").migrate(VM, "h2")
    assert changes(told(made, bench, "h1")) == [GuestChange.LEFT]
    assert changes(told(made, bench, "h2")) == [GuestChange.ARRIVED]
    assert bench.find() is None
    assert bench.status(on=bench.peer).generation == 1


def test_a_vm_that_left_unheard_is_looked_for(made: Fakes) -> None:
    bench = bench_of(made)
    made.cluster.events.delivery = "lost"
    made.drift("h1").migrate(VM, "h2")
    assert changes(told(made, bench, "h1")) == [GuestChange.LEFT]
    assert changes(told(made, bench, "h2")) == [GuestChange.ARRIVED]


def test_an_ended_vm_that_somebody_starts_is_told(made: Fakes) -> None:
    bench = bench_of(made)
    made.drift("h1").guest_ends(VM)
    assert changes(told(made, bench, "h1")) == [GuestChange.ENDED]
    made.drift("h1").start(VM)
    assert changes(told(made, bench, "h1")) == [GuestChange.STARTED]


def test_what_ended_stays_ended_when_libvirtd_has_forgotten_why(made: Fakes) -> None:
    bench = bench_of(made)
    made.drift("h1").guest_ends(VM)
    assert changes(told(made, bench, "h1")) == [GuestChange.ENDED]
    bench.harness.until(lambda: "over" in (made.drift("h1").connection().lookupByName(VM).XMLDesc()))
    restart(made, bench)
    assert bench.status().state is VmState.ENDED
    assert told(made, bench, "h1", 0) == []


def test_an_end_while_libvirtd_was_away_is_told(made: Fakes) -> None:
    bench = bench_of(made)
    made.drift("h1").libvirtd_dies()
    assert made.drift("h1").guest_ends(VM)
    made.drift("h1").libvirtd_starts()
    wait_for_libvirt(made, bench)
    assert changes(told(made, bench, "h1")) == [GuestChange.ENDED]


def test_what_ran_when_the_power_went_vanished(made: Fakes) -> None:
    bench = bench_of(made)
    made.drift("h1").power_off()
    made.drift("h1").power_on()
    wait_for_libvirt(made, bench)
    assert changes(told(made, bench, "h1")) == [GuestChange.VANISHED]
    bench.must(Outcome.OK, ActionKind.STOP, expects=1)
    assert bench.find() is None


def test_an_agent_that_comes_anew_finds_the_same(made: Fakes) -> None:
    bench = bench_of(made)
    bench.start("other#0")
    bench.must(Outcome.OK, ActionKind.SUSPEND, "other#0", expects=1, generation=1)
    before = sorted(bench.node.vms(0.0), key=lambda status: status.vm)
    made.drivers["h1"].close()
    made.drivers["h1"] = made.driver("h1")
    after = sorted(made.drivers["h1"].vms(0.0), key=lambda status: status.vm)
    assert after == before


def test_a_save_of_an_agent_that_died_is_waited_for(tmp_path: Path) -> None:
    with fakes(tmp_path, durations_s={"save": 2.0}) as made:
        bench = bench_of(made)
        bench.begin(ActionKind.SUSPEND, expects=1, generation=1)
        assert made.cluster.waiting
        again = made.driver("h1")
        made.drivers["h1 again"] = again
        action = Action(
            "again", ActionKind.SUSPEND, "h1", vm=VM, term=1, boot_id="boot", expires_at_s=1e12, expects=1, generation=1
        )
        again.vms(0.0)
        again.begin(action, 0.0)
        answers: list[Operated] = []

        def answered() -> bool:
            again.vms(0.0)
            answers.extend(event for event in again.poll(0.0) if isinstance(event, Operated))
            return bool(answers)

        bench.harness.until(answered)
        assert [answer.outcome for answer in answers] == [Outcome.OK]
        assert bench.status().state is VmState.SUSPENDED
        bench.must(Outcome.OK, ActionKind.RESUME, expects=1, generation=2)


def test_metadata_that_somebody_has_removed_make_it_not_ours(made: Fakes) -> None:
    bench = bench_of(made)
    made.drift("h1").edit_metadata(VM, None, "https://trimtab.dev/libvirt/1")
    made.cluster.events.settle()
    assert not bench.status().managed
    bench.must(Outcome.REFUSED, ActionKind.STOP, expects=0)


def test_one_that_somebody_moves_away_before_we_do_is_answered_at_once(tmp_path: Path) -> None:
    """It is not on its way to where we meant it to go, and nothing of it is here to be made good."""
    with fakes(tmp_path, 3) as made:
        bench, cluster = bench_of(made), made.cluster
        by_hand = Thread(target=lambda: made.drift("h1").migrate(VM, "h3"), daemon=True)
        by_hand.start()
        bench.harness.until(lambda: cluster.waiting == 1)
        call = bench.begin(ActionKind.MIGRATE, expects=1, generation=1, to_node="h2")
        bench.harness.until(lambda: cluster.waiting == 2)
        cluster.calls.clear()
        answer = bench.answer(call)
        by_hand.join()
        assert (answer.outcome, answer.status) == (Outcome.REFUSED, None)
        assert made.drift("h3").running() == (VM,)
        assert [at for at, name, _ in cluster.calls if name == "lookupByName"].count("h2") == 1


def restart(made: Fakes, bench: Bench) -> None:
    made.drift("h1").libvirtd_dies()
    made.drift("h1").libvirtd_starts()
    wait_for_libvirt(made, bench)


def wait_for_libvirt(made: Fakes, bench: Bench) -> None:
    """The driver has connected anew."""
    bench.harness.until(lambda: len(made.cluster.hosts["h1"].connections) > 0)
    bench.harness.until(lambda: made.drivers["h1"]._site.link.wait(0.01))


@pytest.mark.parametrize("method", ["setSchedulerParametersFlags", "setMetadata"])
def test_one_that_somebody_destroys_while_its_cpu_is_set_was_stopped(made: Fakes, method: str) -> None:
    bench = bench_of(made)
    fault = Fault(method, "hang", host="h1")
    made.cluster.fail(fault)
    bench.begin(ActionKind.SET_CPU, expects=1, cpu_mhz=100.0)
    bench.harness.until(lambda: fault.times == 0)
    made.drift("h1").destroy(VM)
    made.cluster.release()
    found = list[Operated | GuestChanged]()

    def both() -> bool:
        made.drivers["h1"].vms(0.0)
        found.extend(made.drivers["h1"].poll(0.0))
        return {type(one) for one in found} == {Operated, GuestChanged}

    bench.harness.until(both)
    assert changes([one for one in found if isinstance(one, GuestChanged)]) == [GuestChange.STOPPED]
    assert bench.status().state is VmState.CRASHED
