"""An operation of the libvirt driver does not wait for the CPU that its VM is not given: it has the weight of a whole
core as long as it is in progress, and the VM has its own before and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.hypervisors.libvirt.codes import Affect
from shared.base.clock import SystemClock
from shared.values.actions import ActionKind, Outcome
from sim_backend.conformance.hypervisor_bench import VM, Bench
from sim_backend.fake_libvirt.faults import Fault
from tests.conformance.fake_libvirt_rig import CORE_MHZ, Fakes, Harness, fakes

OWN_MHZ = 10.0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Fakes]:
    with fakes(tmp_path) as surroundings:
        yield surroundings


@pytest.fixture
def bench(made: Fakes) -> Bench:
    bench = Bench(Harness(made))
    bench.start(spec=bench.spec(cpu_mhz=OWN_MHZ))
    return bench


def weight(made: Fakes, host: str, where: Affect = Affect.LIVE) -> int:
    """That of the VM on a host."""
    return made.drift(host).connection().lookupByName(VM).schedulerParametersFlags(where)["cpu_shares"]


def test_a_start_has_it(made: Fakes) -> None:
    bench = Bench(Harness(made))
    begun = bench.begin(ActionKind.START, generation=1, spec=bench.spec(cpu_mhz=OWN_MHZ))
    assert weight(made, "h1", Affect.CONFIG) == CORE_MHZ
    assert bench.answer(begun).outcome is Outcome.OK
    assert (weight(made, "h1"), weight(made, "h1", Affect.CONFIG)) == (OWN_MHZ, OWN_MHZ)


def test_a_suspend_and_a_resume_have_it(made: Fakes, bench: Bench) -> None:
    begun = bench.begin(ActionKind.SUSPEND, expects=1)
    assert weight(made, "h1") == CORE_MHZ
    assert bench.answer(begun).outcome is Outcome.OK
    bench.must(Outcome.OK, ActionKind.RESUME, expects=1, generation=2)
    assert (weight(made, "h1"), weight(made, "h1", Affect.CONFIG)) == (OWN_MHZ, OWN_MHZ)


def test_both_ends_of_a_migration_have_it(made: Fakes, bench: Bench) -> None:
    begun = bench.begin(ActionKind.MIGRATE, expects=1, generation=2, to_node="h2")
    assert (weight(made, "h1"), weight(made, "h2")) == (CORE_MHZ, CORE_MHZ)
    assert bench.answer(begun).outcome is Outcome.OK
    assert (weight(made, "h2"), weight(made, "h2", Affect.CONFIG)) == (OWN_MHZ, OWN_MHZ)


@pytest.mark.parametrize("kind", [ActionKind.SUSPEND, ActionKind.MIGRATE])
def test_what_is_given_up_leaves_the_weight_as_it_was(made: Fakes, bench: Bench, kind: ActionKind) -> None:
    moving = kind is ActionKind.MIGRATE
    made.cluster.fail(Fault("migrateToURI3" if moving else "save", "hang", host="h1"))  # until it is given up
    begun = bench.begin(kind, expects=1, generation=2 if moving else 0, to_node="h2" if moving else "")
    bench.node.abort(VM, 0.0)
    assert bench.answer(begun).outcome is Outcome.TIMED_OUT
    assert (weight(made, "h1"), weight(made, "h1", Affect.CONFIG)) == (OWN_MHZ, OWN_MHZ)


def test_the_next_agent_ends_the_haste_of_an_operation_that_was_interrupted(made: Fakes, bench: Bench) -> None:
    made.drivers["h1"].close()
    domain = made.drift("h1").connection().lookupByName(VM)
    domain.setSchedulerParametersFlags({"cpu_shares": CORE_MHZ}, Affect.LIVE)
    made.drivers["h1"] = made.driver("h1")
    made.drivers["h1"].inventory()
    bench.harness.until(lambda: weight(made, "h1") == OWN_MHZ)
    assert (weight(made, "h1"), weight(made, "h1", Affect.CONFIG)) == (OWN_MHZ, OWN_MHZ)


@pytest.mark.full
def test_an_agent_ends_although_libvirt_never_answers_a_reading(made: Fakes) -> None:
    """Given an operation whose reading of the host hangs, and the watcher that waits for its turn, when the agent ends,
    then it does not wait for ever."""
    bench = Bench(Harness(made))
    bench.start(spec=bench.spec())
    fault = Fault("XMLDesc", "hang", host="h1")
    own, clock = made.drivers["h1"], SystemClock()
    own.connected()  # nothing that was read before is taken for what is there now
    made.cluster.fail(fault)
    bench.begin(ActionKind.MIGRATE, expects=1, generation=2, to_node="h2")
    limit_s = clock.monotonic_s() + 5.0
    while fault.times > 0 and clock.monotonic_s() < limit_s:
        clock.sleep(0.001)
    own.connected()
    begun_s = clock.monotonic_s()
    own.close()
    assert clock.monotonic_s() - begun_s < 15.0
    made.cluster.script.clear()
    made.cluster.release()
