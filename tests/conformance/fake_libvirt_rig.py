"""The libvirt driver on the stand-in for libvirt, as tests use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agents.hypervisors.libvirt.binding import Module
from agents.hypervisors.libvirt.build import from_module
from agents.hypervisors.libvirt.driver import LibvirtHypervisor
from agents.hypervisors.libvirt.errors import Unavailable
from agents.hypervisors.libvirt.machine import Machine
from shared.base.clock import SystemClock
from shared.config.agent import (
    AgentConfig,
    CloneMode,
    HypervisorChoice,
    LibvirtKeys,
    LibvirtMigration,
    LibvirtTemplate,
    NodeFacts,
)
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind
from shared.values.nodes import Node
from shared.values.vms import VmStatus
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import Err, libvirtError
from sim_backend.fake_libvirt.connection import add_pool
from sim_backend.fake_libvirt.drift import HostDrift
from sim_backend.fake_libvirt.faults import Fault, How

CORE_MHZ = 1_000
MEMORY_MIB = 1_000
LIMIT_S = 20.0
PERIOD_S = 0.1
TEMPLATE = """
<domain type="qemu"><name>x</name><memory unit="MiB">{memory_mib}</memory><vcpu>{vcpus}</vcpu>
<os><type arch="x86_64" machine="pc">hvm</type></os><devices><disk type="file" device="disk">
<driver name="qemu" type="qcow2"/><source file="{volume}"/><target dev="vda"/></disk></devices></domain>
"""
DURATIONS_S = {"create": 1.0, "save": 1.0, "restore": 1.0, "migrate": 2.0}
ACCESS_DENIED = 88
CALLS = {
    ActionKind.START: "createWithFlags",
    ActionKind.STOP: "shutdownFlags",
    ActionKind.PAUSE: "suspend",
    ActionKind.UNPAUSE: "resume",
    ActionKind.SUSPEND: "save",
    ActionKind.RESUME: "restoreFlags",
    ActionKind.MIGRATE: "migrateToURI3",
    ActionKind.SET_CPU: "setSchedulerParametersFlags",
    ActionKind.DISCARD_IMAGE: "setMetadata",  # the mark, before anything goes
}


class Fakes:
    """Hosts of a cluster with a driver each, in threads of their own."""

    def __init__(self, folder: Path, count: int, durations_s: dict[str, float], shared: bool, clone: CloneMode) -> None:
        self._before, self.clone = _threads(), clone
        self.cluster = Cluster(0, durations_s, ("/shared",))
        self.template = folder / "guest.xml"
        self.template.write_text(TEMPLATE)
        self.names = tuple(f"h{number}" for number in range(1, count + 1))
        self.pool = "shared" if shared else "default"
        for name in self.names:
            host = self.cluster.add_host(name, cores=2, mhz=CORE_MHZ, memory_mib=MEMORY_MIB + 200)
            add_pool(host, "default", "/pool")
            add_pool(host, "shared", "/shared/volumes")
            add_pool(host, "trimtab-saved", "/saved")
            pool = self.cluster.module(name).open().storagePoolLookupByName(self.pool)
            pool.refresh()
            if "base" not in [volume.name() for volume in pool.listAllVolumes()]:
                pool.createXML("<volume><name>base</name><capacity>4096</capacity></volume>")
        self.wakes = {name: threading.Event() for name in self.names}
        self.drivers = {name: self.driver(name) for name in self.names}

    def driver(
        self,
        name: str,
        module: Module | None = None,
        machine: Machine | None = None,
        reachable_storage: tuple[str, ...] = (),
    ) -> LibvirtHypervisor:
        """As an agent makes it, with the host's libvirt or another `module`, on a `machine` (None: not known)."""
        keys = LibvirtKeys(
            pool=self.pool,
            shared_pools=("shared",),
            reachable_storage=reachable_storage,
            memory_mib=MEMORY_MIB,
            core_mhz=CORE_MHZ,
            stop_limit_s=0.2,
            templates={"guest": LibvirtTemplate(str(self.template), "base", clone=self.clone)},
            migration=LibvirtMigration("qemu+tls://{host}/system", tls=False),
            hosts={name: name for name in self.names},
        )
        choice = HypervisorChoice("libvirt", uri="qemu:///system")
        config = AgentConfig(node=NodeFacts(name=name), hypervisor=choice, libvirt=keys)
        module = module or self.cluster.module(name)
        return from_module(config, self.wakes[name].set, module, self.reach(name), 0.02, machine)

    def reach(self, name: str) -> Callable[[str], None]:
        """Whether another host's libvirtd answers, as a driver asks before it connects."""

        def reach(uri: str) -> None:
            with self.cluster.lock:
                try:
                    self.cluster.reach(name, uri.split("://")[1].split("/")[0])
                except libvirtError as problem:
                    raise Unavailable(str(problem), broken=True) from None

        return reach

    def drift(self, name: str) -> HostDrift:
        """Somebody at a host."""
        return HostDrift(self.cluster, name)

    def close(self) -> None:
        """Drivers first, as when agents end; whatever hangs then fails, and no thread is left."""
        for driver in self.drivers.values():
            driver.close()
        self.cluster.close()
        clock = SystemClock()
        limit_s = clock.monotonic_s() + LIMIT_S
        while (left := _threads() - self._before) and clock.monotonic_s() < limit_s:
            clock.sleep(0.0005)
        assert not left, left


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "libvirt" in thread.name}


class Settled:
    """A driver whose operations have gone as far as they go without time passing, whenever a method returns."""

    def __init__(self, driver: LibvirtHypervisor, wake: threading.Event, cluster: Cluster) -> None:
        self._driver, self._wake, self._cluster = driver, wake, cluster
        self._clock = SystemClock()

    def inventory(self) -> Node:
        return self._driver.inventory()

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        return self._driver.vms(now_s)

    def begin(self, action: Action, now_s: float) -> None:
        self._wake.clear()
        waiting = self._cluster.waiting
        self._driver.begin(action, now_s)
        limit_s = self._clock.monotonic_s() + LIMIT_S
        while not self._wake.is_set() and self._cluster.waiting <= waiting and self._clock.monotonic_s() < limit_s:
            if not all(host.serving for host in self._cluster.hosts.values()):
                return
            self._clock.sleep(0.0005)

    def abort(self, vm: str, now_s: float) -> None:
        """What hangs in libvirt without being a job ends when its limit is over."""
        self._driver.abort(vm, now_s)
        self._cluster.release(Err.OPERATION_TIMEOUT)

    def forget(self, vm: str, now_s: float) -> None:
        self._driver.forget(vm, now_s)

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:
        return self._driver.poll(now_s)

    def next_due_s(self) -> float | None:
        return self._driver.next_due_s()


class Harness:
    """The surroundings that the conformance checks ask for."""

    template = "guest"
    tolerance_frac = 0.25
    capabilities = frozenset({"migration", "slow", "scripts", "ends", "cpu"})

    def __init__(self, fakes: Fakes) -> None:
        self.fakes, self.cluster = fakes, fakes.cluster
        self.node, self.peer = (
            Settled(fakes.drivers[name], fakes.wakes[name], fakes.cluster) for name in fakes.names[:2]
        )
        self._clock = SystemClock()

    def now_s(self) -> float:
        """The driver does not look at it."""
        return self.cluster.now_s()

    def wait(self, seconds: float) -> None:
        """Time of the fake's."""
        self.cluster.advance(seconds)

    def until(self, ready: Callable[[], bool]) -> None:
        """Time passes where something waits for it, and now and then."""
        limit_s = self._clock.monotonic_s() + LIMIT_S
        looked = 0
        while not ready() and self._clock.monotonic_s() < limit_s:
            looked += 1
            if self.cluster.waiting or looked % 20 == 0:
                self.cluster.advance(PERIOD_S)
                self.node.vms(self.now_s())  # as an agent reads it, time and again
            self._clock.sleep(0.0005)

    def fail_next(self, kind: ActionKind, how: str) -> None:
        """By what libvirt says, or does not say."""
        ways: dict[str, tuple[How, int]] = {
            "refuse": ("raise", ACCESS_DENIED),
            "hang": ("hang", 0),
            "fail-half-way": ("break", Err.OPERATION_FAILED),
        }
        way, code = ways[how]
        self.cluster.fail(Fault(CALLS[kind], way, code, host=self.fakes.names[0]))

    def will_end(self, vm: str, cpu_s: float) -> None:
        """The guest's work."""
        self.cluster.guests[vm] = (cpu_s, True)


@contextmanager
def fakes(
    folder: Path,
    count: int = 2,
    durations_s: dict[str, float] | None = None,
    shared: bool = True,
    clone: CloneMode = CloneMode.OVERLAY,
) -> Iterator[Fakes]:
    """Hosts with drivers, which leave no thread behind."""
    made = Fakes(folder, count, DURATIONS_S if durations_s is None else durations_s, shared, clone)
    try:
        yield made
    finally:
        made.close()
