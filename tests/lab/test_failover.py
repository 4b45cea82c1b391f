"""VMs made with virsh on shared storage whose host loses power, on real QEMU: each runs on another host, once, the most
important one first.

What the guests print shows a second writer: its units are then doubled or out of order, and QEMU's lock on the disk
refuses the second start. CUTS=10 cuts the power ten times in each test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from agents.lease.folder import MARK
from tests.integration.harness import CLOCK, Section
from tests.integration.scene import LIMIT_S, SOON_S, log_lines
from tests.lab import fencing
from tests.lab.cluster import Cluster, HostDaemon, cluster
from tests.lab.existing_vms import autostarts, clean, made_with_virsh, reported, shown
from tests.lab.hosts import HostSpec
from tests.lab.test_faults import again, alarms, elsewhere, happened, works_on
from tests.lab.watchdogs import DEVICE, Watchdog

pytestmark = [pytest.mark.full, pytest.mark.alone]

CUTS = int(os.environ.get("CUTS", "2"))
SPEC = HostSpec(cores=1, core_mhz=1_000.0, core_frac=0.5, memory_mib=400)
FENCED_S, LEASED_S = 60.0, 120.0  # within it all VMs must run elsewhere
IMPORTANCE: Mapping[str, float] = {"db": 5.0, "log": 1.0}  # of VMs on one host, in the order in which they get others
AGENT_LIMIT_S = 10.0  # of one run of a fence agent
STAYS_S = 5.0
UNPOWERED: dict[str, Section] = {"power": {"driver": "none"}}


class Machines(Protocol):
    """Who has the hosts lose their power and get it back."""

    def power_off(self, node: str) -> None:
        """The host dies."""

    def power_on(self, node: str) -> None:
        """It is back, with what runs on it."""


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts that are fenced by the second of two methods: the device of the first one cannot be reached."""
    agent = tmp_path / "fence_lab"
    methods = fencing.section(AGENT_LIMIT_S, bmc=fencing.refusing(tmp_path / "bmc"), pdu=agent)
    with cluster(3, SPEC, controller={**UNPOWERED, "fencing": methods}, begin=False) as whole:
        fencing.write_agent(agent, whole.hosts.folder)
        whole.begin()
        yield whole


def adopt(town: Cluster, vm: str, importance: float = 1.0, failover: bool = True) -> None:
    """Adopt it such that no decision moves it, turn failover on, and wait until that is set up."""
    reported(town, vm)
    terms = town.lab.folder / f"{vm}.terms.toml"
    terms.write_text(f'[[vms]]\nmatch = "{vm}"\nimportance = {importance}\nautomation = "off"\n')
    town.do("vms", "adopt", vm, "--terms", str(terms))
    town.wait_for(lambda: town.job(vm)["released"], LIMIT_S, f"{vm} to be adopted")
    if failover:
        town.do("vms", "set", vm, "--failover")
        town.wait_for(partial(is_ready, town, vm), LIMIT_S, f"failover of {vm}")


def is_ready(town: Cluster, vm: str) -> bool:
    """Whether it would run elsewhere if its host died."""
    ready: object = shown(town, vm)["failover"]
    return ready == {"on": True, "ready": True, "why_not": []}


def made_and_adopted(town: Cluster, node: str) -> dict[str, str]:
    """Make and adopt the VMs on one host; their definitions."""
    before = {vm: made_with_virsh(town, vm, node) for vm in IMPORTANCE}
    for vm, importance in IMPORTANCE.items():
        adopt(town, vm, importance)
    return before


def together(town: Cluster) -> str:
    """The host of the VMs; those that have come to another one are moved."""
    first, *others = IMPORTANCE
    home = town.homes()[first]
    for vm in others:
        if town.homes()[vm] != home:
            town.do("vms", "migrate", vm, home)
            town.wait_for(partial(runs_on, town, vm, home), LIMIT_S, f"{vm} on {home}")
            town.wait_for(partial(is_ready, town, vm), LIMIT_S, f"failover of {vm}")
    return home


def runs_on(town: Cluster, vm: str, node: str) -> bool:
    return town.homes().get(vm) == node


def failed_over(town: Cluster) -> list[str]:
    """The VMs that were given other hosts, in order."""
    lines = log_lines(town.lab.controllers["c1"])
    return [line["subject"] for line in lines if line["event"] == "happened" and line["what"] == "vm-failover"]


def cut(town: Cluster, machines: Machines, home: str, lives: int, limit_s: float) -> float:
    """Cut the power of the host of the VMs; each runs elsewhere in time, and the host is clean when it is back."""
    before = len(failed_over(town))
    machines.power_off(home)
    began_s = CLOCK.monotonic_s()
    town.wait_for(lambda: all(elsewhere(town, vm, home) for vm in IMPORTANCE), limit_s, f"all VMs away from {home}")
    took_s = CLOCK.monotonic_s() - began_s
    assert failed_over(town)[before:] == [*IMPORTANCE], "the most important one is placed first"
    new = town.homes()
    for vm in IMPORTANCE:
        works_on(town, vm, lives=lives)
    machines.power_on(home)
    for vm in IMPORTANCE:
        town.wait_for(partial(clean, town, vm, home), LIMIT_S, f"{home} to be clean of {vm}")
        assert not autostarts(town.lab.hosts[new[vm]], vm)
        town.wait_for(partial(is_ready, town, vm), SOON_S, f"readiness of {vm}")
        works_on(town, vm, lives=lives)
    assert town.homes() == new
    return took_s


def told(record: Callable[[str, object], None], took_s: list[float]) -> None:
    """Say how long it took, and have it stand in the table of the lab."""
    said = f"{', '.join(f'{one:.0f}' for one in took_s)} s"
    print(f"all run elsewhere after {said}")
    record("all run elsewhere after", said)


def test_a_fenced_host_loses_its_vms_to_others(town: Cluster, record_property: Callable[[str, object], None]) -> None:
    before = made_and_adopted(town, "h1")
    assert not any(autostarts(town.lab.hosts["h1"], vm) for vm in IMPORTANCE)
    took_s = []
    for lives in range(CUTS):
        home = together(town)
        took_s.append(cut(town, town.lab, home, lives + 2, FENCED_S))
        proof = happened(town, "node-off", home)[-1]
        assert proof.startswith("bmc: off: exit status 1"), proof
        assert proof.endswith("; pdu: off"), proof
    told(record_property, took_s)
    assert failed_over(town) == [*IMPORTANCE] * CUTS
    for vm in IMPORTANCE:
        home = town.homes()[vm]
        town.do("vms", "release", vm)
        host = town.lab.hosts[home]
        town.wait_for(partial(autostarts, host, vm), LIMIT_S, f"autostart of {vm} as before")
        assert host.virsh("dumpxml", "--inactive", vm) == before[vm]


def test_where_one_has_room_it_is_the_more_important_one(town: Cluster) -> None:
    """The other one, which is larger, waits for its host."""
    for vm, node, memory_mib in (("db", "h1", 160), ("log", "h1", 170), ("full2", "h2", 180), ("full3", "h3", 280)):
        made_with_virsh(town, vm, node, memory_mib=memory_mib)
    for vm in ("full2", "full3"):
        adopt(town, vm, failover=False)
    for vm in ("log", "db"):
        adopt(town, vm, IMPORTANCE[vm])
    town.lab.power_off("h1")
    town.wait_for(partial(runs_on, town, "db", "h2"), FENCED_S, "db on the only host with room")
    town.wait_for(lambda: ("failover-blocked", "log") in alarms(town), LIMIT_S, "word that log waits")
    town.watch(STAYS_S, lambda: "log" not in town.homes(), "log waits")
    town.lab.power_on("h1")
    town.wait_for(partial(runs_on, town, "log", "h1"), LIMIT_S, "log to be back")
    town.wait_for(partial(clean, town, "db", "h1"), LIMIT_S, "h1 to be clean of db")
    for vm in IMPORTANCE:
        works_on(town, vm, lives=2)


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


# --- without a fence device that works --------------------------------------------------------------------------------

# A lease proves a host off 23 s after its last renewal (twice until it expires, two renewals, 5 s); by then the fence
# has been hanging for 6 s.
RENEW_S, EXPIRES_S = 1.0, 8.0
FENCE_AFTER_S = 9.0  # that a host is unreachable, which takes 8 s
HANGS_S = AGENT_LIMIT_S + 2.0


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[Leased]:
    """Three hosts with leases on their shared storage, and a fence device that answers nothing."""
    lease = {"folder": "{shared}/leases", "renew_s": RENEW_S, "expires_s": EXPIRES_S, "watchdog": f"/{DEVICE}"}
    methods = {"attempts": 1, **fencing.section(AGENT_LIMIT_S, dead=fencing.hanging(tmp_path / "dead", HANGS_S))}
    own: dict[str, Section] = {**UNPOWERED, "fencing": methods, "timeouts": {"fence_after_s": FENCE_AFTER_S}}
    with cluster(3, SPEC, controller=own, agent={"lease": lease}, begin=False) as whole:
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

    def power_off(self, node: str) -> None:
        """The host dies, and its watchdog with it."""
        self.town.lab.power_off(node)
        self.dogs[node].disarm()

    def power_on(self, node: str) -> None:
        """The host is back, and renews its lease."""
        self.town.lab.power_on(node)
        self.dogs[node].boot()
        self.keepers[node].start()

    def close(self) -> None:
        for keeper in self.keepers.values():
            keeper.end()
        for dog in self.dogs.values():
            dog.close()


def test_an_expired_lease_is_proof_where_no_fence_answers(
    leased: Leased, record_property: Callable[[str, object], None]
) -> None:
    town = leased.town
    made_and_adopted(town, "h1")
    took_s = []
    for lives in range(CUTS):
        home = together(town)
        fenced, failed = again(town, "fencing", home), again(town, "fence-failed", home)
        took_s.append(cut(town, leased, home, lives + 2, LEASED_S))
        assert "storage lease expired" in happened(town, "node-off", home)[-1]
        assert fenced(), "the fence was tried before"
        town.wait_for(failed, LIMIT_S, "the end of the fence")
        assert f"dead: off: killed after {AGENT_LIMIT_S:g} s" in happened(town, "fence-failed", home)[-1]
    told(record_property, took_s)
    assert failed_over(town) == [*IMPORTANCE] * CUTS
    assert all(dog.resets == 0 for dog in leased.dogs.values())


def test_a_host_that_loses_only_its_network_keeps_its_vms(leased: Leased) -> None:
    town = leased.town
    made_with_virsh(town, "db", "h1")
    adopt(town, "db")
    town.lab.hosts["h1"].cut_network()
    town.wait_for(lambda: happened(town, "node-unreachable", "h1"), LIMIT_S, "the host to be missed")
    town.watch(4.0 * EXPIRES_S, lambda: town.homes() == {"db": "h1"}, "one VM on a host without a network")
    assert happened(town, "fencing", "h1")
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
