"""What the cluster's hosts hold: domains with what runs in them, jobs on them, and storage pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from sim_backend.fake_libvirt.codes import Off, State, libvirtError
from sim_backend.fake_libvirt.definition import Definition
from sim_backend.fake_libvirt.transfers import Transfer
from sim_backend.world.migrating import GuestMemory

TPM_FOLDER = "/var/lib/libvirt/swtpm"
DEFAULT_SHARES = 1_024
DEFAULT_PERIOD_US = 100_000


@dataclass(slots=True, eq=False)
class Guest:
    """What runs in a domain, and moves with it. `work_s`: CPU time since it booted; at `ends_at_s` of it, it shuts
    itself down. `obeys`: whether it does when it is asked to. `memory`: how it uses its memory (None: migrations take
    the time that the cluster has for them)."""

    token: int
    work_s: float = 0.0
    ends_at_s: float = inf
    obeys: bool = True
    memory: GuestMemory | None = None


@dataclass(slots=True, eq=False)
class Job:
    """An operation that takes time. With an `error` it must be rolled back; with an infinite `due_s` it hangs."""

    kind: str
    begun_s: float
    due_s: float
    breaks: bool = False  # fails half-way
    error: libvirtError | None = None
    peer: str = ""  # the other host of a migration
    incoming: bool = False
    orphan: bool = False  # its libvirtd has died: whoever takes up the domain tidies up
    transfer: Transfer | None = None  # of a migration whose course is followed

    def over(self, now_s: float) -> bool:
        """Return whether the operation has failed or is due."""
        if self.error is not None:
            return True
        return now_s >= self.due_s if self.transfer is None else self.transfer.done(now_s)


@dataclass(slots=True, eq=False)
class DirtyRateCalc:
    """A measurement of how fast a guest changes its memory, which takes `seconds`."""

    begun_s: float
    seconds: int
    mib_per_s: int

    def stats(self, now_s: float) -> dict[str, Any]:
        """Return what libvirt's statistics say of it."""
        found: dict[str, Any] = {"dirtyrate.calc_status": 2 if now_s >= self.begun_s + self.seconds else 1}
        found |= {"dirtyrate.calc_start_time": int(self.begun_s), "dirtyrate.calc_period": self.seconds}
        if found["dirtyrate.calc_status"] == 2:
            found["dirtyrate.megabytes_per_second"] = self.mib_per_s
        return found


@dataclass(slots=True, eq=False)
class Dom:
    """A domain: `config` when it is persistent, `live` and `guest` when it is active."""

    uuid: str
    name: str
    config: Definition | None = None
    live: Definition | None = None
    guest: Guest | None = None
    state: int = State.SHUTOFF
    reason: int = Off.UNKNOWN
    number: int = -1
    cpu_s: float = 0.0  # of this process of QEMU
    job: Job | None = None
    asked_to_end: bool = False
    incoming: bool = False  # a migration brings it here
    autostart: bool = False
    may_reboot: bool = True  # QEMU was started so that it may, since one of its actions is not "destroy"
    snapshots: int = 0
    checkpoints: int = 0
    max_downtime_ms: int = 300
    completed: Mapping[str, Any] = field(default_factory=dict)  # statistics of its last migration
    dirty_rate: DirtyRateCalc | None = None
    halted: Transfer | None = None  # a post-copy migration that was interrupted
    jobs: list[str] = field(default_factory=list)  # that somebody has begun: "backup", "snapshot"
    block_jobs: list[str] = field(default_factory=list)  # disks with a job

    @property
    def tpm_state(self) -> str:
        """The file with the state of its TPM, if it has one."""
        return f"{TPM_FOLDER}/{self.uuid}/tpm2/tpm2-00.permall"

    @property
    def definition(self) -> Definition:
        """As it is now."""
        found = self.live or self.config
        assert found is not None
        return found

    @property
    def running(self) -> bool:
        """Whether it executes."""
        return self.guest is not None and self.state == State.RUNNING

    def be(self, state: int, reason: int) -> None:
        """Change its state."""
        self.state, self.reason = state, reason

    def weight(self) -> int:
        """Return the domain's CPU shares."""
        return self.definition.tune("shares") or DEFAULT_SHARES

    def most_cores(self) -> float:
        """Return the maximum number of cores that the domain can use."""
        vcpus = float(self.definition.vcpus)
        quota_us = self.definition.tune("quota") or -1
        period_us = self.definition.tune("period") or DEFAULT_PERIOD_US
        return vcpus if quota_us <= 0 else vcpus * min(1.0, quota_us / period_us)


@dataclass(slots=True, eq=False)
class VolumeFacts:
    """A volume that a pool knows of."""

    name: str
    path: str
    capacity: int
    kind: str = "raw"
    backing: str = ""


@dataclass(slots=True, eq=False)
class PoolState:
    """A pool of type dir, which knows of files that it made itself, and of those that it found when it was refreshed.
    Without a path it is one of type rbd, and has no volumes; `hosts`: the monitors of its cluster."""

    name: str
    path: str
    uuid: str
    active: bool = True
    hosts: tuple[str, ...] = ("ceph",)
    volumes: dict[str, VolumeFacts] = field(default_factory=dict)
