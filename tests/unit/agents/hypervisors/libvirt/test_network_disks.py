"""Network disks: where they are, in words, and whether servers of the configuration answer."""

from __future__ import annotations

import socket
from xml.etree import ElementTree as ET

import pytest

from agents.hypervisors.libvirt.machine import LocalMachine, NoMachine
from agents.hypervisors.libvirt.network_disks import ConfiguredStorage, source_of
from sim_backend.fake_libvirt.hardware import Hardware
from tests.support.host_shapes import FakeMachine
from tests.support.tcp_server import LOOPBACK, server


@pytest.mark.parametrize(
    ("protocol", "hosts", "source"),
    [
        ("rbd", "<host name='mon2' port='6789'/><host name='MON1'/>", "rbd:x@mon1,mon2"),
        ("rbd", "<host name='mon1'/><host name='mon2'/>", "rbd:x@mon1,mon2"),
        ("rbd", "<host name='mon1' port='3300'/>", "rbd:x@mon1:3300"),
        ("rbd", "<host name='fd00::1'/>", "rbd:x@[fd00::1]"),
        ("rbd", "", "rbd:x"),
        ("iscsi", "<host name='s1' port='3260'/>", "iscsi:x@s1"),
        ("gluster", "<host transport='unix' socket='/run/g'/>", "gluster:x@/run/g"),
        ("nbd", "<host name='s1'/>", "nbd:s1:10809"),
        ("nbd", "<host name='fd00::1' port='1'/>", "nbd:[fd00::1]:1"),
        ("nbd", "<host transport='unix' socket='/run/n'/>", "nbd:/run/n"),
        ("https", "<host name='s1'/>", "https:s1:443"),
        ("later", "<host name='s1'/>", "later:s1"),
        ("later", "", "later:x"),
    ],
)
def test_where_a_network_disk_is(protocol: str, hosts: str, source: str) -> None:
    assert source_of(protocol, "x", ET.fromstring(f"<source>{hosts}</source>").findall("host")) == source


def storage(*places: str) -> tuple[ConfiguredStorage, set[tuple[str, int]]]:
    servers: set[tuple[str, int]] = set()
    return ConfiguredStorage(places, FakeMachine(Hardware(), servers)), servers


def test_what_names_no_server_is_there_since_the_operator_says_so() -> None:
    places = ("/mnt/images", "rbd:vms", "nbd:store1", "nbd:fd00::1", "iscsi:iqn.2013-07.com.example:1", "/mnt/a:1")
    found, _ = storage(*places)

    assert (found.is_tried, found.look(), found.there) == (False, False, places)


@pytest.mark.parametrize(
    ("place", "server", "source"),
    [
        ("nbd:store1:10809", ("store1", 10_809), "nbd:store1:10809"),
        ("nbd:[fd00::1]:10809", ("fd00::1", 10_809), "nbd:[fd00::1]:10809"),
        ("rbd:vms@mon2,mon1:6789", ("mon1", 6_789), "rbd:vms@mon1,mon2"),
        ("rbd:vms@mon2,mon1:3300", ("mon1", 3_300), "rbd:vms@mon1:3300,mon2"),
        ("iscsi:iqn.2013-07.com.example:1@[fd00::1]", ("fd00::1", 3_260), "iscsi:iqn.2013-07.com.example:1@[fd00::1]"),
    ],
)
def test_what_names_servers_is_there_while_one_of_them_answers(
    place: str, server: tuple[str, int], source: str
) -> None:
    found, servers = storage("rbd:a", place)
    assert (found.is_tried, found.there, found.look()) == (True, ("rbd:a",), False)

    servers.add(server)
    assert (found.look(), found.there, found.look()) == (True, ("rbd:a", source), False)

    servers.clear()
    assert (found.look(), found.there) == (True, ("rbd:a",))


def test_this_machine_tries_a_connection() -> None:
    with server(lambda _: None) as port:
        assert LocalMachine().connects(LOOPBACK, port)
        assert not NoMachine().connects(LOOPBACK, port)
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    assert not LocalMachine().connects(LOOPBACK, port)
    for host, number in ((LOOPBACK, 99_999), ("a" * 300, 1), ("no such host", 1)):
        assert not LocalMachine().connects(host, number)
