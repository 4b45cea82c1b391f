"""What no host takes of a definition from another one, and what it takes all the same."""

from __future__ import annotations

import pytest

from agents.hypervisors.libvirt.domain_xml import parse, problem_of
from agents.hypervisors.libvirt.unfit_parts import NESTING_MAX, unfit_parts
from tests.support.domain_shapes import FRAGMENTS, Fragment, domain

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
CHANNEL = "<channel type='unix'>{}<target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
UNFIT = {
    "arguments": (
        f"<q:commandline xmlns:q='{QEMU}'/>",
        f"an element of another namespace: {{{QEMU}}}commandline",
    ),
    "override": (f"<q:override xmlns:q='{QEMU}'/>", f"an element of another namespace: {{{QEMU}}}override"),
    "serial": ("<serial type='file'><source path='/x'/></serial>", "a serial device of type file"),
    "console": ("<console type='pipe'><source path='/x'/></console>", "a console device of type pipe"),
    "redirected": ("<redirdev bus='usb' type='file'/>", "a redirdev device of type file"),
    "log": ("<console type='pty'><log file='/x'/></console>", "a log file of a console device"),
    "socket": (CHANNEL.format("<source mode='bind' path='/x'/>"), "a socket of a channel device at /x"),
    "entropy": (
        "<rng model='virtio'><backend model='egd' type='unix'><source mode='bind' path='/x'/></backend></rng>",
        "a socket of a rng device at /x",
    ),
    "script": ("<interface type='ethernet'><script path='/x'/></interface>", "a script of a network interface: /x"),
    "down": ("<interface type='ethernet'><downscript path='/x'/></interface>", "a script of a network interface: /x"),
    "passt": (
        "<interface type='user'><backend type='passt' logFile='/x'/></interface>",
        "a log file of a network interface",
    ),
    "sound": ("<audio id='1' type='file' path='/x'/>", "a sound device that writes a file"),
    "way-up": (
        "<disk type='file'><source file='/shared/../x'/></disk>",
        'a path with "..": /shared/../x',
    ),
}
OUTSIDE = {
    "static": ("<seclabel type='static'><label>x</label></seclabel>", "a security label of its own, of type static"),
    "model": ("<seclabel model='none'/>", "a security label of its own, of type none"),
    "none": ("<seclabel type='none'/>", "a security label of its own, of type none"),
    "base": (
        "<seclabel type='dynamic'><baselabel>x</baselabel></seclabel>",
        "a security label of its own, of type dynamic",
    ),
    "template": (
        "<os><nvram template='/etc/shadow'>/shared/x.fd</nvram></os>",
        "a template of firmware variables at /etc/shadow",
    ),
    "text": ("<os><kernel>/shared/../x</kernel></os>", 'a path with "..": /shared/../x'),
}
FIT = [
    CHANNEL.format(""),
    CHANNEL.format(
        "<source mode='bind' path='/var/lib/libvirt/qemu/channel/target/domain-1-x/org.qemu.guest_agent.0'/>"
    ),
    CHANNEL.format("<source mode='bind' path='/run/libvirt/qemu/channel/1-x/org.qemu.guest_agent.0'/>"),
    CHANNEL.format("<source mode='connect' path='/run/somewhere'/>"),
    "<serial type='pty'><target port='0'/></serial>",
    "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>",
    "<disk type='file'><source file='/shared/a..b/..c'/></disk>",
]
FIT_OUTSIDE = [
    "<seclabel type='dynamic' model='apparmor' relabel='yes'><label>x</label></seclabel>",
    "<os><nvram template='/usr/share/OVMF/OVMF_VARS.fd'>/shared/x.fd</nvram></os>",
    "<description>see /a/../b</description><metadata><x xmlns='owner'><y>/a/../b</y></x></metadata>",
]


def read(devices: str = "", outside: str = "") -> list[str]:
    return list(unfit_parts(parse(f"<domain><name>d</name>{outside}<devices>{devices}</devices></domain>")))


@pytest.mark.parametrize("name", UNFIT)
def test_devices_by_which_a_host_would_do_anything(name: str) -> None:
    xml, said = UNFIT[name]
    assert read(xml) == [said]


@pytest.mark.parametrize("name", OUTSIDE)
def test_settings_by_which_a_host_would_do_anything(name: str) -> None:
    xml, said = OUTSIDE[name]
    assert read(outside=xml) == [said]


@pytest.mark.parametrize("xml", FIT)
def test_devices_that_many_have_are_taken(xml: str) -> None:
    assert read(xml) == []


@pytest.mark.parametrize("xml", FIT_OUTSIDE)
def test_settings_that_many_have_are_taken(xml: str) -> None:
    assert read(outside=xml) == []


@pytest.mark.parametrize("part", FRAGMENTS, ids=lambda part: part.name)
def test_what_operators_define_is_taken(part: Fragment) -> None:
    assert list(unfit_parts(parse(domain("d", [part])))) == []


def nested(depth: int) -> str:
    """A disk with as many overlays."""
    return f"<disk><source/>{'<backingStore>' * depth}{'</backingStore>' * depth}</disk>"


def test_a_long_chain_of_overlays_is_taken_and_an_endless_one_is_not() -> None:
    assert read(nested(200)) == []
    assert read(nested(NESTING_MAX)) == [f"elements nested more than {NESTING_MAX} deep"]


def test_who_is_sent_one_says_the_first_reason() -> None:
    xml = f"<domain><name>d</name><devices>{UNFIT['log'][0]}{UNFIT['script'][0]}</devices></domain>"
    assert problem_of(parse(xml), "d") == "it has a log file of a console device"


@pytest.mark.parametrize(
    ("part", "is_fit"),
    [
        ("<serial type='file'><source path='/mnt/logs/db.log'/></serial>", True),
        ("<console type='pty'><log file='/var/log/libvirt/qemu/db.log'/></console>", True),
        ("<serial type='file'><source path='/mnt/logs/../db.log'/></serial>", False),
        ("<serial type='file'><source path='/mnt/logsome/db.log'/></serial>", False),
        ("<serial type='file'/>", False),
    ],
)
def test_a_device_may_write_where_all_hosts_do(part: str, is_fit: bool) -> None:
    root = parse(f"<domain><name>x</name><devices>{part}</devices></domain>")
    assert (problem_of(root, "x", ("shared=/mnt/logs", "bridge=br0")) == "") is is_fit
