"""What others do on a host, behind Trimtab's back: an operator at virsh, a guest, the power supply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import Migrate, Off
from sim_backend.fake_libvirt.connection import virConnect
from sim_backend.fake_libvirt.state import Dom, Guest

MOVE = Migrate.LIVE | Migrate.PEER2PEER | Migrate.PERSIST_DEST | Migrate.UNDEFINE_SOURCE | Migrate.UNSAFE


class HostDrift:
    """Somebody at one host, with a connection of their own. Methods that act on a domain which is not there, or not in
    the state for it, raise libvirtError, as virsh would."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self.cluster, self.host = cluster, cluster.hosts[host]

    def connection(self) -> virConnect:
        """A new one."""
        return self.cluster.module(self.host.name).open("qemu:///system")

    def destroy(self, name: str) -> None:
        """virsh destroy."""
        self.connection().lookupByName(name).destroy()

    def undefine(self, name: str) -> None:
        """virsh undefine."""
        self.connection().lookupByName(name).undefine()

    def start(self, name: str) -> None:
        """virsh start."""
        self.connection().lookupByName(name).create()

    def suspend(self, name: str) -> None:
        """virsh suspend."""
        self.connection().lookupByName(name).suspend()

    def resume(self, name: str) -> None:
        """virsh resume."""
        self.connection().lookupByName(name).resume()

    def define(self, xml: str) -> None:
        """virsh define."""
        self.connection().defineXML(xml)

    def migrate(self, name: str, to: str, flags: int = MOVE, params: Mapping[str, Any] | None = None) -> None:
        """virsh migrate; takes as long as the cluster says."""
        self.connection().lookupByName(name).migrateToURI3(f"qemu+tls://{to}/system", params or {}, flags)

    def edit_metadata(self, name: str, element: str | None, uri: str, key: str = "trimtab") -> None:
        """virsh metadata, of the domain as it runs and as it is defined."""
        domain = self.connection().lookupByName(name)
        flags = (1 if domain.isActive() else 0) | (2 if domain.isPersistent() else 0)
        domain.setMetadata(2, element, key, uri, flags)

    def guest_ends(self, name: str) -> bool:
        """The guest shuts itself down; false where it does not execute."""
        with self.cluster.lock:
            dom = self.host.named(name)
            if dom is None or not dom.running:
                return False
            self.host.end_guest(dom)
            return True

    def crash(self, name: str) -> bool:
        """QEMU dies; false where there is none."""
        with self.cluster.lock:
            dom = self.host.named(name)
            if dom is None or dom.live is None:
                return False
            self.host.destroy(dom, Off.CRASHED)
            return True

    def libvirtd_dies(self) -> None:
        """kill -9; domains live on."""
        with self.cluster.lock:
            self.host.libvirtd_dies()

    def libvirtd_starts(self) -> None:
        """It takes up its domains."""
        with self.cluster.lock:
            self.host.libvirtd_starts()

    def power_off(self) -> None:
        """The host is fenced."""
        with self.cluster.lock:
            self.host.power_off()

    def power_on(self) -> None:
        """It is back."""
        with self.cluster.lock:
            self.host.power_on()

    def running(self) -> tuple[str, ...]:
        """What executes here."""
        with self.cluster.lock:
            return tuple(sorted(dom.name for dom in self.host.live() if dom.running))

    def domain(self, name: str) -> Dom | None:
        """The domain itself."""
        with self.cluster.lock:
            return self.host.named(name)

    def guest(self, name: str) -> Guest | None:
        """What runs in it."""
        dom = self.domain(name)
        return None if dom is None else dom.guest
