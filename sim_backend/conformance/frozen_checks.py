"""What a `shared.ports.agent.Hypervisor` must do that cannot save VMs to disk, or cannot migrate them: what it says
that it lacks, it refuses, and what it does instead is as safe."""

from __future__ import annotations

from shared.values.actions import ActionKind, Outcome
from shared.values.nodes import Ability
from shared.values.vms import VmState
from sim_backend.conformance.hypervisor_bench import HALF_AND_MORE, OTHER, VM, Bench, Check, expect, settled


def check_frozen_keeps_its_memory(bench: Bench) -> None:
    """Check that a frozen VM keeps its memory and can always resume, and that discarding it frees the memory."""
    big_mib = int(bench.inventory.memory_mib * HALF_AND_MORE)
    bench.start(VM, big_mib)
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    expect("memory", bench.status().memory_mib, big_mib)
    bench.must(Outcome.NO_ROOM, ActionKind.START, OTHER, generation=1, spec=bench.spec(OTHER, big_mib))
    bench.must(Outcome.OK, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec(VM, big_mib))
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=2, generation=2)
    bench.must(Outcome.OK, ActionKind.DISCARD_IMAGE, expects=2)
    bench.start(OTHER, big_mib)


def check_frozen_cannot_move(bench: Bench) -> None:
    """Check that a VM frozen on another node is refused, and also one that is frozen here but requested from another
    node's name."""
    bench.must(Outcome.REFUSED, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec(), from_node="elsewhere")
    bench.start()
    bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
    bench.must(Outcome.REFUSED, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec(), from_node="elsewhere")
    expect("state", bench.status().state, VmState.SUSPENDED)
    here = bench.inventory.name
    bench.must(Outcome.OK, ActionKind.RESUME, expects=1, generation=2, spec=bench.spec(), from_node=here)


def check_does_not_migrate(bench: Bench) -> None:
    """Check that a migration is refused and leaves the VM unchanged."""
    before = bench.start()
    bench.must(Outcome.REFUSED, ActionKind.MIGRATE, expects=1, generation=1, to_node="elsewhere")
    expect("status", settled(bench.status()), settled(before))


_NOTHING: frozenset[str] = frozenset()
FROZEN_CHECKS = (
    Check("frozen_keeps_its_memory", check_frozen_keeps_its_memory, _NOTHING, frozenset({Ability.SAVE})),
    Check("frozen_cannot_move", check_frozen_cannot_move, _NOTHING, frozenset({Ability.SAVE})),
    Check("does_not_migrate", check_does_not_migrate, _NOTHING, frozenset({Ability.MIGRATE})),
)
