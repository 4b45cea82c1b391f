"""`trimtab vms show`, `vms list` and `nodes show` say why a VM cannot move, and what nodes have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from daemons.controller.core.controller import Controller
from daemons.controller.state.cluster import Cluster
from shared.values.nodes import HugepagePool, NumaCell
from tests.support.operator_harness import Rig
from tests.unit.daemons.controller.views.test_nodes_operator import submit

VM = "a#0"
HAS = ("bridge=br0", *(f"cpu-flag=kvm:f{at}" for at in range(9)), "hugepages-2048=1000", "hugepages=")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A job on one of three nodes, of which the others have a bridge and hugepages."""
    made = Rig(3)
    made.run(30.0)
    submit(made, tmp_path, "a", memory_mib=800)
    made.run(30.0)
    instance = cluster(made).instances[VM]
    for name, node in cluster(made).nodes.items():
        assert node.inventory is not None
        if name not in instance.may_run_on:
            cells, pools = (NumaCell(0, "0-3", 4_000),), (HugepagePool(2_048, 1_000, 0),)
            node.inventory = replace(node.inventory, migration_has=HAS, hugepages=pools, numa_cells=cells)
    return made


def cluster(rig: Rig) -> Cluster:
    core = rig.loop.controllers["a"].core
    assert isinstance(core, Controller)
    return core.cluster


def shown(rig: Rig, *needs: str) -> tuple[dict[str, Any], str]:
    """The answer about a VM with these needs, and the same for people."""
    there = cluster(rig)
    there.note_needs(there.instances[VM], needs)
    return rig.asked("vms", "show", VM), " ".join(rig.trimtab("vms", "show", VM, env={"COLUMNS": "200"}).stdout.split())


def others(rig: Rig) -> list[str]:
    there = cluster(rig)
    return sorted(there.nodes.keys() - there.instances[VM].may_run_on)


def test_targets_and_reasons_are_shown(rig: Rig) -> None:
    data, text = shown(rig, "bridge=br0", "hugepages-2048=400")
    assert data["migration"] == {
        "needs": ["bridge=br0", "hugepages-2048=400"],
        "cannot_move": [],
        "able": others(rig),
        "unable": [],
        "hugepages_mib": 400,
        "memory": {"resident_mib": None, "dirty_mib_per_s": None, "working_set_mib": None, "local_disk_mib": 0},
        "forecasts": [
            {"node": name, "method": None, "duration_s": None, "downtime_s": None, "why_not": None}
            for name in others(rig)
        ],
    }
    assert f"can move to {', '.join(others(rig))}" in text
    data, text = shown(rig, "bridge=br1", "hugepages-2048=1400")
    first = others(rig)[0]
    why = [f"bridge br1 is not on {first}", f"needs 1,400 MiB of 2 MiB hugepages; {first} has 1,000 MiB free"]
    assert data["migration"]["unable"][0] == {"node": first, "why": why}
    assert "; ".join(why) in text
    assert "can move to no node" in text


def test_what_binds_a_vm_is_in_every_list(rig: Rig) -> None:
    data, text = shown(rig, "bound=usb-device:046d:082d", "bound=backup-job")
    expected = ["uses USB device 046d:082d", "a backup is in progress"]
    assert data["migration"]["cannot_move"] == expected
    assert "cannot move uses USB device 046d:082d, a backup is in progress" in text
    assert "not on" not in text


def test_the_list_has_the_column_only_where_a_vm_is_bound(rig: Rig) -> None:
    assert "cannot move" not in rig.trimtab("vms", "list", env={"COLUMNS": "200"}).stdout
    (home,) = cluster(rig).instances[VM].may_run_on
    vms = cluster(rig).nodes[home].vms
    vms[VM] = structs.replace(vms[VM], migration_needs=("bound=backup-job",))
    assert "a backup is in progress" in rig.trimtab("vms", "list", env={"COLUMNS": "200"}).stdout
    assert rig.asked("vms", "list")["vms"][0]["cannot_move"] == ["a backup is in progress"]


def test_a_vm_that_nobody_knows_is_refused(rig: Rig) -> None:
    assert "there is no VM 'nobody#0'" in rig.refused("vms", "show", "nobody#0")["message"]


def test_a_node_shows_what_it_has_by_kind(rig: Rig) -> None:
    shown(rig, "hugepages-2048=400")
    name = others(rig)[0]
    node = rig.asked("nodes", "show", name)["node"]
    assert node["abilities"] == ["save", "migrate", "failover"]
    assert node["numa_cells"] == [{"cell": 0, "cpus": "0-3", "memory_mib": 4_000}]
    pool = {"size_kib": 2_048, "total_mib": 1_000, "free_mib": 1_000, "cells_mib": {"0": 1_000}}
    assert node["hugepages"] == [pool]
    text = " ".join(rig.trimtab("nodes", "show", name, env={"COLUMNS": "200"}).stdout.split())
    assert "bridge=br0, hugepages-2048=1000, cpu-flag: 9 values" in text


def test_what_a_vm_waits_for_is_listed_and_shown(rig: Rig) -> None:
    """Given an adopted VM without failover whose node is off."""
    name = others(rig)[0]
    assert "waits for" not in rig.trimtab("vms", "list", env={"COLUMNS": "250"}).stdout
    rig.loop.cluster.hypervisor(name).add_stranger("db", 64, rig.now_s())
    rig.run(30.0)
    assert rig.trimtab("vms", "adopt", "db").exit_code == 0
    rig.run(60.0)
    rig.loop.host_dies(name)
    rig.run(120.0)
    assert rig.trimtab("nodes", "confirm-off", name, "--yes").exit_code == 0
    rig.run(30.0)
    (row,) = [row for row in rig.asked("vms", "list")["vms"] if row["vm"] == "db"]
    assert (row["node"], row["state"]) == (name, "waiting")
    assert row["waits_for"] == f"{name}, which is off: failover is off for it"
    for words in (("list",), ("show", "db")):
        assert row["waits_for"] in " ".join(rig.trimtab("vms", *words, env={"COLUMNS": "250"}).stdout.split())
