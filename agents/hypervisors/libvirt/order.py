"""Putting in order what nobody carries out any more, and writing down with domains what libvirtd would forget."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from agents.hypervisors.libvirt import domain_xml, local_disks, saved_images, storage
from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.changes import ENDS
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.operations import clear
from agents.hypervisors.libvirt.site import Site
from agents.hypervisors.libvirt.statistics import ObservedDomain, Reader
from shared.base.errors import TrimtabError
from shared.values.vms import HOLDING_STATES, LIVE_STATES, VmState

UNSURE = LIVE_STATES | {VmState.SUSPENDED}  # what an operation that has not ended can be of
SAVED_BY_HAND = frozenset({"saved by somebody"})


def needs_order(seen: ObservedDomain) -> bool:
    """Return whether an operation may have left a domain in a state that must not stay."""
    meta = seen.meta
    if meta is None or not meta.managed or seen.halted:
        return False
    unsure = seen.state in UNSURE or (seen.state is VmState.CRASHED and bool(meta.lent))
    return (
        seen.stale
        or unsure
        or (seen.left and bool(meta.lent))
        or (not meta.begun and seen.state not in (None, VmState.INCOMING))
    )


def put_in_order(site: Site, seen: ObservedDomain) -> None:
    """Clean up after an interrupted operation: a failed start, an incomplete image, a source that does not know that it
    has moved, a definition that differs from the running VM. Raises TrimtabError."""
    meta, vm = seen.meta, seen.facts.name
    if meta is None or not needs_order(seen):
        return
    if seen.stale:
        clear(site, seen)
    elif seen.state is VmState.SUSPENDED:
        if not saved_images.is_whole(site, meta):
            site.set_meta(vm, replace(meta, saved="", over=VmState.CRASHED.value))
    elif seen.left or (seen.state is VmState.CRASHED and meta.lent):
        remove_left(site, seen)
    elif seen.state in LIVE_STATES:
        weigh(site, seen, meta)
        if meta.stays_off and not saved_images.has_job(site, vm):
            site.set_stays_off(vm, on=True)  # libvirt has started it by its definition
        agree(site, vm, meta)
    else:
        site.set_meta(vm, replace(meta, begun=True))


def agree(site: Site, vm: str, meta: Meta) -> None:
    """Make the definition of a live VM match the running one, and clear image and migration marks in both, even if
    somebody else started it. It starts with its host again if it did before it moved, unless Trimtab alone is to start
    it there. While libvirt saves or moves it, it is left unchanged. Raises TrimtabError."""
    try:
        facts = domain_xml.facts_of(site.inactive_xml(vm))
        kept = facts.meta or Meta()
    except ValueError as error:
        raise TrimtabError(f"the definition of {vm}: {error}") from error
    wanted = replace(meta, begun=True, over="", kept=False, saved="", stamps="", lent="", copied="")
    wanted = replace(wanted, autostart=meta.failover and meta.autostart)
    if (meta == wanted and kept == wanted) or saved_images.has_job(site, vm):
        return
    if meta.owes_autostart or kept.owes_autostart:
        site.set_autostart(vm, on=True)
    if kept.lent and kept.copied:
        local_disks.take_back(site, facts, kept, kept.copied.split(","), kept.lent)
    site.set_meta(vm, wanted)
    now = site.see(vm)
    # libvirtd may just have begun a save that waited in its queue: then the image is all that there is of the VM.
    if now is not None and now.state in LIVE_STATES and not saved_images.has_job(site, vm):
        with site.link.use("remove a saved image") as conn:
            for image in {kept.saved, meta.saved} - {""}:
                storage.remove(conn, site.errors, site.keys.save_pool, image)


def may_be_saved_late(seen: ObservedDomain, known: ObservedDomain | None = None) -> bool:
    """Return whether libvirtd may have saved the VM for an operation whose agent was killed before the save began: the
    next agent assumed that it runs on. False for a VM whose end is already `known`: it was examined then."""
    over = seen.managed and seen.state in ENDS and seen.why in SAVED_BY_HAND
    return over and (known is None or known.state not in ENDS)


def note_late_save(site: Site, seen: ObservedDomain) -> None:
    """Note that the VM is suspended if the image is Trimtab's: nobody else uses that name. Raises TrimtabError."""
    meta, vm = seen.meta, seen.facts.name
    if meta is None or not may_be_saved_late(seen):
        return
    image = saved_images.image_name(vm, meta.generation)
    with site.link.use(f"look for the image of {vm}") as conn:
        volume = storage.find(conn, site.errors, site.keys.save_pool, image)
    if volume is not None and saved_images.is_whole(site, replace(meta, saved=image)):
        site.set_meta(vm, replace(meta, saved=image))


def weigh(site: Site, seen: ObservedDomain, meta: Meta) -> None:
    """Give a live VM its own weight, not that of an interrupted operation. Raises TrimtabError."""
    vm, facts = seen.facts.name, seen.facts
    is_off = site.features.paused and facts.shares != site.cpu.shares(meta.cpu_mhz)
    if is_off and not meta.owners_cpu and not saved_images.has_job(site, vm):
        site.set_cpu(vm, facts.vcpus, meta)


def note_end(site: Site, seen: ObservedDomain, state: VmState, why: str) -> None:
    """Note how the VM ended. Raises TrimtabError."""
    meta = seen.meta
    if meta is not None and meta.managed and seen.state in ENDS and not meta.over:
        kept = why in SAVED_BY_HAND
        site.set_meta(seen.facts.name, replace(meta, over=state.value, kept=kept))


def note_here(site: Site, seen: ObservedDomain) -> None:
    """Note that the VM is on this node now. Raises TrimtabError."""
    meta = seen.meta
    if meta is not None and meta.managed and seen.state in HOLDING_STATES:
        site.set_meta(seen.facts.name, replace(meta, node=site.node, lent=""))


def remove_left(site: Site, seen: ObservedDomain) -> None:
    """Remove the definition of a VM that has moved away, with the disks that were copied: disks that nobody copied are
    still in use there. An adopted VM that somebody else moved stays as it was left. Raises TrimtabError."""
    meta = seen.meta
    if meta is None or not meta.lent:
        if seen.left and not seen.adopted:
            site.remove(seen)
        return
    vm = seen.facts.name
    node = meta.lent if lives_at(site, vm, meta.lent) else whereabouts(site, vm)  # it may have moved on
    if node:
        with site.peer(node) as there:
            local_disks.leave(site, seen, there)


def lives_at(site: Site, vm: str, node: str) -> bool:
    """Return whether another node has the VM. Raises Unavailable if that node cannot be asked."""
    with site.peer(node) as there:
        return _lives_there(site, vm, there)


def _lives_there(site: Site, vm: str, there: Connection) -> bool:
    found = Reader(site.errors, site.cpu).read_one(there, vm)
    return found is not None and found.managed and found.state in LIVE_STATES


def whereabouts(site: Site, vm: str) -> str:
    """Return the configured node that has a VM that is gone from here ("": none that can be asked)."""
    for node in site.keys.hosts:
        if node != site.node:
            with suppress(TrimtabError):
                if lives_at(site, vm, node):
                    return node
    return ""
