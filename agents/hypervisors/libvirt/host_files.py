"""What of a domain lies on its host alone, so that it cannot be started anew elsewhere, read from its XML: texts of
`shared.values.failover`. What the XML does not show, snapshots and checkpoints, is not here.

Sources: libvirt's qemuDomainNVRAMPathGenerate and qemuFirmwareFillDomain, and https://libvirt.org/formatdomain.html.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from agents.hypervisors.libvirt.migration_needs import (
    NVRAM_FOLDER,
    Surroundings,
    is_nvram_local,
    nvram_of,
    written_disks,
)
from shared.values.failover import host_file


def host_files_of(root: ET.Element, here: Surroundings) -> tuple[str, ...]:
    """Return what of a domain lies on this host alone, sorted. `here`: its node. A password is in the XML only where
    libvirt was asked for secrets."""
    return tuple(sorted({text for read in _READERS for text in read(root, here)}))


def _disks(root: ET.Element, here: Surroundings) -> Iterator[str]:
    """Yield the disks that are written to, what they are overlays of, and where these keep their data if not in
    themselves. A host reaches others over the network."""
    for disk in written_disks(root):
        within = (*disk.findall(".//backingStore/source"), *disk.findall(".//dataStore/source"))
        for source in (*disk.findall("source"), *within):
            pool, path = source.get("pool"), source.get("file") or source.get("dev") or source.get("dir")
            if pool and here.is_local_pool(pool):
                yield host_file("disk", f"{pool}/{source.get('volume', '')}")
            elif path and here.is_local(path):
                yield host_file("disk", path)


def _firmware_variables(root: ET.Element, here: Surroundings) -> Iterator[str]:
    nvram = nvram_of(root)
    if nvram is None:
        if _gets_variables(root):
            yield host_file("nvram", NVRAM_FOLDER)
    elif nvram.network is None:
        path = nvram.file or nvram.device
        if not path:
            yield host_file("nvram", NVRAM_FOLDER)
        elif is_nvram_local(path, here):
            yield host_file("nvram", path)


def _gets_variables(root: ET.Element) -> bool:
    """Return whether libvirt makes a file for the firmware's variables, in its default folder, although the definition
    names none."""
    os, loader = root.find("os"), root.find("os/loader")
    if os is None or (loader is not None and loader.get("stateless") == "yes"):
        return False
    flash = loader is not None and loader.get("type") == "pflash" and loader.get("readonly") == "yes"
    return flash or os.get("firmware") == "efi"


def _tpm(root: ET.Element, _here: Surroundings) -> Iterator[str]:
    if root.find("devices/tpm/backend[@type='emulator']") is not None:
        yield host_file("tpm")


def _password(root: ET.Element, _here: Surroundings) -> Iterator[str]:
    if root.find("devices/graphics[@passwd]") is not None:
        yield host_file("password")


_READERS = (_disks, _firmware_variables, _tpm, _password)
