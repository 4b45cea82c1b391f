"""What a definition that another node has sent must not have: it could have this host read, write or remove any file,
or run any program. Whoever has such a definition reports it as something that no other host takes.

Sources: https://libvirt.org/formatdomain.html, and what libvirt does as root: it gives the files of character devices
to QEMU's user, writes their logs, makes their sockets anew, and runs the scripts of network interfaces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from shared.values.migration import leads_up

CHARACTER_DEVICES = ("serial", "parallel", "console", "channel", "redirdev", "smartcard", "rng/backend")
WRITES_FILES = frozenset({"file", "pipe"})
OWN_LABELS = frozenset({"static", "none"})
NESTING_MAX = 256  # what a disk is an overlay of is a level each, and libvirt takes about 200
LOG_FOLDER = "/var/log/libvirt/"
SOCKET_FOLDERS = ("/var/lib/libvirt/qemu/", "/run/libvirt/qemu/", "/var/run/libvirt/qemu/")  # libvirt's own
TEMPLATE_FOLDERS = ("/usr/", "/nix/", "/run/libvirt/")  # of firmware, as distributions install it
FOR_PEOPLE = frozenset({"metadata", "title", "description"})


def unfit_parts(root: ET.Element, has: Iterable[str] = ()) -> Iterator[str]:
    """Yield what of a domain's definition no other host takes, each so that "it has" can precede it. `has`: the node's
    features (`shared.values.migration`); below its shared folders and `LOG_FOLDER` a device may write."""
    folders = (LOG_FOLDER, *(f"{text.partition('=')[2].rstrip('/')}/" for text in has if text.startswith("shared=/")))
    if _is_deep(root):
        yield f"elements nested more than {NESTING_MAX} deep"
    left = deque(part for part in root if part.tag not in FOR_PEOPLE)
    while left:
        element = left.popleft()
        if element.tag.startswith("{"):  # QEMU's own arguments
            yield f"an element of another namespace: {element.tag}"
        else:
            yield from _ways_up(element)
            left.extend(element)
    yield from _character_devices(root, folders)
    for script in ("script", "downscript"):
        for element in root.findall(f"devices/interface/{script}"):
            yield f"a script of a network interface: {element.get('path', '')}"
    if root.find("devices/interface/backend[@logFile]") is not None:
        yield "a log file of a network interface"
    if root.find("devices/audio[@type='file']") is not None:
        yield "a sound device that writes a file"
    for label in root.findall("seclabel"):
        kind = "none" if label.get("model") == "none" else label.get("type", "")
        if kind in OWN_LABELS or label.find("baselabel") is not None:
            yield f"a security label of its own, of type {kind}"
    nvram = root.find("os/nvram")
    template = "" if nvram is None else nvram.get("template", "")
    if template and not template.startswith(TEMPLATE_FOLDERS):
        yield f"a template of firmware variables at {template}"


def _character_devices(root: ET.Element, folders: tuple[str, ...]) -> Iterator[str]:
    for tag in CHARACTER_DEVICES:
        for device in root.findall(f"devices/{tag}"):
            name = tag.partition("/")[0]
            source = device.find("source")
            if device.get("type") in WRITES_FILES and not _is_in(source, "path", folders):
                yield f"a {name} device of type {device.get('type')}"
            log = device.find("log")
            if log is not None and not _is_in(log, "file", folders):
                yield f"a log file of a {name} device"
            for source in device.findall("source[@mode='bind']"):
                path = source.get("path", "")
                if path and not path.startswith(SOCKET_FOLDERS):
                    yield f"a socket of a {name} device at {path}"


def _is_in(element: ET.Element | None, key: str, folders: tuple[str, ...]) -> bool:
    path = "" if element is None else element.get(key, "")
    return path.startswith(folders) and not leads_up(path)


def _ways_up(element: ET.Element) -> Iterator[str]:
    """Yield the paths of an element that do not lead where they seem to."""
    for text in (element.text or "", *element.attrib.values()):
        path = text.strip()
        if path.startswith("/") and leads_up(path):
            yield f'a path with "..": {path}'


def _is_deep(root: ET.Element) -> bool:
    level = [root]
    for _ in range(NESTING_MAX):
        level = [child for element in level for child in element]
    return bool(level)
