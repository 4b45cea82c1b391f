"""What there is on a node, by one call for all domains; XML is read only of those that are new or were edited. That a
domain's disks are others than before is no event, and is seen by the places that the call gives of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from agents.hypervisors.libvirt import domain_xml, metadata
from agents.hypervisors.libvirt.binding import Connection, Domain
from agents.hypervisors.libvirt.capacity import Cpu
from agents.hypervisors.libvirt.codes import (
    STATS_NOWAIT,
    DomainState,
    Error,
    PausedReason,
    RunningReason,
    ShutoffReason,
    Stats,
    XmlFlag,
)
from agents.hypervisors.libvirt.domain_xml import NOWHERE, Facts
from agents.hypervisors.libvirt.errors import Declined, NotThere, Unavailable, telling
from agents.hypervisors.libvirt.host_files import host_files_of
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.migration_needs import SNAPSHOTS, Surroundings
from agents.hypervisors.libvirt.migration_size import NO_SIZE, UNMEASURED, DirtyRate, MigrationSize, size_of
from agents.hypervisors.libvirt.patience import Patience
from agents.hypervisors.libvirt.unfit_parts import unfit_parts
from shared.base.errors import TrimtabError
from shared.values.failover import host_file
from shared.values.migration import memory_needs
from shared.values.vms import HOLDING_STATES, VmState, VmStatus

_WANTED = Stats.STATE | Stats.CPU_TOTAL | Stats.VCPU | Stats.INTERFACE | Stats.BLOCK | Stats.BALLOON
_NS = 1e9
CHECKPOINTS = host_file("checkpoints")
UNFIT_PARTS_MAX = 8  # told of one definition
HALTED = "post-copy was interrupted: the VM stands still, with its memory on two nodes, until the migration is resumed"
_Rows = Sequence[tuple[Domain, Mapping[str, Any]]]
_Places = tuple[tuple[str, str], ...]  # of disks: name in the guest, and file or device


@dataclass(frozen=True, slots=True)
class Counters:
    """Cumulative since the domain came to life on this node. disk_time_s: of all its requests, together."""

    cpu_time_s: float = 0.0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    disk_time_s: float = 0.0
    net_rx_bytes: int = 0
    net_tx_bytes: int = 0

    def not_below(self, before: Counters) -> Counters:
        """Return these counters; a part that could not be read keeps its earlier value."""
        return Counters(
            max(self.cpu_time_s, before.cpu_time_s),
            max(self.disk_read_bytes, before.disk_read_bytes),
            max(self.disk_write_bytes, before.disk_write_bytes),
            max(self.disk_time_s, before.disk_time_s),
            max(self.net_rx_bytes, before.net_rx_bytes),
            max(self.net_tx_bytes, before.net_tx_bytes),
        )


@dataclass(frozen=True, slots=True)
class ObservedDomain:
    """A domain as it is. `state` None: nothing that counts as a VM here: one that has left by a migration, or what an
    interrupted start has left (`left`, `stale`). weight_mhz: what its weight is worth, where it has no metadata.
    `jobs`: needs that come of libvirt's jobs on it. `size`: what a migration has to move. `halted`: a post-copy
    migration from here was interrupted: its memory is on two nodes, and only resuming that migration brings it back.
    `starts`: libvirt is starting it."""

    facts: Facts
    state: VmState | None
    counters: Counters
    left: bool = False
    stale: bool = False
    why: str = ""
    weight_mhz: float = 0.0
    jobs: tuple[str, ...] = ()
    size: MigrationSize = NO_SIZE
    halted: bool = False
    starts: bool = False

    @property
    def meta(self) -> Meta | None:
        """Our metadata, also of one that was released."""
        return self.facts.meta

    @property
    def managed(self) -> bool:
        """Whether it is ours."""
        return self.facts.meta is not None and self.facts.meta.managed

    @property
    def adopted(self) -> bool:
        """Whether it is ours, and its definition was there before."""
        return self.facts.meta is not None and self.facts.meta.adopted

    @property
    def generation(self) -> int:
        """0 where it is not ours."""
        return self.facts.meta.generation if self.facts.meta is not None else 0

    @property
    def held_mib(self) -> int:
        """The ordinary memory that it holds now, without what is in hugepages."""
        return self.facts.ordinary_mib if self.state in HOLDING_STATES else 0

    def _needs(self, managed: bool) -> tuple[str, ...]:
        """Return its needs; of one that is not managed, what says which memory it holds."""
        found = tuple(sorted({*self.facts.needs, *self.jobs}))
        return found if managed else memory_needs(found)

    def status(self, busy: str = "", state: VmState | None = None) -> VmStatus:
        """Return the VM's status for reports, or the same in another state."""
        meta = self.facts.meta or Meta(managed=False, cpu_mhz=self.weight_mhz)
        counters = self.counters
        return VmStatus(
            vm=self.facts.name,
            state=state or self.state or VmState.CRASHED,
            generation=meta.generation,
            attempt=meta.attempt,
            memory_mib=self.facts.memory_mib,
            vcpus=self.facts.vcpus,
            cpu_mhz=meta.cpu_mhz,
            cpu_time_s=counters.cpu_time_s,
            disk_read_bytes=counters.disk_read_bytes,
            disk_write_bytes=counters.disk_write_bytes,
            net_rx_bytes=counters.net_rx_bytes,
            net_tx_bytes=counters.net_tx_bytes,
            busy=busy,
            managed=meta.managed,
            address=meta.address,
            disk_time_s=counters.disk_time_s,
            migration_needs=self._needs(meta.managed),
            adopted=meta.adopted,
            definition=self.facts.definition,
            disks=meta.disks,
            transient=self.facts.transient,
            autostart=meta.adopted and (self.facts.autostart or meta.autostart),
            failover=meta.adopted and meta.failover and not self.facts.autostart,
            stays_off=meta.adopted and meta.stays_off,
            host_files=self.facts.host_files if meta.adopted else (),
            dirty_mib_per_s=self.size.dirty.mib_per_s,
            resident_mib=self.size.resident_mib,
            disk_mib=self.size.disk_mib,
            working_set_mib=self.size.dirty.working_set_mib,
        )


class Reader:
    """Reads the domains of a node. Takes one reading at a time; `forget` makes it read a domain's XML again.
    `here`: what of the node decides on the needs of its VMs; `jobs`: by UUID, the needs that come of jobs on them;
    `dirty`: by UUID, their dirty rates."""

    def __init__(self, errors: type[Exception], cpu: Cpu) -> None:
        self._errors, self.cpu, self.here = errors, cpu, NOWHERE
        self.jobs: Mapping[str, tuple[str, ...]] = {}
        self.dirty: Mapping[str, DirtyRate] = {}
        self._lock, self._tables = threading.Lock(), threading.Lock()
        self._patience: Patience[_Rows] = Patience("read the domains")
        self._edits = 0
        self._facts: dict[str, tuple[Facts, _Places | None]] = {}  # with the places of the disks then (None: not told)
        self._counters: dict[str, tuple[int, Counters]] = {}

    def forget(self, uuid: str) -> None:
        """Forget a domain that was edited."""
        with self._tables:
            self._edits += 1
            self._facts.pop(uuid, None)

    def forget_all(self) -> None:
        """Forget all domains, since any of them may have changed."""
        with self._tables:
            self._edits += 1
            self._facts.clear()

    def read(self, conn: Connection) -> dict[str, ObservedDomain]:
        """Return every domain by its name. Raises TrimtabError."""
        with self._lock:
            found = self._seen(self._patience.ask(lambda: self._rows(conn)))
            there = {seen.facts.uuid for seen in found.values()}
            with self._tables:
                for uuid in [uuid for uuid in self._facts if uuid not in there]:
                    del self._facts[uuid]
                for uuid in [uuid for uuid in self._counters if uuid not in there]:
                    del self._counters[uuid]
            return found

    def _rows(self, conn: Connection) -> _Rows:
        with telling(self._errors, "read the domains"):
            return conn.getAllDomainStats(_WANTED, STATS_NOWAIT)

    def read_one(self, conn: Connection, vm: str) -> ObservedDomain | None:
        """Return one domain, its XML included; None if there is none. Raises TrimtabError."""
        try:
            with telling(self._errors, f"read {vm}"):
                domain = conn.lookupByName(vm)
                self.forget(domain.UUIDString())
                rows = conn.domainListGetStats([domain], _WANTED, STATS_NOWAIT)
        except NotThere:
            return None
        return self._seen(rows).get(vm)

    def _seen(self, rows: _Rows) -> dict[str, ObservedDomain]:
        found: dict[str, ObservedDomain] = {}
        for domain, row in rows:
            try:
                with telling(self._errors, f"read {domain.name()}"):
                    seen = self._one(domain, row)
            except NotThere:
                continue  # gone since
            found[seen.facts.name] = seen
        return found

    def _one(self, domain: Domain, row: Mapping[str, Any]) -> ObservedDomain:
        uuid, places = domain.UUIDString(), _places_of(row)
        known = self._facts.get(uuid)
        if known is not None and known[0].name == domain.name() and places in (known[1], None):
            facts = known[0]
        else:
            edits = self._edits
            facts = facts_of(domain, self._errors, self.here)
            with self._tables:
                if edits == self._edits:  # else it may have been edited after it was read
                    self._facts[uuid] = (facts, places)  # the places are the older: what comes in between is seen later
        raw, reason = int(row.get("state.state", 0)), int(row.get("state.reason", 0))
        life = facts.meta.generation if facts.meta is not None else 0
        counters = counters_of(row, self.cpu.core_frac)
        kept = self._counters.get(uuid)
        if kept is not None and kept[0] == life:
            counters = counters.not_below(kept[1])
        with self._tables:
            self._counters[uuid] = (life, counters)
        size = size_of(row, facts, self.here.is_local, self.dirty.get(uuid, UNMEASURED))
        if (raw, reason) in _MOVING:
            moving = self._moving(domain, (raw, reason))
            if moving is not None:
                halted = (raw, reason) == _HALTED and moving is not VmState.INCOMING
                state = VmState.PAUSED if halted else moving
                return ObservedDomain(facts, state, counters, size=size, halted=halted)
            raw, reason = _told(domain)
        weight_mhz = self.cpu.worth_mhz(facts.shares, facts.vcpus)
        told = _state_of(raw, reason, facts.meta, counters)
        starts = (raw, reason) == _STARTING
        return ObservedDomain(facts, *told, weight_mhz, self.jobs.get(uuid, ()), size, starts=starts)

    def _moving(self, domain: Domain, listed: tuple[int, int]) -> VmState | None:
        """Return the state of a domain that is listed as paused for a migration, or as one of two halves: libvirt also
        lists the first for a domain that was restored paused. At the source it counts as running, wherever it executes.
        None: it has left, has ended, or has arrived and runs, since it was listed."""
        if not domain.isPersistent():
            return VmState.INCOMING
        try:
            with telling(self._errors, f"ask for the job of {domain.name()}"):
                has_job = bool(domain.jobInfo()[0])
            if has_job or listed[0] == DomainState.RUNNING:
                return VmState.RUNNING
            return VmState.PAUSED if _told(domain) == listed else None
        except Declined as error:
            if error.number != Error.OPERATION_UNSUPPORTED:
                raise
            return VmState.INCOMING  # it has been defined here, and is about to run: only its source can be asked
        except Unavailable as error:
            if error.number != Error.OPERATION_INVALID:
                raise
            return None


def _told(domain: Domain) -> tuple[int, int]:
    """Return the state that a domain is in now, and its reason."""
    state, reason = domain.state()
    return int(state), int(reason)


def facts_of(domain: Domain, errors: type[Exception], here: Surroundings = NOWHERE) -> Facts:
    """Return the required facts of a domain's XML, see `domain_xml.facts_of`. `errors`: what libvirt's calls raise."""
    text = domain.XMLDesc(0)
    try:
        facts = domain_xml.facts_of(text, here)
        if facts.meta is None:
            return replace(facts, transient=not domain.isPersistent())
        if not facts.meta.adopted:
            return facts
        return _of_adopted(domain, errors, facts, here)
    except ValueError as error:
        raise TrimtabError(f"{domain.name()}: {error}") from error


def _of_adopted(domain: Domain, errors: type[Exception], facts: Facts, here: Surroundings) -> Facts:
    """Return the facts of a domain that was adopted with those that are not in the XML of what runs. What lies on this
    host alone is that of the domain as it runs and as it is defined: it is lost, or missing, elsewhere. So is a VM
    whose definition no other host takes."""
    text = domain.XMLDesc(XmlFlag.INACTIVE | XmlFlag.SECURE)
    kept = domain_xml.parse(text)
    needs, files = facts.needs, {*facts.host_files, *host_files_of(kept, here)}
    files |= {host_file("definition", part) for part in islice(unfit_parts(kept, here.has), UNFIT_PARTS_MAX)}
    if domain.snapshotNum(0):
        needs, files = (*needs, SNAPSHOTS), files | {host_file("snapshots")}
    if has_checkpoints(domain, errors):
        files |= {CHECKPOINTS}
    return replace(
        facts,
        needs=needs,
        definition=domain_xml.digest(domain.XMLDesc(XmlFlag.INACTIVE)),
        host_files=tuple(sorted(files)),
        autostart=bool(domain.autostart()),
        fingerprint=domain_xml.fingerprint(text),
    )


def has_checkpoints(domain: Domain, errors: type[Exception]) -> bool:
    """Return whether a domain has checkpoints, from which backups are made; a libvirt that knows of none has none."""
    list_all = getattr(domain, "listAllCheckpoints", None)
    if list_all is None:  # a library older than 5.6
        return False
    try:
        with telling(errors, f"look for checkpoints of {domain.name()}"):
            return bool(list_all(0))
    except Declined as error:
        if error.number != Error.NO_SUPPORT:
            raise
        return False


def _places_of(row: Mapping[str, Any]) -> _Places | None:
    """Return where the disks are; None where libvirt does not tell it of a domain that is busy."""
    if "block.count" not in row:
        return None
    keys = (f"block.{number}" for number in range(int(row["block.count"])))
    return tuple((str(row.get(f"{key}.name", "")), str(row.get(f"{key}.path", ""))) for key in keys)


def counters_of(row: Mapping[str, Any], core_frac: float = 1.0) -> Counters:
    """Return the counters in libvirt's statistics of a domain. A value that libvirt does not report is 0. So is the CPU
    time of a domain that does not run, since it is not its own. CPU time is of the node's cores, each `core_frac` of
    one of the machine's."""
    blocks, nets = range(int(row.get("block.count", 0))), range(int(row.get("net.count", 0)))

    def total(kind: str, numbers: range, *names: str) -> int:
        return sum(int(row.get(f"{kind}.{number}.{name}", 0)) for number in numbers for name in names)

    return Counters(
        cpu_time_s=_cpu_ns(row) / _NS / core_frac if row.get("state.state") in _LIVE else 0.0,
        disk_read_bytes=total("block", blocks, "rd.bytes"),
        disk_write_bytes=total("block", blocks, "wr.bytes"),
        disk_time_s=total("block", blocks, "rd.times", "wr.times", "fl.times") / _NS,
        net_rx_bytes=total("net", nets, "rx.bytes"),
        net_tx_bytes=total("net", nets, "tx.bytes"),
    )


def _cpu_ns(row: Mapping[str, Any]) -> int:
    """Return the CPU time of the guest's vCPUs if libvirt reports it: the cost of starting and saving is not the
    guest's work."""
    times = [int(time) for key, time in row.items() if key.startswith("vcpu.") and key.endswith(".time")]
    return sum(times) if times else int(row.get("cpu.time", 0))


_STARTING: tuple[int, int] = (DomainState.PAUSED, PausedReason.STARTING_UP)
_HALTED: tuple[int, int] = (DomainState.PAUSED, PausedReason.POSTCOPY_FAILED)
_MOVING: frozenset[tuple[int, int]] = frozenset(
    {
        *((DomainState.PAUSED, reason) for reason in (PausedReason.MIGRATION, PausedReason.POSTCOPY)),
        *((DomainState.RUNNING, reason) for reason in RunningReason),
        _HALTED,
    }
)
_LIVE = {
    DomainState.NOSTATE: VmState.RUNNING,
    DomainState.RUNNING: VmState.RUNNING,
    DomainState.BLOCKED: VmState.RUNNING,
    DomainState.PAUSED: VmState.PAUSED,
    DomainState.SHUTDOWN: VmState.RUNNING,
    DomainState.PMSUSPENDED: VmState.PAUSED,
}
_WHY = {
    ShutoffReason.UNKNOWN: "how it ended is not known",
    ShutoffReason.SHUTDOWN: "shut down",
    ShutoffReason.DESTROYED: "destroyed by somebody",
    ShutoffReason.CRASHED: "crashed",
    ShutoffReason.MIGRATED: "migrated",
    ShutoffReason.SAVED: "saved by somebody",
    ShutoffReason.FAILED: "could not be run",
    ShutoffReason.FROM_SNAPSHOT: "reverted to a snapshot by somebody",
    ShutoffReason.DAEMON: "ended by libvirt",
}
# It lived until then, whatever its definition says that an interrupted operation has left.
_EXECUTED = frozenset({ShutoffReason.SHUTDOWN, ShutoffReason.CRASHED})


def _state_of(
    raw: int, reason: int, meta: Meta | None, counters: Counters
) -> tuple[VmState | None, Counters, bool, bool, str]:
    """Return the fields of `ObservedDomain` after its facts."""
    live = _LIVE.get(DomainState(raw)) if raw in DomainState.__members__.values() else VmState.RUNNING
    if live is not None:
        return VmState.INCOMING if (raw, reason) == _STARTING else live, counters, False, False, ""
    why = _WHY.get(ShutoffReason(reason), "") if reason in ShutoffReason.__members__.values() else ""
    if meta is None or not meta.managed:
        return VmState.ENDED, counters, False, False, why
    if (noted := metadata.over_state(meta)) is not None:
        return noted, counters, False, False, ""
    executed = reason in _EXECUTED or raw == DomainState.CRASHED
    if meta.saved and not executed:
        return VmState.SUSPENDED, counters, False, False, ""
    if reason == ShutoffReason.MIGRATED:
        return None, counters, True, False, why
    if not (meta.begun or executed):
        return None, counters, False, True, why
    ended = reason == ShutoffReason.SHUTDOWN and raw != DomainState.CRASHED
    return VmState.ENDED if ended else VmState.CRASHED, counters, False, False, why
