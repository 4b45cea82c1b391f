"""Volumes: a VM's own disk, cloned through libvirt, and what is streamed from another node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.binding import Connection, Pool, Volume
from agents.hypervisors.libvirt.errors import NotThere, telling
from shared.config.agent import CloneMode

PIECE_BYTES = 1 << 18
Errors = type[Exception]
Stop = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume as a VM uses it. `own`: it is removed with the VM."""

    pool: str
    volume: str
    path: str
    kind: str
    own: bool


def folder_of(pool: Pool) -> str:
    """Return the folder of a pool's volumes."""
    return domain_xml.parse(pool.XMLDesc(0)).findtext("target/path", "")


def clone(conn: Connection, errors: Errors, pool_name: str, base: str, how: CloneMode, name: str) -> Disk:
    """Make the disk of a VM from a base volume; what is left of that name is replaced. Raises our errors."""
    with telling(errors, f"clone volume {base!r} of pool {pool_name!r}"):
        pool = conn.storagePoolLookupByName(pool_name)
        source = pool.storageVolLookupByName(base)
        kind, capacity_bytes = shape_of(source)
        if how is CloneMode.NONE:
            return Disk(pool_name, base, source.path(), kind, own=False)
    remove(conn, errors, pool_name, name)
    with telling(errors, f"clone volume {base!r} of pool {pool_name!r}"):
        if how is CloneMode.OVERLAY:
            made = pool.createXML(volume_xml(name, "qcow2", capacity_bytes, (source.path(), kind)), 0)
            return Disk(pool_name, name, made.path(), "qcow2", own=True)
        made = pool.createXMLFrom(volume_xml(name, kind, capacity_bytes), source, 0)
        return Disk(pool_name, name, made.path(), kind, own=True)


def volume_xml(name: str, kind: str, capacity_bytes: int, backing: tuple[str, str] | None = None) -> str:
    """Return the definition of a volume without allocated space; `backing` is a path and its format."""
    root = ET.Element("volume")
    ET.SubElement(root, "name").text = name
    ET.SubElement(root, "capacity", unit="bytes").text = str(capacity_bytes)
    ET.SubElement(root, "allocation", unit="bytes").text = "0"
    target = ET.SubElement(root, "target")
    ET.SubElement(target, "format", type=kind)
    if backing is not None:
        holder = ET.SubElement(root, "backingStore")
        ET.SubElement(holder, "path").text = backing[0]
        ET.SubElement(holder, "format", type=backing[1])
    return domain_xml.text_of(root)


def find(conn: Connection, errors: Errors, pool_name: str, name: str) -> Volume | None:
    """Find a volume, also one that libvirt has not noticed yet; None if there is none. Raises TrimtabError."""
    with telling(errors, f"find volume {name!r} of pool {pool_name!r}"):
        pool = conn.storagePoolLookupByName(pool_name)
    for again in (True, False):
        try:
            with telling(errors, f"find volume {name!r} of pool {pool_name!r}"):
                return pool.storageVolLookupByName(name)
        except NotThere:
            if again:
                with suppress(errors):  # another job of the pool's may be under way
                    pool.refresh(0)
    return None


def remove(conn: Connection, errors: Errors, pool_name: str, name: str) -> None:
    """Remove a volume; one that is not there is fine. Raises our errors."""
    if not name:
        return
    volume = find(conn, errors, pool_name, name)
    if volume is not None:
        with suppress(NotThere), telling(errors, f"remove volume {name!r} of pool {pool_name!r}"):
            volume.delete(0)


def make_empty(conn: Connection, errors: Errors, pool_name: str, name: str) -> str:
    """Create a volume for libvirt, or a stream, to write to; return its path. Raises TrimtabError."""
    remove(conn, errors, pool_name, name)
    with telling(errors, f"make volume {name!r} of pool {pool_name!r}"):
        pool = conn.storagePoolLookupByName(pool_name)
        return pool.createXML(volume_xml(name, "raw", 0), 0).path()


def stream(source: Connection, there: Volume, target: Connection, here: Volume, errors: Errors, stop: Stop) -> int:
    """Copy what is in a volume of one node to one of another; the bytes copied. `stop` is asked after each piece, and
    raises to end it. Raises our errors."""
    with telling(errors, f"copy {there.path()}"):
        taking, giving = source.newStream(0), target.newStream(0)
        there.download(taking, 0, 0, 0)
        copied = 0
        try:
            here.upload(giving, 0, 0, 0)
            while piece := taking.recv(PIECE_BYTES):
                copied += len(piece)
                while piece:
                    piece = piece[giving.send(piece) :]
                stop()
        except BaseException:
            for end in (taking, giving):
                with suppress(errors):
                    end.abort()
            raise
        taking.finish()
        giving.finish()
    return copied


def same_base(conn: Connection, errors: Errors, pool_name: str, path: str) -> tuple[str, str] | None:
    """Path and format of a base volume on another node: at the same path, else of the same name in the same pool; None
    where there is none. Raises our errors."""
    try:
        with telling(errors, f"find {path}"):
            found = conn.storageVolLookupByPath(path)
            return found.path(), shape_of(found)[0]
    except NotThere:
        volume = find(conn, errors, pool_name, path.rpartition("/")[2])
    if volume is None:
        return None
    with telling(errors, f"look at {path}"):
        return volume.path(), shape_of(volume)[0]


def backing_of(volume: Volume) -> str:
    """Return the path of a volume's backing file ("": none)."""
    return domain_xml.parse(volume.XMLDesc(0)).findtext("backingStore/path", "")


def shape_of(volume: Volume) -> tuple[str, int]:
    """Format, and capacity in bytes."""
    root = domain_xml.parse(volume.XMLDesc(0))
    kind = root.find("target/format")
    return (kind.get("type", "raw") if kind is not None else "raw"), int(volume.info()[1])
