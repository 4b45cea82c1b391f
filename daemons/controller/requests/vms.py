"""What operators ask for of jobs and VMs beyond submitting and cancelling: hold, move, adopt, release.

Each function checks everything first and returns a code and a text; ("", "") when it was done or is so already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from daemons.controller.contract.feature import DONE, Refused, RequestHandler
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.measure.reports import Measure
from daemons.controller.state import transitions
from daemons.controller.state.adoption import names_twice, refusal, status_on
from daemons.controller.state.capabilities import homes, is_bound
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.failover import left_behind
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.migration_fit import lacking_on
from daemons.controller.state.node_fit import fits_nowhere, inventories, unknown_nodes
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy, is_unknown
from daemons.controller.state.rule_conflicts import conflict
from daemons.controller.state.tenancy import admits
from daemons.controller.state.transitions import reconcile_vm, rest
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.usage import needed_mhz, unmanaged_mhz, used_mhz
from daemons.models.placement_relations import Layout
from daemons.models.placement_rules import rules_of, running_places
from daemons.values.records.cluster import FailoverFacts
from daemons.values.replies import unknown
from shared.base.errors import InvalidValue
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.protocol.operator_messages import AdoptVm, ConfirmGone, HoldJob, MoveVm, ReconcileVm, ReleaseVm
from shared.values.jobs import Allotment, ConstraintKind, Job, JobPhase, Rules, Stage
from shared.values.migration import ordinary_mib
from shared.values.vms import LIVE_STATES, VmStatus

ROOM_TOLERANCE = 1e-9  # sums of floats
BY_OPERATOR = Reason(ReasonCode.OPERATOR)


class VmRequests:
    """Carries them out on the desired state."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, deciding: DecisionCycle, measure: Measure) -> None:
        self.cluster, self.unit_of_work, self.deciding, self.measure = cluster, unit_of_work, deciding, measure
        self.handlers: Mapping[type, RequestHandler] = {
            HoldJob: lambda request, _caller, now_s: self.hold(request, now_s),
            ReconcileVm: lambda request, _caller, now_s: self.reconcile_vm(request, now_s),
            MoveVm: lambda request, _caller, now_s: self.move(request, now_s),
            AdoptVm: lambda request, _caller, now_s: self.adopt(request, now_s),
            ReleaseVm: lambda request, _caller, now_s: self.forget(request, now_s),
            ConfirmGone: lambda request, _caller, now_s: self.confirm_gone(request, now_s),
        }

    # --- gone -------------------------------------------------------------------------------------------------------

    def confirm_gone(self, request: ConfirmGone, now_s: float) -> Refused:
        """Believe that a VM which nobody has seen is gone."""
        instance = self.cluster.instances.get(request.vm)
        if instance is None:
            return "unknown-vm", unknown("VM", request.vm, self.cluster.instances)
        if not (instance.left or instance.awaited):
            where = ", ".join(sorted(instance.may_run_on))
            return "vm-not-missing", f"{request.vm} is or may be on {where}" if where else f"{request.vm} is nowhere"
        self.measure.missing.gone(instance, now_s)
        return DONE

    # --- hold -------------------------------------------------------------------------------------------------------

    def hold(self, request: HoldJob, now_s: float) -> Refused:
        """Keep a job from running, or let policies have it again."""
        entry = self.cluster.job(request.job)
        if entry is None:
            return "unknown-job", unknown("job", request.job, self.cluster.jobs)
        if entry.over:
            return "job-over", f"job {request.job!r} is {entry.phase} already"
        if entry.held is request.on:
            return DONE
        if request.on and entry.phase is JobPhase.SHUT_OFF:
            return "job-not-running", f"job {request.job!r} is an adopted VM that is shut off; there is nothing to hold"
        if request.on and entry.adopted and entry.phase is JobPhase.RUNNING and not entry.released:
            return "job-not-running", f"job {request.job!r} is being adopted; try again when it runs"
        entry.held = request.on
        reconcile_vm(entry, now_s)
        if request.on:
            rest(self.cluster, entry)
        transitions.outdate(entry)
        if not request.on:
            self._bring_back(entry, now_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "job-held" if request.on else "job-unheld", request.job)
        return DONE

    def _bring_back(self, entry: JobEntry, now_s: float) -> None:
        """Resume an adopted VM where its image is, with its former CPU, independent of what is allotted there. As at
        adoption, only memory can be insufficient; then decisions choose the time."""
        where = homes(self.cluster, entry) if entry.adopted else ()
        node = self.cluster.nodes[where[0]] if where else None
        if node is None or not node.usable or node.inventory is None:
            return
        takes_mib = 0.0 if node.inventory.freezes else entry.job.memory_mib + self.cluster.vm_overhead_mib
        if takes_mib > node.room_mib():
            return
        speed_mhz = entry.job.speed_on_mhz(node.inventory)
        cpu_mhz = min(node.vms[entry.adopted].cpu_mhz or speed_mhz, speed_mhz)
        allotments = (Allotment(node.name, cpu_mhz),)
        change = Change(entry.job.name, entry.revision, ChangeKind.RESUME, allotments, BY_OPERATOR)
        self.deciding.desired.apply([change], now_s)

    def reconcile_vm(self, request: ReconcileVm, now_s: float) -> Refused:
        """Let policies and the reconciler have a workload again that somebody else has meddled with."""
        instance = self.cluster.instances.get(request.vm)
        if instance is None:
            return "unknown-vm", unknown("VM", request.vm, self.cluster.instances)
        entry = instance.job
        if entry.reconciliation_paused is not None:
            reconcile_vm(entry, now_s)
            transitions.outdate(entry)
            self.unit_of_work.change(entry)
            self.unit_of_work.place = True
            self.unit_of_work.emit(now_s, "reconciliation-resumed", entry.job.name)
        return DONE

    # --- move -------------------------------------------------------------------------------------------------------

    def refuse_move(self, request: MoveVm) -> Refused:
        """Return why one VM cannot be wanted on another node with its current CPU; ("", "") when it can, or already
        is."""
        instance = self.cluster.instances.get(request.vm)
        if instance is None:
            return "unknown-vm", unknown("VM", request.vm, self.cluster.instances)
        node = self.cluster.nodes.get(request.node)
        if node is None:
            return "unknown-node", unknown("node", request.node, self.cluster.nodes)
        entry = instance.job
        if entry.phase is not JobPhase.RUNNING or not entry.released or instance.ended:
            return (
                "vm-not-running",
                f"{request.vm} is part of a job that is {_doing(entry)}; only a running VM is moved",
            )
        index = entry.instances.index(instance)
        allotment = entry.allotments[index]
        if allotment.node == node.name:
            return DONE
        if any(is_busy(self.cluster, one) or is_unknown(self.cluster, one) for one in entry.instances):
            return (
                "vm-busy",
                f"an operation on a VM of job {entry.job.name!r} is in progress, or a node of it is unreachable",
            )
        if is_bound(self.cluster, allotment.node):
            return "constraint", f"node {allotment.node!r} cannot migrate what runs on it"
        lack = lacking_on(self.cluster, instance, node.name)
        if lack:
            return "migration-fit", f"for a live migration of {request.vm} {node.name!r} lacks {', '.join(lack)}"
        return self._misfit(entry, node, allotment.cpu_mhz)

    def move(self, request: MoveVm, now_s: float) -> Refused:
        """Want one VM on another node, with the CPU it has."""
        refused = self.refuse_move(request)
        if refused != DONE:
            return refused
        instance, node = self.cluster.instances[request.vm], self.cluster.nodes[request.node]
        entry = instance.job
        index = entry.instances.index(instance)
        allotment = entry.allotments[index]
        if allotment.node == node.name:
            return DONE
        reconcile_vm(entry, now_s)
        wanted = list(entry.allotments)
        wanted[index] = Allotment(node.name, allotment.cpu_mhz)
        change = Change(entry.job.name, entry.revision, ChangeKind.MIGRATE, tuple(wanted), BY_OPERATOR)
        self.deciding.desired.apply([change], now_s)
        instance.insisted = entry.allotments[index].node == node.name
        self.unit_of_work.emit(now_s, "vm-migration-requested", request.vm, f"{allotment.node} to {node.name}")
        return DONE

    def _misfit(self, entry: JobEntry, node: NodeEntry, cpu_mhz: float) -> Refused:
        """Return why the node cannot take an instance of the job in addition."""
        job, inventory = entry.job, node.inventory
        if node.in_hand and not admits(self.cluster, node, job.environment):
            whose, own = node.environment or "nobody", job.environment or "none"
            return "node-in-environment", f"node {node.name!r} is {whose}'s, {job.name!r} is of environment {own}"
        if not node.schedulable or inventory is None:
            skewed = ", its clock is off" if node.skewed else "" if node.in_hand else ", it changes hands"
            skewed += f", its agent has seen term {node.term_ahead}" if node.term_ahead else ""
            return "node-not-schedulable", f"node {node.name!r} is {node.condition} and {node.service}{skewed}"
        lacking = sorted(set(job.required_labels) - set(inventory.labels))
        if lacking:
            return "labels", f"node {node.name!r} lacks the labels {lacking}"
        if job.spread and any(allotment.node == node.name for allotment in entry.allotments):
            return "not-separate", f"another instance of {job.name!r} is on {node.name!r}; they must be separate"
        if job.app and any(_is_on(replica, node) for replica in self.cluster.replicas[job.app].values()):
            return "not-separate", f"another instance of {job.app!r} is on {node.name!r}; they must be separate"
        rule = self._rule_broken(entry, node)
        if rule:
            return "constraint", f"{job.name!r} may not run on node {node.name!r} now: a rule, {rule}, forbids it"
        most_mhz = job.speed_on_mhz(inventory)
        if cpu_mhz > most_mhz * (1.0 + ROOM_TOLERANCE):
            return "no-cpu", f"it has {cpu_mhz:g} MHz, {most_mhz:g} MHz is the most it can have on {node.name!r}"
        memory_mib = max(instance.memory_mib for instance in entry.instances)
        free_mib = min(inventory.usable_mib - node.wanted_mib - node.unmanaged_mib, node.room_mib())
        if memory_mib * (1.0 - ROOM_TOLERANCE) > free_mib:
            return "no-memory", f"it needs {memory_mib:g} MiB, {max(0.0, free_mib):g} MiB are free on {node.name!r}"
        free_mhz = inventory.cpu_mhz - node.wanted_mhz - unmanaged_mhz(node)
        if cpu_mhz * (1.0 - ROOM_TOLERANCE) > free_mhz:
            return "no-cpu", f"it has {cpu_mhz:g} MHz, {max(0.0, free_mhz):g} MHz are free on {node.name!r}"
        return DONE

    def _rule_broken(self, entry: JobEntry, node: NodeEntry) -> str:
        """Return the name of the required rule that any instance of the job would break on the node, given where all
        others are wanted ("": at least one may go there). Disabled migration does not bind an operator."""
        heard_s = max(each.seen_s for each in self.cluster.nodes.values())
        seen = self.deciding.builder.build(heard_s, at_cycle=False)
        constraints = tuple(each for each in seen.constraints if each.kind is not ConstraintKind.KEEP)
        names = seen.workloads.names
        if not constraints or entry.job.name not in names or node.name not in seen.nodes.names:
            return ""
        rules = rules_of(replace(seen, constraints=constraints, migration=None), seen.nodes.schedulable)
        row, to, places = names.index(entry.job.name), seen.nodes.names.index(node.name), running_places(seen)
        place = places.get(row, ())
        after = ((*place[:at], to, *place[at + 1 :]) for at in range(len(place)))
        layout = Layout(places.get)
        broken = [rules.broken(row, each, layout) for each in after]
        return broken[0] if broken and all(broken) else ""

    # --- adopt and forget -------------------------------------------------------------------------------------------

    def adopt(self, request: AdoptVm, now_s: float) -> Refused:
        """Take over an unmanaged VM, or a managed one whose job is unknown, running or shut off."""
        known = self.cluster.jobs.get(request.job)
        if known is not None and known.request == request.request:
            return DONE
        if known is not None and known.phase is JobPhase.FORGOTTEN and request.job in self.cluster.active:
            return "vm-busy", f"{request.job!r} is being released; try again in a moment"
        if known is not None and not (known.adopted and known.phase is JobPhase.FORGOTTEN):
            return "duplicate-name", f"there is a job {request.job!r} already; choose another name"
        if request.job in self.cluster.web_names:
            return "duplicate-name", f"{request.job!r} is or was a web application; choose another name"
        node = self.cluster.nodes.get(request.node)
        if node is None:
            return "unknown-node", unknown("node", request.node, self.cluster.nodes)
        refused = refusal(self.cluster, node, request.vm, names_twice(self.cluster))
        if refused != DONE:
            return refused
        status = status_on(node, request.vm)
        assert status is not None
        return self._take_over(request, node, status, now_s)

    def _take_over(self, request: AdoptVm, node: NodeEntry, status: VmStatus, now_s: float) -> Refused:
        """Take over a VM. CPU is compressible: one that runs gets what it used, independent of what is allotted.
        The next decision shares the CPU."""
        assert node.inventory is not None
        speed_mhz = min(status.vcpus * node.inventory.core_mhz, node.inventory.cpu_mhz)
        used = used_mhz(node, status.vm)
        known_mhz = status.cpu_mhz if used is None or status.managed else needed_mhz(node, status.vm)
        cpu_mhz = min(known_mhz or speed_mhz, speed_mhz)
        unknown_node = unknown_nodes(self.cluster, request.rules)
        if unknown_node:
            return "unknown-node", unknown_node
        contradiction = "" if request.checked else conflict(self.cluster, request.job, request.rules)
        if contradiction:
            return "invalid-value", contradiction
        try:
            stage = Stage(0.0, status.vcpus * node.inventory.core_mhz, memory_mib=status.memory_mib)
            job = Job(
                request.job,
                (stage,),
                submit_s=max(0.0, now_s),
                vcpus=status.vcpus,
                importance=request.importance,
                rules=request.rules,
            )
        except InvalidValue as problem:
            return "invalid-value", str(problem)
        if request.rules != Rules():
            memory_mib = ordinary_mib(status.memory_mib, status.migration_needs) + self.cluster.vm_overhead_mib
            nodes, there = inventories(self.cluster, ""), {node.name}
            misfit = fits_nowhere(job, nodes, self.cluster.vm_overhead_mib, there, memory_mib)
            if misfit:
                return "fits-no-node", misfit
        if request.check:
            return DONE
        entry = JobEntry(job, request.request, self.deciding.next_submission(), accepted_s=now_s, adopted=request.vm)
        runs = status.state in LIVE_STATES
        entry.terms = replace(request.terms, running=runs)
        transitions.adopt(entry, runs, now_s)
        self.cluster.add_job(entry)
        entry.instances[0].home = node.name
        entry.instances[0].failover = FailoverFacts(node=node.name)
        if runs:
            self.cluster.set_allotments(entry, (Allotment(node.name, cpu_mhz),))
        if status.managed:
            self._attach(entry, node, status)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "vm-adopted", request.job, f"{request.vm} on {node.name}")
        return DONE

    def _attach(self, entry: JobEntry, node: NodeEntry, status: VmStatus) -> None:
        """Attach a VM that already has Trimtab's metadata, with the attempt and generation that it names."""
        (instance,) = entry.instances
        entry.attempt = instance.issued_attempt = status.attempt
        instance.generation, instance.cpu_mhz, entry.taken = status.generation, status.cpu_mhz, True
        if status.state in LIVE_STATES:
            held_mib = ordinary_mib(status.memory_mib, status.migration_needs)
            node.unmanaged_mib = max(0.0, node.unmanaged_mib - held_mib)
        self.cluster.note_copy(node, status)

    def forget(self, request: ReleaseVm, now_s: float) -> Refused:
        """Release a job whose VMs all run."""
        entry = self.cluster.job_or_vm(request.job)
        if entry is None:
            return "unknown-job", unknown("job", request.job, self.cluster.jobs)
        if entry.phase is JobPhase.FORGOTTEN:
            return DONE
        if entry.over:
            return "job-over", f"job {request.job!r} is {entry.phase} already"
        left = left_behind(self.cluster, entry) if entry.adopted else ()
        if left:
            return (
                "vm-left-behind",
                f"{', '.join(left)} may have a definition of {request.job!r} from before a failover",
            )
        off = entry.phase is JobPhase.SHUT_OFF
        if not off and (entry.phase is not JobPhase.RUNNING or not entry.released):
            return "job-not-running", f"job {request.job!r} is {_doing(entry)}; only running VMs can be let go"
        if not off and not all(instance.ended or self._in_hand(instance) for instance in entry.instances):
            return (
                "vm-busy",
                f"an operation on a VM of job {request.job!r} is in progress, or a node of it is unreachable",
            )
        transitions.forget(self.cluster, entry, now_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "job-unmanaged", request.job)
        return DONE

    def _in_hand(self, instance: Instance) -> bool:
        return not (is_busy(self.cluster, instance) or is_unknown(self.cluster, instance))


def _is_on(entry: JobEntry, node: NodeEntry) -> bool:
    return any(allotment.node == node.name for allotment in entry.allotments)


def _doing(entry: JobEntry) -> str:
    if entry.phase is not JobPhase.RUNNING or entry.released:
        return str(entry.phase)
    return "being resumed" if entry.resuming else "being started"
