"""One guest on real QEMU under two agents' drivers: started, migrated alive, saved, restored on the other host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.values.actions import ActionKind, Outcome
from shared.values.vms import VmState
from sim_backend.conformance.hypervisor_bench import VM, Bench
from tests.lab.guest_output import output
from tests.lab.hosts import Lab
from tests.lab.test_conformance import OWN, harness, running_lab

pytestmark = [pytest.mark.accept, pytest.mark.alone]

UNITS_CPU_S = 10.0


@pytest.fixture(scope="module")
def lab(lab_tools: None) -> Iterator[Lab]:  # noqa: ARG001  looks for what is needed
    with running_lab() as made:
        yield made


def test_a_guest_that_is_migrated_saved_and_restored_does_its_work_once(lab: Lab) -> None:
    """Each host keeps its disks for itself, so that the disk is copied twice."""
    with harness(lab, OWN) as surroundings:
        bench = Bench(surroundings)
        surroundings.will_end(VM, UNITS_CPU_S)
        serial = lab.shared / "units" / f"{VM}.log"

        def more_units_from(count: int) -> int:
            surroundings.until(lambda: len(_units(lab)) > count)
            return len(_units(lab))

        bench.start()
        done = more_units_from(0)
        bench.must(Outcome.OK, ActionKind.MIGRATE, expects=1, generation=1, to_node="h2")
        assert bench.find() is None
        done = more_units_from(done)
        bench.must(Outcome.OK, ActionKind.SUSPEND, on=bench.peer, expects=1, generation=1)
        assert bench.status(on=bench.peer).state is VmState.SUSPENDED
        saved = len(_units(lab))
        bench.must(
            Outcome.OK,
            ActionKind.RESUME,
            expects=1,
            generation=2,
            from_node="h2",
            spec=bench.spec(generation=2),
        )
        more_units_from(max(done, saved))
        units = int((lab.shared / "units" / VM).read_text())
        surroundings.until(lambda: output(serial).ends > 0)
        assert output(serial).fault(units) == ""


def _units(lab: Lab) -> list[int]:
    return [unit for run in output(lab.shared / "units" / f"{VM}.log").runs for unit in run]
