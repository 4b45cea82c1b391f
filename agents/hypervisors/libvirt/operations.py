"""What is done to a domain where it is: start, stop, pause, weigh, adopt, release, undefine.

Each operation can be done, taken back, and asked whether what is there now is what it should have brought.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from agents.hypervisors.answers import not_now
from agents.hypervisors.libvirt import domain_xml, storage, templates
from agents.hypervisors.libvirt.checks import stays
from agents.hypervisors.libvirt.codes import CREATE_PAUSED
from agents.hypervisors.libvirt.errors import NotThere
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.site import Answered, Site, Task
from agents.hypervisors.libvirt.statistics import ObservedDomain
from agents.hypervisors.libvirt.storage import Disk
from shared.base.errors import InvalidValue
from shared.config.agent import CloneMode
from shared.values.actions import Action, ActionKind
from shared.values.migration_terms import MigrationFigures
from shared.values.vms import LIVE_STATES, OFF_STATES, VmSpec, VmState, VmStatus

POLL_S = 0.1
BROUGHT_TO_LIFE = LIVE_STATES | {VmState.ENDED, VmState.CRASHED}
NO_META = Meta(managed=False)


class Work(Protocol):
    """One operation. `again`: after a lost connection it is repeated instead of undone."""

    again: bool

    def do(self) -> None:
        """Do it; raises our errors, GivenUp or Answered."""
        ...

    def undo(self) -> None:
        """Restore the VM's previous state, independent of how far the operation got. Raises TrimtabError."""
        ...

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the current state is the intended one."""
        ...

    def tidy(self) -> None:
        """Remove what is of no more use after it has succeeded; raises our errors."""
        ...

    def final(self) -> VmStatus | None:
        """Return the last counters if the VM stopped executing here."""
        ...

    def migrated(self) -> MigrationFigures | None:
        """Return how a migration went, as far as it was measured; None for other operations."""
        ...


class Basic:
    """What most operations have in common."""

    again = False

    def __init__(self, site: Site, task: Task, action: Action, here: ObservedDomain | None) -> None:
        self.site, self.task, self.action = site, task, action
        self.before = here

    @property
    def vm(self) -> str:
        """The VM's name."""
        return self.action.vm

    @property
    def here(self) -> ObservedDomain:
        """The VM as it was found; there is one."""
        assert self.before is not None
        return self.before

    @property
    def meta(self) -> Meta:
        """Its metadata as they were found."""
        return self.here.meta or NO_META

    def tidy(self) -> None:
        """Do nothing, since nothing is left over."""

    def final(self) -> VmStatus | None:
        """Return None, since the VM keeps running."""
        return None

    def migrated(self) -> MigrationFigures | None:
        """Return None, since it is no migration."""
        return None


class Start(Basic):
    """START."""

    def __init__(self, site: Site, task: Task, action: Action, here: ObservedDomain | None) -> None:
        super().__init__(site, task, action, here)
        assert action.spec is not None
        self.spec: VmSpec = action.spec
        self.template = templates.template_of(self.spec, site.templates)
        templates.check(self.template, self.spec)
        self._disk: Disk | None = None
        self._noted = False

    def do(self) -> None:
        """Clone, define, create; the definition says that it has not begun until it has."""
        clear(self.site, self.before)
        self.task.stop()
        self._disk = self._clone()
        self.task.stop()
        meta = self._meta()
        self._define(meta)
        self.task.stop()
        with self.site.domain(self.vm, "start") as (_conn, domain):
            paused = self.action.paused
            domain.createWithFlags(CREATE_PAUSED if paused and self.site.features.paused else 0)
            if paused and not self.site.features.paused:
                domain.suspend()
        self.task.stop()
        self._note()
        self._noted = True

    def undo(self) -> None:
        """Remove everything that the start has made."""
        now = self.site.see(self.vm)
        if now is not None:
            if not now.managed or now.generation != self.action.generation:
                return  # somebody else's
            self.site.destroy(self.vm)
            self.site.remove(now)
        self.site.remove_volumes(self._meta())

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is live as requested."""
        return lives(now, self.action)

    def tidy(self) -> None:
        """Note that the VM has come to life, if that was not noted."""
        if not self._noted:
            self._note()

    def _note(self) -> None:
        """Set the VM's own weight, and note in the definition that it has come to life."""
        self.site.set_cpu(self.vm, self.spec.vcpus, self._meta())
        self.site.set_meta(self.vm, replace(self._meta(), begun=True))

    def _clone(self) -> Disk | None:
        keys = self.template.keys
        if not keys.volume:
            return None
        with self.site.link.use(f"make the disk of {self.vm}") as conn:
            name = disk_name(self.vm, self.action.generation)
            return storage.clone(conn, self.site.errors, self.site.keys.pool, keys.volume, keys.clone, name)

    def _meta(self) -> Meta:
        own = self.template.keys.volume and self.template.keys.clone is not CloneMode.NONE
        volume = disk_name(self.vm, self.action.generation) if own else ""
        pool = self.site.keys.pool if volume else ""
        address = self.template.address_of(self.vm)
        disks = self.action.disks + 1 if volume and pool not in self.site.keys.shared_pools else 0
        return replace(Meta.of(self.spec, self.action.generation, self.site.node, address, pool, volume), disks=disks)

    def _define(self, meta: Meta) -> None:
        path = self._disk.path if self._disk is not None else ""
        root = templates.filled(self.template, self.spec, self.site.node, path)
        domain_xml.set_meta(root, meta)
        spec = self.spec
        domain_xml.set_tuning(root, self.site.cpu.tuning(spec.cpu_mhz, spec.cap_mhz, spec.vcpus, hasty=True))
        domain_xml.set_partition(root, self.site.keys.partition)
        if self._disk is not None:
            domain_xml.set_disk_format(root, path, self._disk.kind)
        with self.site.link.use(f"define {self.vm} from {self.template.keys.file}") as conn:
            conn.defineXML(domain_xml.text_of(root))


class StartAdopted(Basic):
    """START of a VM that was adopted, by the definition that its owner made. Nothing of that changes but our
    metadata."""

    def __init__(self, site: Site, task: Task, action: Action, here: ObservedDomain | None) -> None:
        super().__init__(site, task, action, here)
        self._created = False

    def do(self) -> None:
        """Note the new generation, then create. The note comes first: a VM that lives is never of an older
        generation."""
        self.task.stop()
        self.site.set_meta(self.vm, self._after)
        self.task.stop()
        with self.site.domain(self.vm, "start") as (_conn, domain):
            domain.createWithFlags(0)
        self._created = True
        self.site.set_cpu(self.vm, self.here.facts.vcpus, self._after)
        if self._after.stays_off:
            self.site.set_stays_off(self.vm, on=True)

    def undo(self) -> None:
        """Shut it off again, and restore the previous metadata. One that its owner has started meanwhile runs on."""
        now = self.site.see(self.vm)
        if now is None or now.facts.uuid != self.here.facts.uuid:
            return
        if self._created and now.state in LIVE_STATES and now.generation == self.action.generation:
            self.site.destroy(self.vm)
        self.site.set_meta(self.vm, self.meta)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is live as requested."""
        return now is not None and now.state in LIVE_STATES and lives(now, self.action)

    @property
    def _after(self) -> Meta:
        assert self.action.spec is not None
        spec, over = self.action.spec, {"over": "", "kept": False, "begun": True}
        return replace(
            self.meta,
            generation=self.action.generation,
            attempt=spec.attempt,
            cpu_mhz=spec.cpu_mhz,
            node=self.site.node,
            stays_off=spec.stays_off,
            **over,  # type: ignore[arg-type]
        )


class Stop(Basic):
    """STOP: asked first, then cut off; the definition and the VM's own disk go too. One that was adopted stays defined
    as it was."""

    again = True

    def do(self) -> None:
        """End it and remove it."""
        now = self.site.see(self.vm)
        if now is not None and now.facts.uuid == self.here.facts.uuid:
            if now.state is VmState.RUNNING:
                self._shut_down()
            last = self.site.see(self.vm)
            if last is not None and last.state in LIVE_STATES:
                self.task.stop()  # one that has ended is removed, whoever has lost patience
            self._end()
            self.site.remove(now, over=self.here.state in LIVE_STATES)

    def undo(self) -> None:
        """Do nothing, since a request to a guest cannot be undone."""

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is gone, or shut off if it was adopted."""
        if now is None or now.facts.uuid != self.here.facts.uuid:
            return True
        return now.adopted and now.state not in LIVE_STATES

    def tidy(self) -> None:
        """Remove the VM's disk."""
        self.site.remove_volumes(self.meta)

    def final(self) -> VmStatus | None:
        """Return the status as last read."""
        last = self.site.latest(self.vm, self.here)
        state = VmState.ENDED if self.here.state in LIVE_STATES else self.here.state
        return last.status(state=state)

    def _end(self) -> None:
        try:
            self.site.destroy(self.vm)
        except NotThere:
            return  # nothing defined it any more

    def _shut_down(self) -> None:
        """Returns when it has shut down, or had its time to."""
        with self.site.domain(self.vm, "shut down") as (_conn, domain):
            domain.shutdownFlags(0)
        waited_s = 0.0
        while waited_s < self.site.keys.stop_limit_s:
            now = self.site.see(self.vm)
            if now is None or now.state not in LIVE_STATES:
                return
            if self.task.given_up.wait(POLL_S):
                self.task.stop()
            waited_s += POLL_S


class Pause(Basic):
    """PAUSE and UNPAUSE."""

    def do(self) -> None:
        """Pause or unpause the VM in one call."""
        self.task.stop()
        self.site.set_state(self.vm, self._wanted is VmState.RUNNING)
        self.task.stop()

    def undo(self) -> None:
        """Make the opposite call."""
        self.site.set_state(self.vm, self.here.state is VmState.RUNNING)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is in the requested state."""
        return now is not None and now.state is self._wanted and now.generation == self.here.generation

    @property
    def _wanted(self) -> VmState:
        return VmState.RUNNING if self.action.kind is ActionKind.UNPAUSE else VmState.PAUSED


class SetCpu(Basic):
    """SET_CPU."""

    def do(self) -> None:
        """Set the weight first, then the recorded allotment. Before, note that the weight of an adopted VM is not its
        owner's any more."""
        self.task.stop()
        if self.meta.owners_cpu:
            self.site.set_meta(self.vm, replace(self.meta, weighed=True))
        self._set(self.action.cpu_mhz, self.action.cap_mhz)

    def undo(self) -> None:
        """Restore the previous allotment."""
        if self.meta.owners_cpu:
            self.site.reset_cpu(self.vm)
            self.site.set_meta(self.vm, self.meta)
        else:
            self._set(self.meta.cpu_mhz, self.meta.cap_mhz)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether that allotment is recorded."""
        meta = now.meta if now is not None else None
        return meta is not None and (meta.cpu_mhz, meta.cap_mhz) == (self.action.cpu_mhz, self.action.cap_mhz)

    def _set(self, cpu_mhz: float, cap_mhz: float | None) -> None:
        meta = replace(self.meta, cpu_mhz=cpu_mhz, cap_mhz=cap_mhz, weighed=self.meta.adopted)
        self.site.set_cpu(self.vm, self.here.facts.vcpus, meta)
        self.site.set_meta(self.vm, meta)


class Label(Basic):
    """ADOPT and RELEASE: nothing but our metadata is changed, and, at the release of what was adopted, what orders have
    changed of it as it runs is as its definition says again. Of a VM that may be restarted elsewhere, libvirt's
    autostart is switched off, and on again at the end of that. One that is to stay off is not restarted by libvirt."""

    def __init__(self, site: Site, task: Task, action: Action, here: ObservedDomain | None) -> None:
        super().__init__(site, task, action, here)
        self._was_on: bool | None = None  # libvirt's flag (None: not asked for)

    def do(self) -> None:
        """Set the metadata, or remove every trace of Trimtab."""
        self.task.stop()
        if self._minds_autostart:
            self._was_on = self.site.autostarts(self.vm)
        if self._fails_over:
            self._switch(False, self._label)
        else:
            self._switch(True if self._minds_autostart and self.meta.autostart else None, self._label)

    def undo(self) -> None:
        """Restore the previous metadata."""
        self._switch(self._was_on, self._restore)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM has the requested metadata."""
        if now is None:
            return False
        if self._lets_go:
            return now.meta is None
        if now.meta != self._after or (self._fails_over and now.facts.autostart):
            return False
        return not now.meta.stays_off or self.site.stays_off(self.vm)

    def _label(self) -> None:
        after = NO_META if self._lets_go else self._after
        if self.meta.stays_off and not after.stays_off:
            self.site.set_stays_off(self.vm, on=False)
        if self._lets_go:
            if self.meta.weighed:
                self.site.reset_cpu(self.vm)
            self.site.clear_meta(self.vm)
        else:
            self.site.set_meta(self.vm, after)
        if after.stays_off:
            self.site.set_stays_off(self.vm, on=True)

    def _restore(self) -> None:
        if not self.meta.stays_off and not self._lets_go and self._after.stays_off:
            self.site.set_stays_off(self.vm, on=False)
        if self.here.meta is None:
            self.site.clear_meta(self.vm)
            return
        self.site.set_meta(self.vm, self.meta)
        if self.here.state in LIVE_STATES:
            if self._lets_go:
                self.site.set_cpu(self.vm, self.here.facts.vcpus, self.meta)
            if self.meta.stays_off:
                self.site.set_stays_off(self.vm, on=True)

    def _switch(self, on: bool | None, label: Callable[[], None]) -> None:
        """Change metadata and libvirt's flag (None: as it is). Whoever dies in between leaves the flag on: then the VM
        does not count as one that Trimtab alone starts, and no flag is lost that only the metadata knew of."""
        if on is True:
            self.site.set_autostart(self.vm, on=True)
        label()
        if on is False:
            self.site.set_autostart(self.vm, on=False)

    @property
    def _lets_go(self) -> bool:
        """Whether nothing of us is to stay."""
        return self.action.kind is ActionKind.RELEASE and self.here.adopted

    @property
    def _fails_over(self) -> bool:
        """Whether libvirt is not to start it with its host from now on; what we have made, it never does."""
        adopts, spec = self.action.kind is ActionKind.ADOPT, self.action.spec
        return adopts and spec is not None and spec.failover and not self.meta.template

    @property
    def _minds_autostart(self) -> bool:
        """Whether libvirt's flag is a part of this; else it is not touched."""
        return self._fails_over or self.meta.failover or (self._lets_go and self.meta.autostart)

    @property
    def _after(self) -> Meta:
        if self.action.kind is ActionKind.RELEASE:
            return released(self.meta)
        spec = self.action.spec
        assert spec is not None
        # What it is entered with is not set: its weight is its owner's until an order changes it.
        anew_mhz = 0.0 if self.here.managed or self.meta.template else spec.cpu_mhz
        known = replace(self.meta, cpu_mhz=anew_mhz or self.here.status().cpu_mhz, node=self.site.node)
        known = replace(known, stays_off=spec.stays_off and not known.template)
        if self._minds_autostart:
            autostart = self._fails_over and (bool(self._was_on) or known.autostart)
            known = replace(known, failover=self._fails_over, autostart=autostart)
        own = {"generation": self.action.generation, "attempt": spec.attempt}
        foreign = not known.template and bool(self.here.facts.disks)
        disks = max(1, known.disks, self.action.disks) if foreign else known.disks
        return replace(known, managed=True, begun=True, disks=disks, **own)  # type: ignore[arg-type]


class Undefine(Basic):
    """UNDEFINE of what is left here of an adopted VM that was restarted on another node, see `checks.stays`. Its disks
    stay, and so does everything else that both nodes see."""

    again = True

    def do(self) -> None:
        """Remove the definition, unless somebody has started the VM or edited the definition meanwhile."""
        self.task.stop()
        now = self.site.see(self.vm)
        if now is None or now.facts.uuid != self.here.facts.uuid:
            return
        if now.state is not None and now.state not in OFF_STATES:
            raise Answered(*not_now(now))
        if (answer := stays(self.action, now)) is not None:
            raise Answered(*answer)
        self.site.remove(now, moved=True)

    def undo(self) -> None:
        """Do nothing: the definition is there, or it is not."""

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the definition is gone."""
        return now is None or now.facts.uuid != self.here.facts.uuid


def released(meta: Meta) -> Meta:
    """Return the metadata of a released VM: what was made for it is still known, in case it is adopted again."""
    return replace(meta, managed=False, generation=0, attempt=0)


def lives(now: ObservedDomain | None, action: Action) -> bool:
    """Return whether the VM was brought to life as the action asks."""
    if now is None or not now.managed or now.generation != action.generation or now.state not in BROUGHT_TO_LIFE:
        return False
    return now.state is not (VmState.RUNNING if action.paused else VmState.PAUSED)


def disk_name(vm: str, generation: int) -> str:
    """Return the volume name of a VM's own disk. It includes the generation: a leftover of another generation is not
    mistaken for it."""
    return f"{vm}.g{generation}"


def clear(site: Site, old: ObservedDomain | None) -> None:
    """Remove an obsolete definition, and what was made for it: what an interrupted start or a migration has left, or an
    image. Remove the definition last: it names the rest, in case this is interrupted. Of an adopted VM only what an
    interrupted start has left is removed, and no disk: the definition came from another node."""
    if old is None:
        return
    if old.state not in (None, VmState.SUSPENDED):
        raise InvalidValue("vm", old.facts.name, "one that does not live here")
    if old.adopted and old.stale:
        site.remove(old, moved=True)
        return
    if old.adopted:
        raise InvalidValue("vm", old.facts.name, "a name that no adopted VM has here")
    if old.state is VmState.SUSPENDED and old.meta is not None:
        site.set_meta(old.facts.name, replace(old.meta, begun=False, saved="", done=old.meta.saved))
    if not old.left:
        site.remove_volumes(old.meta)
    site.remove(old)
