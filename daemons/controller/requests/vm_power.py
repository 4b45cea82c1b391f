"""Adopted VMs that operators start and shut down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from daemons.controller.contract.feature import DONE, Refused, RequestHandler
from daemons.controller.measure.adopted import AdoptedVms
from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.failover import hindrance
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.migration_fit import pages_lacking_on
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy, is_unknown
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import fails_over, terms_of
from daemons.values.replies import unknown
from shared.protocol.operator_messages import PowerVm
from shared.values.jobs import JobPhase
from shared.values.vms import OFF_STATES, VmStatus


class VmPower:
    """Carries them out on the desired state. `handlers`: by request."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, adopted: AdoptedVms) -> None:
        self.cluster, self.unit_of_work, self._adopted = cluster, unit_of_work, adopted
        self.handlers: Mapping[type, RequestHandler] = {
            PowerVm: lambda request, _caller, now_s: self.power(request, now_s)
        }

    def power(self, request: PowerVm, now_s: float) -> Refused:
        """Start a VM that is shut off, or shut its guest down."""
        entry = self.cluster.job_or_vm(request.job)
        if entry is None:
            return "unknown-job", unknown("VM", request.job, [e.job.name for e in self.cluster.adopted.values()])
        if not entry.adopted:
            return (
                "not-a-vm",
                f"{request.job!r} is no adopted VM; see `trimtab jobs cancel`, `trimtab vms suspend`",
            )
        if entry.over:
            return "job-over", f"VM {request.job!r} is {entry.phase} already"
        return self._start(entry, now_s) if request.on else self._shut_down(entry, now_s)

    def _start(self, entry: JobEntry, now_s: float) -> Refused:
        if entry.phase is JobPhase.RUNNING:
            return DONE
        if entry.phase is not JobPhase.SHUT_OFF or entry.released:
            return "vm-busy", f"VM {entry.job.name!r} is {'being shut down' if entry.released else entry.phase}"
        if is_busy(self.cluster, entry.instances[0]) or is_unknown(self.cluster, entry.instances[0]):
            return "vm-busy", f"an operation on VM {entry.job.name!r} is in progress, or its node is unreachable"
        there = self._off(entry)
        if there is None and fails_over(entry):
            return self._start_elsewhere(entry, now_s)
        if there is None:
            return "node-not-usable", f"no node that is up has the definition of VM {entry.job.name!r}"
        node, status = there
        free_mib = node.room_mib()
        if entry.instances[0].memory_mib > free_mib:
            return "no-memory", (
                f"it needs {entry.instances[0].memory_mib:g} MiB, {max(0.0, free_mib):g} MiB are free on {node.name!r}"
            )
        lacking = pages_lacking_on(self.cluster, entry.instances[0], node.name)
        if lacking:
            return "no-memory", f"VM {entry.job.name!r} {'; '.join(lacking)}"
        entry.terms, entry.crashes = replace(terms_of(entry), running=True), 0
        self._adopted.start(entry, node, status, now_s)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "vm-start-requested", entry.job.name, f"on {node.name}")
        return DONE

    def _start_elsewhere(self, entry: JobEntry, now_s: float) -> Refused:
        """Have a VM with failover placed that was off when its node went off."""
        why = hindrance(self.cluster, entry)
        if why:
            return "node-not-usable", f"VM {entry.job.name!r} cannot start: {why}"
        entry.terms, entry.crashes = replace(terms_of(entry), running=True), 0
        entry.lost_with_host, entry.not_before_s = True, now_s
        self.unit_of_work.change(entry)
        self.unit_of_work.emit(now_s, "vm-start-requested", entry.job.name, "on another node")
        return DONE

    def _off(self, entry: JobEntry) -> tuple[NodeEntry, VmStatus] | None:
        """Return the usable node with the newest definition of a VM that is shut off."""
        (instance,) = entry.instances
        nodes = [self.cluster.nodes[name] for name in sorted(instance.copies)]
        found = [(node, node.vms[instance.vm]) for node in nodes if node.usable]
        off = [one for one in found if one[1].state in OFF_STATES]
        return max(off, key=lambda one: one[1].generation, default=None)

    def _shut_down(self, entry: JobEntry, now_s: float) -> Refused:
        if entry.phase is JobPhase.SHUT_OFF:
            if terms_of(entry).running:  # it is not started again from now on
                entry.terms = replace(terms_of(entry), running=False)
                self.unit_of_work.change(entry)
            return DONE
        if entry.phase is not JobPhase.RUNNING or not entry.released:
            return "job-not-running", f"VM {entry.job.name!r} is {entry.phase}; only a VM that runs is shut down"
        if is_busy(self.cluster, entry.instances[0]) or is_unknown(self.cluster, entry.instances[0]):
            return "vm-busy", f"an operation on VM {entry.job.name!r} is in progress, or its node is unreachable"
        entry.terms = replace(terms_of(entry), running=False)
        transitions.shut_down(self.cluster, entry, now_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "vm-shutdown-requested", entry.job.name)
        return DONE
