"""Invariants for VMs, images and nodes, checked in the hypervisors and the world after every operation or fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared.ports import effects as fx
from shared.protocol.messages import GuestEvent
from shared.values.actions import Action, ActionKind, GuestChange
from shared.values.jobs import Job, JobPhase, workload_of
from shared.values.vms import LIVE_STATES, VmState
from sim_backend.loop.agent_shell import AgentShell
from sim_backend.loop.closed_loop import ClosedLoop

OVER = frozenset({JobPhase.COMPLETED, JobPhase.CANCELLED, JobPhase.FORGOTTEN})
CPU_ROUNDING_MHZ = 1e-6
Place = tuple[str, str]  # node, vm


@dataclass(frozen=True, slots=True)
class ObservedCopy:
    """A VM or image as a hypervisor had it."""

    state: VmState
    generation: int
    attempt: int


class GuestChecks:
    """No VM live twice, none lost, no node over its memory, no task done twice."""

    def __init__(self, loop: ClosedLoop, report: Callable[[str, str], None]) -> None:
        self._loop, self._report = loop, report
        self._touched = False
        self._domains: dict[str, dict[str, ObservedCopy]] = {name: {} for name in loop.agents}
        self._images: dict[str, dict[str, ObservedCopy]] = {name: {} for name in loop.agents}
        self._newest: dict[str, int] = {}  # highest generation that was ever live
        self._stopped: set[Place] = set()
        self._discarded: set[Place] = set()
        self._forgotten: set[Place] = set()
        self._excused: set[Place] = set()
        self._done: dict[str, int] = {}  # completions seen, by task
        self._not_published: dict[str, str] = {}  # VM that ended -> node that has not got the word out yet
        self._leaving: dict[tuple[str, int], str] = {}
        self._lost_ends: set[str] = set()  # tasks whose end died with a host before it was told
        self._doubles = self._stale = 0
        self.also: Callable[[], None] | None = None  # what else is looked at when hypervisors have changed
        self.also_order: Callable[[str, Action], None] | None = None  # what else is looked at before an order
        self.on_change: Callable[[str], None] | None = None  # called with each node whose VMs have changed
        self.on_loss: Callable[[str], None] | None = None  # called with each VM that is lost on account of a fault

    # --- what is about to happen ----------------------------------------------------------------------------------

    def touch(self) -> None:
        """Hypervisors may change in this event."""
        self._touched = True

    def excuse_loss(self, node: str, vm: str) -> None:
        """Note that the script is about to remove this VM."""
        self._excused.add((node, vm))
        self._touched = True

    def host_died(self, node: str) -> None:
        """Note that a host has just stopped, with all events that its agent had not reported."""
        self._touched = True
        self.look_if_touched()
        for vm in [vm for vm, home in self._not_published.items() if home == node]:
            self._lost_ends.add(workload_of(vm)[0])

    def on_effect(self, shell: AgentShell, effect: fx.Operate | fx.Abort | fx.Forget) -> None:
        """Check an effect on the hypervisor that an agent is about to carry out."""
        self._touched = True
        if isinstance(effect, fx.Forget):
            self._forgotten.add((shell.node, effect.vm))
        elif isinstance(effect, fx.Operate):
            place = (shell.node, effect.action.vm)
            if self.also_order is not None:
                self.also_order(shell.node, effect.action)
            if effect.action.kind is ActionKind.STOP:
                self._stopped.add(place)
                self._check_stop(place, effect.action)
            elif effect.action.kind is ActionKind.DISCARD_IMAGE:
                self._discard(place, effect.action)

    def event_leaves(self, node: str, publish_id: int | None, event: GuestEvent) -> None:
        """Note that an agent publishes a guest event. `publish_accepted` follows when the broker has accepted it."""
        if publish_id is not None and event.change is GuestChange.ENDED:
            self._leaving[node, publish_id] = event.status.vm

    def publish_accepted(self, node: str, publish_id: int) -> None:
        """Note that the broker has accepted a publish of an agent."""
        vm = self._leaving.pop((node, publish_id), "")
        if self._not_published.get(vm) == node:
            del self._not_published[vm]

    def _check_stop(self, place: Place, action: Action) -> None:
        """Check that a VM of the newest generation is not stopped where it is wanted."""
        node, vm = place
        domain = self._loop.cluster.hypervisor(node).domains.get(vm)
        if domain is not None and domain.foreign:
            return  # checked by `also_order`
        job, index = self._entry_of(vm)
        record = self._loop.store.get(("job", job))
        if domain is None or domain.state not in LIVE_STATES or domain.generation != action.expects:
            return
        if record is None or record.phase is not JobPhase.RUNNING or not record.released:
            return
        newest = domain.attempt == record.attempt and domain.generation >= self._newest.get(vm, 0)
        if newest and record.allotments[index].node == node:
            self._report("stopped-while-wanted", f"{vm} generation {domain.generation} on {node} by {action.id}")

    def _discard(self, place: Place, action: Action) -> None:
        self.look_if_touched()
        node, vm = place
        image = self._loop.cluster.hypervisor(node).images.get(vm)
        self._discarded.add(place)
        if image is None or image.generation != action.expects:
            return
        job = self._entry_of(vm)[0]
        record = self._loop.store.get(("job", job))
        superseded = self._newest.get(vm, 0) > image.generation
        over = bool(self._loop.world.completions.get(job)) or record is None or record.phase in OVER
        set_back = record is not None and (record.attempt > image.attempt or record.phase is JobPhase.WAITING)
        if not (superseded or over or set_back):
            self._report("image-discarded", f"{vm} generation {image.generation} on {node}")

    def _entry_of(self, vm: str) -> tuple[str, int]:
        """Return the controller's name of the VM's workload, and the instance number; an instance of an application is
        a workload of its own."""
        workload, index = workload_of(vm)
        return (vm, 0) if workload in self._loop.apps else (workload, index)

    def _spec_of(self, vm: str) -> Job:
        workload, index = workload_of(vm)
        app = self._loop.apps.get(workload)
        return self._loop.jobs[workload] if app is None else app.replica_job(index, 0.0)

    # --- looking --------------------------------------------------------------------------------------------------

    def look_if_touched(self) -> None:
        """Compare the hypervisors with what they were, if anything touched them."""
        if not self._touched:
            return
        self._touched = False
        before_domains, before_images = self._domains, self._images
        hypervisors = self._loop.cluster.hypervisors
        self._domains = {
            name: {
                vm: ObservedCopy(d.state, d.generation, d.attempt)
                for vm, d in hypervisor.domains.items()
                if not d.foreign
            }
            for name, hypervisor in hypervisors.items()
        }
        self._images = {
            name: {
                vm: ObservedCopy(i.state, i.generation, i.attempt)
                for vm, i in hypervisor.images.items()
                if not i.foreign
            }
            for name, hypervisor in hypervisors.items()
        }
        live = self._check_single()
        self._check_completions(before_domains)
        for name in hypervisors:
            if self._domains[name] != before_domains[name]:
                self._check_node(name)
                self._check_domains(name, before_domains[name], live)
                if self.on_change is not None:
                    self.on_change(name)
            if self._images[name] != before_images[name]:
                self._check_images(name, before_images[name], live)
        self._stopped.clear()
        self._forgotten.clear()
        if self.also is not None:
            self.also()

    def _check_single(self) -> dict[str, int]:
        live: dict[str, tuple[str, int]] = {}
        for name, domains in self._domains.items():
            for vm, seen in domains.items():
                if seen.state not in LIVE_STATES:
                    continue
                if vm in live:
                    self._report("vm-on-two-nodes", f"{vm} on {live[vm][0]} and {name}")
                live[vm] = (name, seen.generation)
                if seen.generation > self._newest.get(vm, 0):
                    self._newest[vm] = seen.generation
        doubles = self._loop.cluster.doubles
        for _, vm, node in doubles[self._doubles :]:
            self._report("vm-started-twice", f"{vm} on {node}: a disk lock kept it from coming to life a second time")
        self._doubles = len(doubles)
        stale = self._loop.cluster.disks.stale
        for _, vm, node in stale[self._stale :]:
            self._report("stale-disk", f"{vm} on {node}: it executes with a copy of its disk that is not its own")
        self._stale = len(stale)
        return {vm: generation for vm, (_, generation) in live.items()}

    def _check_node(self, name: str) -> None:
        """Memory, allotted CPU, labels and separation on a node whose domains have changed."""
        hypervisor = self._loop.cluster.hypervisor(name)
        node = hypervisor.node
        used_mib = hypervisor.memory_used_mib()
        # Owners start their VMs when they like, perhaps while an order is on its way: that may take the host's reserve.
        owned = any(domain.foreign for domain in hypervisor.domains.values())
        most_mib = node.memory_mib - node.hugepages_mib if owned else node.usable_mib
        if used_mib > most_mib:
            self._report("memory-over", f"{name}: {used_mib} of {most_mib} MiB")
        allotted_mhz = 0.0
        lives: set[tuple[str, int]] = set()
        for vm, domain in hypervisor.domains.items():
            if domain.state not in LIVE_STATES or domain.foreign:  # what is adopted may be promised too much CPU
                continue
            allotted_mhz += domain.cpu_mhz
            job = self._spec_of(vm)
            if not set(job.required_labels) <= set(node.labels):
                self._report("labels-ignored", f"{vm} on {name}")
            life = (job.app, 0) if job.app else (job.name, domain.attempt)
            if (job.spread or job.app) and life in lives:
                self._report("not-separate", f"{vm} on {name}")
            lives.add(life)
        if allotted_mhz > node.cpu_mhz + CPU_ROUNDING_MHZ:
            self._report("cpu-over", f"{name}: {allotted_mhz:g} of {node.cpu_mhz:g} MHz")

    def _check_domains(self, name: str, before: dict[str, ObservedCopy], live: dict[str, int]) -> None:
        domains, images = self._domains[name], self._images[name]
        up = self._loop.cluster.hypervisor(name).up
        for vm, was in before.items():
            now = domains.get(vm)
            if was.state not in LIVE_STATES or (now is not None and now.state in LIVE_STATES):
                continue
            place = (name, vm)
            if self.on_loss is not None and (place in self._excused or not up):
                self.on_loss(vm)
            if place in self._excused:
                self._excused.discard(place)
                continue
            ended = bool(self._loop.world.completions.get(workload_of(vm)[0]))
            lawful = (
                not up
                or place in self._stopped
                or (ended and (place in self._forgotten or (now is not None and now.state is VmState.ENDED)))
                or (vm in images and images[vm].generation >= was.generation)
                or live.get(vm, -1) >= was.generation
            )
            if not lawful:
                self._report("vm-lost", f"{vm} generation {was.generation} on {name}")

    def _check_images(self, name: str, before: dict[str, ObservedCopy], live: dict[str, int]) -> None:
        for vm, was in before.items():
            if vm in self._images[name]:
                continue
            place = (name, vm)
            if place in self._discarded:
                self._discarded.discard(place)
            elif live.get(vm, -1) <= was.generation and self._newest.get(vm, 0) <= was.generation:
                self._report("image-lost", f"{vm} generation {was.generation} on {name}")

    def _check_completions(self, before: dict[str, dict[str, ObservedCopy]]) -> None:
        for task, ends in self._loop.world.completions.items():
            count = len(ends)
            if count == self._done.get(task, 0):
                continue
            self._done[task] = count
            if count > 1 and task not in self._lost_ends:
                self._report("completed-twice", f"{task}: {ends}")
            self._lost_ends.discard(task)
            for node, domains in before.items():
                for vm, seen in domains.items():
                    if seen.state in LIVE_STATES and vm.rpartition("#")[0] == task:
                        self._not_published[vm] = node
