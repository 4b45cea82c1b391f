"""Live migration, peer to peer."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from sim_backend.fake_libvirt.state import Dom, Job, VolumeFacts

PARAMS: dict[str, type] = {
    "bandwidth": int,
    "destination_name": str,
    "destination_xml": str,
    "disks_port": int,
    "disks_uri": str,
    "graphics_uri": str,
    "listen_address": str,
    "migrate_disks": list,
    "migrate_uri": str,
    "persistent_xml": str,
    "tls.destination": str,
}
COPIES = Migrate.NON_SHARED_DISK | Migrate.NON_SHARED_INC
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


def migrate(host: Host, dom: Dom, uri: str, params: Mapping[str, Any], flags: int) -> int:
    """Bring an active domain to another host. Raises libvirtError; then all is as it was."""
    found = PEER_URI.fullmatch(uri)
    if found is None:
        fail(Err.INVALID_ARG, From.DOMAIN, "Attempt to migrate guest to the same host")
    if dom.snapshots:
        fail(Err.OPERATION_INVALID, From.QEMU, f"cannot migrate domain with {dom.snapshots} snapshots")
    copied = _copied(host, dom, flags)
    peer = host.cluster.reach(host.name, found["host"])
    if peer is host:
        fail(Err.INTERNAL_ERROR, From.QEMU, f"Attempt to migrate guest to the same host {host.uuid}")
    wanted = _definition(dom, params.get("destination_xml"))
    kept = _definition(dom, params.get("persistent_xml")) if "persistent_xml" in params else wanted
    arriving = _prepare(peer, wanted, dom, copied)
    source = Job("migrate", host.cluster.now_s(), 0.0, peer=host.name, incoming=True)
    arriving.job = source
    job = host.cluster.work(host, dom, "migrate", peer.name)
    job.error = job.error or _trouble(host, dom, peer, arriving, source)
    if arriving.job is source:
        arriving.job = None
    if job.error is not None:
        _undo(peer, arriving, copied)
        raise job.error
    _copy(host, peer, copied)
    _finish(host, dom, peer, arriving, kept if flags & Migrate.PERSIST_DEST else None, bool(flags & Migrate.PAUSED))
    if flags & Migrate.UNDEFINE_SOURCE:
        dom.config, dom.autostart = None, False
    host.halt(dom, Off.MIGRATED, Stopped.MIGRATED)
    return 0


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
    running = dom.state == State.RUNNING and not paused
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
