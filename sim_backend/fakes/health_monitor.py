"""The application monitors of fake hosts: an instance serves while its guest executes and no script has made it ill."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.ports.effects import Probed
from shared.values.health import NO_ADDRESS, Target
from shared.values.jobs import INSTANCE_SEPARATOR, workload_of
from shared.values.vms import VmState
from sim_backend.fakes.hypervisor import FakeCluster

ANSWER_S = 0.01


@dataclass(slots=True, eq=False)
class FakeMonitor:
    """Answers probes of every host. `lives`: VMs that are unhealthy in one generation, (name, generation); `apps`:
    applications whose instances all stay unhealthy; `hangs`: unhealthy VMs whose probes wait for their time limit."""

    cluster: FakeCluster
    lives: set[tuple[str, int]] = field(default_factory=set)
    apps: set[str] = field(default_factory=set)
    hangs: set[str] = field(default_factory=set)
    _ever: set[str] = field(default_factory=set)  # VMs and applications that were ever ill

    def fall_ill(self, vm: str) -> bool:
        """Make a guest unhealthy in its current generation. Return false when it is nowhere."""
        generation = self._generation(vm)
        if generation is not None:
            self.lives.add((vm, generation))
            self._ever.add(vm)
        return generation is not None

    def app_falls_ill(self, app: str) -> None:
        """Make all instances of an application unhealthy, until it is removed from `apps`."""
        self.apps.add(app)
        self._ever.add(app)

    def was_ill(self, vm: str) -> bool:
        """Return whether a guest has been unhealthy in any generation, alone or with its application."""
        return vm in self._ever or workload_of(vm)[0] in self._ever

    def is_ill(self, vm: str) -> bool:
        """Return whether a guest exists and is unhealthy."""
        if not (self.lives or self.apps):
            return False
        generation = self._generation(vm)
        return generation is not None and self._is_ill(vm, generation)

    def probe(self, node: str, target: Target, address: str) -> tuple[Probed, float]:
        """Return the result of a probe on a node and its duration in seconds."""
        vm, generation = target.vm, target.generation
        if not address:
            return Probed(vm, generation, True, NO_ADDRESS), 0.0
        domain = self.cluster.hypervisor(node).domains.get(vm)
        executes = domain is not None and domain.state is VmState.RUNNING and domain.generation == generation
        if executes and not self._is_ill(vm, generation):
            return Probed(vm, generation, True), ANSWER_S
        if vm in self.hangs:
            limit_s = target.probe.limit_s
            return Probed(vm, generation, False, f"no answer within {limit_s:g} s"), limit_s
        return Probed(vm, generation, False, "connection refused"), ANSWER_S

    def _is_ill(self, vm: str, generation: int) -> bool:
        app = workload_of(vm)[0] if INSTANCE_SEPARATOR in vm else vm
        return (vm, generation) in self.lives or app in self.apps

    def _generation(self, vm: str) -> int | None:
        found = [host.domains[vm].generation for host in self.cluster.hypervisors.values() if vm in host.domains]
        return max(found, default=None)
