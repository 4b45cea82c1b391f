"""Memory is promised once, whatever ends while the libvirt driver reads what there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shared.base.clock import SystemClock
from shared.ports.effects import Operated
from shared.values.actions import ActionKind, Outcome
from sim_backend.conformance.hypervisor_bench import OTHER, VM, Bench
from sim_backend.fake_libvirt.faults import Fault
from tests.conformance.fake_libvirt_rig import LIMIT_S, MEMORY_MIB, PERIOD_S, Fakes, Harness, fakes

BIG_MIB = MEMORY_MIB * 11 // 20  # the host itself, with what is kept back for it, has room for two


READ = ("h1", "getAllDomainStats", "")


def until(ready: Callable[[], bool]) -> None:
    """Nobody but the driver itself reads what there is meanwhile."""
    clock = SystemClock()
    limit_s = clock.monotonic_s() + LIMIT_S
    while not ready():
        assert clock.monotonic_s() < limit_s
        clock.sleep(0.002)


def next_answers(made: Fakes) -> dict[str, Outcome]:
    """Time passes until there are some."""
    found: dict[str, Outcome] = {}

    def ready() -> bool:
        made.cluster.advance(PERIOD_S)
        events = made.drivers["h1"].poll(0.0)
        found.update((event.call_id, event.outcome) for event in events if isinstance(event, Operated))
        return bool(found)

    until(ready)
    return found


def test_a_start_that_ends_while_the_next_one_reads_holds_its_memory(tmp_path: Path) -> None:
    with fakes(tmp_path) as made:
        bench = Bench(Harness(made))
        made.cluster.fail(Fault("defineXML", "hang", host="h1"))
        first = bench.begin(ActionKind.START, VM, generation=1, spec=bench.spec(VM, BIG_MIB))
        until(lambda: made.cluster.calls.count(READ) >= 2)  # the driver's own and that of the start
        made.cluster.fail(Fault("getAllDomainStats", "answer-late", host="h1"))
        second = bench.begin(ActionKind.START, OTHER, generation=1, spec=bench.spec(OTHER, BIG_MIB))
        made.cluster.release()
        assert next_answers(made) == {first: Outcome.OK}
        assert next_answers(made) == {second: Outcome.NO_ROOM}
