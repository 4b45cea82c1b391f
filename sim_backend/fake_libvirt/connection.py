"""The module itself, and virConnect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim_backend.fake_libvirt import codes, statistics
from sim_backend.fake_libvirt.codes import Err, From, Life, RunningReason, State, check_flags, fail, libvirtError
from sim_backend.fake_libvirt.definition import Definition, parse
from sim_backend.fake_libvirt.domain import virDomain
from sim_backend.fake_libvirt.files import Image, read_image
from sim_backend.fake_libvirt.handles import Handle, Server, call
from sim_backend.fake_libvirt.hardware import EMULATOR
from sim_backend.fake_libvirt.host import QEMU_GONE, Host
from sim_backend.fake_libvirt.state import Dom, PoolState
from sim_backend.fake_libvirt.storage import virStoragePool, virStorageVol, virStream

LIST_FLAGS = (1 << 16) - 1
STATS_FLAGS = 0xFF | 7 << 29
STATS_GROUPS = (1 << 11) - 1
URI = re.compile(
    r"qemu(?:\+(?P<transport>[a-z0-9]+))?://(?:[^@/]*@)?(?P<host>[^:/?]*)(?::\d+)?/(?:system|session)(\?.*)?"
)
EventCallback = Callable[..., None]


class Module:
    """What `import libvirt` gives on one host of the cluster."""

    libvirtError = libvirtError

    def __init__(self, cluster: Server, host: Host) -> None:
        self.cluster, self.host = cluster, host

    def open(self, name: str | None = None) -> virConnect:
        """Connect to this host's libvirtd, or to another's: qemu+tls://HOST/system."""
        with self.cluster.lock:
            fault = self.cluster.script.take("open", self.host.name, name or "")
            if fault is not None and fault.how == "raise":
                raise codes.error(fault.code, fault.domain, "by the script")
            found = URI.fullmatch(name or "qemu:///system")
            if found is None:
                fail(Err.INVALID_ARG, From.NONE, f"invalid argument: no such URI: {name}")
            host = self.cluster.reach(self.host.name, found["host"] or self.host.name)
            connection = virConnect(self.cluster, host, self.host.name)
            host.connections.append(connection)
            return connection


@dataclass(frozen=True, slots=True)
class Named:
    """A network, a network filter or a secret: nothing of it is used but what it is called."""

    label: str
    uuid: str = ""

    def name(self) -> str:
        return self.label

    def UUIDString(self) -> str:
        return self.uuid

    def usageID(self) -> str:
        return self.label


class virConnect(Handle):
    """A connection to one libvirtd."""

    def __init__(self, cluster: Server, host: Host, home: str) -> None:
        self.cluster, self.host, self.home = cluster, host, home
        self.open_, self.closed = True, False
        self._next_id = 0
        self._callbacks: dict[int, tuple[int, str, EventCallback, Any]] = {}
        self._on_close: tuple[Callable[[Any, int, Any], None], Any] | None = None

    @property
    def home_connection(self) -> virConnect:
        """Itself."""
        return self

    # --- its life ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise when it was closed or is broken."""
        if self.closed:
            fail(Err.INVALID_CONN, From.DOMAIN, "invalid connection pointer")
        if not self.open_:
            fail(Err.INTERNAL_ERROR, From.RPC, "client socket is closed")

    def break_off(self, reason: int) -> None:
        """Close the connection because the other side is gone."""
        if not self.open_:
            return
        self.open_ = False
        self._callbacks.clear()
        if self in self.host.connections:
            self.host.connections.remove(self)
        if self._on_close is not None:
            callback, opaque = self._on_close
            self.cluster.events.post_surely(lambda: callback(self, int(reason), opaque))
        self.cluster.changed()

    def close(self) -> int:
        with self.cluster.lock:
            if self.closed:
                fail(Err.INVALID_CONN, From.NONE, "invalid connection pointer in virConnectClose")
            self._on_close = None
            self._callbacks.clear()
            self.open_, self.closed = False, True
            if self in self.host.connections:
                self.host.connections.remove(self)
            self.cluster.changed()
            return 0

    def isAlive(self) -> int:
        if self.closed:
            fail(Err.INVALID_CONN, From.DOMAIN, "invalid connection pointer in virConnectIsAlive")
        return int(self.open_)

    @call
    def setKeepAlive(self, interval: int, count: int) -> int:
        del interval, count
        return 0

    @call
    def registerCloseCallback(self, cb: Callable[[Any, int, Any], None], opaque: Any) -> int:
        if self._on_close is not None:
            fail(Err.OPERATION_INVALID, From.RPC, "A close callback is already registered")
        self._on_close = (cb, opaque)
        return 0

    @call
    def unregisterCloseCallback(self) -> int:
        if self._on_close is None:
            fail(Err.OPERATION_INVALID, From.RPC, "A different callback was requested")
        self._on_close = None
        return 0

    # --- events -----------------------------------------------------------------------------------------------------

    @call
    def domainEventRegisterAny(self, dom: Any, eventID: int, cb: EventCallback, opaque: Any) -> int:
        uuid = "" if dom is None else dom.UUIDString()
        self._next_id += 1
        self._callbacks[self._next_id] = (int(eventID), uuid, cb, opaque)
        return self._next_id

    @call
    def domainEventDeregisterAny(self, callbackID: int) -> int:
        if self._callbacks.pop(callbackID, None) is None:
            fail(Err.INVALID_ARG, From.RPC, f"invalid argument: could not find event callback {callbackID}")
        return 0

    def tell(self, event_id: int, dom: Dom, words: tuple[Any, ...]) -> None:
        """Something happened to a domain."""
        handle = virDomain(self, dom.uuid, dom.name)
        for number, (wanted, uuid, callback, opaque) in list(self._callbacks.items()):
            if wanted == event_id and uuid in ("", dom.uuid):
                self.cluster.events.post(lambda c=callback, n=number, o=opaque: self._tell(n, c, handle, words, o))  # type: ignore[misc]

    def _tell(self, number: int, callback: EventCallback, dom: virDomain, words: tuple[Any, ...], opaque: Any) -> None:
        if number in self._callbacks:
            callback(self, dom, *words, opaque)

    # --- the host ---------------------------------------------------------------------------------------------------

    @call
    def getType(self) -> str:
        return "QEMU"

    @call
    def getURI(self) -> str:
        return "qemu:///system" if self.home == self.host.name else f"qemu+tls://{self.host.name}/system"

    @call
    def getHostname(self) -> str:
        return self.host.name

    @call
    def getLibVersion(self) -> int:
        return 9_000_000

    @call
    def getVersion(self) -> int:
        return 7_002_000

    @call
    def getInfo(self) -> list[Any]:
        host = self.host
        return ["x86_64", host.memory_mib, host.cores, host.mhz, 1, 1, host.cores, 1]

    @call
    def getCapabilities(self) -> str:
        host = self.host
        cpu = f"<cpu><arch>x86_64</arch><model>{host.cpu_model}</model><vendor>AMD</vendor></cpu>"
        moves = "<migration_features><live/></migration_features>"
        whole = f"<host><uuid>{host.uuid}</uuid>{cpu}{moves}{host.hardware.topology()}</host>{host.hardware.guests()}"
        return f"<capabilities>{whole}</capabilities>"

    @call
    def getDomainCapabilities(
        self, emulatorbin: str | None, arch: str | None, machine: str | None, virttype: str | None, flags: int = 0
    ) -> str:
        check_flags(flags, 1, "qemuConnectGetDomainCapabilities")
        del emulatorbin, arch, machine
        virt = virttype or "qemu"
        if virt not in self.host.hardware.virts:
            fail(Err.INVALID_ARG, From.QEMU, f"invalid argument: KVM is not supported by '{EMULATOR}' on this host")
        return self.host.hardware.domain_capabilities(virt)

    @call
    def baselineHypervisorCPU(
        self,
        emulator: str | None,
        arch: str | None,
        machine: str | None,
        virttype: str | None,
        xmlCPUs: Sequence[str],
        flags: int = 0,
    ) -> str:
        check_flags(flags, 3, "qemuConnectBaselineHypervisorCPU")
        del emulator, arch, machine, virttype
        (cpu,) = xmlCPUs
        return cpu

    @call
    def listAllNetworks(self, flags: int = 0) -> list[Any]:
        check_flags(flags, 0xF, "networkConnectListAllNetworks")
        return [Named(name) for name in self.host.hardware.networks]

    @call
    def listAllNWFilters(self, flags: int = 0) -> list[Any]:
        check_flags(flags, 0, "nwfilterConnectListAllNWFilters")
        return [Named(name) for name in self.host.hardware.filters]

    @call
    def listAllSecrets(self, flags: int = 0) -> list[Any]:
        check_flags(flags, 0xF, "secretConnectListAllSecrets")
        return [Named(usage, uuid) for uuid, usage in self.host.hardware.secrets.items()]

    # --- domains ----------------------------------------------------------------------------------------------------

    @call
    def listAllDomains(self, flags: int = 0) -> list[virDomain]:
        check_flags(flags, LIST_FLAGS, "qemuConnectListAllDomains")
        return [self._handle(dom) for dom in self.host.domains.values() if statistics.listed(dom, flags)]

    @call
    def lookupByName(self, name: str) -> virDomain:
        dom = self.host.named(name)
        if dom is None:
            fail(Err.NO_DOMAIN, From.QEMU, f"no domain with matching name '{name}'")
        return self._handle(dom)

    @call
    def lookupByUUIDString(self, uuid: str) -> virDomain:
        dom = self.host.domains.get(uuid)
        if dom is None:
            fail(Err.NO_DOMAIN, From.QEMU, f"no domain with matching uuid '{uuid}'")
        return self._handle(dom)

    @call
    def defineXML(self, xml: str) -> virDomain:
        return self._handle(self.host.define(xml))

    @call
    def defineXMLFlags(self, xml: str, flags: int = 0) -> virDomain:
        check_flags(flags, 1, "qemuDomainDefineXMLFlags")
        return self._handle(self.host.define(xml))

    @call
    def getAllDomainStats(self, stats: int = 0, flags: int = 0) -> list[tuple[virDomain, Mapping[str, Any]]]:
        check_flags(flags, STATS_FLAGS, "qemuConnectGetAllDomainStats")
        doms = [dom for dom in self.host.domains.values() if statistics.listed(dom, flags & 0xFF)]
        return [(self._handle(dom), self._stats(dom, stats)) for dom in doms]

    @call
    def domainListGetStats(
        self, doms: Sequence[Any], stats: int = 0, flags: int = 0
    ) -> list[tuple[virDomain, Mapping[str, Any]]]:
        check_flags(flags, STATS_FLAGS, "qemuConnectGetAllDomainStats")
        if not doms:
            fail(Err.INVALID_ARG, From.DOMAIN, "doms in virDomainListGetStats must not be empty")
        found = [self.host.domains[dom.UUIDString()] for dom in doms if dom.UUIDString() in self.host.domains]
        return [(self._handle(dom), self._stats(dom, stats)) for dom in found]

    def _stats(self, dom: Dom, stats: int) -> Mapping[str, Any]:
        groups = stats & STATS_GROUPS or STATS_GROUPS
        return statistics.of(dom, groups, self.host.files.size, self.cluster.now_s())

    # --- saved ones -------------------------------------------------------------------------------------------------

    @call
    def saveImageGetXMLDesc(self, file: str, flags: int = 0) -> str:
        check_flags(flags, 1, "qemuDomainSaveImageGetXMLDesc")
        return read_image(self.host.files.get(file), file).xml

    @call
    def restore(self, frm: str) -> int:
        return self._restore(frm, None, 0)

    @call
    def restoreFlags(self, frm: str, dxml: str | None = None, flags: int = 0) -> int:
        return self._restore(frm, dxml, flags)

    def _restore(self, path: str, dxml: str | None, flags: int) -> int:
        check_flags(flags, 1 | codes.SAVE_RUNNING | codes.SAVE_PAUSED | 8, "qemuDomainRestoreFlags")
        if flags & codes.SAVE_RUNNING and flags & codes.SAVE_PAUSED:
            fail(Err.INVALID_ARG, From.DOMAIN, "Flags 'RUNNING' and 'PAUSED' are mutually exclusive")
        host = self.host
        image = read_image(host.files.get(path), path)
        wanted = parse(image.xml, host.cluster.new_uuid())
        if dxml is not None:
            changed = parse(dxml, host.cluster.new_uuid())
            if changed.name != wanted.name:
                text = f"Target domain name '{changed.name}' does not match source '{wanted.name}'"
                fail(Err.CONFIG_UNSUPPORTED, From.DOMAIN, text)
            changed.uuid = wanted.uuid
            wanted = changed
        dom = host.claim(wanted, active=True)
        if dom is None:
            dom = host.domains[wanted.uuid] = Dom(wanted.uuid, wanted.name)
        running = image.running if not flags & 6 else bool(flags & codes.SAVE_RUNNING)
        return self._revive(dom, wanted, image, running)

    def _revive(self, dom: Dom, wanted: Definition, image: Image, running: bool) -> int:
        host = self.host
        host.occupy(dom, wanted, host.cluster.old_guest(wanted.name, image.token, image.work_s))
        job = host.cluster.work(host, dom, "restore")
        if job.error is None and not image.whole:
            text = f"{QEMU_GONE}load of migration failed: Input/output error"
            job.error = codes.error(Err.INTERNAL_ERROR, From.QEMU, text)
        host.check_started(dom, job)
        host.emit(dom, Life.STARTED, codes.Detail.RESTORED)
        if running:
            host.resume(dom, RunningReason.RESTORED)
        else:
            host.pause(dom, codes.Paused.MIGRATION, codes.Detail.PAUSED_RESTORED)
        return 0

    # --- storage ----------------------------------------------------------------------------------------------------

    @call
    def storagePoolLookupByName(self, name: str) -> virStoragePool:
        pool = self.host.pools.get(name)
        if pool is None:
            fail(Err.NO_STORAGE_POOL, From.STORAGE, f"no storage pool with matching name '{name}'")
        return virStoragePool(self, pool)

    @call
    def listAllStoragePools(self, flags: int = 0) -> list[virStoragePool]:
        check_flags(flags, (1 << 21) - 1, "storageConnectListAllStoragePools", From.STORAGE)
        wanted = {bool(bit == 2) for bit in (1, 2) if flags & bit} or {False, True}  # those in use: 2, the others: 1
        return [virStoragePool(self, pool) for pool in self.host.pools.values() if pool.active in wanted]

    @call
    def storageVolLookupByPath(self, path: str) -> virStorageVol:
        pools = [pool for pool in self.host.pools.values() if pool.active]
        found = [(pool, volume) for pool in pools for volume in pool.volumes.values() if volume.path == path]
        if not found:
            fail(Err.NO_STORAGE_VOL, From.STORAGE, f"no storage vol with matching path '{path}'")
        return virStorageVol(self, *found[0])

    @call
    def newStream(self, flags: int = 0) -> virStream:
        check_flags(flags, 1, "virStreamNew")
        return virStream(self)

    def _handle(self, dom: Dom) -> virDomain:
        return virDomain(self, dom.uuid, dom.name)


def add_pool(host: Host, name: str, path: str, hosts: tuple[str, ...] = ("ceph",)) -> PoolState:
    """Add an active pool of type dir to a host, with the files in its folder, and return it; without a path, one of
    type rbd, of the cluster with these monitors."""
    with host.cluster.lock:
        pool = host.pools[name] = PoolState(name, path, str(host.cluster.new_uuid()), hosts=hosts)
        host.files.folders |= {path} - {""}
        return pool


__all__ = ["Module", "State", "add_pool", "virConnect"]
