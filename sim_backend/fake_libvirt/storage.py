"""virStoragePool, virStorageVol and virStream."""

from __future__ import annotations

from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from sim_backend.fake_libvirt.codes import Err, From, check_flags, error, fail
from sim_backend.fake_libvirt.handles import Connection, Handle, call
from sim_backend.fake_libvirt.state import PoolState, VolumeFacts

FORMATS = ("raw", "qcow2", "qcow", "vmdk", "iso")
UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
CAPACITY_BYTES = 1 << 40  # of a pool
UNLIMITED = 1 << 62
FILE_BYTES = 1 << 20  # what a volume holds at most in memory; its capacity may be more


class virStoragePool(Handle):
    """A pool of type dir or rbd."""

    def __init__(self, connection: Connection, pool: PoolState) -> None:
        self._connection, self._pool = connection, pool
        self.subject = pool.name

    @property
    def home_connection(self) -> Connection:
        """The connection that it was got from."""
        return self._connection

    def name(self) -> str:
        return self._pool.name

    @call
    def isActive(self) -> int:
        return int(self._there().active)

    @call
    def info(self) -> list[int]:
        return [2, CAPACITY_BYTES, 0, CAPACITY_BYTES] if self._there().active else [0, 0, 0, 0]

    @call
    def XMLDesc(self, flags: int = 0) -> str:
        check_flags(flags, 1, "storagePoolGetXMLDesc", From.STORAGE)
        pool = self._there()
        if pool.path:
            kind, place = "dir", f"<target><path>{escape(pool.path)}</path></target>"
        else:
            hosts = "".join(f"<host name={quoteattr(host)}/>" for host in pool.hosts)
            kind, place = "rbd", f"<source>{hosts}<name>{escape(pool.name)}</name></source>"
        return f"<pool type='{kind}'><name>{escape(pool.name)}</name><uuid>{pool.uuid}</uuid>{place}</pool>"

    @call
    def refresh(self, flags: int = 0) -> int:
        check_flags(flags, 0, "storagePoolRefresh", From.STORAGE)
        pool, files = self._active(), self._connection.host.files
        known, pool.volumes = pool.volumes, {}
        for path in files.within(pool.path) if pool.path else ():
            name = path.rpartition("/")[2]
            size = len(files.get(path) or b"")
            pool.volumes[name] = known.get(name) or VolumeFacts(name, path, size)
        return 0

    @call
    def listAllVolumes(self, flags: int = 0) -> list[virStorageVol]:
        check_flags(flags, 0, "storagePoolListAllVolumes", From.STORAGE)
        pool = self._active()
        return [virStorageVol(self._connection, pool, volume) for volume in pool.volumes.values()]

    @call
    def storageVolLookupByName(self, name: str) -> virStorageVol:
        pool = self._active()
        if name not in pool.volumes:
            fail(Err.NO_STORAGE_VOL, From.STORAGE, f"no storage vol with matching name '{name}'")
        return virStorageVol(self._connection, pool, pool.volumes[name])

    @call
    def createXML(self, xml: str, flags: int = 0) -> virStorageVol:
        check_flags(flags, 3, "storageVolCreateXML", From.STORAGE)
        pool, files = self._active(), self._connection.host.files
        volume = _read_volume(xml, pool)
        if volume.name in pool.volumes:
            fail(Err.STORAGE_VOL_EXIST, From.STORAGE, f"storage volume '{volume.name}' exists already")
        if volume.backing and files.get(volume.backing) is None:
            text = f"inaccessible backing store volume {volume.backing}: No such file or directory"
            fail(Err.SYSTEM_ERROR, From.STORAGE, text)
        if files.get(volume.path) is None:
            files.put(volume.path, b"\0" * min(volume.capacity, FILE_BYTES))
        pool.volumes[volume.name] = volume
        return virStorageVol(self._connection, pool, volume)

    @call
    def createXMLFrom(self, xml: str, original: virStorageVol, flags: int = 0) -> virStorageVol:
        check_flags(flags, 3, "storageVolCreateXMLFrom", From.STORAGE)
        pool, files = self._active(), self._connection.host.files
        data = files.get(original.facts().path)
        volume = _read_volume(xml, pool, original.facts().capacity)
        if volume.name in pool.volumes:
            fail(Err.INTERNAL_ERROR, From.STORAGE, f"storage volume name '{volume.name}' already in use.")
        if data is None:
            fail(Err.SYSTEM_ERROR, From.STORAGE, f"cannot open file '{original.facts().path}'")
        volume.capacity = max(volume.capacity, original.facts().capacity)
        files.put(volume.path, bytes(data))
        pool.volumes[volume.name] = volume
        return virStorageVol(self._connection, pool, volume)

    def _there(self) -> PoolState:
        if self._connection.host.pools.get(self._pool.name) is not self._pool:
            text = f"no storage pool with matching uuid '{self._pool.uuid}' ({self._pool.name})"
            fail(Err.NO_STORAGE_POOL, From.STORAGE, text)
        return self._pool

    def _active(self) -> PoolState:
        pool = self._there()
        if not pool.active:
            fail(Err.OPERATION_INVALID, From.STORAGE, f"storage pool '{pool.name}' is not active")
        return pool


class virStorageVol(Handle):
    """A handle: the volume may be gone."""

    def __init__(self, connection: Connection, pool: PoolState, volume: VolumeFacts) -> None:
        self._connection, self._pool, self._volume = connection, pool, volume
        self.subject = volume.name

    @property
    def home_connection(self) -> Connection:
        """The connection that it was got from."""
        return self._connection

    def name(self) -> str:
        return self._volume.name

    def key(self) -> str:
        return self._volume.path

    @call
    def path(self) -> str:
        return self.facts().path

    @call
    def info(self) -> list[int]:
        volume = self.facts()
        return [0, volume.capacity, len(self._data())]

    @call
    def XMLDesc(self, flags: int = 0) -> str:
        check_flags(flags, 0, "storageVolGetXMLDesc", From.STORAGE)
        volume = self.facts()
        backing = ""
        if volume.backing:
            backing = f"<backingStore><path>{escape(volume.backing)}</path><format type='raw'/></backingStore>"
        return (
            f"<volume type='file'><name>{escape(volume.name)}</name><key>{escape(volume.path)}</key>"
            f"<capacity unit='bytes'>{volume.capacity}</capacity>"
            f"<allocation unit='bytes'>{len(self._data())}</allocation>"
            f"<target><path>{escape(volume.path)}</path><format type='{volume.kind}'/>"
            f"<timestamps><mtime>{self._connection.host.files.changed_at(volume.path)}.0</mtime></timestamps></target>"
            f"{backing}</volume>"
        )

    @call
    def delete(self, flags: int = 0) -> int:
        check_flags(flags, 3, "storageVolDelete", From.STORAGE)
        volume = self.facts()
        self._connection.host.files.remove(volume.path)
        del self._pool.volumes[volume.name]
        return 0

    @call
    def upload(self, stream: virStream, offset: int, length: int, flags: int = 0) -> int:
        check_flags(flags, 1, "storageVolUpload", From.STORAGE)
        volume = self.facts()
        stream.begin_upload(volume.path, offset, length or UNLIMITED)
        return 0

    @call
    def download(self, stream: virStream, offset: int, length: int, flags: int = 0) -> int:
        check_flags(flags, 1, "storageVolDownload", From.STORAGE)
        data = bytes(self._data())[offset:]
        stream.begin_download(data[:length] if length else data)
        return 0

    def facts(self) -> VolumeFacts:
        """Return the pool's data on the volume. Raises libvirtError when it is gone."""
        if self._pool.volumes.get(self._volume.name) is not self._volume:
            fail(Err.NO_STORAGE_VOL, From.STORAGE, f"no storage vol with matching name '{self._volume.name}'")
        return self._volume

    def _data(self) -> bytearray:
        volume = self.facts()
        data = self._connection.host.files.get(volume.path)
        if data is None:
            fail(Err.NO_STORAGE_VOL, From.STORAGE, f"no storage vol with matching path '{volume.path}'")
        return data


class virStream(Handle):
    """A stream, blocking; what is sent beyond what was announced shows at its end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._way = ""
        self._path, self._at, self._left = "", 0, 0
        self._data = b""

    @property
    def home_connection(self) -> Connection:
        """The connection that it was got from."""
        return self._connection

    def begin_upload(self, path: str, offset: int, length: int) -> None:
        """Begin an upload to a volume."""
        self._way, self._path, self._at, self._left = "up", path, offset, length

    def begin_download(self, data: bytes) -> None:
        """Begin a download of a volume."""
        self._way, self._data = "down", data

    @call
    def send(self, data: bytes) -> int:
        self._check("up", "virStreamSend")
        kept = data[: max(self._left, 0)]
        held = self._connection.host.files.get(self._path)
        if held is not None:
            if len(held) < self._at:
                held.extend(b"\0" * (self._at - len(held)))
            held[self._at : self._at + len(kept)] = kept
        self._at += len(kept)
        self._left -= len(data)
        return len(data)

    @call
    def recv(self, nbytes: int) -> bytes:
        self._check("down", "virStreamRecv")
        got, self._data = self._data[:nbytes], self._data[nbytes:]
        return got

    @call
    def finish(self) -> int:
        if self._way == "":
            self._check("up", "virStreamFinish")
        way, self._way = self._way, "closed"
        if way == "closed":
            fail(Err.OPERATION_FAILED, From.RPC, "stream is closed")
        if self._left < 0:
            fail(Err.SYSTEM_ERROR, From.STREAMS, "cannot write to stream: No space left on device")
        return 0

    @call
    def abort(self) -> int:
        self._way = "closed"
        return 0

    def _check(self, way: str, function: str) -> None:
        if self._way == "closed":
            fail(Err.OPERATION_FAILED, From.RPC, "stream is closed")
        if self._way != way:
            raise error(3, From.STREAMS, f"this function is not supported by the connection driver: {function}")


def _read_volume(xml: str, pool: PoolState, least: int | None = None) -> VolumeFacts:
    try:
        tree = ET.fromstring(xml)
    except ET.ParseError as problem:
        fail(Err.XML_DETAIL, From.STORAGE, f"(storage_volume_definition):1: {problem}")
    name = tree.findtext("name")
    if not name:
        fail(Err.XML_ERROR, From.STORAGE, "missing volume name element")
    if "/" in name:
        fail(Err.OPERATION_INVALID, From.STORAGE, f"volume name '{name}' cannot contain '/'")
    found = tree.find("capacity")
    backing = tree.findtext("backingStore/path") or ""
    if found is None and not backing and least is None:
        fail(Err.XML_ERROR, From.STORAGE, "missing capacity element")
    capacity = least or 0
    if found is not None:
        capacity = int(found.text or 0) * UNITS[found.get("unit", "bytes")]
    form = tree.find("target/format")
    kind = "raw" if form is None else form.get("type", "raw")
    if kind not in FORMATS:
        fail(Err.CONFIG_UNSUPPORTED, From.STORAGE, f"unknown volume format type {kind}")
    return VolumeFacts(name, f"{pool.path}/{name}", capacity, kind, backing)
