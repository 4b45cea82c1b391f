"""What operators ask for: checked whole before anything changes, done once however often it is delivered.

What only asks (`Query`, `DryRun`) is answered by `daemons/controller/requests/queries.py`.
"""

from __future__ import annotations

from daemons.access.identity import who
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.environments.feasibility import Known, nodes_of, refuse_app, refuse_job
from daemons.controller.environments.requests import Ask, Environments
from daemons.controller.measure.reports import Measure
from daemons.controller.notifications.rules import NotificationRules
from daemons.controller.requests.authorization import named
from daemons.controller.requests.quota import Quota
from daemons.controller.requests.vms import VmRequests
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.entries import OVER, JobEntry, NodeEntry
from daemons.controller.state.migration_fit import no_template
from daemons.controller.state.transitions import cancel
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.web.apps import WebApps, could_hold, why_none
from daemons.controller.web.profiles import with_stages
from daemons.values.records.cluster import DECLARED, Approval
from daemons.values.replies import unknown
from shared.ports.effects import Declare, StartTimer
from shared.protocol import topology
from shared.protocol.account_messages import Assess, RejectPlan
from shared.protocol.codec import fingerprint
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import (
    AddNode,
    AdoptVm,
    ApprovePlan,
    CancelJob,
    Change,
    CheckReservation,
    ConfirmGone,
    ConfirmOff,
    CreateEnvironment,
    DrainNode,
    DropNotification,
    DryRun,
    ForgetVm,
    HandsOn,
    HoldJob,
    MoveVm,
    ProfileNode,
    Query,
    RemoveNode,
    RemoveWeb,
    RepairNode,
    Request,
    RetryNotification,
    SetDeciding,
    SubmitJob,
    SubmitWeb,
    TryChannel,
)
from shared.values.jobs import Job, JobPhase
from shared.values.nodes import Handover, Node, NodeCondition, NodeService

REMEMBERED_MAX = 1_000


class Requests:
    """Carries out operators' requests on the desired state."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        measure: Measure,
        deciding: DecisionCycle,
        web: WebApps,
        environments: Environments,
        notifying: NotificationRules,
    ) -> None:
        self.cluster, self.unit_of_work, self.measure, self.deciding, self.web = (
            cluster,
            unit_of_work,
            measure,
            deciding,
            web,
        )
        self.environments, self.notifying = environments, notifying
        self.vms = VmRequests(cluster, unit_of_work, deciding)
        self.quota = Quota(cluster, deciding.settings.limits)
        self._done: dict[str, bytes] = {}

    def handle(self, request: Request, now_s: float, sender: str, why: str = "") -> Reply:
        """Do it, or say why not; a refusal changes nothing, and neither does a request that was done already. `sender`
        may ask for it (`daemons.controller.requests.authorization`), and said why."""
        assert not isinstance(request, Query | DryRun | Assess | CheckReservation)
        if self._done.get(request.request) == fingerprint(request):
            return Reply(request.request, True)
        code, detail = self._handle(request, now_s, sender, why)
        if not code:
            self._remember(request)
        return Reply(request.request, not code, code, detail)

    def _remember(self, request: Request) -> None:
        """A repeat that comes late must not undo what was asked for since."""
        self._done[request.request] = fingerprint(request)
        if len(self._done) > REMEMBERED_MAX:
            del self._done[next(iter(self._done))]

    def _handle(self, request: Change, now_s: float, sender: str, why: str) -> tuple[str, str]:
        match request:
            case SubmitJob():
                refused = self._submit(request, now_s, sender)
            case CancelJob():
                refused = self._cancel(request, now_s)
            case AddNode():
                refused = self._add_node(request, now_s)
            case RemoveNode():
                refused = self._remove_node(request, now_s)
            case DrainNode():
                refused = self._drain(request, now_s)
            case RepairNode():
                refused = self._repair(request, now_s)
            case ConfirmOff():
                refused = self._confirm_off(request, now_s)
            case ApprovePlan():
                refused = self.deciding.approving.approve(request.decision, Approval(sender, now_s, why))
            case RejectPlan():
                rejection = Approval(sender, now_s, request.why or why)
                refused = self.deciding.approving.reject(request.decision, rejection)
            case SetDeciding():
                refused = self._set_deciding(request, now_s)
            case HoldJob():
                refused = self.vms.hold(request, now_s)
            case ConfirmGone():
                refused = self._confirm_gone(request, now_s)
            case HandsOn():
                refused = self.vms.hands_on(request, now_s)
            case MoveVm():
                refused = self.vms.move(request, now_s)
            case AdoptVm():
                refused = self.vms.adopt(request, now_s)
            case ForgetVm():
                refused = self.vms.forget(request, now_s)
            case SubmitWeb():
                refused = refuse_app(request.app, self.cluster)
                if not refused[0]:
                    refused = self.quota.refuse_app(request.app.name, request.app.environment, sender)
                refused = refused if refused[0] else self.web.submit(request, now_s)
            case RemoveWeb():
                refused = self.web.remove(request, now_s)
            case RetryNotification() | DropNotification() | TryChannel():
                refused = self.notifying.handle(request, now_s)
            case ProfileNode():
                refused = self.deciding.probes.ask(request, now_s)
            case _:
                assert isinstance(request, Ask)
                if isinstance(request, CreateEnvironment) and request.agreement.name not in self.cluster.environments:
                    refused = self.quota.refuse_environment(request.agreement.owner, sender)
                    if refused[0]:
                        return refused
                refused = self.environments.handle(request, now_s, self._known_to(sender))
        return refused

    def _known_to(self, sender: str) -> Known:
        """The environments that somebody may know of (None: all)."""
        asker = who(sender)
        return None if asker is None or asker.sees_all else named(asker, self.cluster)

    # --- jobs -------------------------------------------------------------------------------------------------------

    def _submit(self, request: SubmitJob, now_s: float, sender: str) -> tuple[str, str]:
        job = request.job
        known = self.cluster.jobs.get(job.name)
        if known is not None:
            if known.request == request.request:
                return "", ""
            return "duplicate-name", f"there is a job {job.name!r} already; choose another name"
        if job.app:
            return "invalid-value", f"app is {job.app!r}, expected nothing: submit a web application instead"
        if job.name in self.cluster.web_names:
            return "duplicate-name", f"{job.name!r} is or was a web application; choose another name"
        taken = self.cluster.names_taken(job)
        if taken:
            return "duplicate-name", f"the adopted VM {taken!r} has the name of one of its VMs; choose another name"
        refused = self.quota.refuse_job(sender, now_s)
        if refused[0]:
            return refused
        refused = self.deciding.windows.refuse(job, now_s)
        if refused[0]:
            return refused
        profile = DECLARED
        if not job.stages:
            job, profile = with_stages(job, self.cluster.jobs.values())
            if not job.stages:
                return "no-profile", profile
        if job.environment:
            refused = refuse_job(job, self.cluster)
            if refused[0]:
                return refused
        misfit = fits_nowhere(job, self._inventories(job.environment), self.cluster.vm_overhead_mib)
        if misfit:
            return "fits-no-node", misfit
        lacking = no_template(job.template, self.cluster)
        if lacking:
            return "unknown-template", lacking
        self.deciding.submissions += 1
        self.unit_of_work.dirty_control = True
        awaits = self.deciding.windows.successors.awaited(job)
        order = self.deciding.submissions
        entry = JobEntry(job, request.request, order, now_s, profile=profile, awaits=awaits, user=sender)
        self.cluster.add_job(entry)
        self.quota.count_job(sender)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.happened(now_s, "job-submitted", job.name)
        return "", ""

    def _inventories(self, environment: str) -> list[Node]:
        if environment:
            return nodes_of(self.cluster.environments[environment].agreement, self.cluster)
        return [node.inventory for node in self.cluster.nodes.values() if node.inventory is not None]

    def _cancel(self, request: CancelJob, now_s: float) -> tuple[str, str]:
        entry = self.cluster.job(request.job)
        if entry is None:
            return "unknown-job", unknown("job", request.job, self.cluster.jobs)
        if entry.phase is JobPhase.CANCELLED:
            return "", ""
        if entry.phase in OVER:
            return "job-over", f"job {request.job!r} is {entry.phase} already"
        if entry.adopted:  # it is not ours to end
            return self.vms.forget(ForgetVm(request.request, request.job), now_s)
        cancel(self.cluster, self.unit_of_work, entry, now_s)
        return "", ""

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> tuple[NodeEntry | None, tuple[str, str]]:
        node = self.cluster.nodes.get(name)
        return node, ("", "") if node is not None else ("unknown-node", unknown("node", name, self.cluster.nodes))

    def _add_node(self, request: AddNode, now_s: float) -> tuple[str, str]:
        if request.node not in self.cluster.nodes:
            node = self.cluster.nodes[request.node] = NodeEntry(request.node)
            self.unit_of_work.effects += [Declare(topology.agent_queue(request.node)), StartTimer("hello", now_s)]
            self.unit_of_work.change_node(node)
            self.unit_of_work.happened(now_s, "node-added", request.node)
        return "", ""

    def _remove_node(self, request: RemoveNode, now_s: float) -> tuple[str, str]:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        if node.claimed or node.vms or node.wanted_mib > 0 or node.flights:
            images = len(node.vms.keys() - node.claimed.keys())
            return "node-not-empty", f"{len(node.claimed)} VMs and {images} images may be on it; drain it first"
        if (node.environment or not node.in_hand) and node.condition is not NodeCondition.OFF:
            whose = node.environment or node.given
            failed = node.handover is Handover.FAILED
            way = "its setup has failed: repair it, or power it off and confirm that" if failed else "drain it first"
            return "node-in-environment", f"node {request.node!r} is environment {whose!r}'s; {way}"
        del self.cluster.nodes[request.node]
        self.deciding.deployment.forget(request.node)
        self.deciding.probes.removed(request.node, now_s)
        self.unit_of_work.removed_nodes.append(request.node)
        for entry in self.cluster.heard(request.node):
            self.unit_of_work.touch(entry)
        self.unit_of_work.happened(now_s, "node-removed", request.node)
        return "", ""

    def _drain(self, request: DrainNode, now_s: float) -> tuple[str, str]:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        self.deciding.deployment.hold(node, request.on, now_s)
        if request.on:
            self.environments.without(node, now_s)
        return "", ""

    def _repair(self, request: RepairNode, now_s: float) -> tuple[str, str]:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        if node.service is not NodeService.FAILED and node.handover is not Handover.FAILED:
            return "not-failed", f"node {request.node!r} has not failed, it is {node.service}"
        self.deciding.deployment.repair(node, now_s)
        return "", ""

    def _confirm_off(self, request: ConfirmOff, now_s: float) -> tuple[str, str]:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        if node.condition is NodeCondition.UP:
            return "node-up", f"node {request.node!r} reports; it is not off"
        if node.condition is not NodeCondition.OFF:
            self.measure.proven_off(node, now_s)
        return "", ""

    def _confirm_gone(self, request: ConfirmGone, now_s: float) -> tuple[str, str]:
        instance = self.cluster.instances.get(request.vm)
        if instance is None:
            return "unknown-vm", unknown("VM", request.vm, self.cluster.instances)
        if not (instance.left or instance.awaited):
            where = ", ".join(sorted(instance.may_run_on))
            return "vm-not-missing", f"{request.vm} is or may be on {where}" if where else f"{request.vm} is nowhere"
        self.measure.missing.gone(instance, now_s)
        return "", ""

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _set_deciding(self, request: SetDeciding, now_s: float) -> tuple[str, str]:
        if request.on and not self.unit_of_work.acting:
            self.unit_of_work.acting, self.unit_of_work.dirty_control, self.unit_of_work.place = True, True, True
            self.unit_of_work.deploy = True
            for entry in self.cluster.active.values():
                self.unit_of_work.touch(entry)
            self.unit_of_work.happened(now_s, "acting", "controller")
        if self.deciding.enabled is not request.on:
            self.deciding.enabled = request.on
            self.unit_of_work.dirty_control = True
            self.unit_of_work.place = request.on
            self.unit_of_work.happened(now_s, "deciding-resumed" if request.on else "deciding-paused", "controller")
        return "", ""


def fits_nowhere(job: Job, nodes: list[Node], vm_overhead_mib: float) -> str:
    """Why no node of the cluster could ever hold an instance, or all that must be separate ("": they fit, or no node
    is known yet)."""
    if not nodes:
        return ""
    able = [node for node in nodes if could_hold(job, node, vm_overhead_mib)]
    if not able:
        return why_none(job, nodes, vm_overhead_mib)
    if job.separate and job.instances > len(able):
        return f"{job.instances} instances must be separate, but only {len(able)} nodes could hold one"
    return ""
