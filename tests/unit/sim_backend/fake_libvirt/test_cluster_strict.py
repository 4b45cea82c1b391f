"""The stand-in for libvirt raises what libvirt's own test driver raises."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sim_backend.fake_libvirt.cluster import Cluster
from tests.integration.debian import need_libvirt_module

NAME = "probe#0"
XML = f"<domain type='%s'><name>{NAME}</name><memory unit='MiB'>8</memory><os><type>hvm</type></os></domain>"
META = (2, "<vm g='1'/>", "trimtab", "https://example.org/1")
CLASH = "<trimtab:vm xmlns:trimtab='https://example.org/1'/>"
Call = Callable[[Any, Any], object]
OFF: dict[str, Call] = {
    "lookup of none": lambda conn, _dom: conn.lookupByName("none"),
    "definition cut off": lambda conn, _dom: conn.defineXML("<a"),
    "definition of something else": lambda conn, _dom: conn.defineXML("<a/>"),
    "destroy": lambda _conn, dom: dom.destroy(),
    "live metadata": lambda _conn, dom: dom.setMetadata(*META, 1),
    "metadata without a key": lambda _conn, dom: dom.setMetadata(2, "<vm/>", None, "https://example.org/1", 2),
    "metadata cut off": lambda _conn, dom: dom.setMetadata(2, "<vm", "t", "https://example.org/1", 2),
    "metadata with its namespace": lambda _conn, dom: dom.setMetadata(2, CLASH, "trimtab", "https://example.org/1", 2),
    "no metadata": lambda _conn, dom: dom.metadata(2, "https://example.org/2", 0),
    "a volume's pool": lambda conn, _dom: conn.storagePoolLookupByName("none"),
    "flags": lambda _conn, dom: dom.undefineFlags(1 << 20),
}
ON: dict[str, Call] = {
    "metadata": lambda _conn, dom: dom.setMetadata(*META, 3),
    "no metadata": lambda _conn, dom: dom.metadata(2, "https://example.org/2", 0),
}
OF_QEMU: dict[str, Call] = {  # libvirt's test driver has no number for these, its driver for QEMU has
    "suspend": lambda _conn, dom: dom.suspend(),
    "resume": lambda _conn, dom: dom.resume(),
    "shutdown": lambda _conn, dom: dom.shutdown(),
    "save": lambda _conn, dom: dom.save("/saved/x"),
    "abort": lambda _conn, dom: dom.abortJob(),
}
OPERATION_INVALID = 55


@pytest.fixture
def fake() -> Iterator[tuple[Any, Any]]:
    cluster = Cluster()
    cluster.add_host("h1")
    module = cluster.module("h1")
    yield module, module.open()
    cluster.close()


def real_libvirt() -> Any:
    need_libvirt_module()
    return importlib.import_module("libvirt")


def code_of(module: Any, do: Call, conn: Any, dom: Any) -> int:
    try:
        do(conn, dom)
    except module.libvirtError as problem:
        return int(problem.get_error_code())
    return 0


@pytest.mark.parametrize(("state", "what"), [("off", w) for w in OFF] + [("on", w) for w in ON])
def test_the_same_code(fake: tuple[Any, Any], state: str, what: str) -> None:
    real = real_libvirt()
    real.registerErrorHandler(lambda _context, _error: None, None)
    do = (OFF if state == "off" else ON)[what]
    codes: list[int] = []
    for module, conn, kind in ((real, real.open("test:///default"), "test"), (*fake, "qemu")):
        dom = conn.defineXML(XML % kind)
        if state == "on":
            dom.create()
        codes.append(code_of(module, do, conn, dom))
        if dom.isActive():
            dom.destroy()
        dom.undefine()
        conn.close()
    assert codes[0] == codes[1]


@pytest.mark.parametrize("what", OF_QEMU)
def test_the_code_of_qemu(fake: tuple[Any, Any], what: str) -> None:
    module, conn = fake
    assert code_of(module, OF_QEMU[what], conn, conn.defineXML(XML % "qemu")) == OPERATION_INVALID
