"""What others do to VMs of fake hosts with their own tools: the hypervisors see it, nobody has ordered it."""

from __future__ import annotations

from shared.values.actions import GuestChange
from shared.values.vms import LIVE_STATES, VmState
from sim_backend.fakes.host import Domain
from sim_backend.fakes.hypervisor import FakeCluster, FakeHypervisor


class Drift:
    """Changes the hosts of a cluster without the agents' knowledge. Every call returns whether it could be done: only
    an idle live managed VM is changed, and only where there is capacity for it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.stopped: dict[str, tuple[str, Domain]] = {}  # what `stop` has stopped, and where

    def move(self, vm: str, source: str, target: str, now_s: float) -> bool:
        """Migrate it live, in no time."""
        here, there = self._site(source, now_s), self._site(target, now_s)
        domain = self._idle(here, vm)
        if domain is None or source == target or not self._has_room(there, domain):
            return False
        status = here.status_of(domain, now_s)
        arriving = domain.copy(domain.state)
        del here.domains[vm]
        there.domains[vm] = arriving
        there.images.pop(vm, None)
        self.cluster.disks.write(vm, source)
        self.cluster.disks.copy(vm, source, target)
        self.cluster.disks.remove(vm, source)
        self.cluster.world.move(vm, target, now_s)
        self.cluster.locks[vm] = target
        here.tell_change(GuestChange.LEFT, status, now_s, f"to {target}")
        there.tell_change(GuestChange.ARRIVED, there.status_of(arriving, now_s), now_s, f"from {source}")
        return True

    def stop(self, vm: str, node: str, now_s: float) -> bool:
        """Destroy it."""
        site = self._site(node, now_s)
        domain = self._idle(site, vm)
        if domain is None:
            return False
        self.stopped[vm] = node, domain.copy(VmState.RUNNING)
        status = site.leave_world(domain, VmState.CRASHED, now_s)
        del site.domains[vm]
        site.tell_change(GuestChange.STOPPED, status, now_s, "destroyed")
        return True

    def start(self, vm: str, now_s: float) -> bool:
        """Start again where it was what `stop` has stopped, with the metadata that it had."""
        node, domain = self.stopped.pop(vm, ("", None))
        if domain is None or vm in self.cluster.locks:
            return False
        site = self._site(node, now_s)
        if not self._has_room(site, domain):
            return False
        site.domains[vm] = domain
        site.come_alive(domain, VmState.RUNNING, now_s)
        self.cluster.locks[vm] = node
        site.tell_change(GuestChange.STARTED, site.status_of(domain, now_s), now_s, "booted")
        return True

    def pause(self, vm: str, node: str, now_s: float) -> bool:
        """Pause it, or resume it if it is paused."""
        domain = self._idle(self._site(node, now_s), vm)
        if domain is None:
            return False
        paused = domain.state is VmState.PAUSED
        domain.state = VmState.RUNNING if paused else VmState.PAUSED
        self.cluster.world.set_running(vm, paused, now_s)
        return True

    def reweigh(self, vm: str, node: str, cpu_mhz: float, now_s: float) -> bool:
        """Give it another weight."""
        domain = self._idle(self._site(node, now_s), vm)
        if domain is None:
            return False
        domain.cpu_mhz = cpu_mhz
        self.cluster.world.set_weight(vm, cpu_mhz, domain.ceiling_mhz, now_s)
        return True

    def _site(self, node: str, now_s: float) -> FakeHypervisor:
        self.cluster.catch_up(now_s)
        return self.cluster.hypervisor(node)

    def _idle(self, site: FakeHypervisor, vm: str) -> Domain | None:
        domain = site.domains.get(vm)
        free = domain is not None and domain.managed and not domain.busy and vm not in site.operations
        return domain if free and domain is not None and domain.state in LIVE_STATES else None

    def _has_room(self, site: FakeHypervisor, domain: Domain) -> bool:
        if not site.up or domain.vm in site.domains or domain.vm in site.operations:
            return False
        held_mhz = sum(one.cpu_mhz for one in site.domains.values())
        fits = site.memory_used_mib() + domain.ordinary_mib <= site.node.usable_mib
        return fits and held_mhz + domain.cpu_mhz <= site.node.cpu_mhz
