"""Local disks of a VM, and what a VM that lives on another node has left on this one.

A disk is local if its file is in no shared pool. A migration that copies local disks leaves the definition here, marked
with its target and with the copied disks (`Meta.lent`, `Meta.copied`). The disks here are removed only when the VM is
seen alive on the target, and the definition after them. If a process dies in between, the mark records what is left to
do, and no definition names a stale disk only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

from agents.hypervisors.libvirt import domain_xml, storage
from agents.hypervisors.libvirt.binding import Connection, Pool, Volume
from agents.hypervisors.libvirt.codes import LIST_ACTIVE, XmlFlag
from agents.hypervisors.libvirt.domain_xml import Disk, Facts
from agents.hypervisors.libvirt.errors import Declined, NotThere, telling
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.site import Answered, Site
from agents.hypervisors.libvirt.statistics import ObservedDomain, Reader
from shared.config.agent import CopyStorage
from shared.values.actions import Outcome
from shared.values.migration import leads_up


def is_local(site: Site) -> domain_xml.IsLocal:
    """Return what says whether a disk lies on this node alone. Raises our errors."""
    choice = site.keys.migration.copy_storage
    if choice is CopyStorage.NEVER:
        return lambda _path: False
    folders: list[str] = []
    with site.link.use("find the shared pools") as conn:
        for name in site.keys.shared_pools if choice is CopyStorage.AUTO else ():
            with suppress(NotThere), telling(site.errors, f"find pool {name!r}"):
                folders.append(storage.folder_of(conn.storagePoolLookupByName(name)))
    shared = tuple(f"{folder}/" for folder in folders if folder)  # a pool of network disks has none
    return lambda path: leads_up(path) or not path.startswith(shared)


def is_local_pool(site: Site, name: str) -> bool:
    """Return whether the volumes of a storage pool lie on this node alone."""
    choice = site.keys.migration.copy_storage
    return choice is not CopyStorage.NEVER and (choice is CopyStorage.ALWAYS or name not in site.keys.shared_pools)


def of(site: Site, facts: Facts) -> tuple[Disk, ...]:
    """Return the disks that lie on this node alone. Raises our errors."""
    local = is_local(site)
    return tuple(disk for disk in facts.disks if disk.source and local(disk.source))


def check_target(site: Site, there: Connection, node: str, disks: Sequence[Disk]) -> None:
    """Raise Answered where disks cannot be copied to another node under their own paths: it has no pool for them, or
    files that nobody says are of this VM lie there."""
    folders = {storage.folder_of(pool) for pool in active_pools(site, there)} - {""}
    for disk in disks:
        folder = disk.source.rpartition("/")[0]
        if folder not in folders:
            raise Answered(Outcome.UNFIT, f"{node} has no active storage pool for {folder}")
        if has_volume(site, there, disk.source):
            raise Answered(Outcome.UNFIT, f"{disk.source} is on {node} already: move it away, or remove it")
        with site.link.use(f"find {disk.source}") as here:
            if volume_at(site, here, disk.source) is None:
                raise Answered(Outcome.UNFIT, f"{disk.source} is in no storage pool of {site.node}")


def active_pools(site: Site, conn: Connection) -> Sequence[Pool]:
    """Return the pools that a node has in use. Raises our errors."""
    with telling(site.errors, "list the storage pools"):
        return conn.listAllStoragePools(LIST_ACTIVE)


def has_volume(site: Site, conn: Connection, path: str) -> bool:
    """Return whether a volume lies at a path of a node. Raises our errors."""
    return volume_at(site, conn, path) is not None


def volume_at(site: Site, conn: Connection, path: str) -> Volume | None:
    """Return the volume at a path, also one that its pool has not noticed yet; None where there is none. Raises our
    errors."""
    for again in (True, False):
        try:
            with telling(site.errors, f"find {path}"):
                return conn.storageVolLookupByPath(path)
        except (NotThere, Declined):
            if again:
                _refresh(site, conn, path.rpartition("/")[0])
    return None


def _refresh(site: Site, conn: Connection, folder: str) -> None:
    for pool in active_pools(site, conn):
        if domain_xml.parse(pool.XMLDesc(0)).findtext("target/path") == folder:
            with suppress(site.errors):  # another job of the pool's may be under way
                pool.refresh(0)


def leave(site: Site, seen: ObservedDomain, there: Connection) -> None:
    """Remove what a VM that lives on another node has left here: the disks that were copied, its saved image, and last
    its definition, which says what else is to go, and which is that of one that was adopted over there, too. Raises our
    errors."""
    meta = seen.meta or Meta()
    if seen.adopted:
        _hand_over(site, seen, there)
    with site.link.use(f"remove the copied disks of {seen.facts.name}") as conn:
        remove_copies(site, conn, seen, there)
        for image in (meta.saved, meta.done):
            with suppress(NotThere):
                storage.remove(conn, site.errors, site.keys.save_pool, image)
    site.remove(seen, moved=True)


def _hand_over(site: Site, seen: ObservedDomain, there: Connection) -> None:
    """Define the VM on the target word for word: libvirt has sent it without the controllers that it adds
    automatically, and has placed them elsewhere. Edits made there meanwhile stay."""
    vm, mine = seen.facts.name, site.inactive_xml(seen.facts.name)
    arrived = Reader(site.errors, site.cpu).read_one(there, vm)
    if arrived is None or arrived.meta is None:
        return
    with telling(site.errors, f"define {vm} on {arrived.meta.node}"):
        theirs = there.lookupByName(vm).XMLDesc(XmlFlag.INACTIVE | XmlFlag.SECURE)
        if domain_xml.differ_in_controllers(mine, theirs):
            autostart = arrived.meta.failover and arrived.meta.autostart
            there.defineXML(domain_xml.relabelled(mine, replace(arrived.meta, autostart=autostart)))


def remove_copies(site: Site, conn: Connection, left: ObservedDomain, there: Connection) -> None:
    """Remove the disks of a definition that a VM has left on one node (`conn`), and that were copied to the node where
    it lives (`there`). Raises our errors."""
    meta = left.meta or Meta()
    copied = set(meta.copied.split(",")) - {""}
    for disk in left.facts.disks:
        own = disk.source.rpartition("/")[2] == meta.volume
        if disk.target in copied and disk.source and (own or has_volume(site, there, disk.source)):
            _remove_copy(site, conn, disk.source)


def take_back(site: Site, facts: Facts, meta: Meta, copied: Collection[str], node: str) -> None:
    """Remove what was made on another node for the disks of a VM that has not come there. Raises our errors."""
    with site.peer(node) as there:
        if Reader(site.errors, site.cpu).read_one(there, facts.name) is not None:
            return
        for disk in facts.disks:
            if disk.target in copied and disk.source:
                if disk.source.rpartition("/")[2] == meta.volume:
                    storage.remove(there, site.errors, meta.pool, meta.volume)
                else:
                    _remove_copy(site, there, disk.source)


def _remove_copy(site: Site, conn: Connection, path: str) -> None:
    volume = volume_at(site, conn, path)
    if volume is not None:
        with suppress(NotThere), telling(site.errors, f"remove {path}"):
            volume.delete(0)


def stamps(site: Site, conn: Connection, disks: Sequence[Disk]) -> str:
    """Return what says whether disks are written to: for each that a pool has, its name in the guest, when it was last
    changed and its size. Raises our errors."""
    found = ((disk.target, _stamp(site, volume_at(site, conn, disk.source))) for disk in disks if disk.source)
    return ",".join(f"{target}={stamp}" for target, stamp in found if stamp)


def changed_disk(site: Site, conn: Connection, seen: ObservedDomain) -> str:
    """Return the disk of a suspended VM that is not as it was when its memory was saved, by its path ("": none). One
    that nobody noted then must not have been changed after the image was. Only disks that are in a pool can be
    compared. Raises our errors."""
    meta = seen.meta or Meta()
    noted = {target: stamp for target, _, stamp in (mark.partition("=") for mark in meta.stamps.split(","))}
    image = storage.find(conn, site.errors, site.keys.save_pool, meta.saved)
    saved_at = _changed_at(_stamp(site, image))
    for disk in of(site, seen.facts):
        stamp = _stamp(site, volume_at(site, conn, disk.source))
        known = noted.get(disk.target)
        if stamp != known if known is not None else _changed_at(stamp) > saved_at > 0:
            return disk.source
    return ""


def _stamp(site: Site, volume: Volume | None) -> str:
    """Return a volume's last change and its size ("": there is no volume, or its pool does not report it)."""
    if volume is None:
        return ""
    with telling(site.errors, "look at a volume"):
        root = domain_xml.parse(volume.XMLDesc(0))
    when = root.findtext("target/timestamps/mtime", "")
    return f"{when}:{root.findtext('physical') or root.findtext('capacity', '')}" if when else ""


def _changed_at(stamp: str) -> Decimal:
    """Return the time in a stamp, in s since 1970 (0: none)."""
    return Decimal(stamp.partition(":")[0] or 0)
