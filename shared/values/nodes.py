"""Nodes: what a host has, its condition, and how far it is in service."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from shared.values.migration import NUMBER_MAX
from shared.values.migration_terms import DEFAULT_BOUNDS, MigrationBounds
from shared.values.scalars import (
    Number,
    Whole,
    check_name,
    positive,
    whole,
)
from shared.values.texts import check_label, check_line, check_mac

ADDRESSES_MAX = 64  # of network cards of one node


# --- nodes -----------------------------------------------------------------------------------------------------


class Ability(StrEnum):
    """What a node's hypervisor can do besides starting, pausing and stopping; see `Node.abilities`."""

    SAVE = "save"  # SUSPEND writes to disk: it frees the memory, and other nodes can RESUME what lies there
    MIGRATE = "migrate"
    FAILOVER = "failover"  # it keeps a VM from starting with its host, and starts one by a definition from elsewhere


@dataclass(frozen=True, slots=True)
class NumaCell:
    """A NUMA cell of a host: its number, its CPUs as a list such as "0-7,16-23", and its memory, hugepages included."""

    cell: int
    cpus: str = ""
    memory_mib: int = 0

    def __post_init__(self) -> None:
        whole("cell", self.cell, 0, NUMBER_MAX)
        check_line("cpus", self.cpus)
        whole("memory_mib", self.memory_mib, 0, 1 << 40)


@dataclass(frozen=True, slots=True)
class HugepagePool:
    """Memory that a host has reserved for hugepages of a size. `cell`: the NUMA cell that it is in (-1: not known)."""

    size_kib: int
    total_mib: int
    cell: int = -1

    def __post_init__(self) -> None:
        whole("size_kib", self.size_kib, 1, 1 << 40)
        whole("total_mib", self.total_mib, 0, 1 << 40)
        whole("cell", self.cell, -1, NUMBER_MAX)


@dataclass(frozen=True, slots=True)
class Node:
    """A host as its agent's inventory describes it.

    `core_mhz` is the base clock times the node type's factor; `memory_mib` is all memory, `reserve_mib` the part kept
    for the host itself. `labels` are the node's labels, matched against a workload's required labels. `node_type` names
    nodes that are alike ("": none); `mac_addresses` are those of its network interfaces, which can wake it. `os_type`,
    `os_version`: of its operating system, such as "debian" and "12" ("": unknown). Without SAVE among its `abilities`,
    a suspended VM is frozen: it keeps its memory, and can be resumed on this node alone. An agent that says nothing of
    its abilities is one that does not know of FAILOVER. `migration_has`: features that live migrations may need, see
    `shared.values.migration`. `templates`: the names of the templates for VMs there, or of the programs (None: its
    driver does not report them). `numa_cells`, `hugepages`: none where its driver does not report them; `hugepages` are
    a part of `memory_mib`. `migration_bounds`: what its agent allows of migrations from it.
    """

    name: str
    cores: int
    core_mhz: float
    memory_mib: int
    reserve_mib: int = 0
    labels: tuple[str, ...] = ()
    cpu_model: str = ""
    node_type: str = ""
    mac_addresses: tuple[str, ...] = ()
    os_type: str = ""
    os_version: str = ""
    abilities: tuple[Ability, ...] = (Ability.SAVE, Ability.MIGRATE)
    migration_has: tuple[str, ...] = ()
    templates: tuple[str, ...] | None = None
    numa_cells: tuple[NumaCell, ...] = ()
    hugepages: tuple[HugepagePool, ...] = ()
    migration_bounds: MigrationBounds = DEFAULT_BOUNDS

    def __post_init__(self) -> None:
        check_name("name", self.name)
        whole("cores", self.cores, 1, 65_536)
        positive("core_mhz", self.core_mhz)
        whole("memory_mib", self.memory_mib, 0, 1 << 40)
        whole("reserve_mib", self.reserve_mib, 0, self.memory_mib)
        whole("mac_addresses", len(self.mac_addresses), 0, ADDRESSES_MAX)
        for address in self.mac_addresses:
            check_mac("mac_addresses", address)
        for key in ("cpu_model", "node_type", "os_type", "os_version"):
            check_label(key, getattr(self, key))
        for key in ("labels", "migration_has"):
            for text in getattr(self, key):
                check_label(key, text)

    @property
    def cpu_mhz(self) -> float:
        """All CPU of the node in MHz."""
        return self.cores * self.core_mhz

    @property
    def usable_mib(self) -> int:
        """Ordinary memory that VMs may take, in MiB: without the reserve, and without what is reserved for
        hugepages."""
        return max(0, self.memory_mib - self.reserve_mib - self.hugepages_mib)

    @property
    def hugepages_mib(self) -> int:
        """Memory reserved for hugepages of all sizes, in MiB."""
        return sum(pool.total_mib for pool in self.hugepages)

    @property
    def freezes(self) -> bool:
        """Whether what is suspended on it keeps its memory and cannot be resumed elsewhere."""
        return Ability.SAVE not in self.abilities


class NodeCondition(StrEnum):
    """What the controller knows of a node."""

    UNKNOWN = "unknown"  # this term's echo has not come yet, or the node fell silent: nothing on it may be assumed
    UP = "up"  # echoed this term and reports in time
    OFF = "off"  # proven off: fenced, or an operator said so


class NodeService(StrEnum):
    """Where a node is on its way into service and out of it."""

    IN_SERVICE = "in-service"
    DRAINING = "draining"  # being emptied
    STANDBY = "standby"  # empty and up, takes no VMs
    OFF = "off"  # asleep or switched off, as it should be
    WAKING = "waking"  # asked to come up and not back yet
    FAILED = "failed"  # did not come back in time: out until an operator has repaired it


class Handover(StrEnum):
    """How far a node is on its way from one environment to the next."""

    SETTLED = "settled"  # it serves who has it
    EMPTYING = "emptying"  # what runs on it leaves
    RELEASING = "releasing"  # the setup policy of who had it is carried out
    ACQUIRING = "acquiring"  # the setup policy of who gets it is carried out
    FAILED = "failed"  # a setup policy failed for good: nobody gets it until an operator has repaired it


class SetupStep(StrEnum):
    """On which side of a change of hands a setup policy is carried out."""

    RELEASE = "release"
    ACQUIRE = "acquire"


class PowerOperation(StrEnum):
    """What a power driver can be asked to do to a node."""

    WAKE = "wake"
    SLEEP = "sleep"  # put to sleep or switch off an empty node, gently
    FENCE = "fence"  # cut its power, and prove that it is off
    LINK = "link"  # tell whoever else schedules on the nodes that this one may be used
    DELINK = "delink"  # or may not be used any more


class SleepMode(StrEnum):
    """How a node goes out of power through its agent."""

    SUSPEND = "suspend"  # to RAM
    OFF = "off"


class NodeSample(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One reading of a node: fractions are 0..1 over the last period, `_bytes` and `_busy_s` cumulative."""

    cpu_frac: Number = 0.0
    iowait_frac: Number = 0.0
    load_1min: Number = 0.0
    memory_used_mib: Number = 0.0
    swap_used_mib: Number = 0.0
    disk_busy_s: Number = 0.0
    disk_read_bytes: Whole = 0
    disk_write_bytes: Whole = 0
    net_rx_bytes: Whole = 0
    net_tx_bytes: Whole = 0
    disk_free_mib: Number = 0.0
