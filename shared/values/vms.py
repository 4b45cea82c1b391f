"""VMs: their states, what one is made from, and what an agent says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from shared.values.scalars import (
    Number,
    Whole,
)
from shared.values.texts import Label, Prose, Word

# --- VMs and actions -------------------------------------------------------------------------------------------


class VmState(StrEnum):
    """State of a VM as its hypervisor knows it. Only RUNNING, PAUSED and INCOMING hold memory."""

    RUNNING = "running"
    PAUSED = "paused"
    INCOMING = "incoming"  # the receiving end of a migration or resume under way: not executing
    SUSPENDED = "suspended"  # saved to disk, or frozen: see Ability
    ENDED = "ended"  # the guest shut itself down: its work is done
    CRASHED = "crashed"  # stopped without the guest's or our will


LIVE_STATES = frozenset({VmState.RUNNING, VmState.PAUSED})
OFF_STATES = frozenset({VmState.ENDED, VmState.CRASHED})  # defined, and not live
HOLDING_STATES = LIVE_STATES | {VmState.INCOMING}  # those that hold memory


@dataclass(frozen=True, slots=True)
class VmSpec:
    """All that a hypervisor needs to start a VM, and the metadata it keeps with it.

    `generation` counts how often the VM was brought to life (start, resume); `attempt` how often its job restarted.
    `cpu_mhz` sets the weight; `cap_mhz` is a stated maximum (None: work-conserving up to vcpus x core_mhz). `arguments`
    and `environment`: see Job. Of an adopted VM, `failover`: its host must not start it by itself, `stays_off`: nor
    after its guest has shut down or crashed, see VmStatus; and to define it anew, `definition`, its domain XML without
    our metadata in pieces, and `autostart`, see VmStatus.
    """

    vm: Label
    generation: int
    attempt: int
    memory_mib: int
    vcpus: int
    cpu_mhz: float
    cap_mhz: float | None = None
    template: str = ""
    arguments: tuple[Prose, ...] = ()
    environment: Word = ""
    failover: bool = False
    autostart: bool = False
    definition: tuple[Prose, ...] = ()
    stays_off: bool = False


class VmStatus(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One VM on one node as reported. Counters are cumulative since this VM came to life on this node.

    `busy` names the operation in progress on it ("" when none). `managed` is false for unmanaged VMs. `address`: where
    its guest can be reached by IP ("": unknown). `disk_time_s`: how long it has waited for its disk requests (0 if the
    hypervisor does not report it). `migration_needs`: see `shared.values.migration`. `adopted`: its definition existed
    before Trimtab managed it and is never removed. `definition`: digest of that definition without Trimtab's metadata
    ("": unknown). `disks`: generation of its local disks, see Action (0: it has none, or they are not counted).
    `dirty_mib_per_s`: memory that it changed within one second (negative: not measured). `resident_mib`: memory that it
    has touched, `disk_mib`: what a migration has to copy of its local disks, `working_set_mib`: memory that it changes
    again and again (each 0: unknown).
    `transient`: no definition outlives it, so that it cannot be adopted. Of an adopted VM, `autostart`: libvirt starts
    it with its host, or did; `failover`: it does not any more, since Trimtab may restart the VM on another host;
    `host_files`: what of it lies on this host alone, see `shared.values.failover`; `stays_off`: libvirt does not
    restart it when its guest has shut down or crashed, whatever its definition says.
    """

    vm: Label
    state: VmState
    generation: Whole = 0
    attempt: Whole = 0
    memory_mib: Whole = 0
    vcpus: Whole = 1
    cpu_mhz: Number = 0.0
    cpu_time_s: Number = 0.0
    disk_read_bytes: Whole = 0
    disk_write_bytes: Whole = 0
    net_rx_bytes: Whole = 0
    net_tx_bytes: Whole = 0
    busy: Word = ""
    managed: bool = True
    address: Word = ""
    disk_time_s: Number = 0.0
    migration_needs: tuple[Label, ...] = ()
    adopted: bool = False
    definition: Word = ""
    disks: Whole = 0
    dirty_mib_per_s: Number = -1.0
    resident_mib: Whole = 0
    disk_mib: Whole = 0
    working_set_mib: Whole = 0
    transient: bool = False
    autostart: bool = False
    failover: bool = False
    host_files: tuple[Label, ...] = ()
    stays_off: bool = False
