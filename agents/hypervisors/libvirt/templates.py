"""Templates: domain XML whose texts and attributes have places that are filled in for each VM."""

from __future__ import annotations

import copy
import ipaddress
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from agents.hypervisors.libvirt import domain_xml
from shared.base.addresses import is_address
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.base.read_file import opened
from shared.config.agent import LibvirtTemplate
from shared.values.jobs import workload_of
from shared.values.scalars import check_name
from shared.values.vms import VmSpec

FILE_CHARS_MAX = 1 << 20
TO_WRITE = 0o022  # by its group or by others
NAMES = ("vm", "workload", "instance", "memory_mib", "vcpus", "volume", "address", "node", "environment")
VOLUME = "{volume}"
ENVIRONMENT = "environment"
_PLACE = re.compile(r"\{([a-z][a-z_]*(?:\.[0-9]{1,3})?)\}")
_ARGUMENT = re.compile(r"argument\.(0|[1-9][0-9]{0,2})")
_NO_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
_NAME = re.compile(r"[^/\0\n\r\t]{1,200}")


@dataclass(frozen=True, slots=True)
class Template:
    """A template that can be used. `root` is never changed."""

    name: str
    keys: LibvirtTemplate
    root: ET.Element

    def address_of(self, vm: str) -> str:
        """Return the address at which the guest of a VM will answer: the first address plus the number of its instance
        ("": none)."""
        if not self.keys.first_address:
            return ""
        try:
            return str(ipaddress.ip_address(self.keys.first_address) + _parts(vm)[1])
        except ValueError:  # past the last address there is
            raise InvalidValue("vm", vm, f"an instance that has an address from {self.keys.first_address} on") from None


def read_all(templates: Mapping[str, LibvirtTemplate]) -> dict[str, Template]:
    """Read the templates of a configuration. Raises InvalidInput with everything that is wrong with their files."""
    found: dict[str, Template] = {}
    problems: list[Problem] = []
    for name, keys in templates.items():
        try:
            text, mode = _text(keys.file)
            if mode & TO_WRITE:
                what = f"{keys.file} can be changed by others (mode {mode:04o}), and libvirt does what it says as root"
                problems.append(Problem(f"libvirt.templates.{name}.file", what, f"chmod go-w {keys.file}"))
            root = domain_xml.parse(text)
        except (InvalidInput, ValueError) as error:
            why = error.problems[0].what if isinstance(error, InvalidInput) else str(error)
            problems.append(
                Problem(f"libvirt.templates.{name}.file", f"{keys.file} cannot be used: {why}", "domain XML")
            )
            continue
        problems += [Problem(keys.file, what, expected) for what, expected in _wrong(root, keys)]
        if not is_address(keys.first_address or "::"):
            where = f"libvirt.templates.{name}.first_address"
            problems.append(Problem(where, f"is {keys.first_address!r}", "an IP address, or nothing"))
        found[name] = Template(name, keys, root)
    if problems:
        raise InvalidInput(*problems)
    return found


def template_of(spec: VmSpec, templates: Mapping[str, Template]) -> Template:
    """Return the template that a VM is made from. Raises InvalidValue if there is none of that name."""
    found = templates.get(spec.template)
    if found is None:
        there = ", ".join(sorted(templates)) or "none is configured on this node"
        raise InvalidValue("template", spec.template, f"a template of this node: {there}")
    return found


def check(template: Template, spec: VmSpec) -> None:
    """Raise InvalidValue where the template cannot be filled in for a VM."""
    if not _NAME.fullmatch(spec.vm) or _NO_XML.search(spec.vm):
        raise InvalidValue("vm", spec.vm[:60], "1 to 200 characters that a file's name can have")
    template.address_of(spec.vm)
    if ENVIRONMENT in _places(template.root):
        check_environment(spec)
    for at, argument in enumerate(spec.arguments):
        if _NO_XML.search(argument):
            raise InvalidValue(f"argument.{at}", argument[:60], "characters that XML can have")
    needed = [int(name.partition(".")[2]) for name in _places(template.root) if _ARGUMENT.fullmatch(name)]
    if needed and max(needed) >= len(spec.arguments):
        raise InvalidValue(
            "arguments", len(spec.arguments), f"{max(needed) + 1} of them for template {template.name!r}"
        )


def check_environment(spec: VmSpec) -> None:
    """Raise InvalidValue for a VM of no environment, or of one whose name could lead to another folder."""
    if not spec.environment:
        raise InvalidValue(ENVIRONMENT, "", f"an environment, for template {spec.template!r}")
    check_name(ENVIRONMENT, spec.environment)


def filled(template: Template, spec: VmSpec, node: str, volume: str) -> ET.Element:
    """Return the domain of a VM, filled in after parsing: no text from a user can become an element."""
    workload, instance = _parts(spec.vm)
    values = {
        "vm": spec.vm,
        "workload": workload,
        "instance": str(instance),
        "memory_mib": str(spec.memory_mib),
        "vcpus": str(spec.vcpus),
        "volume": volume,
        "address": template.address_of(spec.vm),
        "node": node,
        ENVIRONMENT: spec.environment,
    }
    values |= {f"argument.{at}": argument for at, argument in enumerate(spec.arguments)}
    root = copy.deepcopy(template.root)
    _replace(root, lambda found: values[found[1]])
    domain_xml.set_identity(root, spec.vm, spec.memory_mib, spec.vcpus)
    return root


def _text(file: str) -> tuple[str, int]:
    """Return the text of a file, and its mode."""
    with opened(Path(file), "domain XML") as source:
        mode, content = stat.S_IMODE(os.fstat(source.fileno()).st_mode), source.read(FILE_CHARS_MAX + 1)
    if len(content) > FILE_CHARS_MAX:
        raise ValueError(f"it is larger than {FILE_CHARS_MAX} bytes")
    return content.decode("utf-8"), mode


def _wrong(root: ET.Element, keys: LibvirtTemplate) -> list[tuple[str, str]]:
    """Return each problem with the expected form."""
    if root.tag != "domain":
        return [(f"begins with <{root.tag}>", "<domain>")]
    found: list[tuple[str, str]] = []
    if root.get("type") is None:
        found.append(("<domain> has no type", "such as type='kvm'"))
    for name in _places(root):
        if name not in NAMES and not _ARGUMENT.fullmatch(name):
            found.append((f"has {{{name}}}", "one of " + ", ".join((*NAMES, "argument.0 ..."))))
    uses = domain_xml.is_there(root, VOLUME)
    if uses != bool(keys.volume):
        said = "has {volume}, and no base volume is configured" if uses else f"has no place for {keys.volume}"
        found.append((said, "a key `volume` and a disk whose source is {volume}, or neither"))
    if "address" in _places(root) and not keys.first_address:
        found.append(("has {address}", "a key `first_address`"))
    return found


def _places(root: ET.Element) -> list[str]:
    found: dict[str, None] = {}

    def note(place: re.Match[str]) -> str:
        found[place[1]] = None
        return place[0]

    _replace(root, note)
    return list(found)


def _replace(root: ET.Element, value: Callable[[re.Match[str]], str]) -> None:
    for element in root.iter():
        if element.text:
            element.text = _PLACE.sub(value, element.text)
        if element.tail:
            element.tail = _PLACE.sub(value, element.tail)
        for key, text in element.attrib.items():
            element.set(key, _PLACE.sub(value, text))


def _parts(vm: str) -> tuple[str, int]:
    try:
        return workload_of(vm)
    except InvalidValue:  # an instance of a web application may have any name
        return vm, 0
