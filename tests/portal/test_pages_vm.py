"""A VM's page says where it can be migrated to and why to no other node; a node's page, what it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.controller.core.controller import Controller
from daemons.controller.state.cluster import Cluster
from shared.protocol.operator_messages import AdoptVm, ConfirmOff
from shared.values.nodes import HugepagePool, NumaCell
from tests.portal.scene import Browser, Scene, job, scene

VM = "a#0"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, jobs=[job("a", 9_000.0)]) as found:
        yield found


@pytest.fixture
def jane(made: Scene) -> Browser:
    return made.browser("jane")


def cluster(made: Scene) -> Cluster:
    core = made.loop.controllers["a"].core
    assert isinstance(core, Controller)
    return core.cluster


def page(made: Scene, jane: Browser, needs: tuple[str, ...]) -> str:
    """The page of a VM with these needs, where other nodes have the bridge br0 and 1,000 MiB in hugepages."""
    there = cluster(made)
    instance = there.instances[VM]
    there.note_needs(instance, needs)
    for name, node in there.nodes.items():
        assert node.inventory is not None
        if name not in instance.may_run_on:
            pools = (HugepagePool(2_048, 1_000, 0),)
            has = ("bridge=br0", "hugepages-2048=1000", "hugepages=")
            node.inventory = replace(
                node.inventory, migration_has=has, hugepages=pools, numa_cells=(NumaCell(0, "0-3", 4_000),)
            )
    return str(jane.get(f"/vms/one?vm={VM.replace('#', '%23')}").text)


def others(made: Scene) -> list[str]:
    there = cluster(made)
    return sorted(there.nodes.keys() - there.instances[VM].may_run_on)


def test_the_possible_targets_are_named(made: Scene, jane: Browser) -> None:
    text = page(made, jane, ("bridge=br0", "hugepages-2048=400"))
    assert f"<dd>{', '.join(others(made))}</dd>" in text
    assert "bridge=br0, hugepages-2048=400" in text
    assert "Nodes that cannot take it" not in text


def test_every_node_that_cannot_take_it_has_its_reason(made: Scene, jane: Browser) -> None:
    text = page(made, jane, ("bridge=br1", "hugepages-2048=1400"))
    for name in others(made):
        assert f"bridge br1 is not on {name}; needs 1,400 MiB of 2 MiB hugepages; {name} has 1,000 MiB free" in text


def test_what_can_go_nowhere_says_so_once(made: Scene, jane: Browser) -> None:
    text = page(made, jane, ("bound=pci-device:0000:3b:00.0",))
    assert "Reason: uses PCI device 0000:3b:00.0." in text
    assert "Nodes that cannot take it" not in text


def test_a_vm_that_nobody_knows_has_no_page(jane: Browser) -> None:
    assert jane.get("/vms/one?vm=nobody").status_code == 404


def test_a_node_shows_its_cells_and_hugepages(made: Scene, jane: Browser) -> None:
    page(made, jane, ("hugepages-2048=400",))
    text = jane.get(f"/nodes/{others(made)[0]}").text
    assert "1,000 MiB free of 1,000 MiB in pages of 2048 KiB" in text
    assert "CPUs 0-3" in text
    assert "save, migrate" in text


def test_a_vm_says_that_it_waits_for_its_node(made: Scene, jane: Browser) -> None:
    name = others(made)[0]
    made.loop.cluster.hypervisor(name).add_stranger("cow", 64, 0.0)
    made.run(30.0)
    made.ask(AdoptVm("adopt", name, "cow", job="cow"))
    made.run(30.0)
    made.loop.host_dies(name)
    made.run(120.0)
    made.ask(ConfirmOff("off", name))
    made.run(30.0)
    for page_of in ("/vms", "/vms/one?vm=cow"):
        assert f"for {name}, which is off: failover is off for it" in jane.get(page_of).text
