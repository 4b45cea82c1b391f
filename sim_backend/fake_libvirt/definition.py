"""What a domain is defined as: its XML, as libvirt reads it and gives it out again."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from uuid import UUID
from xml.etree import ElementTree as ET

from sim_backend.fake_libvirt.codes import METADATA_ELEMENT, Err, From, fail

UNITS_KIB = {"KiB": 1, "k": 1, "MiB": 1 << 10, "M": 1 << 10, "GiB": 1 << 20, "G": 1 << 20}
SHARES = range(2, 262_145)


@dataclass(slots=True, eq=False)
class Definition:
    """A domain's XML with what matters of it read out."""

    name: str
    uuid: str
    memory_kib: int
    vcpus: int
    disks: tuple[str, ...]
    tree: ET.Element

    def copy(self) -> Definition:
        """Return an independent copy."""
        return Definition(self.name, self.uuid, self.memory_kib, self.vcpus, self.disks, copy.deepcopy(self.tree))

    def text(self, number: int = -1, secrets: bool = True) -> str:
        """Return the XML, with or without passwords. `number` is the domain's id while it is active."""
        tree = copy.deepcopy(self.tree)
        for display in () if secrets else tree.findall("devices/graphics"):
            display.attrib.pop("passwd", None)
            display.attrib.pop("passwdValidTo", None)
        if number >= 0:
            tree.set("id", str(number))
        return _text(tree)

    @property
    def nvram(self) -> str:
        """Return the file of the firmware's variables ("": none)."""
        return (self.tree.findtext("os/nvram") or "").strip()

    @property
    def has_tpm(self) -> bool:
        """Whether the host emulates a TPM for it."""
        return self.tree.find("devices/tpm/backend[@type='emulator']") is not None

    def move_disk(self, old: str, new: str) -> None:
        """Have a disk's data in another file from now on."""
        for source in self.tree.findall("devices/disk/source"):
            if source.get("file") == old:
                source.set("file", new)
        self.disks = tuple(new if path == old else path for path in self.disks)

    def tune(self, key: str) -> int | None:
        """Return one value of <cputune>: "shares", "quota" or "period"."""
        text = self.tree.findtext(f"cputune/{key}")
        return None if text is None else int(text)

    def set_tune(self, key: str, value: int) -> None:
        """Set one of <cputune>."""
        tune = self.tree.find("cputune")
        if tune is None:
            tune = ET.SubElement(self.tree, "cputune")
        found = tune.find(key)
        if found is None:
            found = ET.SubElement(tune, key)
        found.text = str(value)

    def end_action(self, event: str) -> str:
        """Return what follows an event: "poweroff" or "crash"."""
        return self.tree.findtext(f"on_{event}") or "destroy"

    @property
    def may_reboot(self) -> bool:
        """Whether libvirt starts QEMU so that a guest may be restarted."""
        reboot = self.tree.findtext("on_reboot") or "restart"
        return {reboot, self.end_action("poweroff"), self.end_action("crash")} != {"destroy"}

    def set_end_action(self, event: str, action: str) -> None:
        """Set what follows an event."""
        found = self.tree.find(f"on_{event}")
        if found is None:
            found = ET.SubElement(self.tree, f"on_{event}")
        found.text = action

    def metadata(self, uri: str) -> str | None:
        """Return the metadata element of a namespace, without its prefix, as libvirt does; None when there is none."""
        found = self._metadata(uri)
        if found is None:
            return None
        bare = copy.deepcopy(found)
        for part in bare.iter():
            part.tag = part.tag.rpartition("}")[2]
        bare.tail = None
        return _text(bare)

    def set_metadata(self, element: str | None, key: str | None, uri: str | None) -> None:
        """Replace the element of a namespace; None removes it."""
        old = self._metadata(uri or "")
        holder = self.tree.find("metadata")
        if old is not None and holder is not None:
            holder.remove(old)
        if element is None:
            return
        new = read_metadata(element, key or "")
        new.tag = f"{{{uri}}}{new.tag.rpartition('}')[2]}"
        if holder is None:
            holder = ET.SubElement(self.tree, "metadata")
        holder.append(new)

    def _metadata(self, uri: str) -> ET.Element | None:
        for part in self.tree.find("metadata") or ():
            if part.tag.startswith(f"{{{uri}}}"):
                return part
        return None


def read_metadata(element: str, key: str) -> ET.Element:
    """Parse an element of <metadata>. libvirt declares the namespace itself and fails where that is already done."""
    try:
        tree = ET.fromstring(element)
    except ET.ParseError as problem:
        fail(Err.XML_DETAIL, From.DOMAIN, f"(metadata_xml):1: {problem}")
    if re.match(rf"\s*<[^>]*\sxmlns:{re.escape(key)}\s*=", element):
        fail(Err.INTERNAL_ERROR, From.XML, "failed to create a new XML namespace")
    return tree


def check_metadata(kind: int, element: str | None, key: str | None, uri: str | None) -> None:
    """Raise for what setMetadata does not take."""
    if kind != METADATA_ELEMENT:
        fail(Err.INVALID_ARG, From.DOMAIN, f"invalid argument: unknown metadata type '{kind}'")
    if uri is None or (element is not None and key is None):
        what = "uri" if uri is None else "key"
        fail(Err.INVALID_ARG, From.DOMAIN, f"{what} in virDomainSetMetadata must not be NULL")
    if element is not None:
        read_metadata(element, key or "")


def parse(xml: str, new_uuid: UUID) -> Definition:
    """Read a domain's XML; it gets `new_uuid` where it names none. Raises libvirtError."""
    try:
        tree = ET.fromstring(xml)
    except ET.ParseError as problem:
        fail(Err.XML_DETAIL, From.DOMAIN, f"(domain_definition):1: {problem}")
    if tree.tag != "domain":
        fail(Err.XML_ERROR, From.XML, f"expecting root element of 'domain', not '{tree.tag}'")
    if not tree.get("type"):
        fail(Err.XML_ERROR, From.DOMAIN, "Missing required attribute 'type' in element 'domain'")
    name = tree.findtext("name")
    if not name:
        fail(Err.NO_NAME, From.DOMAIN, "missing name information")
    if "/" in name:
        fail(Err.XML_ERROR, From.DOMAIN, f"name {name} cannot contain '/'")
    tree.attrib.pop("id", None)
    uuid = _uuid(tree, new_uuid)
    memory_kib = _memory_kib(tree)
    disks = tuple(
        source.get("file", "")
        for source in tree.findall("devices/disk[@device='disk']/source")
        if source.get("file") is not None
    )
    return Definition(name, uuid, memory_kib, int(tree.findtext("vcpu") or 1), disks, tree)


def _uuid(tree: ET.Element, new_uuid: UUID) -> str:
    found = tree.find("uuid")
    if found is None:
        found = ET.Element("uuid")
        found.text = str(new_uuid)
        tree.insert(1, found)
    try:
        found.text = str(UUID(found.text or ""))
    except ValueError:
        fail(Err.INTERNAL_ERROR, From.DOMAIN, "malformed uuid element")
    return found.text


def _memory_kib(tree: ET.Element) -> int:
    found = tree.find("memory")
    text = (found.text if found is not None else None) or ""
    if found is None or not text.strip().isdigit() or int(text) <= 0:
        fail(Err.XML_ERROR, From.DOMAIN, "missing or malformed memory element")
    unit = found.get("unit", "KiB")
    if unit not in UNITS_KIB:
        fail(Err.INVALID_ARG, From.NONE, f"invalid argument: unknown suffix '{unit}'")
    kib = int(text) * UNITS_KIB[unit]
    found.text = str(kib)
    found.set("unit", "KiB")
    current = tree.find("currentMemory")
    if current is None:
        current = ET.Element("currentMemory", {"unit": "KiB"})
        tree.insert(list(tree).index(found) + 1, current)
    current.text, current.attrib = str(kib), {"unit": "KiB"}
    return kib


def _text(tree: ET.Element) -> str:
    return ET.tostring(tree, encoding="unicode")
