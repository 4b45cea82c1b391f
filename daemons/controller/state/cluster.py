"""What the controller knows and wants: mutable tables behind narrow methods, rebuilt from the store by a new leader.

The heart is the ledger: `Instance.may_run_on` names every node on which the VM is or may be. A node enters before an
order that could put the VM there is sent, and leaves only on proof. Room is counted from the ledger, so memory is
never promised twice; an instance is started only when the ledger says that it is nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.job_lengths import JobLengths
from daemons.controller.state.jobs import WANTED, InFlight, Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.operation_times import OperationTimes
from daemons.controller.state.web_app import WebEntry
from daemons.values.records.cluster import InstanceRecord
from shared.values.actions import ActionKind
from shared.values.jobs import INSTANCE_SEPARATOR, INSTANCES_MAX, Allotment, Job, JobPhase, instance_name, workload_of
from shared.values.migration import ordinary_mib, pages_of, with_cell_memory
from shared.values.vms import LIVE_STATES, VmState, VmStatus


class Cluster:
    """All nodes and jobs, with the ledger's invariants kept in one place."""

    def __init__(self, vm_overhead_mib: float) -> None:
        self.nodes: dict[str, NodeEntry] = {}
        self.jobs: dict[str, JobEntry] = {}
        self.active: dict[str, JobEntry] = {}
        self.instances: dict[str, Instance] = {}
        self.adopted: dict[str, JobEntry] = {}
        self.web: dict[str, WebEntry] = {}
        self.environments: dict[str, EnvironmentEntry] = {}
        self._by_environment: dict[str, dict[str, JobEntry]] = {}  # its jobs and instances that are not retired
        self.last_ended_s: dict[str, float] = {}  # by environment: when the last of its jobs ended
        self.replicas: dict[str, dict[int, JobEntry]] = {}  # by web application: its instances that are not over
        self.web_names: set[str] = set()  # of web applications that are or were there
        self.nodes_not_reported: set[str] = set()  # nodes from the store that have not told what is on them
        self.actions: dict[str, Instance] = {}
        self.missing: dict[str, Instance] = {}  # VMs that some node's word is awaited on
        self.left: dict[str, Instance] = {}  # VMs that somebody else took away, and that were not seen since
        self.migrations = 0
        self.lengths = JobLengths()
        self.operation_times = OperationTimes()
        self.vm_overhead_mib = vm_overhead_mib

    # --- jobs ---------------------------------------------------------------------------------------------------

    def job(self, name: str) -> JobEntry | None:
        """Return the job of that name, None when there is none; an instance of a web application is no job."""
        entry = self.jobs.get(name)
        return None if entry is None or entry.job.app else entry

    def job_or_vm(self, name: str) -> JobEntry | None:
        """Return the job of that name, or the adopted VM whose own name it is; None when there is neither."""
        instance = self.instances.get(name)
        entry = self.job(name)
        return entry if entry is not None or instance is None or not instance.job.adopted else instance.job

    def add_job(self, entry: JobEntry, records: tuple[InstanceRecord, ...] = ()) -> None:
        """Take a job in, with what the store knew of its instances."""
        self.jobs[entry.job.name] = entry
        if entry.job.app:
            self.web_names.add(entry.job.app)
        if entry.over and not records:
            self._note_end(entry)
            return
        self._activate(entry)
        for index in range(entry.job.instances):
            instance = self._new_instance(entry, index)
            if records:
                self._restore(instance, records[index])
        self._want(entry, entry.allotments, +1.0)

    def _activate(self, entry: JobEntry) -> None:
        self.active[entry.job.name] = entry
        if entry.job.environment:
            self._by_environment.setdefault(entry.job.environment, {})[entry.job.name] = entry
        if entry.job.app:
            self.replicas.setdefault(entry.job.app, {})[workload_of(entry.job.name)[1]] = entry

    def _new_instance(self, entry: JobEntry, index: int) -> Instance:
        memory_mib = entry.job.memory_mib + self.vm_overhead_mib
        vm = entry.adopted or (entry.job.name if entry.job.app else instance_name(entry.job.name, index))
        instance = Instance(vm, entry, memory_mib)
        if entry.adopted:
            self.adopted[vm] = entry
        entry.instances.append(instance)
        self.instances[instance.vm] = instance
        return instance

    def _restore(self, instance: Instance, record: InstanceRecord) -> None:
        instance.take_over(record)
        if instance.left:
            self.left[instance.vm] = instance
        instance.sought = instance.job.phase in WANTED and record.issued_attempt == instance.job.attempt
        for node in record.may_run_on:
            self.claim(instance, node)
        instance.places = {*record.may_run_on}

    def retire(self, entry: JobEntry) -> None:
        """Forget the instances of a job that is over and nowhere any more."""
        self._note_end(entry)
        self._want(entry, entry.allotments, -1.0)
        entry.allotments = ()
        for instance in entry.instances:
            self.instances.pop(instance.vm, None)
            self.missing.pop(instance.vm, None)
            self.left.pop(instance.vm, None)
            self.adopted.pop(instance.vm, None)
        entry.instances = []
        self.active.pop(entry.job.name, None)
        self._by_environment.get(entry.job.environment, {}).pop(entry.job.name, None)
        if entry.job.app:
            self.replicas[entry.job.app].pop(workload_of(entry.job.name)[1], None)

    def forget_jobs(self, before_s: float, but: Container[str]) -> set[str]:
        """Forget the jobs that were over before then and are nowhere any more, `but` some; returns their names, which
        may be used again."""
        gone = {
            name
            for name, entry in self.jobs.items()
            if entry.over and entry.finished_s < before_s and name not in self.active and name not in but
        }
        if gone:
            # made anew: a dictionary keeps the room of what was deleted
            self.jobs = {name: entry for name, entry in self.jobs.items() if name not in gone}
            self.web_names = {*self.web, *(entry.job.app for entry in self.jobs.values() if entry.job.app)}
        return gone

    def forget_environments(self, before_s: float, but: Container[str]) -> set[str]:
        """Forget the environments that were destroyed before then and of which nothing is left, `but` some; returns
        their names."""
        gone = {
            name
            for name, entry in self.environments.items()
            if entry.destroyed and entry.ended_s < before_s and not self.jobs_of(name) and name not in but
        }
        for name in gone:
            del self.environments[name]
            self._by_environment.pop(name, None)
            self.last_ended_s.pop(name, None)
        return gone

    def _note_end(self, entry: JobEntry) -> None:
        name = entry.job.environment
        if name and not entry.job.app:
            self.last_ended_s[name] = max(entry.finished_s, self.last_ended_s.get(name, 0.0))

    def jobs_of(self, environment: str) -> Collection[JobEntry]:
        """Return the jobs and web instances of an environment that are not over, or that are or may still be on a
        node."""
        return self._by_environment.get(environment, {}).values()

    def revive(self, entry: JobEntry) -> None:
        """Make the instances of a retired job again: a VM of it has turned up."""
        self._activate(entry)
        for index in range(entry.job.instances):
            self._new_instance(entry, index).ended = entry.phase is JobPhase.COMPLETED

    def names_taken(self, job: Job) -> str:
        """Return a VM of another job that has the name of an instance of `job` ("": none). Only adopted VMs can."""
        return self.adopted_as(job.app or job.name, INSTANCES_MAX if job.app else job.instances)

    def adopted_as(self, workload: str, count: int) -> str:
        """Return an adopted VM that has the name of one of `count` instances of another workload ("": none)."""
        for vm, entry in self.adopted.items():
            name, _, index = vm.rpartition(INSTANCE_SEPARATOR)
            if name == workload != entry.job.name and index.isdigit() and int(index) < count:
                return vm
        return ""

    def lacking(self) -> bool:
        """Return whether a web application has fewer wanted instances than its minimum."""
        return any(
            len(self.replicas_wanted(name)) < web.sizes(False)[0]
            for name, web in self.web.items()
            if not web.removed and self._is_served(web.app.environment)
        )

    def _is_served(self, environment: str) -> bool:
        entry = self.environments.get(environment)
        return entry.running if entry is not None else not environment

    def replicas_wanted(self, app: str) -> list[JobEntry]:
        """Return the instances of a web application that are wanted, by number. O(n log n)."""
        replicas = self.replicas.get(app, {})
        return [replica for _, replica in sorted(replicas.items()) if replica.phase is JobPhase.RUNNING]

    def set_allotments(self, entry: JobEntry, allotments: tuple[Allotment, ...]) -> None:
        """Change where a job is wanted; empty: nowhere."""
        self._want(entry, entry.allotments, -1.0)
        entry.allotments = allotments
        self._want(entry, allotments, +1.0)

    def _want(self, entry: JobEntry, allotments: tuple[Allotment, ...], sign: float) -> None:
        for at, allotment in enumerate(allotments):
            node = self.nodes.get(allotment.node)
            if node is None:
                continue
            instance = entry.instances[at] if at < len(entry.instances) else None
            memory_mib = entry.job.memory_mib + self.vm_overhead_mib if instance is None else instance.memory_mib
            node.wanted_mib += sign * memory_mib
            node.wanted_mhz += sign * allotment.cpu_mhz
            if instance is not None and instance.pages.amounts and sign > 0.0:
                node.paged[instance.vm] = instance
            elif instance is not None and node.paged:
                node.paged.pop(instance.vm, None)

    def first_report(self, name: str) -> list[JobEntry]:
        """Note that a node has reported its VMs, or never will; after the last of them, return the jobs to check
        again."""
        if name not in self.nodes_not_reported:
            return []
        self.nodes_not_reported.discard(name)
        if self.nodes_not_reported:
            return []
        return [entry for entry in self.active.values() if any(instance.sought for instance in entry.instances)]

    # --- the ledger ---------------------------------------------------------------------------------------------

    def claim(self, instance: Instance, name: str) -> None:
        """Note that the VM is or may be on the node."""
        node = self.nodes.get(name)
        if node is None or name in instance.may_run_on:
            return
        instance.may_run_on.add(name)
        instance.sought = False
        if instance.vm in node.vms:  # a VM that is there and ours is a copy, also one listed before its job was known
            instance.copies.add(name)
        node.claimed[instance.vm] = instance
        node.committed_mib += instance.memory_mib
        node.committed_mhz += instance.cpu_mhz

    def release(self, instance: Instance, name: str) -> None:
        """Note the proof that the VM is not on the node."""
        if name not in instance.may_run_on:
            return
        instance.may_run_on.discard(name)
        node = self.nodes[name]
        node.claimed.pop(instance.vm, None)
        if node.claimed:
            node.committed_mib -= instance.memory_mib
            node.committed_mhz -= instance.cpu_mhz
        else:  # no rounding errors stay behind on an empty node
            node.committed_mib = node.committed_mhz = 0.0

    def lose(self, instance: Instance, where: str) -> None:
        """Note that somebody else took it away, nobody knows where to; `where`: what is known of that."""
        instance.left = where
        self.left[instance.vm] = instance

    def found(self, instance: Instance) -> None:
        """Note that it is known again where the VM is, or that it is nowhere."""
        instance.left = ""
        instance.awaited = set()
        self.missing.pop(instance.vm, None)
        self.left.pop(instance.vm, None)

    def set_cpu(self, instance: Instance, cpu_mhz: float) -> None:
        """Note a VM's new allotment wherever it counts."""
        for name in instance.may_run_on:
            self.nodes[name].committed_mhz += cpu_mhz - instance.cpu_mhz
        instance.cpu_mhz = cpu_mhz

    def note_needs(self, instance: Instance, needs: tuple[str, ...]) -> None:
        """Note what a VM needs of a node that it is migrated to. Memory in hugepages does not count as ordinary memory
        wherever the VM is or is wanted."""
        needs = with_cell_memory(needs, instance.job.job.memory_mib)
        if needs == instance.needs:
            return
        instance.needs, pages, entry = needs, pages_of(needs), instance.job
        if pages == instance.pages:
            return
        self._want(entry, entry.allotments, -1.0)
        memory_mib = ordinary_mib(entry.job.memory_mib, needs) + self.vm_overhead_mib
        for name in instance.may_run_on:
            self.nodes[name].committed_mib += memory_mib - instance.memory_mib
        instance.memory_mib, instance.pages = memory_mib, pages
        self._want(entry, entry.allotments, +1.0)

    def note_copy(self, node: NodeEntry, status: VmStatus) -> Instance | None:
        """Take over a node's word on one of our VMs; None for a VM whose job is not known."""
        node.vms[status.vm] = status
        instance = self._instance_of(status.vm)
        if instance is not None:
            instance.copies.add(node.name)
            instance.sought = False
            instance.disks = max(instance.disks, status.disks)
            if status.generation == instance.generation and (instance.left or instance.awaited):
                self.found(instance)
            if status.state in LIVE_STATES or status.state is VmState.INCOMING or status.busy:
                self.claim(instance, node.name)
            if status.state is VmState.CRASHED:
                instance.job.crashed = status.attempt
            if status.state in LIVE_STATES or not instance.needs:
                self.note_needs(instance, status.migration_needs)
        return instance

    def _instance_of(self, vm: str) -> Instance | None:
        instance = self.instances.get(vm)
        if instance is None:
            entry = self.jobs.get(vm) or self.jobs.get(vm.rpartition(INSTANCE_SEPARATOR)[0])
            if entry is not None and entry.over and not self.names_taken(entry.job):
                self.revive(entry)
                instance = self.instances.get(vm)
        return instance

    # --- actions under way ----------------------------------------------------------------------------------------

    def begin(self, instance: Instance, flight: InFlight) -> None:
        """Note an action as in progress."""
        instance.in_flight = flight
        self.actions[flight.id] = instance
        self.nodes[flight.node].flights[flight.id] = instance
        self._count(flight, +1)

    def settle(self, instance: Instance) -> InFlight | None:
        """Note that the instance's action is over, however it ended."""
        flight, instance.in_flight = instance.in_flight, None
        instance.beat = instance.weighed = None
        if flight is not None:
            self.actions.pop(flight.id, None)
            self._count(flight, -1)
        return flight

    def _count(self, flight: InFlight, sign: int) -> None:
        migrating = flight.kind is ActionKind.MIGRATE
        self.migrations += sign * migrating
        carrier = self.nodes.get(flight.node)
        if carrier is not None and sign < 0:
            carrier.flights.pop(flight.id, None)
        for name in {flight.node, flight.to_node} - {""}:
            node = self.nodes.get(name)
            if node is not None:
                node.actions += sign
                node.migrations += sign * migrating
