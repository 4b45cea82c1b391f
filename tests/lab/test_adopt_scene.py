"""Twelve VMs made with virsh on three hosts, adopted at once, through what their owners and operators do to them, and
through a drain of each host, until they are released: on real QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.scene import LIMIT_S
from tests.lab.cluster import Cluster, cluster
from tests.lab.existing_vms import ENDLESS, autostarts, definition, made_with_virsh, reported, shown
from tests.lab.hosts import HostSpec
from tests.lab.test_faults import BY_HAND, defined, happened, works_on

pytestmark = [pytest.mark.full, pytest.mark.alone]

SPEC = HostSpec(cores=2, core_mhz=1_000.0, core_frac=0.3, memory_mib=800)
EACH = 4  # VMs on each of the three hosts
SHORT, MORE_KIB = 4, 80 << 10
DRAIN_S = 300.0


@pytest.fixture
def town() -> Iterator[Cluster]:
    with cluster(3, SPEC) as whole:
        yield whole


def is_empty(town: Cluster, node: str) -> bool:
    return node not in town.homes().values()


def let_go(town: Cluster, vm: str) -> bool:
    """Release a VM, unless its CPU is just being set."""
    said = town.run("vms", "release", vm)
    assert said.status == 0 or "vm-busy" in said.err, said
    return said.status == 0


def test_twelve_vms_are_adopted_live_through_all_of_it_and_are_released(town: Cluster) -> None:
    names = [f"vm{number}" for number in range(3 * EACH)]
    ends, resized, destroyed, moved = names[0], names[4], names[8], names[9]
    before = {}
    for number, vm in enumerate(names):
        before[vm] = made_with_virsh(town, vm, f"h{number // EACH + 1}", units=SHORT if vm == ends else ENDLESS)
    reported(town, *names)
    town.do("vms", "adopt", "--all")
    town.wait_for(lambda: all(town.job(vm)["phase"] in ("running", "shut-off") for vm in names), LIMIT_S, "adoption")

    # What their owners do: one guest shuts itself down, one is resized, one destroyed, one migrated by hand.
    town.wait_for(lambda: town.job(ends)["phase"] == "shut-off", DRAIN_S, "the guest to shut down")
    host = town.lab.hosts["h2"]
    host.virsh(f"setmaxmem {resized} {MORE_KIB} --config; setmem {resized} {MORE_KIB} --config")
    before[resized] = before[resized].replace("unit='KiB'>65536<", f"unit='KiB'>{MORE_KIB}<")
    town.lab.hosts["h3"].virsh("destroy", destroyed)
    town.wait_for(lambda: town.job(destroyed)["phase"] == "shut-off", LIMIT_S, "the end to be followed")
    target = town.lab.hosts["h1"]
    town.lab.hosts["h3"].virsh("migrate", *BY_HAND, moved, f"qemu+tcp://{target.address}/system")
    town.wait_for(lambda: happened(town, "moved-externally", moved), LIMIT_S, "the move by hand to be seen")
    assert town.homes()[moved] == "h1"
    target.virsh("autostart", moved)  # libvirt does not move it
    town.do("vms", "reconcile", moved)

    live = [vm for vm in names if vm not in (ends, destroyed)]
    for node in ("h1", "h2", "h3"):
        town.do("nodes", "drain", node)
        town.wait_for(partial(is_empty, town, node), DRAIN_S, f"{node} to be empty")
        town.do("nodes", "undrain", node)
    for vm in live:
        works_on(town, vm, lives=1)  # no gap: each unit once, in order
    assert {vm: len(town.printed(vm).runs) for vm in names} == dict.fromkeys(names, 1)
    assert {town.job(vm)["phase"] for vm in (ends, destroyed)} == {"shut-off"}

    for vm in names:
        town.wait_for(partial(let_go, town, vm), LIMIT_S, f"{vm} to be released")
    town.wait_for(
        lambda: not any(row["managed"] for vm in names for row in shown(town, vm)["rows"]), LIMIT_S, "release"
    )
    after = {vm: definition(town, vm) for vm in names}
    # virsh makes the definition of what it moves from the live one, in which controllers may have another order.
    for each in (before, after):
        each[moved] = "\n".join(sorted(each[moved].splitlines()))
    assert after == before
    for vm in names:
        (host,) = [host for host in town.lab.hosts.values() if vm in defined(host)]
        assert autostarts(host, vm), vm
    assert sorted(town.homes()) == sorted(live)
