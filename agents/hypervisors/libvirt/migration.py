"""MIGRATE: live, from libvirtd to libvirtd."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from agents.hypervisors.libvirt import capacity, codes, domain_xml, local_disks, saved_images, storage
from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.capacity import Card
from agents.hypervisors.libvirt.checks import NodeHeadroom, fits
from agents.hypervisors.libvirt.codes import Affect, DomainState, Migrate, PausedReason, XmlFlag
from agents.hypervisors.libvirt.domain_xml import Disk
from agents.hypervisors.libvirt.errors import NotThere, Unavailable, telling
from agents.hypervisors.libvirt.libvirt_jobs import jobs_on
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.migration_watch import MigrationWatch, bounded, completed_at
from agents.hypervisors.libvirt.operations import NO_META, Basic
from agents.hypervisors.libvirt.saved_images import end_job
from agents.hypervisors.libvirt.site import Answered, Site, Task, remove_volumes, undefine
from agents.hypervisors.libvirt.statistics import HALTED, ObservedDomain, Reader
from shared.base.errors import TrimtabError
from shared.values.actions import Action, Outcome
from shared.values.migration import sentence
from shared.values.migration_terms import MigrationFigures, MigrationMethod
from shared.values.vms import LIVE_STATES, VmState, VmStatus

ASKED_TIMES = 3
ASKED_EVERY_S = 2.0
RESUMES_MAX = 6  # of an interrupted post-copy, after 1, 2, 4... looks at it


@dataclass(frozen=True, slots=True)
class Target:
    """The node that a VM goes to: what it says of itself, and what is there."""

    card: Card
    there: Mapping[str, ObservedDomain]

    @property
    def room(self) -> NodeHeadroom:
        """What it has left."""
        held_mib = sum(seen.held_mib for seen in self.there.values())
        return NodeHeadroom(self.card.node, self.card.memory_mib - held_mib, self.card.core_mhz)


class Migration(Basic):
    """MIGRATE. libvirt keeps the VM at the source until the target has all of it."""

    def __init__(self, site: Site, task: Task, action: Action, here: ObservedDomain | None) -> None:
        super().__init__(site, task, action, here if here is not None and here.state in LIVE_STATES else None)
        self._terms = bounded(action.migration, site.keys.migration)
        self._watch: MigrationWatch | None = None
        self._figures: MigrationFigures | None = None
        self._copied: tuple[Disk, ...] = ()
        self._moved: dict[str, str] = {}
        self._lent = self._went = self._autostarts = False
        self._cpu_there = site.cpu

    def do(self) -> None:
        """Look at the target, make room for its disks, go."""
        self.task.stop()
        self._look_for_jobs()
        to = self.action.to_node
        try:
            with self.site.peer(to) as there:
                target = self._look(there)
                self._check(target)
                self._cpu_there = target.card.cpu
                self._clear(there, target)
                self._copied = local_disks.of(self.site, self.here.facts)
                local_disks.check_target(
                    self.site, there, to, [disk for disk in self._copied if not self._is_own(disk)]
                )
                self.task.stop()
                self._mark()
                disks = self._make_disks(there) if self._copied else 0
        except Unavailable as error:
            if self._lent:
                raise
            if self.before is None:
                raise Answered(Outcome.NO_SUCH_VM) from None
            raise Answered(Outcome.FAILED, f"target unreachable: {error}") from None
        self.task.stop()
        if self._autostarts:
            self.site.set_autostart(self.vm, on=False)
        self.site.hasten(self.vm, self.meta)
        self._go(target, disks)

    @property
    def _names(self) -> tuple[str, ...]:
        """The copied disks, as the guest has them."""
        return tuple(disk.target for disk in self._copied)

    def _is_own(self, disk: Disk) -> bool:
        return bool(self.meta.volume) and disk.source.rpartition("/")[2] == self.meta.volume

    def _mark(self) -> None:
        """Mark the definition before anything is made on the target. If a process dies from here on, what is left here
        must not start with its host, and must name the target and what is made there."""
        self._autostarts = self.site.autostarts(self.vm)
        self._lent = True
        to, names = self.action.to_node, ",".join(self._names)
        self.site.set_meta(self.vm, replace(self._moving, lent=to, copied=names), config_only=True)

    @property
    def _moving(self) -> Meta:
        """Return its metadata with who starts it with its host once it has moved: libvirt where its flag is on now."""
        starts, meta = self._autostarts, self.meta
        return replace(meta, failover=meta.failover and not starts, autostart=starts or meta.autostart)

    def undo(self) -> None:
        """Remove what was made on the target; libvirt keeps the VM running here. If the answer was lost, libvirt still
        moves the VM and has to stop. If somebody else has removed or moved the VM, there is nothing to undo here."""
        self._await_post_copy()
        now = self.site.see(self.vm)
        here = now is not None and self.before is not None and now.facts.uuid == self.here.facts.uuid
        if here and self._went:
            end_job(self.site, self.vm)
        if here and self._lent:
            if self._autostarts:
                self.site.set_autostart(self.vm, on=True)
            self.site.set_cpu(self.vm, self.here.facts.vcpus, self.meta)
        if self._lent and self._copied:
            local_disks.take_back(self.site, self.here.facts, self.meta, self._names, self.action.to_node)
        if here and self._lent:
            self.site.set_meta(self.vm, self.meta)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is gone here and live on the target, as far as the target can be asked. Ask only once
        if this migration has not sent it."""
        if self.before is None or (now is not None and now.state in LIVE_STATES):
            return False
        for left in reversed(range(ASKED_TIMES if self._went else 1)):
            try:
                with self.site.peer(self.action.to_node) as there:
                    found = self._seen_at(there)
                if found is not None and found.state in LIVE_STATES:
                    return True
            except Unavailable:
                found = None
                if self.task.given_up.is_set() and self._went:
                    return True  # it has left; its arrival is for the other end to tell
            if left:
                threading.Event().wait(ASKED_EVERY_S)
        return now is not None and now.left

    def tidy(self) -> None:
        """Remove the copied disks and the definition here; set the weight on the target."""
        with self.site.peer(self.action.to_node) as there:
            now, arrived = self.site.see(self.vm), self._seen_at(there)
            gone = now is not None and now.state not in LIVE_STATES
            if self._watch is not None:
                self._figures = self._watch.figures(completed_at(there, self.site.errors, self.vm))
            if gone and now is not None and arrived is not None and arrived.state in LIVE_STATES:
                local_disks.leave(self.site, now, there)
            self._calm(there)

    def final(self) -> VmStatus | None:
        """Return the status as last read here."""
        return None if self.before is None else self.site.latest(self.vm, self.here).status()

    def migrated(self) -> MigrationFigures | None:
        """Return how it went: as libvirt has measured it, else as far as it was watched; None if it never began."""
        if self._figures is None and self._watch is not None and self._went:
            return self._watch.figures()
        return self._figures

    # --- before it goes ---------------------------------------------------------------------------------------------

    def _look_for_jobs(self) -> None:
        """Raise Answered where somebody has begun something since the agent last looked with which libvirt migrates no
        VM; its needs show that from now on."""
        if self.before is None:
            return
        reader, uuid = self.site.reader, self.here.facts.uuid
        with self.site.link.use(f"look for jobs on {self.vm}") as conn:
            found = jobs_on(conn, self.site.errors, [self.here]).get(uuid, ())
        if not found:
            return
        reader.jobs = {**reader.jobs, uuid: found}
        passes = all(need.startswith("bound=") for need in found)
        raise Answered(Outcome.BUSY if passes else Outcome.UNFIT, "; ".join(sentence(need) for need in found))

    def _look(self, there: Connection) -> Target:
        site, errors, to = self.site, self.site.errors, self.action.to_node
        card = capacity.read_card(there, errors, site.keys.save_pool, to)
        found = Reader(errors, site.cpu).read(there)
        if card is None:
            with telling(errors, f"ask for the capacity of {to}"):
                memory_mib = int(there.getInfo()[1])
            card = Card(to, memory_mib, site.cpu.core_mhz, site.cpu.core_frac, site.cpu.cgroup, site.keys.partition)
        return Target(card, found)

    def _check(self, target: Target) -> None:
        """Raises Answered where it cannot go there, or is there."""
        action, to = self.action, self.action.to_node
        seen = target.there.get(self.vm)
        if self.before is None:
            generations = (action.expects, action.generation)
            if seen is not None and seen.managed and seen.state in LIVE_STATES and seen.generation in generations:
                raise Answered(Outcome.OK)
            raise Answered(Outcome.NO_SUCH_VM)
        if seen is not None and seen.state is VmState.INCOMING:
            raise Answered(Outcome.BUSY, f"another operation on it is in progress on {to}")
        if seen is not None and not _gives_way(seen, self.here.generation):
            raise Answered(Outcome.ALREADY_THERE, f"{to} has it")
        if self.here.meta is not None and self.here.meta.disks < action.disks:
            raise Answered(Outcome.STALE_DISK, f"disk generation {self.here.meta.disks}, expected {action.disks}")
        facts = self.here.facts
        answer = fits(facts.ordinary_mib, self.meta.cpu_mhz, facts.vcpus, target.room)
        if answer is not None:
            raise Answered(*answer)

    def _clear(self, there: Connection, target: Target) -> None:
        """Remove what an earlier generation left on the target, and the disk copies of an earlier stay."""
        old = target.there.get(self.vm)
        if old is None:
            return
        meta = old.meta or NO_META
        if old.left and old.facts.uuid == self.here.facts.uuid:
            with self.site.link.use(f"look at the disks of {self.vm}") as here:
                local_disks.remove_copies(self.site, there, old, here)
        with telling(self.site.errors, f"remove what {self.action.to_node} has of {self.vm}"):
            domain, keep_nvram = there.lookupByName(self.vm), self.site.shares_nvram(old)
            undefine(domain, self.site.errors, old, keep_nvram, keep_tpm=True)
        if meta.pool in self.site.keys.shared_pools or old.left:
            meta = replace(meta, volume="")
        remove_volumes(there, self.site.errors, self.site.keys, meta)

    def _make_disks(self, there: Connection) -> int:
        """Make its own disk there, empty, and say how libvirt is to fill it: what differs from the base volume where
        that is there too, else all. Other disks libvirt makes, where nothing is in their way."""
        meta, errors = self.meta, self.site.errors
        if not meta.volume or meta.pool in self.site.keys.shared_pools:
            return Migrate.NON_SHARED_DISK
        with self.site.link.use("look at the disk") as conn:
            volume = conn.storagePoolLookupByName(meta.pool).storageVolLookupByName(meta.volume)
            (kind, capacity_bytes), base, path = storage.shape_of(volume), storage.backing_of(volume), volume.path()
        backing = storage.same_base(there, errors, meta.pool, base) if base else None
        storage.remove(there, errors, meta.pool, meta.volume)
        with telling(errors, f"make the disk on {self.action.to_node}"):
            pool = there.storagePoolLookupByName(meta.pool)
            made = pool.createXML(storage.volume_xml(meta.volume, kind, capacity_bytes, backing), 0)
            self._moved = {path: made.path()}
        return Migrate.NON_SHARED_INC if backing is not None else Migrate.NON_SHARED_DISK

    # --- on its way -------------------------------------------------------------------------------------------------

    def _go(self, target: Target, disks: int) -> None:
        keys, copied, terms = self.site.keys.migration, self._names, self._terms
        # A definition with disks of its own stays until the copies are removed; it says which these are.
        keeps = bool(copied) or self.meta.adopted
        flags = Migrate.LIVE | Migrate.PEER2PEER | Migrate.PERSIST_DEST | (0 if keeps else Migrate.UNDEFINE_SOURCE)
        flags |= Migrate.ABORT_ON_ERROR | (Migrate.TLS if keys.tls else 0) | disks | self._method_flags()
        if not copied:
            flags |= Migrate.UNSAFE  # that the disks are shared was said; libvirt knows but some file systems
        uri, params = self.site.peer_uri(target.card.node), self._params(target, copied)
        watch = self._watch = MigrationWatch(self.site, self.vm, terms, bool(flags & Migrate.POSTCOPY))
        self.task.cancel = self._cancel
        self.task.stop()
        watch.start()
        try:
            with self.site.domain(self.vm, "migrate") as (_conn, domain):
                with suppress(self.site.errors):
                    domain.migrateSetMaxDowntime(terms.downtime_ms, 0)
                self._went = True
                domain.migrateToURI3(uri, params, flags)
        except TrimtabError as error:
            if not (flags & Migrate.POSTCOPY and self._resumed(uri, params, flags)):
                raise watch.explained(error) from error
        finally:
            watch.stop()

    def _method_flags(self) -> int:
        """Return the flags of the way in which it goes. A VM that is paused changes nothing, and QEMU has no post-copy
        over several connections."""
        terms, runs = self._terms, self.here.state is VmState.RUNNING
        flags = Migrate.AUTO_CONVERGE if terms.method is MigrationMethod.AUTO_CONVERGE and runs else 0
        if terms.may_switch and runs:
            return flags | Migrate.POSTCOPY
        return flags | (Migrate.PARALLEL if terms.streams > 1 else 0)

    def _resumed(self, uri: str, params: Mapping[str, Any], flags: int) -> bool:
        """Resume post-copy that was interrupted, again and again: the guest stands still until then, and cannot go
        back. Return whether that was done; false if there was nothing to resume. Raises Unavailable where it fails."""
        for number in range(RESUMES_MAX):
            if self._halt() is not PausedReason.POSTCOPY_FAILED:
                return False
            with suppress(TrimtabError), self.site.domain(self.vm, "resume the migration of") as (_conn, domain):
                domain.migrateToURI3(uri, params, flags | Migrate.POSTCOPY_RESUME)
                return True
            threading.Event().wait(self.site.watch_s * 2**number)
        raise Unavailable(HALTED)

    def _halt(self) -> PausedReason | None:
        """Return how far post-copy is: POSTCOPY while the target fetches memory, POSTCOPY_FAILED when that was
        interrupted; None before it has begun, and when it is over."""
        try:
            with self.site.domain(self.vm, "look at") as (_conn, domain):
                state, reason = domain.state(0)[:2]
        except NotThere:
            return None
        known = (PausedReason.POSTCOPY, PausedReason.POSTCOPY_FAILED)
        return next((one for one in known if (state, reason) == (DomainState.PAUSED, one)), None)

    def _await_post_copy(self) -> None:
        """Wait for the end of post-copy, which cannot be taken back. Raises Unavailable where it was interrupted."""
        waited_s, limit_s = 0.0, self._terms.limit_s
        while self._went and (halt := self._halt()) is not None:
            if halt is PausedReason.POSTCOPY_FAILED or waited_s >= limit_s:
                raise Unavailable(HALTED)
            threading.Event().wait(self.site.watch_s)
            waited_s += self.site.watch_s

    def _params(self, target: Target, copied: tuple[str, ...]) -> dict[str, Any]:
        card = target.card
        found: dict[str, Any] = {}
        with self.site.domain(self.vm, "read the definition of") as (_conn, domain):
            live = domain.XMLDesc(XmlFlag.MIGRATABLE | XmlFlag.SECURE)
            portable = 0 if self.meta.adopted else XmlFlag.MIGRATABLE
            kept = domain.XMLDesc(XmlFlag.SECURE | XmlFlag.INACTIVE | portable)
        after = self._after(card, bool(copied))
        found[codes.PARAM_DEST_XML] = self._edited(live, card, after, hasty=True)
        if after.adopted:
            found[codes.PARAM_PERSIST_XML] = domain_xml.relabelled(kept, after)
        else:
            found[codes.PARAM_PERSIST_XML] = self._edited(kept, card, after)
        if uri := self.site.data_uri(card.node):
            found[codes.PARAM_URI] = uri
        flags = self._method_flags()
        if self._terms.bandwidth_mib_per_s:
            found[codes.PARAM_BANDWIDTH] = self._terms.bandwidth_mib_per_s
            if flags & Migrate.POSTCOPY:
                found[codes.PARAM_BANDWIDTH_POSTCOPY] = self._terms.bandwidth_mib_per_s
        if flags & Migrate.PARALLEL:
            found[codes.PARAM_STREAMS] = self._terms.streams
        if copied:
            found[codes.PARAM_DISKS] = list(copied)
        return found

    def _edited(self, text: str, card: Card, after: Meta, hasty: bool = False) -> str:
        """Return the domain as it will be on the target."""
        keys = replace(self.site.keys, partition=card.partition)
        site = replace(self.site, node=card.node, keys=keys, cpu=card.cpu)
        return saved_images.edited(site, text, after, self.here, self._moved, hasty)

    def _after(self, card: Card, copied: bool) -> Meta:
        generation = self.action.generation or self.here.generation
        disks = max(self.meta.disks, self.action.disks) + 1 if copied else self.meta.disks
        return replace(self._moving, node=card.node, lent="", copied="", generation=generation, disks=disks)

    def _cancel(self) -> None:
        with self.site.domain(self.vm, "give up migrating") as (_conn, domain):
            domain.abortJob()

    def _calm(self, there: Connection) -> None:
        """Give it the weight that its allotment is worth over there, now that it has come, unless it is its owner's."""
        found = self._seen_at(there)
        if found is None or found.meta is None or found.meta.owners_cpu or found.state not in LIVE_STATES:
            return
        weight = {"cpu_shares": self._cpu_there.shares(found.meta.cpu_mhz)}
        with telling(self.site.errors, f"set the CPU of {self.vm} on {self.action.to_node}"):
            there.lookupByName(self.vm).setSchedulerParametersFlags(weight, Affect.LIVE)

    def _seen_at(self, there: Connection) -> ObservedDomain | None:
        return Reader(self.site.errors, self.site.cpu).read_one(there, self.vm)


def _gives_way(seen: ObservedDomain, generation: int) -> bool:
    """Return whether what the target has is of an earlier generation, or nothing."""
    if not seen.managed:
        return False
    if seen.state is None:
        return True
    return seen.state is VmState.SUSPENDED and seen.generation <= generation
