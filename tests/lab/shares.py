"""What part of a host's CPU each of its guests is allotted, and what part it got, by libvirt's count of CPU time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.values.actions import ActionKind
from shared.values.vms import VmState
from tests.integration.harness import CLOCK
from tests.lab.cluster import Cluster
from tests.lab.hosts import Host

LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Share:
    """One guest of a host for some time: the parts of what all guests there were allotted, and of what they got."""

    vm: str
    decided_frac: float
    got_frac: float

    @property
    def off_points(self) -> float:
        """By how many points of a hundred they differ."""
        return 100.0 * abs(self.decided_frac - self.got_frac)


@dataclass(frozen=True, slots=True)
class Shares:
    """What was seen of a host. `quota_frac`: the part of its quota that its guests used; `seconds`: for so long."""

    host: str
    seconds: float
    quota_frac: float
    of_guests: tuple[Share, ...]


def watch(cluster: Cluster, host: Host, seconds: float) -> Shares | None:
    """Watch the guests of a host for so long. None where they were not the same all the time, or something was done
    to one of them."""
    begin_s = CLOCK.monotonic_s()
    before = _used_s(host)
    allotted = dict.fromkeys(before, 0.0)
    looked_s = begin_s
    while looked_s < begin_s + seconds:
        rows = _rows(cluster, host)
        if rows.keys() != before.keys() or not all(_goes_on(row) for row in rows.values()):
            return None
        CLOCK.sleep(LOOK_S)
        now_s = CLOCK.monotonic_s()
        for vm, row in rows.items():
            allotted[vm] += row["cpu_mhz"] * (now_s - looked_s)
        looked_s = now_s
    after = _used_s(host)
    if after.keys() != before.keys():
        return None
    used_s = {vm: after[vm] - before[vm] for vm in before}
    took_s = CLOCK.monotonic_s() - begin_s
    return Shares(host.name, took_s, sum(used_s.values()) / (host.spec.cpus * took_s), shares_of(allotted, used_s))


def shares_of(allotted: Mapping[str, float], used_s: Mapping[str, float]) -> tuple[Share, ...]:
    """Of guests by name, what they were allotted over some time and used in it."""
    all_allotted, all_used_s = sum(allotted.values()), sum(used_s.values())
    return tuple(Share(vm, allotted[vm] / all_allotted, used_s[vm] / all_used_s) for vm in sorted(allotted))


def _goes_on(row: Mapping[str, Any]) -> bool:
    """Whether nothing is done to a guest but that it is given another share."""
    return row["state"] == VmState.RUNNING.value and row["busy"] in ("", ActionKind.SET_CPU.value)


def _rows(cluster: Cluster, host: Host) -> dict[str, Mapping[str, Any]]:
    """What `trimtab vms list` says of the guests there."""
    said = cluster.do("vms", "list", "--node", host.name, "--output", "json").data
    return {row["vm"]: row for row in said["vms"] if row["state"] != VmState.SUSPENDED.value}


def _used_s(host: Host) -> dict[str, float]:
    """CPU time of each guest that runs there, as libvirt counts it."""
    found: dict[str, float] = {}
    vm = ""
    for line in host.virsh("domstats", "--cpu-total", "--list-running").splitlines():
        word = line.strip()
        if word.startswith("Domain: "):
            vm = word.removeprefix("Domain: ").strip("'")
        elif word.startswith("cpu.time="):
            found[vm] = int(word.removeprefix("cpu.time=")) / 1e9
    return found
