"""The connection to libvirt: what nobody has thought of ends no thread unseen, what is told late ends no other one."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from agents.hypervisors.libvirt.binding import Module
from agents.hypervisors.libvirt.connection import LibvirtConnection
from agents.hypervisors.libvirt.errors import Unavailable
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import Closed

SOON_S = 10.0


class Broken:
    """A module whose `open` has a defect."""

    class libvirtError(Exception):  # noqa: N801  libvirt's name
        pass

    def open(self, _uri: str) -> None:
        raise RuntimeError("a defect")


class Hearing:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[BaseException] = []
        self.told = threading.Event()

    def happened(self, vm: str, uuid: str, event: int, detail: int) -> None:
        raise AssertionError((vm, uuid, event, detail))

    def edited(self, uuid: str) -> None:
        raise AssertionError(uuid)

    def connected(self) -> None:
        raise AssertionError("there is no connection")

    def failed(self, error: BaseException) -> None:
        self.heard.append(error)
        self.told.set()


def test_a_defect_in_the_connection_is_told_to_its_listener() -> None:
    listener = Hearing()
    link = LibvirtConnection(cast(Module, Broken()), "test:///default", 5, listener)
    starting = threading.Thread(target=link.start, daemon=True)  # nobody says that the first try is over
    starting.start()
    assert listener.told.wait(SOON_S)
    assert [str(error) for error in listener.heard] == ["a defect"]
    link.close()


class Glad(Hearing):
    """One for whom there is a connection."""

    def connected(self) -> None:
        return


def test_the_end_of_a_connection_that_is_told_late_does_not_end_the_next_one() -> None:
    cluster, go_on = Cluster(), threading.Event()
    host = cluster.add_host("h1")
    link = LibvirtConnection(cast(Module, cluster.module("h1")), "qemu:///system", 5, Glad(), retry_s=0.01)
    link.start()

    def busy() -> None:
        go_on.wait(SOON_S)

    cluster.events.post_surely(busy)
    with cluster.lock:
        host.connections[0].break_off(Closed.EOF)
    with pytest.raises(Unavailable), link.use("look") as first:
        first.getInfo()
    assert link.wait(SOON_S)
    second = link.raw()
    go_on.set()
    cluster.events.settle()
    assert link.raw() is second
    link.close()
    cluster.close()
