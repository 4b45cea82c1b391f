"""The guests of the lab and the domain XML that libvirt starts them from.

`burner` does CPU work and ends, `laden` is one with memory that takes long to move, `reader` reads from its host's disk
and ends, `web` serves HTTP. What each prints on its serial port is appended to one file per VM in a folder that all
hosts share, so that it is whole however often the VM was saved, restored and moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from tests.lab.guest_linux import WebFiles, web_guest
from tests.lab.guest_output import Output, output, requests_served, units_done
from tests.lab.guest_sectors import burner, reader, turns_per_cpu_s, turns_per_read, writer

__all__ = [
    "Kind",
    "Output",
    "Places",
    "WebFiles",
    "burner",
    "domain_xml",
    "output",
    "reader",
    "requests_served",
    "serial_file",
    "templates",
    "turns_per_cpu_s",
    "turns_per_read",
    "units_done",
    "web_guest",
    "writer",
]

TEMPLATES = Path(__file__).with_name("templates")


class Kind(StrEnum):
    """The kinds of guests, which are also the names of their templates."""

    BURNER = "burner"
    LADEN = "laden"
    READER = "reader"
    WEB = "web"


@dataclass(frozen=True, slots=True)
class Places:
    """What the templates of a lab have in common. `serial`: the folder that all hosts share, for what guests print.
    `disk_format`: of the volumes of burner and reader (qcow2 where they are overlays). `disk`: the socket, on each
    host, of the disk that its readers share. `web`, `bridge`, `prefix`, `gateway`: of web guests and their network.
    `cpus`: those of the machine's CPUs that guests run on, as libvirt writes them ("": all)."""

    serial: Path
    disk_format: str = "raw"
    disk: Path = Path("/run/trimtab-disk")
    ballast: Path | None = None
    web: WebFiles | None = None
    bridge: str = "br0"
    prefix: int = 24
    gateway: str = ""
    cpus: str = ""

    def values(self) -> dict[str, str]:
        """What stands in the templates for them."""
        files = {} if self.web is None else {"lab.kernel": str(self.web.kernel), "lab.initrd": str(self.web.initrd)}
        if self.ballast is not None:
            files["lab.ballast"] = str(self.ballast)
        volumes = {"lab.serial": str(self.serial), "lab.format": self.disk_format, "lab.disk": str(self.disk)}
        network = {"lab.bridge": self.bridge, "lab.prefix": str(self.prefix), "lab.gateway": self.gateway}
        return {**volumes, **network, **files}


def templates(folder: Path, places: Places) -> dict[Kind, Path]:
    """Write the domain XML of the kinds of guests that `places` has the files for, as a driver's templates: what
    differs between VMs is still to be filled in."""
    lacking = {Kind.WEB: places.web is None, Kind.LADEN: places.ballast is None}
    made = {kind: folder / f"{kind}.xml" for kind in Kind if not lacking.get(kind)}
    for kind, file in made.items():
        file.write_text(domain_xml(TEMPLATES / f"{kind}.xml", places.values(), places.cpus))
    return made


def domain_xml(template: Path, values: Mapping[str, str], cpus: str = "") -> str:
    """A template with each {name} of its texts and attributes filled in that `values` has. `cpus`: as of `Places`."""
    root = ElementTree.parse(template).getroot()
    vcpu = root.find("vcpu")
    if cpus and vcpu is not None:
        vcpu.set("cpuset", cpus)
    for element in root.iter():
        element.text = _filled(element.text, values)
        for name, value in element.attrib.items():
            element.attrib[name] = _filled(value, values) or ""
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _filled(text: str | None, values: Mapping[str, str]) -> str | None:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value) if text else text
    return text


def serial_file(places: Places, vm: str) -> Path:
    """Where what a VM prints is found."""
    return places.serial / f"{vm}.log"
