"""The state of one fake host: domains, images, operations in progress, and events that its agent has not fetched
yet."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import structs

from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.failover import host_file
from shared.values.migration_terms import MigrationFigures
from shared.values.nodes import Node
from shared.values.vms import LIVE_STATES, VmState, VmStatus
from sim_backend.fakes.definitions import SHARED, Belongings, labelled, unlabelled
from sim_backend.fakes.hardware import PLAIN, GuestHardware, lacking
from sim_backend.fakes.migrations import Migrations, Planned
from sim_backend.world.disks import BYTES_PER_S
from sim_backend.world.world import World

HOLDS_MEMORY = LIVE_STATES | {VmState.INCOMING}


class Domain:
    """A VM, or with state SUSPENDED its saved image. While it is not live, its counters are kept here instead of in the
    world.

    `managed`: it has Trimtab's metadata; without it, generation and attempt are 0. `foreign`: Trimtab did not create
    its definition, which stays when the VM ends. `disks`: the generation of its disk, see
    `shared.values.actions.Action`. `written`: the copy of the disk that belongs to its saved memory. `shared`: its disk
    lies on storage that all hosts have. `autostart`: its host starts it, or did before `failover`, since when Trimtab
    alone does. `stays_off`: libvirt would not restart it when its guest has ended. `hardware`: what it holds of its
    host's. `xml`: the definition of a foreign one as its host has it, with our metadata.
    """

    __slots__ = (
        "attempt",
        "autostart",
        "busy",
        "cap_mhz",
        "cpu_mhz",
        "cpu_time_s",
        "disk_read_bytes",
        "disk_time_s",
        "disks",
        "failover",
        "foreign",
        "generation",
        "hardware",
        "managed",
        "memory_mib",
        "shared",
        "state",
        "stays_off",
        "vcpus",
        "vm",
        "written",
        "xml",
    )

    def __init__(
        self,
        vm: str,
        generation: int,
        attempt: int,
        memory_mib: int,
        vcpus: int,
        cpu_mhz: float,
        cap_mhz: float | None,
        state: VmState,
        busy: str = "",
    ) -> None:
        self.vm, self.generation, self.attempt = vm, generation, attempt
        self.memory_mib, self.vcpus, self.cpu_mhz, self.cap_mhz = memory_mib, vcpus, cpu_mhz, cap_mhz
        self.state, self.busy = state, busy
        self.cpu_time_s = self.disk_time_s = 0.0
        self.disk_read_bytes = 0
        self.managed = True
        self.foreign = self.shared = self.autostart = self.failover = self.stays_off = False
        self.disks = self.written = 0
        self.hardware = PLAIN
        self.xml = ""

    def copy(self, state: VmState, busy: str = "") -> Domain:
        """Return the same VM in another state, with its counters at 0."""
        made = Domain(
            self.vm,
            self.generation,
            self.attempt,
            memory_mib=self.memory_mib,
            vcpus=self.vcpus,
            cpu_mhz=self.cpu_mhz,
            cap_mhz=self.cap_mhz,
            state=state,
            busy=busy,
        )
        made.foreign, made.disks, made.written = self.foreign, self.disks, self.written
        made.shared, made.autostart, made.failover = self.shared, self.autostart, self.failover
        made.hardware, made.stays_off, made.xml = self.hardware, self.stays_off, self.xml
        return made

    def relabel(self) -> None:
        """Write what Trimtab knows of a foreign VM into its definition, or remove it if the VM is not managed."""
        if self.foreign:
            self.xml = labelled(unlabelled(self.xml), self.generation) if self.managed else unlabelled(self.xml)

    @property
    def ordinary_mib(self) -> int:
        """Its memory that is not in hugepages, in MiB."""
        return self.memory_mib - self.hardware.pages_mib

    @property
    def definition(self) -> str:
        """The definition of a VM that Trimtab did not create, without its metadata ("": it is not looked at)."""
        return unlabelled(self.xml) if self.foreign and (self.shared or self.failover) else ""

    @property
    def plain_text(self) -> str:
        """A definition of the VM that says no more than must be."""
        return f"<domain><name>{self.vm}</name><memory>{self.memory_mib}</memory><vcpu>{self.vcpus}</vcpu></domain>"

    @property
    def ceiling_mhz(self) -> float:
        """The stated maximum, inf when there is none."""
        return math.inf if self.cap_mhz is None else self.cap_mhz


class Operation:
    """An operation in progress. `before` is the state to restore; `peer` is the other host that takes part.
    `planned`: how a migration goes whose guest is known to change memory."""

    __slots__ = (
        "action",
        "arriving",
        "before",
        "domain",
        "due_s",
        "fails",
        "over",
        "peer",
        "planned",
        "silent",
        "site",
    )

    def __init__(self, action: Action, site: Site) -> None:
        self.action, self.site = action, site
        self.domain: Domain | None = None
        self.arriving: Domain | None = None
        self.before = VmState.RUNNING
        self.peer: Site | None = None
        self.due_s = math.inf
        self.planned: Planned | None = None
        self.fails = self.over = self.silent = False


class Fabric(Protocol):
    """What the hosts share: the world, each other, the locks on the VMs' disks (vm -> node), and what their definitions
    say (vm -> hardware, XML)."""

    world: World
    sites: dict[str, Site]
    locks: dict[str, str]
    hardware: dict[str, GuestHardware]
    definitions: dict[str, str]
    disks: Disks
    belongings: Belongings
    reachable: Callable[[str, str], bool]
    migrations: Migrations

    def address_of(self, vm: str) -> str:
        """Return the address of a guest, on any host."""
        ...

    def note_ready(self, node: str) -> None:
        """Note that the node's agent has events to fetch."""
        ...

    def note_double(self, vm: str, node: str, now_s: float) -> None:
        """Record that a lock prevented a VM from starting a second time, on `node`."""
        ...

    def note_unfit(self, vm: str, node: str, why: str) -> None:
        """Record that a VM was refused on `node` for want of hardware."""
        ...


class Disks:
    """The true state of the VMs' disks: the copies on each host and which is the newest. A VM that executes writes to
    the copy on its host and makes it the newest. `stale` lists (at_s, vm, node) for each VM that started executing with
    another copy. `shared`: VMs whose disk is one for all hosts."""

    def __init__(self) -> None:
        self.shared: set[str] = set()
        self.copies: dict[tuple[str, str], int] = {}
        self.newest: dict[str, int] = {}
        self.stale: list[tuple[float, str, str]] = []

    def make(self, vm: str, node: str) -> None:
        """Create a new disk, which replaces all copies."""
        self.write(vm, node)

    def write(self, vm: str, node: str) -> None:
        """Note that the guest has written to its disk."""
        self.newest[vm] = self.copies[vm, self._place(vm, node)] = self.newest.get(vm, 0) + 1

    def copy(self, vm: str, source: str, target: str) -> None:
        """Copy a disk to the target and overwrite the copy there."""
        if (vm, source) in self.copies and vm not in self.shared:
            self.copies[vm, target] = self.copies[vm, source]

    def remove(self, vm: str, node: str) -> None:
        """Delete the copy on a host."""
        if vm not in self.shared:
            self.copies.pop((vm, node), None)

    def executes(self, vm: str, node: str, now_s: float, written: int = 0) -> None:
        """Note that a VM starts executing on a host, with the memory that belongs to the copy `written` (0: the
        newest). A wrong copy is recorded in `stale`."""
        if self.copies.get((vm, self._place(vm, node))) != (written or self.newest.get(vm)):
            self.stale.append((now_s, vm, node))

    def _place(self, vm: str, node: str) -> str:
        return SHARED if vm in self.shared else node


def _of_failover(domain: Domain) -> dict[str, Any]:
    if not (domain.foreign and domain.managed and (domain.shared or domain.failover)):
        return {}
    return {
        "definition": hashlib.sha256(domain.definition.encode()).hexdigest()[:16] if domain.definition else "",
        "autostart": domain.autostart,
        "failover": domain.failover,
        "host_files": () if domain.shared else (host_file("disk", f"/{domain.vm}"),),
    }


class Site:
    """State of one host. Only RUNNING, PAUSED and INCOMING domains hold memory."""

    def __init__(self, node: Node, fabric: Fabric) -> None:
        self.node, self.fabric = node, fabric
        self.up, self.boot_id = True, "boot-1"
        self.domains: dict[str, Domain] = {}
        self.images: dict[str, Domain] = {}
        self.operations: dict[str, Operation] = {}
        self.outbox: list[Operated | GuestChanged] = []
        self.told_s = -math.inf

    def memory_used_mib(self) -> int:
        """Ordinary memory held by domains, reservations of those on their way here included, and by what is frozen."""
        held_mib = sum(domain.ordinary_mib for domain in self.domains.values() if domain.state in HOLDS_MEMORY)
        if self.node.freezes:
            held_mib += sum(image.memory_mib for vm, image in self.images.items() if vm not in self.domains)
        return held_mib

    def lacking(self, domain: Domain) -> str:
        """Return what hardware the host lacks for a domain to come alive here ("": none)."""
        if domain.hardware == PLAIN:
            return ""
        anew = domain.vm not in self.domains and domain.vm not in self.images
        others = (each for vm, each in self.domains.items() if vm != domain.vm and each.state in HOLDS_MEMORY)
        return lacking(self.node, domain.hardware, (each.hardware for each in others), anew)

    def status(self, vm: str, now_s: float) -> VmStatus | None:
        """Return the VM's status on this host, None if it is not here. A domain takes precedence over the older image
        that it came from."""
        domain = self.domains.get(vm) or self.images.get(vm)
        return None if domain is None else self.status_of(domain, now_s)

    def status_of(self, domain: Domain, now_s: float) -> VmStatus:
        """Status with counters as of `now_s`."""
        live = domain.state in LIVE_STATES
        cpu_time_s = self.fabric.world.cpu_time_s(domain.vm, now_s) if live else domain.cpu_time_s
        held_s, served_s = self.fabric.world.disk_s(domain.vm, now_s) if live else (domain.disk_time_s, 0.0)
        memory = self.fabric.migrations.memories.get(domain.vm) if live else None
        status = VmStatus(
            vm=domain.vm,
            state=domain.state,
            generation=domain.generation,
            attempt=domain.attempt,
            memory_mib=domain.memory_mib,
            vcpus=domain.vcpus,
            cpu_mhz=domain.cpu_mhz,
            cpu_time_s=cpu_time_s,
            disk_read_bytes=round(BYTES_PER_S * served_s) if live else domain.disk_read_bytes,
            busy=domain.busy,
            managed=domain.managed,
            address=self.fabric.address_of(domain.vm) if live else "",
            disk_time_s=held_s,
            adopted=domain.foreign and domain.managed,
            disks=domain.disks,
            migration_needs=domain.hardware.needs,
            stays_off=domain.foreign and domain.managed and domain.stays_off,
            **_of_failover(domain),
        )
        if memory is None:
            return status
        return structs.replace(
            status,
            dirty_mib_per_s=memory.changed_mib(1.0),
            resident_mib=round(memory.resident_mib),
            working_set_mib=round(min(memory.working_set_mib, memory.resident_mib)),
        )

    def tell(self, event: Operated | GuestChanged, now_s: float) -> None:
        """Keep an event for the agent."""
        self.outbox.append(event)
        self.told_s = now_s
        self.fabric.note_ready(self.node.name)

    def tell_change(self, change: GuestChange, status: VmStatus, now_s: float, detail: str = "") -> None:
        """Keep a change nobody asked for."""
        self.tell(GuestChanged(change, status, detail), now_s)

    def answer(
        self,
        action: Action,
        outcome: Outcome,
        now_s: float,
        final: VmStatus | None = None,
        detail: str = "",
        migrated: MigrationFigures | None = None,
    ) -> None:
        """Answer an action with the VM's status as it is now."""
        status = self.status(action.vm, now_s)
        kept = self.domains.get(action.vm) if action.kind is ActionKind.ADOPT and outcome is Outcome.OK else None
        definition = "" if kept is None else kept.definition
        self.tell(Operated(action.id, outcome, status, final, detail, definition, migrated), now_s)

    def come_alive(self, domain: Domain, state: VmState, now_s: float) -> None:
        """Place the domain in the world on this host and delete its older image."""
        domain.state, domain.busy = state, ""
        self.images.pop(domain.vm, None)
        self.fabric.disks.executes(domain.vm, self.node.name, now_s, domain.written)
        self.fabric.belongings.comes_alive(domain.vm, self.node.name)
        domain.written = 0
        self.fabric.world.place(
            domain.vm,
            self.node.name,
            now_s,
            domain.cpu_mhz,
            domain.ceiling_mhz,
            domain.vcpus,
            domain.memory_mib,
            domain.attempt,
            state is VmState.RUNNING,
        )

    def leave_world(self, domain: Domain, state: VmState, now_s: float) -> VmStatus:
        """Stop the domain on this host for good and unlock its disk. Return its last status while it was live."""
        final = self.status_of(domain, now_s)
        self.fabric.disks.write(domain.vm, self.node.name)
        self.fabric.world.remove(domain.vm, now_s)
        self.fabric.locks.pop(domain.vm, None)
        domain.state, domain.busy, domain.cpu_time_s = state, "", final.cpu_time_s
        domain.disk_time_s, domain.disk_read_bytes = final.disk_time_s, final.disk_read_bytes
        return final
