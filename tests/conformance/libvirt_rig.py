"""The driver `libvirt` on libvirt's own test driver, which needs no daemon, as tests use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agents.hypervisors.libvirt import binding
from agents.hypervisors.libvirt.build import from_module
from agents.hypervisors.libvirt.driver import LibvirtHypervisor
from shared.config.agent import AgentConfig, HypervisorChoice, LibvirtKeys, LibvirtTemplate, NodeFacts
from tests.conformance.real_time import RealTime
from tests.integration.debian import need_libvirt_module

URI = "test:///default"
DOMAIN = "<domain type='test'><os><type>hvm</type></os></domain>"
POOL = "<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"


def need_libvirt() -> binding.Module:
    """The library, or the test is skipped; with CI=true it fails."""
    need_libvirt_module()
    return binding.real()


class Harness(RealTime):
    """The surroundings that the conformance checks ask for. Guests that are to end do so as soon as they run."""

    capabilities = frozenset({"ends"})
    template = "guest"
    peer = None
    tolerance_frac = 0.25

    def __init__(self, module: binding.Module, node: LibvirtHypervisor) -> None:
        super().__init__()
        self.node = node
        self._guests = module.open(URI)
        self._ending: set[str] = set()

    def will_end(self, vm: str, cpu_s: float) -> None:
        """It has no CPU to burn."""
        del cpu_s
        self._ending.add(vm)

    def close(self) -> None:
        """Let go of libvirt."""
        self.node.close()
        self._guests.close()

    def between(self) -> None:
        """Guests that are to end do."""
        for domain in self._guests.listAllDomains(1):
            if domain.name() in self._ending and domain.state()[0] == 1 and not self._begins(domain.name()):
                self._ending.discard(domain.name())
                domain.shutdownFlags(0)

    def _begins(self, vm: str) -> bool:
        return any(status.vm == vm and status.busy for status in self.node.vms(0.0))


def config_of(folder: Path, **keys: object) -> AgentConfig:
    """An agent's configuration with one template."""
    file = folder / "guest.xml"
    file.write_text(DOMAIN)
    libvirt = LibvirtKeys(
        cores=1,
        core_mhz=1_000.0,
        memory_mib=1_000,
        stop_limit_s=1.0,
        templates={"guest": LibvirtTemplate(str(file))},
        **keys,  # type: ignore[arg-type]
    )
    return AgentConfig(node=NodeFacts(name="n1"), hypervisor=HypervisorChoice("libvirt", URI), libvirt=libvirt)


def empty(conn: binding.Connection, folder: Path) -> None:
    """Leave nothing but a pool for saved images in libvirt's test node, which lives as long as somebody uses it."""
    for domain in conn.listAllDomains(0):
        if domain.isActive():
            domain.destroyFlags(0)
        domain.undefineFlags(0)
    (folder / "saved").mkdir()
    raw: Any = conn
    for pool in raw.listAllStoragePools(0):
        if pool.name() == "trimtab-saved":
            pool.destroy()
            pool.undefine()
    raw.storagePoolDefineXML(POOL.format(name="trimtab-saved", path=folder / "saved"), 0).create(0)


@contextmanager
def harness(folder: Path) -> Iterator[Harness]:
    """A harness on an empty node."""
    module = need_libvirt()
    conn = module.open(URI)
    try:
        empty(conn, folder)
        made = Harness(module, from_module(config_of(folder), lambda: None, module))
        try:
            yield made
        finally:
            made.close()
    finally:
        conn.close()
