"""VMs on disk: SUSPEND, RESUME, also of an image that another node holds, and DISCARD_IMAGE.

A suspended VM is a definition that does not run and names its image. The image is a volume of the pool `save_pool`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from xml.etree import ElementTree as ET

from agents.hypervisors.answers import Answer
from agents.hypervisors.libvirt import domain_xml, local_disks, storage
from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.codes import (
    METADATA_ELEMENT,
    SAVE_IMAGE_XML_SECURE,
    SAVE_PAUSED,
    Affect,
    Error,
    XmlFlag,
)
from agents.hypervisors.libvirt.errors import Declined, NotThere, Unavailable, mapped, telling
from agents.hypervisors.libvirt.metadata import PREFIX, URI, Meta, text_of
from agents.hypervisors.libvirt.operations import NO_META, POLL_S, Basic, clear, lives
from agents.hypervisors.libvirt.site import Answered, Site, Task
from agents.hypervisors.libvirt.statistics import ObservedDomain, Reader
from shared.base.errors import TrimtabError
from shared.values.actions import Action, Outcome
from shared.values.vms import VmState, VmStatus

ABORTS_MAX = 50


def image_name(vm: str, generation: int) -> str:
    """Return the volume name of a saved image."""
    return f"{vm}.g{generation}.saved"


def is_whole(site: Site, meta: Meta) -> bool:
    """Return whether the image of a suspended VM can be resumed: libvirt marks an unfinished one. Raises TrimtabError
    if libvirt cannot say: the pool may not be mounted yet."""
    try:
        path = _path_of(site, meta.saved)
        with site.link.use("look at a saved image") as conn:
            conn.saveImageGetXMLDesc(path, 0)
    except Unavailable as error:
        if error.broken or error.number != Error.OPERATION_FAILED:
            raise
        return False
    except Declined as error:
        if error.number != Error.NO_SUPPORT:  # of a hypervisor that does not tell
            raise
    return True


def _path_of(site: Site, image: str) -> str:
    with site.link.use("find the pool of saved images") as conn:
        folder = storage.folder_of(conn.storagePoolLookupByName(site.keys.save_pool))
    return f"{folder}/{image}"


class Suspend(Basic):
    """SUSPEND. The guest stands still before it is saved, so that its last counters are its last."""

    def __init__(self, site: Site, task: Task, action: Action, here: ObservedDomain | None) -> None:
        super().__init__(site, task, action, here)
        self._image = image_name(self.vm, self.here.generation)
        self._final: VmStatus | None = None

    def do(self) -> None:
        """Mark the definition, then save: from the end of the save on it is found suspended."""
        site = self.site
        self.task.cancel = self._cancel
        if self._is_saved_by_another():
            self._final = site.latest(self.vm, self.here).status(state=VmState.SUSPENDED)
            return
        self.task.stop()
        site.make_persistent(self.vm)
        with site.link.use(f"save {self.vm}") as conn:
            path = storage.make_empty(conn, site.errors, site.keys.save_pool, self._image)
        self.task.stop()
        site.set_state(self.vm, running=False)
        site.hasten(self.vm, self.meta)
        now = site.see(self.vm)
        self._final = (now or self.here).status(state=VmState.SUSPENDED)
        site.set_meta(self.vm, replace(self.meta, saved=self._image, lent=""), config_only=True)
        self.task.stop()
        with site.domain(self.vm, "save") as (_conn, domain):
            domain.save(path)
        self._stamp()

    def _stamp(self) -> None:
        """Note how its disks are now: its memory goes with these and no others."""
        with self.site.link.use(f"look at the disks of {self.vm}") as conn:
            stamps = local_disks.stamps(self.site, conn, local_disks.of(self.site, self.here.facts))
        if stamps:
            meta = replace(self.meta, saved=self._image, lent="", stamps=stamps)
            self.site.set_meta(self.vm, meta, config_only=True)

    def undo(self) -> None:
        """Keep the VM running. A VM that ended meanwhile is not marked as suspended. A VM that libvirt has saved after
        all stays suspended: only its image is left."""
        if self.site.see(self.vm) is None:
            return
        end_job(self.site, self.vm)
        now = self.site.see(self.vm)
        if now is None:
            return
        if now.state is VmState.SUSPENDED and is_whole(self.site, now.meta or NO_META):
            raise Unavailable(f"{self.vm} was saved after all")
        self.site.set_meta(self.vm, replace(self.meta, saved=""))
        self.site.set_cpu(self.vm, self.here.facts.vcpus, self.meta)
        if self.here.state is VmState.RUNNING and now.state is VmState.PAUSED:
            self.site.set_state(self.vm, running=True)
        with self.site.link.use("remove a saved image") as conn:
            storage.remove(conn, self.site.errors, self.site.keys.save_pool, self._image)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is suspended and its image is complete."""
        if now is None or now.state is not VmState.SUSPENDED or now.meta is None:
            return False
        return now.meta.saved == self._image and is_whole(self.site, now.meta)

    def final(self) -> VmStatus | None:
        """Return the status at the moment the VM stopped executing."""
        return self._final

    def _is_saved_by_another(self) -> bool:
        """Wait for a save that libvirtd continues although its agent has died; otherwise it would keep writing into a
        removed image. Return whether the VM is suspended then."""
        while has_job(self.site, self.vm):
            threading.Event().wait(POLL_S)
        return self.holds(self.site.see(self.vm))

    def _cancel(self) -> None:
        with self.site.domain(self.vm, "give up saving") as (_conn, domain):
            domain.abortJob()


class Discard(Basic):
    """DISCARD_IMAGE: it is marked as nothing any more first, so that it is not taken for a VM whose image is gone, and
    the next agent ends what this one has begun. One that was adopted stays defined; its image goes first."""

    again = True

    def do(self) -> None:
        """Remove image, disk and definition."""
        self.task.stop()
        if self.here.adopted:
            self.site.remove_volumes(self.meta)
            self.site.remove(self.here)
        else:
            self._clear()

    def _clear(self) -> None:
        failed: TrimtabError | None = None
        try:
            clear(self.site, self.here)
        except TrimtabError as error:
            failed = error
        now = self.site.see(self.vm)
        if now is None or now.facts.uuid != self.here.facts.uuid:
            return
        if failed is not None and not now.stale:
            raise failed  # nothing is gone yet
        clear(self.site, now)  # once more: its image is perhaps gone

    def undo(self) -> None:
        """Do nothing. Raises Unavailable if the image is already discarded in part."""
        now = self.site.see(self.vm)
        if now is not None and now.stale:
            raise Unavailable(f"the image of {self.vm} is discarded in part")

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is gone, or has no image any more."""
        if now is None or now.facts.uuid != self.here.facts.uuid:
            return True
        return now.adopted and now.state is not VmState.SUSPENDED


class Resume(Basic):
    """RESUME of an image of this node: restored paused, labelled, then unpaused. Its image is removed once the VM is
    live."""

    def do(self) -> None:
        """Restore the VM, label it, and unpause it."""
        self.task.stop()
        with self.site.link.use(f"look at the disks of {self.vm}") as conn:
            refuse_stale(self.site, conn, self.here, self.action)
        path = _path_of(self.site, self.meta.saved)
        restore(self.site, self.vm, path, self._after, self.here, {})
        self.task.stop()
        self._label()
        self.task.stop()
        self.site.set_state(self.vm, running=not self.action.paused)

    def undo(self) -> None:
        """Suspend the VM as before: nothing was executed, so the image still matches its disk."""
        now = self.site.see(self.vm)
        if now is not None and now.facts.uuid == self.here.facts.uuid:
            self.site.destroy(self.vm)
            self.site.set_meta(self.vm, self.meta)

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is live as requested."""
        return lives(now, self.action)

    def tidy(self) -> None:
        """Remove the image."""
        with self.site.link.use("remove a saved image") as conn:
            storage.remove(conn, self.site.errors, self.site.keys.save_pool, self.meta.saved)

    def _label(self) -> None:
        after = self._after
        self.site.set_cpu(self.vm, self.here.facts.vcpus, after)
        self.site.set_meta(self.vm, after)

    @property
    def _after(self) -> Meta:
        return replace(after_resume(self.meta, self.action, self.site.node), done=self.meta.saved)


class ResumeFrom(Basic):
    """RESUME of an image that another node holds: used where it lies if both see the same pool, else copied by stream,
    and so is its disk. The other node's copy stays; it is marked when the disk is one that both see. `take` takes this
    node's memory for it, or answers that there is none."""

    def __init__(
        self,
        site: Site,
        task: Task,
        action: Action,
        here: ObservedDomain | None,
        take: Callable[[ObservedDomain], Answer | None],
    ) -> None:
        super().__init__(site, task, action, here)
        self._take = take
        self._image: ObservedDomain | None = None
        self._made: list[tuple[str, str]] = []
        self._lent = False

    def do(self) -> None:
        """Look at the image over there, get it, restore it, let it go."""
        try:
            peer = self.site.peer(self.action.from_node)
            with peer as there:
                self._resume(there)
        except Unavailable as error:
            if self._image is None and not self._is_ours(error):
                raise Answered(Outcome.FAILED, f"image unreachable: {error}") from None
            raise

    def undo(self) -> None:
        """Remove everything that the resume has made here."""
        now = self.site.see(self.vm)
        if now is not None and self._image is not None and now.facts.uuid == self._image.facts.uuid:
            self.site.destroy(self.vm)
            self.site.remove(now, moved=True)  # its image is still over there
        with self.site.link.use("remove what was copied") as conn:
            for pool, volume in self._made:
                storage.remove(conn, self.site.errors, pool, volume)
        if self._lent:
            with self.site.peer(self.action.from_node) as there:
                self._mark(there, "")

    def holds(self, now: ObservedDomain | None) -> bool:
        """Return whether the VM is live here as requested."""
        return lives(now, self.action)

    def tidy(self) -> None:
        """Remove this node's copy of the image."""
        for pool, volume in self._made:
            if pool == self.site.keys.save_pool and self._image and volume == (self._image.meta or NO_META).saved:
                with self.site.link.use("remove a saved image") as conn:
                    storage.remove(conn, self.site.errors, pool, volume)

    def _is_ours(self, error: Unavailable) -> bool:
        return error.broken and not self.site.link.wait(0.0)

    def _resume(self, there: Connection) -> None:
        site, errors = self.site, self.site.errors
        image = self._image = self._look(there)
        meta = image.meta or NO_META
        clear(site, self.before)
        self.task.stop()
        moved: dict[str, str] = {}
        if meta.volume:
            with telling(errors, "find the disk"):
                old = f"{storage.folder_of(there.storagePoolLookupByName(meta.pool))}/{meta.volume}"
            new = self._path(meta.pool, meta.volume)
            moved = {old: new} if old != new else {}
        copied = "" if site.keys.save_pool in site.keys.shared_pools else meta.saved
        after = replace(after_resume(meta, self.action, site.node), done=copied)
        own = bool(meta.volume) and meta.pool not in site.keys.shared_pools
        if own:
            after = replace(after, disks=max(meta.disks, self.action.disks) + 1)
        with telling(errors, f"read the definition of {self.vm}"):
            definition = there.lookupByName(self.vm).XMLDesc(XmlFlag.INACTIVE | XmlFlag.SECURE)
        # Whoever dies from here on, the disk that both see goes neither with the image there nor with what is here.
        both = bool(meta.volume) and meta.pool in site.keys.shared_pools
        if both:
            self._mark(there, site.node)
        coming = replace(after, begun=False, lent=self.action.from_node if both else "")
        # Before anything is copied: it says what is to be removed with it.
        with site.link.use(f"define {self.vm}") as conn:
            conn.defineXML(edited(site, definition, coming, image, moved))
        self.task.stop()
        path = self._get(there, site.keys.save_pool, meta.saved)
        if own:
            self._get_disk(there, meta)
        self.task.stop()
        restore(site, self.vm, path, after, image, moved)
        self.task.stop()
        site.set_cpu(self.vm, image.facts.vcpus, after)
        site.set_meta(self.vm, after)
        site.set_state(self.vm, running=not self.action.paused)

    def _look(self, there: Connection) -> ObservedDomain:
        """Raises Answered where it cannot be resumed here."""
        action, site = self.action, self.site
        image = Reader(site.errors, site.cpu).read_one(there, self.vm)
        if image is None or image.state is not VmState.SUSPENDED:
            raise Answered(Outcome.NO_SUCH_VM, f"no image on {action.from_node}")
        if image.generation != action.expects:
            raise Answered(Outcome.WRONG_GENERATION, f"generation {image.generation}")
        self._check_disks(image)
        refuse_stale(site, there, image, action)
        answer = self._take(image)
        if answer is not None:
            raise Answered(*answer)
        return image

    def _check_disks(self, image: ObservedDomain) -> None:
        """Raise Answered where a disk would not come along: what lies at its path here is of another time."""
        meta, node = image.meta or NO_META, self.action.from_node
        if image.adopted:
            raise Answered(Outcome.UNFIT, f"it was adopted, and is resumed on {node} alone, where its disks are")
        for disk in local_disks.of(self.site, image.facts):
            if disk.source.rpartition("/")[2] != meta.volume:
                raise Answered(Outcome.UNFIT, f"its disk {disk.source} is on {node} alone")

    def _get(self, there: Connection, pool: str, name: str, of: str = "") -> str:
        """Copy a volume of the other node, or the data of its volume `of`, to this node; return the path here."""
        site, path = self.site, self._path(pool, name)
        if pool in site.keys.shared_pools:
            return path
        source = storage.find(there, site.errors, pool, of or name)
        if source is None:
            raise NotThere(f"{self.action.from_node} has no volume {name!r} in its pool {pool!r}")
        self._made.append((pool, name))
        with site.link.use(f"copy {name} from {self.action.from_node}") as conn:
            storage.make_empty(conn, site.errors, pool, name)
            target = conn.storagePoolLookupByName(pool).storageVolLookupByName(name)
            storage.stream(there, source, conn, target, site.errors, self.task.stop)
        return path

    def _path(self, pool: str, name: str) -> str:
        """Return the path of a pool's volume on this node."""
        with self.site.link.use(f"find pool {pool!r}") as conn:
            return f"{storage.folder_of(conn.storagePoolLookupByName(pool))}/{name}"

    def _get_disk(self, there: Connection, meta: Meta) -> None:
        """Have its disk here. What is an overlay of something that is not here is copied as a whole."""
        errors = self.site.errors
        volume = storage.find(there, errors, meta.pool, meta.volume)
        base = storage.backing_of(volume) if volume is not None else ""
        if not base or self._is_here(base):
            self._get(there, meta.pool, meta.volume)
            return
        whole = f"{meta.volume}.whole"
        storage.remove(there, errors, meta.pool, whole)
        try:
            with telling(errors, f"make a whole copy of {meta.volume}"):
                pool = there.storagePoolLookupByName(meta.pool)
                pool.createXMLFrom(storage.volume_xml(whole, *storage.shape_of(volume)), volume, 0)  # type: ignore[arg-type]
            self._get(there, meta.pool, meta.volume, whole)
        finally:
            storage.remove(there, errors, meta.pool, whole)

    def _is_here(self, path: str) -> bool:
        with self.site.link.use(f"find {path}") as conn:
            return local_disks.has_volume(self.site, conn, path)

    def _mark(self, there: Connection, node: str) -> None:
        """Mark the image on the other node as having its disk in use on `node`, so that the disk is not removed with
        the image; "" clears the mark."""
        assert self._image is not None
        self._lent = self._lent or bool(node)
        meta = replace(self._image.meta or NO_META, lent=node)
        with telling(self.site.errors, "mark the image"):
            domain = there.lookupByName(self.vm)
            domain.setMetadata(METADATA_ELEMENT, text_of(meta), PREFIX, URI, Affect.CONFIG)


def end_job(site: Site, vm: str) -> None:
    """Abort what libvirt still does for an operation whose answer was lost. Raises Unavailable where it goes on."""
    for _ in range(ABORTS_MAX):
        if not has_job(site, vm):
            return
        with suppress(Unavailable), site.domain(vm, "give up the job of") as (_conn, domain):
            domain.abortJob()
        threading.Event().wait(POLL_S)
    raise Unavailable(f"libvirt has not ended its job on {vm}")


def has_job(site: Site, vm: str) -> bool:
    """Return whether libvirt is saving, moving or dumping a domain."""
    with site.domain(vm, "ask for the job of") as (_conn, domain):
        try:
            return bool(domain.isActive() and domain.jobInfo()[0])
        except site.errors as error:
            known = mapped(error, f"ask for the job of {vm}")
            if isinstance(known, Unavailable) and known.broken:
                raise known from error
            return False  # it has ended, or its hypervisor does not tell


def refuse_stale(site: Site, conn: Connection, image: ObservedDomain, action: Action) -> None:
    """Raise Answered where the disks of a suspended VM are not those that its memory goes with. `conn`: of their
    node."""
    meta = image.meta or NO_META
    if meta.disks < action.disks:
        raise Answered(Outcome.STALE_DISK, f"disk generation {meta.disks}, expected {action.disks}")
    path = local_disks.changed_disk(site, conn, image)
    if path:
        raise Answered(Outcome.STALE_DISK, f"{path} was changed or replaced after the memory was saved")


def after_resume(meta: Meta, action: Action, node: str) -> Meta:
    """Return the metadata of a resumed VM."""
    spec = action.spec
    allotted = (meta.cpu_mhz, meta.cap_mhz) if spec is None else (spec.cpu_mhz, spec.cap_mhz)
    cpu_mhz, cap_mhz = allotted
    own = {"cpu_mhz": cpu_mhz, "cap_mhz": cap_mhz, "node": node}
    own |= {"saved": "", "lent": "", "copied": "", "stamps": ""}
    return replace(meta, generation=action.generation, begun=True, **own)  # type: ignore[arg-type]


def restore(site: Site, vm: str, path: str, after: Meta, image: ObservedDomain, moved: dict[str, str]) -> None:
    """Bring an image to life, paused where libvirt can, with the metadata, CPU and paths of this node."""
    with site.link.use(f"restore {vm}") as conn:
        if not site.features.rewrite:
            conn.restore(path)
            return
        saved = conn.saveImageGetXMLDesc(path, SAVE_IMAGE_XML_SECURE)
        conn.restoreFlags(path, edited(site, saved, after, image, moved, hasty=True), SAVE_PAUSED)


def edited(site: Site, text: str, meta: Meta, image: ObservedDomain, moved: dict[str, str], hasty: bool = False) -> str:
    """Return a domain's XML as it will be on this node; `hasty`: during an operation. Of one that was adopted, quota
    and period stay as they are, and its weight unless an order has changed that."""
    root = _parsed(text)
    domain_xml.set_meta(root, meta)
    tuning = site.cpu.tuning(meta.cpu_mhz, meta.cap_mhz, image.facts.vcpus, hasty)
    if meta.adopted and meta.weighed:
        domain_xml.set_shares(root, tuning.shares)
    elif not meta.adopted:
        domain_xml.set_tuning(root, tuning)
        domain_xml.set_partition(root, site.keys.partition)
    for old, new in moved.items():
        domain_xml.move_disk(root, old, new)
    return domain_xml.text_of(root)


def _parsed(text: str) -> ET.Element:
    try:
        return domain_xml.parse(text)
    except ValueError as error:
        raise TrimtabError(f"libvirt's own XML: {error}") from error
