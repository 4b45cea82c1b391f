"""Live migration, peer to peer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any
from uuid import UUID

from sim_backend.fake_libvirt import codes
from sim_backend.fake_libvirt.codes import (
    Detail,
    Err,
    From,
    Life,
    Migrate,
    Off,
    Paused,
    RunningReason,
    State,
    Stopped,
    fail,
)
from sim_backend.fake_libvirt.definition import Definition, parse
from sim_backend.fake_libvirt.host import BROKEN, Host
from sim_backend.fake_libvirt.state import DirtyRateCalc, Dom, Job, VolumeFacts
from sim_backend.fake_libvirt.transfers import COMPLETED, UNBOUNDED, Transfer
from sim_backend.world.migrating import Course

PARAMS: dict[str, type] = {
    "auto_converge.increment": int,
    "auto_converge.initial": int,
    "bandwidth": int,
    "bandwidth.postcopy": int,
    "destination_name": str,
    "destination_xml": str,
    "disks_port": int,
    "disks_uri": str,
    "graphics_uri": str,
    "listen_address": str,
    "migrate_disks": list,
    "migrate_uri": str,
    "parallel.connections": int,
    "persistent_xml": str,
    "tls.destination": str,
}
COPIES = Migrate.NON_SHARED_DISK | Migrate.NON_SHARED_INC
MIB = 1 << 20
OPERATIONS = {"create": 1, "save": 2, "restore": 3, "migrate": 5}  # virDomainJobOperation
NO_POST_COPY = "switching to post-copy requires migration to be started with VIR_MIGRATE_POSTCOPY flag"
PEER_URI = re.compile(r"qemu(?:\+[a-z0-9]+)?://(?P<host>[^:/?]+)(?::\d+)?/system(\?.*)?")


def check(params: Mapping[str, Any], flags: int) -> None:
    """Raise for parameters and flags that there are not."""
    for name, value in params.items():
        if name not in PARAMS:
            fail(Err.ARGUMENT_UNSUPPORTED, From.NONE, f"parameter '{name}' not supported")
        if not isinstance(value, PARAMS[name]) or isinstance(value, bool):
            raise TypeError(f"an object of type {PARAMS[name].__name__} is required")
    codes.check_flags(flags, codes.MIGRATE_FLAGS, "qemuDomainMigratePerform3Params")
    if not flags & Migrate.PEER2PEER:
        fail(Err.ARGUMENT_UNSUPPORTED, From.DOMAIN, "direct migration is not supported by the source host")
    if flags & Migrate.POSTCOPY and (not flags & Migrate.LIVE or flags & Migrate.PAUSED):
        text = "post-copy migration is not supported with non-live or paused migration"
        fail(Err.ARGUMENT_UNSUPPORTED, From.QEMU, text)
    if flags & Migrate.POSTCOPY and flags & Migrate.PARALLEL:
        fail(Err.INTERNAL_ERROR, From.QEMU, "Postcopy is not yet compatible with multifd")
    if flags & Migrate.POSTCOPY_RESUME and not flags & Migrate.POSTCOPY:
        fail(Err.INVALID_ARG, From.DOMAIN, "VIR_MIGRATE_POSTCOPY_RESUME requires VIR_MIGRATE_POSTCOPY")
    if "parallel.connections" in params and not flags & Migrate.PARALLEL:
        fail(Err.INVALID_ARG, From.QEMU, "Turn parallel migration on to tune it")


def migrate(host: Host, dom: Dom, uri: str, params: Mapping[str, Any], flags: int) -> int:
    """Bring an active domain to another host. Raises libvirtError; then all is as it was, unless post-copy has
    begun."""
    found = PEER_URI.fullmatch(uri)
    if found is None:
        fail(Err.INVALID_ARG, From.DOMAIN, "Attempt to migrate guest to the same host")
    if flags & Migrate.POSTCOPY_RESUME:
        return _resume(host, dom, found["host"], params, flags)
    if dom.halted is not None:
        fail(Err.OPERATION_INVALID, From.QEMU, "domain is in a failed post-copy migration")
    if dom.snapshots:
        fail(Err.OPERATION_INVALID, From.QEMU, f"cannot migrate domain with {dom.snapshots} snapshots")
    copied = _copied(host, dom, flags)
    peer = host.cluster.reach(host.name, found["host"])
    if peer is host:
        fail(Err.INTERNAL_ERROR, From.QEMU, f"Attempt to migrate guest to the same host {host.uuid}")
    wanted = _definition(dom, params.get("destination_xml"))
    kept = _definition(dom, params.get("persistent_xml")) if "persistent_xml" in params else wanted
    arriving = _prepare(peer, wanted, dom, copied)
    return _carry_over(host, dom, peer, arriving, kept, flags, _transfer(host, dom, peer, copied, params, flags))


def _carry_over(
    host: Host, dom: Dom, peer: Host, arriving: Dom, kept: Definition, flags: int, transfer: Transfer | None
) -> int:
    copied = _copied(host, dom, flags)
    source = Job("migrate", host.cluster.now_s(), 0.0, peer=host.name, incoming=True)
    arriving.job = source
    job = host.cluster.work(host, dom, "migrate", peer.name, transfer)
    job.error = job.error or _trouble(host, dom, peer, arriving, source)
    if arriving.job is source:
        arriving.job = None
    if job.error is not None:
        if transfer is not None and transfer.switched:
            _halt(host, dom, peer, arriving, transfer)
        else:
            _undo(peer, arriving, copied)
        raise job.error
    if transfer is not None and not transfer.course.switched:  # libvirt 9.0 has none of post-copy
        dom.completed = arriving.completed = transfer.stats(COMPLETED)
    _copy(host, peer, copied)
    _finish(host, dom, peer, arriving, kept if flags & Migrate.PERSIST_DEST else None, bool(flags & Migrate.PAUSED))
    if flags & Migrate.UNDEFINE_SOURCE:
        dom.config, dom.autostart = None, False
    host.halt(dom, Off.MIGRATED, Stopped.MIGRATED)
    return 0


def start_post_copy(host: Host, dom: Dom) -> None:
    """Let the guest go on at the target; what is missing follows. Raises libvirtError."""
    job = dom.job
    if job is None or job.kind != "migrate" or job.incoming:
        fail(Err.OPERATION_INVALID, From.QEMU, "post-copy can only be started while outgoing migration is in progress")
    transfer = job.transfer
    if transfer is None or not transfer.flags & Migrate.POSTCOPY:
        fail(Err.OPERATION_INVALID, From.QEMU, NO_POST_COPY)
    transfer.all.advance_to(host.cluster.now_s())
    transfer.course.switch()
    arriving = host.cluster.reach(host.name, transfer.target).domains.get(dom.uuid)
    if transfer.switched and dom.state == State.RUNNING and arriving is not None:
        host.pause(dom, Paused.POSTCOPY, Detail.PAUSED_POSTCOPY)
        arriving.be(State.RUNNING, RunningReason.POSTCOPY)
        host.cluster.note_execution(arriving)


def job_stats(dom: Dom, flags: int, now_s: float) -> dict[str, Any]:
    """Return the statistics of a domain's job, or, by flag 1, once of its last migration. Raises libvirtError."""
    if flags & 1:
        found, dom.completed = dict(dom.completed), dom.completed if flags & 2 else {}
        return found or {"type": 0}
    if dom.live is None:
        fail(Err.OPERATION_INVALID, From.DOMAIN, "domain is not running")
    job = dom.job
    if job is None:
        return {"type": 0}
    if job.incoming:
        text = "migration statistics are available only on the source host"
        fail(Err.OPERATION_UNSUPPORTED, From.QEMU, text)
    if job.transfer is None:
        elapsed_ms = round(1e3 * (now_s - job.begun_s))
        return {"type": UNBOUNDED, "operation": OPERATIONS.get(job.kind, 0), "time_elapsed": elapsed_ms}
    job.transfer.all.advance_to(now_s)
    return job.transfer.stats()


def measure_dirty_rate(dom: Dom, seconds: int, now_s: float) -> None:
    """Begin to measure how fast a guest changes its memory."""
    memory = None if dom.guest is None else dom.guest.memory
    changed_mib = 0.0 if memory is None or not dom.running else memory.changed_mib(float(seconds))
    dom.dirty_rate = DirtyRateCalc(now_s, seconds, round(changed_mib / seconds))


def _transfer(
    host: Host, dom: Dom, peer: Host, copied: tuple[str, ...], params: Mapping[str, Any], flags: int
) -> Transfer | None:
    """Return the course of a migration; None where nobody said how its guest uses its memory."""
    assert dom.guest is not None
    memory = dom.guest.memory
    if memory is None:
        return None
    still = dom.state != State.RUNNING
    disk_mib = sum(host.files.size(path) for path in copied if not host.files.is_shared(path)) / MIB
    course = Course(
        replace(memory, dirty_mib_per_s=0.0) if still else memory,
        disk_mib,
        dom.max_downtime_ms / 1e3,
        auto_converge=bool(flags & Migrate.AUTO_CONVERGE),
    )
    most = float(params.get("bandwidth", 0)) or inf
    streams = int(params.get("parallel.connections", 2)) if flags & Migrate.PARALLEL else 1
    return Transfer(
        host.name,
        peer.name,
        course,
        most_mib_per_s=most,
        streams=streams,
        total_mib=memory.resident_mib,
        all=host.cluster.transfers,
        params=params,
        flags=flags,
    )


def _halt(host: Host, dom: Dom, peer: Host, arriving: Dom, transfer: Transfer) -> None:
    """Leave both halves of a guest as they are, where they still are."""
    if dom.live is not None:
        dom.halted = transfer
        host.pause(dom, Paused.POSTCOPY_FAILED, Detail.PAUSED_POSTCOPY_FAILED)
    if peer.serving and arriving.live is not None and arriving.incoming:
        peer.pause(arriving, Paused.POSTCOPY_FAILED, Detail.PAUSED_POSTCOPY_FAILED)


def _resume(host: Host, dom: Dom, address: str, params: Mapping[str, Any], flags: int) -> int:
    """Go on with post-copy that was interrupted."""
    transfer = dom.halted
    if transfer is None:
        fail(Err.OPERATION_INVALID, From.QEMU, "QEMU reports migration is not in a failed post-copy state")
    peer = host.cluster.reach(host.name, address)
    arriving = peer.domains.get(dom.uuid)
    if arriving is None or arriving.live is None or not arriving.incoming:
        fail(Err.OPERATION_INVALID, From.QEMU, "the domain at the target is gone")
    kept = _definition(dom, params.get("persistent_xml", params.get("destination_xml")))
    dom.halted = None
    dom.be(State.PAUSED, Paused.POSTCOPY)
    arriving.be(State.RUNNING, RunningReason.POSTCOPY)
    host.cluster.note_execution(arriving)
    return _carry_over(host, dom, peer, arriving, kept, flags, transfer)


def _copied(host: Host, dom: Dom, flags: int) -> tuple[str, ...]:
    """Return the disks to be copied. Without copying, all disks must be shared."""
    own = tuple(path for path in dom.definition.disks if not host.files.is_shared(path))
    if flags & COPIES:
        return dom.definition.disks
    if own and not flags & Migrate.UNSAFE:
        fail(Err.MIGRATE_UNSAFE, From.QEMU, "Migration without shared storage is unsafe")
    return ()


def _definition(dom: Dom, xml: str | None) -> Definition:
    """Return the definition at the target, which must not differ in anything that the guest sees."""
    assert dom.live is not None
    if xml is None:
        return dom.live.copy()
    wanted = parse(xml, UUID(dom.uuid))
    for what, mine, theirs in (
        ("name", dom.name, wanted.name),
        ("uuid", dom.uuid, wanted.uuid),
        ("memory", dom.live.memory_kib, wanted.memory_kib),
        ("vCPU count", dom.live.vcpus, wanted.vcpus),
    ):
        if mine != theirs:
            fail(Err.CONFIG_UNSUPPORTED, From.DOMAIN, f"Target domain {what} '{theirs}' does not match source '{mine}'")
    return wanted


def _prepare(peer: Host, wanted: Definition, dom: Dom, copied: tuple[str, ...]) -> Dom:
    arriving = peer.claim(wanted, active=True)
    made: list[str] = []
    for path in copied:
        if peer.files.get(path) is None:
            _make_room(peer, path)
            made.append(path)
    if arriving is None:
        arriving = peer.domains[wanted.uuid] = Dom(wanted.uuid, wanted.name)
    try:
        peer.occupy(arriving, wanted, dom.guest)
    except codes.libvirtError:
        for path in made:
            _drop(peer, path)
        raise
    arriving.incoming = True
    arriving.be(State.PAUSED, Paused.MIGRATION)
    peer.emit(arriving, Life.STARTED, Detail.MIGRATED)
    return arriving


def _make_room(peer: Host, path: str) -> None:
    folder, _, name = path.rpartition("/")
    pool = next((pool for pool in peer.pools.values() if pool.active and pool.path == folder), None)
    if pool is None:
        fail(Err.SYSTEM_ERROR, From.STORAGE, f"Cannot access storage file '{path}': No such file or directory")
    peer.files.put(path, b"")
    pool.volumes[name] = VolumeFacts(name, path, 0)


def _drop(peer: Host, path: str) -> None:
    peer.files.remove(path)
    for pool in peer.pools.values():
        pool.volumes.pop(path.rpartition("/")[2], None)


def _trouble(host: Host, dom: Dom, peer: Host, arriving: Dom, source: Job) -> codes.libvirtError | None:
    """Return the error of a failure at the target or at the source that was not reported."""
    if source.error is not None:
        return source.error
    if not peer.serving or peer.domains.get(arriving.uuid) is not arriving or arriving.live is None:
        return codes.error(*BROKEN)
    if dom.live is None or not host.serving:
        return codes.error(Err.OPERATION_FAILED, From.QEMU, "domain is no longer running")
    return None


def _undo(peer: Host, arriving: Dom, copied: tuple[str, ...]) -> None:
    """Undo an incoming migration at the target if its libvirtd is up; otherwise this happens when it starts."""
    if peer.serving and arriving.live is not None and arriving.incoming:
        peer.halt(arriving, Off.FAILED, Stopped.FAILED)
        for path in copied:
            if not peer.files.get(path):
                _drop(peer, path)


def _copy(host: Host, peer: Host, copied: tuple[str, ...]) -> None:
    """Copy the disks to the target and overwrite its files."""
    for path in copied:
        if not peer.files.is_shared(path):
            peer.files.put(path, bytes(host.files.get(path) or b""))


def _finish(host: Host, dom: Dom, peer: Host, arriving: Dom, kept: Definition | None, paused: bool) -> None:
    arriving.incoming = False
    switched = dom.state == State.PAUSED and dom.reason == Paused.POSTCOPY
    running = (dom.state == State.RUNNING or switched) and not paused
    if dom.state == State.RUNNING:
        host.pause(dom, Paused.MIGRATION, Detail.MIGRATED)
    if kept is not None:
        known = arriving.config is not None
        arriving.config = kept.copy()
        peer.emit(arriving, Life.DEFINED, Detail.UPDATED if known else Detail.ADDED)
    if running:
        peer.resume(arriving, RunningReason.MIGRATED, Detail.MIGRATED)
    else:
        peer.pause(arriving, Paused.USER)
