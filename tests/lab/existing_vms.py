"""VMs that somebody makes with virsh on a cluster's hosts, on the storage that all of them share."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.integration.scene import LIMIT_S
from tests.lab import guests
from tests.lab.cluster import Cluster
from tests.lab.hosts import Host
from tests.lab.test_faults import defined

MEMORY_MIB, ENDLESS = 64, 1_000_000


def made_with_virsh(
    town: Cluster, vm: str, node: str, units: int = ENDLESS, memory_mib: int = MEMORY_MIB, image: Path | None = None
) -> str:
    """Make a VM that starts with its host, and start it; its definition. `image`: what its disk is a copy of (None:
    that of a burner)."""
    host, volumes = town.lab.hosts[node], town.hosts.shared / "volumes"
    disk = volumes / f"{vm}.img"
    shutil.copy(image or volumes / "burner.img", disk)
    own = {"vm": vm, "memory_mib": str(memory_mib), "vcpus": "1", "volume": str(disk), "argument.0": str(units)}
    values = {**town.lab.places.values(), **own, "lab.format": "raw"}
    file = town.lab.folder / f"{vm}.xml"
    file.write_text(guests.domain_xml(guests.TEMPLATES / "burner.xml", values))
    host.virsh(f"define {file}; autostart {vm}; start {vm}")
    return host.virsh("dumpxml", "--inactive", vm)


def reported(town: Cluster, *names: str) -> None:
    """Wait until their nodes have reported them, and that they can be adopted: not while they are being started."""

    def adoptable() -> set[str]:
        return {row["vm"] for row in vms(town) if not row["not_adoptable"]}

    town.wait_for(lambda: {*names} <= adoptable(), LIMIT_S, f"{names} to be adoptable")


def vms(town: Cluster) -> list[dict[str, Any]]:
    """What `trimtab vms list` shows."""
    return list(town.do("vms", "list", "--output", "json").data["vms"])


def shown(town: Cluster, vm: str) -> dict[str, Any]:
    """What `trimtab vms show` shows."""
    return dict(town.do("vms", "show", vm, "--output", "json").data)


def autostarts(host: Host, vm: str) -> bool:
    """Whether libvirt starts it with its host."""
    return "enable" in next(line for line in host.virsh("dominfo", vm).splitlines() if line.startswith("Autostart"))


def clean(town: Cluster, vm: str, node: str) -> bool:
    """Whether a host knows nothing of a VM."""
    return vm not in defined(town.lab.hosts[node])


def definition(town: Cluster, vm: str) -> str:
    """Its definition, where it has one. AssertionError where not one host has it."""
    (host,) = [host for host in town.lab.hosts.values() if vm in defined(host)]
    return host.virsh("dumpxml", "--inactive", vm)
