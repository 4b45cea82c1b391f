"""What the driver `libvirt` declares where the pool for saved images is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.values.actions import ActionKind, Outcome
from shared.values.nodes import Ability
from shared.values.vms import VmState
from sim_backend.conformance.hypervisor_bench import Bench
from tests.conformance.fake_libvirt_rig import Fakes, Harness, fakes

POOL = "trimtab-saved"


def anew(made: Fakes) -> Bench:
    """The first host's driver, as an agent that comes anew makes it, and another host's."""
    name = made.names[0]
    made.drivers[name].close()
    made.drivers[name] = made.driver(name)
    return Bench(Harness(made))


@pytest.mark.parametrize("there", [False, True])
def test_without_an_active_pool_it_does_not_say_that_it_can_save(there: bool, tmp_path: Path) -> None:
    with fakes(tmp_path) as made:
        pools = made.cluster.hosts["h1"].pools
        if there:
            pools[POOL].active = False
        else:
            del pools[POOL]
        bench = anew(made)
        assert bench.inventory.templates == ("guest",)
        assert bench.inventory.abilities == (Ability.MIGRATE, Ability.FAILOVER)
        assert bench.peer.inventory().abilities == tuple(Ability)
        before = bench.start()
        bench.must(Outcome.REFUSED, ActionKind.SUSPEND, expects=1, generation=1)
        assert bench.status().state is before.state is VmState.RUNNING


def test_images_whose_pool_is_away_are_saved_all_the_same(tmp_path: Path) -> None:
    """They are not frozen: they hold no memory."""
    with fakes(tmp_path) as made:
        bench = Bench(Harness(made))
        bench.start()
        bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)
        made.cluster.hosts["h1"].pools[POOL].active = False
        bench = anew(made)
        assert bench.status().state is VmState.SUSPENDED
        assert bench.inventory.abilities == tuple(Ability)
