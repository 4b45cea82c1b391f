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
        """Return a new connection."""
        return self.cluster.module(self.host.name).open("qemu:///system")

    def destroy(self, name: str) -> None:
        """Run `virsh destroy`."""
        self.connection().lookupByName(name).destroy()

    def undefine(self, name: str) -> None:
        """Run `virsh undefine`."""
        self.connection().lookupByName(name).undefine()

    def start(self, name: str) -> None:
        """Run `virsh start`."""
        self.connection().lookupByName(name).create()

    def suspend(self, name: str) -> None:
        """Run `virsh suspend`."""
        self.connection().lookupByName(name).suspend()

    def resume(self, name: str) -> None:
        """Run `virsh resume`."""
        self.connection().lookupByName(name).resume()

    def define(self, xml: str) -> None:
        """Run `virsh define`."""
        self.connection().defineXML(xml)

    def migrate(self, name: str, to: str, flags: int = MOVE, params: Mapping[str, Any] | None = None) -> None:
        """Run `virsh migrate`, which takes as long as the cluster sets."""
        self.connection().lookupByName(name).migrateToURI3(f"qemu+tls://{to}/system", params or {}, flags)

    def snapshot_disk(self, name: str, old: str, new: str, live: bool = True) -> None:
        """Run `virsh snapshot-create-as --disk-only --no-metadata`: what the guest writes goes to a new file, and no
        event says so. Without `live`, the definition alone is changed, as by `virsh update-device --config`."""
        with self.cluster.lock:
            dom = self.host.named(name)
            assert dom is not None
            self.host.files.put(new, b"overlay")
            for definition in (dom.config, dom.live if live else None):
                if definition is not None:
                    definition.move_disk(old, new)

    def edit_metadata(self, name: str, element: str | None, uri: str, key: str = "trimtab") -> None:
        """Run `virsh metadata` on the live and the persistent definition of a domain."""
        domain = self.connection().lookupByName(name)
        flags = (1 if domain.isActive() else 0) | (2 if domain.isPersistent() else 0)
        domain.setMetadata(2, element, key, uri, flags)

    def guest_ends(self, name: str) -> bool:
        """Shut the guest down from inside. Return false if it does not execute."""
        with self.cluster.lock:
            dom = self.host.named(name)
            if dom is None or not dom.running:
                return False
            self.host.end_guest(dom)
            return True

    def panic(self, name: str) -> None:
        """Have the guest's kernel panic."""
        with self.cluster.lock:
            dom = self.host.named(name)
            assert dom is not None
            self.host.panic(dom)

    def crash(self, name: str) -> bool:
        """QEMU dies; false where there is none."""
        with self.cluster.lock:
            dom = self.host.named(name)
            if dom is None or dom.live is None:
                return False
            self.host.destroy(dom, Off.CRASHED)
            return True

    def libvirtd_dies(self) -> None:
        """Kill libvirtd with `kill -9`. Domains keep running."""
        with self.cluster.lock:
            self.host.libvirtd_dies()

    def libvirtd_starts(self) -> None:
        """Start libvirtd, which recovers its domains."""
        with self.cluster.lock:
            self.host.libvirtd_starts()

    def power_off(self) -> None:
        """Fence the host."""
        with self.cluster.lock:
            self.host.power_off()

    def power_on(self) -> None:
        """Power the host on again."""
        with self.cluster.lock:
            self.host.power_on()

    def running(self) -> tuple[str, ...]:
        """Return the domains that execute on this host."""
        with self.cluster.lock:
            return tuple(sorted(dom.name for dom in self.host.live() if dom.running))

    def domain(self, name: str) -> Dom | None:
        """Return the domain."""
        with self.cluster.lock:
            return self.host.named(name)

    def guest(self, name: str) -> Guest | None:
        """Return the guest in a domain, None without such a domain."""
        dom = self.domain(name)
        return None if dom is None else dom.guest
