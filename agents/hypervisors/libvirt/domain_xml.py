"""Reading and writing the XML of domains; XML from files and from libvirt is parsed without document types."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from agents.hypervisors.libvirt import metadata
from agents.hypervisors.libvirt.codes import LifecycleAction, LifecycleEvent
from agents.hypervisors.libvirt.host_files import host_files_of
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.migration_needs import Surroundings, memory_bytes, needs_of, nvram_of, written_disks
from agents.hypervisors.libvirt.unfit_parts import unfit_parts
from shared.values.migration import ordinary_mib

NOWHERE = Surroundings()
TOO_DEEP = "it is nested too deeply"
_END_TAGS = {LifecycleEvent.POWEROFF: "on_poweroff", LifecycleEvent.CRASH: "on_crash"}
IsLocal = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Tuning:
    """A domain's share of CPU: its weight, and per vCPU the quota of each period, both in us (quota -1: none)."""

    shares: int
    period_us: int = 100_000
    quota_us: int = -1


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk of a domain that is written to. `source`: its file or device ("": of another kind); `target`: its name in
    the guest."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a domain's XML is needed. `uses_nvram`: it keeps firmware variables in a file of its own, `nvram` ("": it
    is no file, or libvirt has not named it yet). `needs`: what it needs of a node that it is migrated to, as
    `shared.values.migration` has it; `shares`: its weight (0: none is said). `definition`: digest of the definition of
    one that was adopted, see `digest`. `transient`: no definition outlives it. `host_files`: what of it lies on this
    host alone, as `shared.values.failover` has it. `autostart`: libvirt starts it with its host (only read of one that
    was adopted). `fingerprint`: of the text of its definition with its secrets (likewise)."""

    name: str
    uuid: str
    memory_mib: int
    vcpus: int
    meta: Meta | None
    disks: tuple[Disk, ...] = ()
    uses_nvram: bool = False
    needs: tuple[str, ...] = ()
    shares: int = 0
    definition: str = ""
    transient: bool = False
    nvram: str = ""
    host_files: tuple[str, ...] = ()
    autostart: bool = False
    fingerprint: str = ""

    @property
    def uses_tpm(self) -> bool:
        """Whether it has a TPM that its host emulates, whose state libvirt keeps."""
        return "tpm=emulator" in self.needs

    @property
    def ordinary_mib(self) -> int:
        """Its memory that is not in hugepages, in MiB."""
        return ordinary_mib(self.memory_mib, self.needs)


class _NoDoctype(ET.TreeBuilder):
    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:  # noqa: ARG002
        raise ValueError("it has a document type, which is not allowed")


def parse(text: str) -> ET.Element:
    """Return the root of an XML text. Raises ValueError if it is not XML, or has a document type."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("it has a document type, which is not allowed")
    try:
        return ET.fromstring(text, ET.XMLParser(target=_NoDoctype()))
    except ET.ParseError as error:
        raise ValueError(f"it is no XML: {error}") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def facts_of(text: str, here: Surroundings = NOWHERE) -> Facts:
    """Return the required facts of a domain's XML. `here`: its node. Raises ValueError if it is not a domain."""
    root = parse(text)
    meta = metadata.read(root.find(f"metadata/{metadata.TAG}"))
    nvram = nvram_of(root)
    return Facts(
        name=root.findtext("name", ""),
        uuid=root.findtext("uuid", ""),
        memory_mib=_memory_mib(root.find("memory")),
        vcpus=int(root.findtext("vcpu", "1")),
        meta=meta,
        disks=tuple(_disks(root)),
        uses_nvram=nvram is not None,
        needs=needs_of(root, meta, here),
        shares=int(root.findtext("cputune/shares", "0")),
        nvram="" if nvram is None else nvram.file,
        host_files=host_files_of(root, here),
    )


def without_meta(text: str) -> str:
    """Return a definition without our metadata, and without the `<metadata>` that then has nothing in it. Raises
    ValueError where it is no XML."""
    root = parse(text)
    holder = root.find("metadata")
    if holder is not None:
        for ours in holder.findall(metadata.TAG):
            holder.remove(ours)
        if len(holder) == 0:
            root.remove(holder)
    return text_of(root)


def problem_of(root: ET.Element, name: str, has: Iterable[str] = ()) -> str:
    """Return why an XML that another node has sent is not taken for the definition of the domain `name` ("": it is).
    Anybody may have written it, see `unfit_parts`."""
    if root.tag != "domain":
        return f"it is of {root.tag!r}, not of a domain"
    if (found := root.findtext("name", "")) != name:
        return f"it is of {found!r}"
    unfit = next(unfit_parts(root, has), "")
    return f"it has {unfit}" if unfit else ""


def has_empty_metadata(text: str) -> bool:
    """Return whether a definition has an empty `<metadata>`. Raises ValueError if it is not XML."""
    holder = parse(text).find("metadata")
    return holder is not None and len(holder) == 0


def digest(text: str) -> str:
    """Return the identity of a definition without Trimtab's metadata: 16 hexadecimal digits. Raises ValueError if it is
    not XML."""
    root = parse(without_meta(text))
    for element in root.iter():  # what is between elements is for people
        element.text, element.tail = (element.text or "").strip(), None
    return hashlib.sha256(text_of(root).encode("ascii", "xmlcharrefreplace")).hexdigest()[:16]


def fingerprint(text: str) -> str:
    """Return what changes with any change of a text, and shows nothing of it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def differ_in_controllers(one: str, other: str) -> bool:
    """Return whether two definitions differ, and in nothing but their controllers and our metadata. Raises ValueError
    where one is no XML."""

    def bare(text: str) -> str:
        root = parse(text)
        for devices in root.findall("devices"):
            for controller in devices.findall("controller"):
                devices.remove(controller)
        return digest(text_of(root))

    return digest(one) != digest(other) and bare(one) == bare(other)


def relabelled(text: str, meta: Meta) -> str:
    """Return a domain's XML with our metadata, and otherwise as it was. Raises ValueError where it is no XML."""
    root = parse(text)
    set_meta(root, meta)
    return text_of(root)


def shares_of(text: str) -> int:
    """Return the weight that a domain's XML states (0: none). Raises ValueError where it is no XML."""
    return int(parse(text).findtext("cputune/shares") or 0)


def end_actions_of(text: str) -> dict[LifecycleEvent, LifecycleAction]:
    """Return what libvirt does when the guest shuts down and when it crashes. Raises ValueError where it is no XML, or
    names an action that libvirt does not have."""
    root = parse(text)
    stated = {event: root.findtext(tag) for event, tag in _END_TAGS.items()}
    return {event: LifecycleAction(text or LifecycleAction.DESTROY) for event, text in stated.items()}


def text_of(root: ET.Element) -> str:
    """Return the XML of an element. Raises ValueError where it is nested too deeply to be written."""
    try:
        return ET.tostring(root, encoding="unicode")
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def set_identity(root: ET.Element, name: str, memory_mib: int, vcpus: int) -> None:
    """Name and size of a new domain; libvirt gives it a UUID."""
    for tag in ("uuid", "currentMemory", "maxMemory"):
        _drop(root, tag)
    _set(root, "name", name)
    memory = _set(root, "memory", str(memory_mib))
    memory.attrib.clear()
    memory.set("unit", "MiB")
    vcpu = _set(root, "vcpu", str(vcpus))
    vcpu.attrib.pop("current", None)


def set_meta(root: ET.Element, meta: Meta) -> None:
    """Our metadata, in place of what was there of it."""
    holder = root.find("metadata")
    if holder is None:
        holder = ET.SubElement(root, "metadata")
    for old in holder.findall(metadata.TAG):
        holder.remove(old)
    holder.append(metadata.element_of(meta))


def set_shares(root: ET.Element, shares: int) -> ET.Element:
    """Weight; all else of `cputune` stays. Return that element."""
    holder = root.find("cputune")
    if holder is None:
        holder = ET.SubElement(root, "cputune")
    _set(holder, "shares", str(shares))
    return holder


def set_tuning(root: ET.Element, tuning: Tuning) -> None:
    """Weight and quota; all else of `cputune` stays."""
    holder = set_shares(root, tuning.shares)
    _set(holder, "period", str(tuning.period_us))
    _set(holder, "quota", str(tuning.quota_us))


def set_partition(root: ET.Element, partition: str) -> None:
    """Set the cgroup partition ("": libvirt's own)."""
    holder = root.find("resource")
    if holder is not None:
        _drop(holder, "partition")
    if partition:
        if holder is None:
            holder = ET.SubElement(root, "resource")
        _set(holder, "partition", partition)
    elif holder is not None and len(holder) == 0:
        root.remove(holder)


def set_disk_format(root: ET.Element, path: str, kind: str) -> None:
    """Set the format of the disks that lie at `path`."""
    for disk in root.findall("devices/disk"):
        source = disk.find("source")
        if source is not None and path in (source.get("file"), source.get("dev")):
            driver = disk.find("driver")
            if driver is None:
                driver = ET.Element("driver", name="qemu")
                disk.insert(0, driver)
            driver.set("type", kind)


def move_disk(root: ET.Element, old: str, new: str) -> None:
    """Disks that lie at `old` lie at `new`; what they are overlays of is for libvirt to find there."""
    for disk in root.findall("devices/disk"):
        source = disk.find("source")
        key = next((key for key in ("file", "dev") if source is not None and source.get(key) == old), "")
        if source is not None and key:
            source.set(key, new)
            _drop(disk, "backingStore")
            _drop(disk, "mirror")


def is_there(root: ET.Element, path: str) -> bool:
    """Return whether a text or attribute of an element below `root` contains `path`."""
    return any(path in (e.text or "") or any(path in value for value in e.attrib.values()) for e in root.iter())


def _disks(root: ET.Element) -> Iterator[Disk]:
    for disk in written_disks(root):
        source, target = disk.find("source"), disk.find("target")
        if source is not None and target is not None:
            yield Disk(source.get("file") or source.get("dev") or "", target.get("dev", ""))


def _memory_mib(element: ET.Element | None) -> int:
    """Return MiB, rounded up: what is counted must not be less than what is taken."""
    return -(-memory_bytes(element) >> 20)


def _set(parent: ET.Element, tag: str, text: str) -> ET.Element:
    element = parent.find(tag)
    if element is None:
        element = ET.SubElement(parent, tag)
    element.text = text
    return element


def _drop(parent: ET.Element, tag: str) -> None:
    for element in parent.findall(tag):
        parent.remove(element)
