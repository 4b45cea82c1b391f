"""VMs made with virsh on shared storage whose host loses power, on real QEMU: each runs on another host, once.

What the guest prints shows a second writer: its units are then doubled or out of order, and QEMU's lock on the disk
refuses the second start. CUTS=10 cuts the power ten times in each test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from agents.lease.folder import MARK
from tests.integration.harness import CLOCK
from tests.integration.scene import LIMIT_S, SOON_S
from tests.lab.cluster import Cluster, HostDaemon, cluster
from tests.lab.existing_vms import autostarts, clean, made_with_virsh, reported, shown
from tests.lab.hosts import HostSpec
from tests.lab.test_faults import elsewhere, happened, works_on
from tests.lab.watchdogs import DEVICE, Watchdog

pytestmark = [pytest.mark.full, pytest.mark.alone]

CUTS = int(os.environ.get("CUTS", "2"))
SPEC = HostSpec(cores=1, core_mhz=1_000.0, core_frac=0.5, memory_mib=400)
FENCED_S, LEASED_S = 60.0, 120.0  # within it a VM must run elsewhere


@pytest.fixture
def town() -> Iterator[Cluster]:
    """Three hosts whose controller can fence them."""
    with cluster(3, SPEC) as whole:
        yield whole


def adopt(town: Cluster, vm: str, *terms: str) -> None:
    """Adopt it, turn failover on, and wait until that is set up."""
    reported(town, vm)
    town.do("vms", "adopt", vm)
    town.wait_for(lambda: town.job(vm)["released"], LIMIT_S, f"{vm} to be adopted")
    town.do("vms", "set", vm, "--failover", *terms)
    town.wait_for(lambda: shown(town, vm)["failover"]["ready"], LIMIT_S, f"failover of {vm}")


def cut(town: Cluster, vm: str, lives: int, limit_s: float) -> float:
    """Cut the power of the host of a VM; it runs elsewhere in time, and the host is clean when it is back."""
    home = town.homes()[vm]
    town.lab.power_off(home)
    began_s = CLOCK.monotonic_s()
    new = town.wait_for(lambda: elsewhere(town, vm, home), limit_s, f"{vm} on another host than {home}")
    took_s = CLOCK.monotonic_s() - began_s
    works_on(town, vm, lives=lives)
    town.lab.power_on(home)
    town.wait_for(partial(clean, town, vm, home), LIMIT_S, f"{home} to be clean")
    assert not autostarts(town.lab.hosts[new], vm)
    town.wait_for(
        lambda: shown(town, vm)["failover"] == {"on": True, "ready": True, "why_not": []}, SOON_S, "readiness"
    )
    works_on(town, vm, lives=lives)
    return took_s


def test_a_fenced_host_loses_its_vms_to_others(town: Cluster) -> None:
    before = made_with_virsh(town, "db", "h1")
    adopt(town, "db", "--importance", "5")
    assert not autostarts(town.lab.hosts["h1"], "db")
    took_s = [cut(town, "db", lives + 2, FENCED_S) for lives in range(CUTS)]
    print(f"runs elsewhere after {', '.join(f'{one:.0f}' for one in took_s)} s")
    home = town.homes()["db"]
    assert len(happened(town, "vm-failover", "db")) == CUTS
    town.do("vms", "release", "db")
    host = town.lab.hosts[home]
    town.wait_for(lambda: autostarts(host, "db"), LIMIT_S, "autostart as before")
    assert host.virsh("dumpxml", "--inactive", "db") == before


def test_a_vm_without_failover_waits_for_its_host(town: Cluster) -> None:
    made_with_virsh(town, "db", "h1")
    reported(town, "db")
    town.do("vms", "adopt", "db")
    town.wait_for(lambda: happened(town, "vm-adopted", "db"), LIMIT_S, "adoption")
    works_on(town, "db")
    town.lab.power_off("h1")
    town.wait_for(lambda: happened(town, "node-off", "h1"), LIMIT_S, "the proof")
    town.watch(10.0, lambda: town.homes() == {}, "no VM anywhere")
    town.lab.power_on("h1")
    town.wait_for(lambda: town.homes() == {"db": "h1"}, LIMIT_S, "the VM to be back")
    works_on(town, "db", lives=2)


# --- without a fence device -------------------------------------------------------------------------------------------

RENEW_S, EXPIRES_S = 1.0, 5.0


@pytest.fixture
def leased() -> Iterator[Leased]:
    """Three hosts with leases on their shared storage, and a controller that can fence none."""
    lease = {"folder": "{shared}/leases", "renew_s": RENEW_S, "expires_s": EXPIRES_S, "watchdog": f"/{DEVICE}"}
    with cluster(3, SPEC, controller={"power": {"driver": "none"}}, agent={"lease": lease}, begin=False) as whole:
        made = Leased(whole)
        try:
            whole.begin()
            yield made
        finally:
            made.close()


class Leased:
    """A cluster whose hosts run `trimtab-lease`, each with a watchdog."""

    def __init__(self, town: Cluster) -> None:
        self.town = town
        folder = town.hosts.shared / "leases"
        folder.mkdir()
        (folder / MARK).touch()
        self.dogs: dict[str, Watchdog] = {}
        self.keepers: dict[str, HostDaemon] = {}
        for name, host in town.lab.hosts.items():
            file = town.lab.folder / f"agent-{name}.toml"
            file.write_text(file.read_text().replace("{shared}", str(town.hosts.shared)))
            self.dogs[name] = Watchdog(host.folder, EXPIRES_S, host.power_off)
            words = [sys.executable, "-P", "-m", "agents.lease", "--config", str(file)]
            self.keepers[name] = HostDaemon(f"lease-{name}", words, town.lab.folder, host)
            self.keepers[name].start()

    def power_on(self, name: str) -> None:
        self.town.lab.power_on(name)
        self.keepers[name].start()

    def close(self) -> None:
        for keeper in self.keepers.values():
            keeper.end()
        for dog in self.dogs.values():
            dog.close()


def test_an_expired_lease_is_proof_where_nothing_can_fence(leased: Leased) -> None:
    town = leased.town
    made_with_virsh(town, "db", "h1")
    adopt(town, "db")
    took_s = []
    for lives in range(CUTS):
        home = town.homes()["db"]
        town.lab.power_off(home)
        leased.dogs[home].disarm()
        began_s = CLOCK.monotonic_s()
        new = town.wait_for(partial(elsewhere, town, "db", home), LEASED_S, f"db on another host than {home}")
        took_s.append(CLOCK.monotonic_s() - began_s)
        works_on(town, "db", lives=lives + 2)
        assert "storage lease expired" in happened(town, "node-off", home)[-1]
        leased.power_on(home)
        town.wait_for(partial(clean, town, "db", home), LIMIT_S, f"{home} to be clean")
        works_on(town, "db", lives=lives + 2)
        assert town.homes() == {"db": new}
    print(f"runs elsewhere after {', '.join(f'{one:.0f}' for one in took_s)} s")
    assert all(dog.resets == 0 for dog in leased.dogs.values())


def test_a_host_that_loses_only_its_network_keeps_its_vms(leased: Leased) -> None:
    town = leased.town
    made_with_virsh(town, "db", "h1")
    adopt(town, "db")
    town.lab.hosts["h1"].cut_network()
    town.wait_for(lambda: happened(town, "node-unreachable", "h1"), LIMIT_S, "the host to be missed")
    town.watch(4.0 * EXPIRES_S, lambda: town.homes() == {"db": "h1"}, "one VM on a host without a network")
    assert happened(town, "node-off", "h1") == []
    town.lab.hosts["h1"].restore_network()
    town.wait_for(lambda: shown(town, "db")["failover"]["ready"], LIMIT_S, "the host to be back")
    works_on(town, "db")


def test_a_host_whose_keeper_dies_is_reset_and_its_vms_run_elsewhere(leased: Leased) -> None:
    town = leased.town
    made_with_virsh(town, "db", "h1")
    adopt(town, "db")
    leased.keepers["h1"].kill()
    town.wait_for(lambda: leased.dogs["h1"].resets == 1, LIMIT_S, "the reset")
    town.wait_for(lambda: town.homes() == {}, SOON_S, "its VM to be gone")
    town.wait_for(lambda: elsewhere(town, "db", "h1"), LEASED_S, "another host")
    works_on(town, "db", lives=2)
