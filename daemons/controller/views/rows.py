"""Rows of views: one node, job, VM or decision as plain data. docs/views.md has the keys."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec import structs

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.predictions import job_utility, predicted_end_s
from daemons.controller.decide.progress import StepProgress, edges
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import _copies, failure_view, is_unknown, newest_copy
from daemons.controller.state.usage import unmanaged_mhz, used_mhz
from daemons.decision.gains import columns_of
from daemons.values.records.cluster import DecisionRecord, Provisioned
from daemons.values.settings import ControllerSettings, NotifySettings, WindowSettings
from daemons.values.view_format import Row, age_since, reason_view
from shared.policy_api.decision import Change, Refusal, Slowed, Step, WindowSize
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, NodeSample
from shared.values.vms import VmState, VmStatus

# --- nodes -----------------------------------------------------------------------------------------------------------


def node_row(node: NodeEntry, now_s: float) -> Row:
    """A node in the list of all."""
    facts = node.inventory
    sample = node.last.sample if node.last is not None else None
    statuses = list(vms_on(node))
    return {
        "name": node.name,
        "condition": node.condition.value,
        **service_row(node),
        "schedulable": node.schedulable,
        "clock_skewed": node.skewed,
        "term_ahead": node.term_ahead or None,
        "skew_s": min(node.skews_s, default=None),
        "report_age_s": age_of(node, now_s),
        "cores": facts.cores if facts else None,
        "core_mhz": facts.core_mhz if facts else None,
        "labels": list(facts.labels) if facts else None,
        "cpu": _cpu(node, sample),
        "memory": _memory(node, sample),
        "iowait_frac": sample.iowait_frac if sample else None,
        "load_1min": sample.load_1min if sample else None,
        "vms": sum(status.managed for status in statuses),
        "unmanaged_vms": sum(not status.managed for status in statuses),
        "actions": node.actions,
    }


def service_row(node: NodeEntry) -> Row:
    """How far a node is, and how far it is to be; which environment has it, and which is to have it."""
    return {
        "service": node.service.value,
        "wanted": node.wanted,
        "held": node.held,
        "service_since_s": node.since_s or None,
        "environment": node.environment,
        "given": node.given,
        "handover": node.handover.value,
    }


def _cpu(node: NodeEntry, sample: NodeSample | None) -> Row:
    capacity_mhz = node.inventory.cpu_mhz if node.inventory else None
    return {
        "capacity_mhz": capacity_mhz,
        "committed_mhz": node.committed_mhz,
        "wanted_mhz": node.wanted_mhz,
        "unmanaged_mhz": unmanaged_mhz(node),
        "used_mhz": sample.cpu_frac * capacity_mhz if sample and capacity_mhz is not None else None,
    }


def _memory(node: NodeEntry, sample: NodeSample | None) -> Row:
    return {
        "capacity_mib": node.inventory.usable_mib if node.inventory else None,
        "committed_mib": node.committed_mib,
        "wanted_mib": node.wanted_mib,
        "unmanaged_mib": node.unmanaged_mib,
        "used_mib": sample.memory_used_mib if sample else None,
        "free_mib": node.room_mib() if node.inventory else None,
    }


def node_details(cluster: Cluster, features: FeatureSet, node: NodeEntry, now_s: float) -> Row:
    """A node with all that is known of it."""
    facts = node.inventory
    return (
        node_row(node, now_s)
        | features.of_node(node)
        | {
            "boot_id": node.boot_id,
            "off_boot_id": node.off_boot_id,
            "silent_since_s": silent_since_s(node),
            "fencing": node.fencing,
            "memory_mib": facts.memory_mib if facts else None,
            "reserve_mib": facts.reserve_mib if facts else None,
            "cpu_model": facts.cpu_model if facts else None,
            "node_type": facts.node_type if facts else None,
            "mac_addresses": list(facts.mac_addresses) if facts else None,
            "migration_has": list(facts.migration_has) if facts else None,
            "templates": list(facts.templates) if facts and facts.templates is not None else None,
            "sample": structs.asdict(node.last.sample) if node.last is not None else None,
            "vm_list": [vm_row(cluster, node, status, now_s) for status in vms_on(node)],
            "action_list": [_action(instance) for _, instance in sorted(node.flights.items())],
        }
    )


def node_trouble(node: NodeEntry, silent_after_s: float, now_s: float) -> Row | None:
    """What a node's agent says in place of reports while it cannot read its hypervisor, None: it reads it, or is silent
    itself."""
    if node.trouble is None or now_s >= node.trouble[0] + silent_after_s:
        return None
    return {"at_s": node.trouble[0], "text": node.trouble[1]}


def age_of(node: NodeEntry, now_s: float) -> float | None:
    """Seconds since the node's last report of this boot, None before the first."""
    return age_since(node.seen_s if node.last is not None else None, now_s)


def silent_since_s(node: NodeEntry) -> float | None:
    """When a node that is not heard of was last heard of, None for one that is, or never was."""
    return node.seen_s if node.condition is NodeCondition.UNKNOWN and node.last is not None else None


def _action(instance: Instance) -> Row:
    flight = instance.in_flight
    assert flight is not None
    return {
        "id": flight.id,
        "kind": flight.kind.value,
        "vm": instance.vm,
        "node": flight.node,
        "to_node": flight.to_node,
        "expires_at_s": flight.expires_at_s,
    }


# --- VMs -------------------------------------------------------------------------------------------------------------


def vms_on(node: NodeEntry) -> Iterable[VmStatus]:
    """Every VM and image of the node by its last word, by name; none of a node that is off."""
    if node.condition is NodeCondition.OFF:
        return []
    reported = node.last.vms if node.last is not None else ()
    strangers = [status for status in reported if not status.managed and status.vm not in node.vms]
    return sorted([*node.vms.values(), *strangers], key=lambda status: status.vm)


def vm_row(cluster: Cluster, node: NodeEntry, status: VmStatus, now_s: float) -> Row:
    """A VM or image on a node."""
    instance = cluster.instances.get(status.vm) if status.managed else None
    return {
        "vm": status.vm,
        "node": node.name,
        "state": status.state.value,
        "busy": status.busy,
        "managed": status.managed,
        "job": instance.job.job.name if instance is not None and not instance.job.job.app else "",
        "app": instance.job.job.app if instance is not None else "",
        "known": instance is not None or not status.managed,
        "generation": status.generation,
        "attempt": status.attempt,
        "memory_mib": status.memory_mib,
        "vcpus": status.vcpus,
        "cpu_mhz": status.cpu_mhz,
        "cpu_time_s": status.cpu_time_s,
        "used_mhz": used_mhz(node, status.vm),
        "node_condition": node.condition.value,
        "report_age_s": age_of(node, now_s),
        "hands_off": hands_off_view(instance.job, now_s) if instance is not None else None,
    }


# --- jobs ------------------------------------------------------------------------------------------------------------


def job_row(entry: JobEntry, now_s: float, blocked: bool, refusal: Row | None, predicted: Mapping[str, float]) -> Row:
    """A job in the list of all; `refusal`: the last one that named it; predicted: utilities by workload."""
    job, end_s = entry.job, predicted_end_s(entry)
    work_mcycles = job.work_mcycles
    done_mcycles = work_mcycles if entry.phase is JobPhase.COMPLETED else entry.done_mcycles
    not_before_s = max(entry.not_before_s, job.desired_start_s)
    return {
        "name": job.name,
        "phase": entry.phase.value,
        "held": entry.held,
        "adopted": bool(entry.adopted),
        "order": entry.order,
        "revision": entry.revision,
        "attempt": entry.attempt,
        "failures": entry.failures,
        "instances": job.instances,
        "environment": job.environment,
        "user": entry.user,
        "released": entry.released,
        "nodes": [allotment.node for allotment in entry.allotments],
        "cpu_mhz": math.fsum(allotment.cpu_mhz for allotment in entry.allotments),
        "done_mcycles": done_mcycles,
        "work_mcycles": work_mcycles,
        "progress_pct": min(100.0, 100.0 * done_mcycles / work_mcycles) if work_mcycles > 0 else None,
        "submit_at_s": job.submit_s,
        "accepted_at_s": entry.accepted_s,
        "finished_at_s": entry.finished_s if entry.over else None,
        "goal_at_s": job.goal_s,
        "predicted_end_at_s": end_s,
        "utility": job_utility(entry, predicted, end_s),
        "importance": job.importance,
        "profile": entry.profile,
        "stalled": entry.stalled and not entry.over,
        "blocked": blocked,
        "hands_off": hands_off_view(entry, now_s),
        "back_off_until_s": not_before_s if not entry.over and not_before_s > now_s else None,
        "waits_for": None if entry.over else refusal,
    }


def hands_off_view(entry: JobEntry, now_s: float) -> Row | None:
    """What somebody else has done, while the job is left alone for it; else None."""
    return asdict(entry.hands_off) if entry.hands_off is not None and entry.left_alone(now_s) else None


def job_details(cluster: Cluster, entry: JobEntry) -> Row:
    """What a single job's view has beyond its row."""
    spec = asdict(entry.job)
    spec["stages"] = [asdict(stage) for stage in entry.job.stages]
    spec["rules"] |= {"pin": list(entry.job.rules.pin), "forbid": list(entry.job.rules.forbid)}
    spec |= {key: list(spec[key]) for key in ("needs", "after", "arguments")}
    spec["loading"] = dict(entry.job.loading.parts)
    return {
        "spec": spec,
        "request": entry.request,
        "instance_list": [_instance(cluster, entry, index) for index in range(len(entry.instances))],
    }


def _instance(cluster: Cluster, entry: JobEntry, index: int) -> Row:
    instance = entry.instances[index]
    copies, newest = _copies(cluster, instance), newest_copy(cluster, instance)
    return {
        "vm": instance.vm,
        "state": newest[1].state.value if newest else "absent",
        "node": newest[0].name if newest else "",
        "wanted_node": entry.allotments[index].node if entry.allotments else "",
        "cpu_mhz": instance.cpu_mhz,
        "generation": instance.generation,
        "may_run_on": sorted(instance.may_run_on),
        "left": instance.left,
        "awaited": sorted(instance.awaited),
        "images_on": [node.name for node, status in copies if status.state is VmState.SUSPENDED],
        "ended": instance.ended,
        "done_mcycles": instance.done_mcycles,
        "action": instance.in_flight.kind.value if instance.in_flight else "",
        "retry_at_s": instance.retry_at_s or None,
        "last_failure": failure_view(instance),
        "unknown": is_unknown(cluster, instance),
    }


# --- decisions -------------------------------------------------------------------------------------------------------


def change_view(change: Change) -> Row:
    """A change, with its reason in words."""
    return {
        "workload": change.workload,
        "kind": change.kind.value,
        "allotments": [asdict(allotment) for allotment in change.allotments],
        "reason": reason_view(change.reason),
    }


def refusal_view(refusal: Refusal) -> Row:
    """A change that is not made, and why."""
    return {"workload": refusal.workload, "reason": reason_view(refusal.reason)}


def _step(step: Step) -> Row:
    return asdict(step) | {"kind": step.kind.value}


def _steps(steps: Sequence[Step], progress: Sequence[StepProgress], limit: int) -> list[Row]:
    """The steps with their numbers, those that each waits for, and how far they are (nothing: nobody follows them)."""
    rows: list[Row] = []
    for at, (step, after) in enumerate(zip(steps[:limit], edges(steps[:limit]), strict=True)):
        row = _step(step) | {"id": at, "after": after}
        if progress:
            one = progress[at]
            row |= {"state": one.state.value, "since_s": one.since_s, "detail": one.detail}
        rows.append(row)
    return rows


def slowed_view(slowed: Slowed) -> Row:
    """Whom sharing slows, and that in words."""
    by = f" with {', '.join(slowed.by)}" if slowed.by else ""
    text = f"{slowed.node}: slowed {slowed.factor:.1f}x by {slowed.resource} sharing{by}"
    return asdict(slowed) | {"by": list(slowed.by), "text": text}


def _lists(record: DecisionRecord) -> Mapping[str, Sequence[Any]]:
    return {
        "changes": record.changes,
        "held": record.held,
        "refusals": record.refusals,
        "dropped": record.dropped,
        "steps": record.plan.steps,
        "blocked": record.plan.blocked,
        "gains": record.gains,
        "slowed": record.slowed,
    }


def _head(record: DecisionRecord) -> Row:
    return {
        "number": record.number,
        "decided_at_s": record.at_s,
        "term": record.term,
        "policy": record.policy,
        "counts": {key: len(items) for key, items in _lists(record).items()},
        "level": record.level,
        "measured_at_s": record.measured_s,
        "asks": record.asks,
        "approvals": [asdict(approval) for approval in record.approvals],
        "approved_at_s": record.approved_s,
        "rejected": None if record.rejected is None else asdict(record.rejected),
        "utility": columns_of(record.gains).summary() if len(record.gains) else None,
    }


def decision_row(record: DecisionRecord) -> Row:
    """A decision in the list of all."""
    counts = provisioning_counts(record.provisioning)
    return _head(record) | {
        "provisioning": counts,
        "kinds": dict(Counter(change.kind.value for change in record.changes)),
    }


def named_rows(record: DecisionRecord, name: str) -> list[Row]:
    """What a decision says of a job, or of each instance of a web application, by name: changed, held (it waits for
    approval, or nobody approved it), dropped or refused, and why."""
    waits = {change.workload for change in record.held} if record.approved_s is None else set()
    dropped = {refusal.workload for refusal in record.dropped}
    rows = []
    for change in record.changes:
        if _is_of(change.workload, name) and change.workload not in dropped:
            became = "held" if change.workload in waits else "changed"
            nodes = [allotment.node for allotment in change.allotments]
            reason = reason_view(change.reason)
            row = {"workload": change.workload, "became": became, "kind": change.kind.value, "nodes": nodes}
            rows.append(row | {"reason": reason})
    for became, refusals in (("dropped", record.dropped), ("refused", record.refusals)):
        for refusal in refusals:
            if _is_of(refusal.workload, name):
                row = {"workload": refusal.workload, "became": became, "kind": "", "nodes": []}
                rows.append(row | {"reason": reason_view(refusal.reason)})
    return rows


def _is_of(workload: str, name: str) -> bool:
    return workload == name or workload.startswith(f"{name}#")


def last_change(history: Iterable[DecisionRecord], name: str) -> Row | None:
    """The newest change to a job that a decision made, of those that are kept, in words too; None: there is none."""
    for record in history:
        for row in named_rows(record, name):
            if row["became"] == "changed":
                on = f" on {', '.join(row['nodes'])}" if row["nodes"] else ""
                text = f"decision {record.number}: {row['kind']}{on}, {row['reason']['text']}"
                return row | {"decision": record.number, "decided_at_s": record.at_s, "text": text}
    return None


def decision_view(record: DecisionRecord, limit: int, progress: Sequence[StepProgress] = ()) -> Row:
    """A decision with everything in it, at most `limit` rows of each list. progress: of each step of its plan."""
    lists = {
        key: [_SHOWN[key](item) for item in items[:limit]] for key, items in _lists(record).items() if key in _SHOWN
    }
    lists["steps"] = _steps(record.plan.steps, progress, limit)
    return _head(record) | {"provisioning": provisioning_view(record.provisioning, limit)} | lists


_SHOWN: dict[str, Callable[[Any], Row]] = {
    "changes": change_view,
    "held": change_view,
    "refusals": refusal_view,
    "dropped": refusal_view,
    "blocked": refusal_view,
    "gains": structs.asdict,
    "slowed": slowed_view,
}


def _window_settings(window: WindowSettings) -> Row:
    periods = asdict(window.periods) | {"days": list(window.periods.days)}
    params = {key: f"{value}" for key, value in window.analyser.params.items()}
    analyser = {"name": window.analyser.name, "params": params}
    return asdict(window) | {"periods": periods, "removal": window.removal.value, "analyser": analyser}


def provisioning_view(provisioned: Provisioned | None, limit: int) -> Row | None:
    """What a decision says of nodes, with at most `limit` names in each list."""
    if provisioned is None:
        return None
    return {
        "policy": provisioned.policy,
        "in_service": provisioned.in_service,
        "added": list(provisioned.added[:limit]),
        "removed": list(provisioned.removed[:limit]),
        "dropped": list(provisioned.dropped[:limit]),
        "held": provisioned.held,
        "reason": reason_view(provisioned.reason),
        "predicted_cost": provisioned.predicted_cost,
        "windows": [_window(size) for size in provisioned.windows],
        "refused": [{"nodes": nodes, "utility": utility} for nodes, utility in provisioned.refused[:limit]],
    }


def provisioning_counts(provisioned: Provisioned | None) -> Row | None:
    """The same in a few numbers."""
    if provisioned is None:
        return None
    return {
        "in_service": provisioned.in_service,
        "added": len(provisioned.added),
        "removed": len(provisioned.removed),
        "held": provisioned.held,
        "predicted_cost": provisioned.predicted_cost,
    }


def _window(size: WindowSize) -> Row:
    return {
        "window": size.window,
        "jobs": size.jobs,
        "nodes": size.nodes,
        "wanted": size.wanted,
        "breach": list(size.breach),
        "reason": str(size.reason),
        "predicted_cost": size.predicted_cost,
    }


def _notify(settings: NotifySettings) -> dict[str, Any]:
    """What is configured, as plain data; of channels no more than their kinds."""
    rules = [
        asdict(rule) | {name: [*getattr(rule, name)] for name in ("events", "channels", "subjects")}
        for rule in settings.rules
    ]
    return asdict(settings) | {"channels": dict(settings.channels), "rules": rules}


def settings_view(settings: ControllerSettings) -> Row:
    """Every setting by name, as plain data; null for what is switched off."""
    plain = {key: None if value == math.inf else value for key, value in asdict(settings).items()}
    plain["automation"] = settings.automation.value
    for role in ("placement", "provisioning"):
        choice = getattr(settings, role)
        plain[role] = {"name": choice.name, "params": {key: str(value) for key, value in choice.params.items()}}
    if settings.admission is not None:
        plain["admission"] = asdict(settings.admission)
    surplus = settings.assurance.surplus.value
    windows = [*settings.assurance.horizontal]
    plain["assurance"] = asdict(settings.assurance) | {"surplus": surplus, "horizontal": windows}
    plain["windows"] = [_window_settings(window) for window in settings.windows]
    plain["notify"] = _notify(settings.notify)
    power = settings.power
    plain["power"] = asdict(power) | {
        "does": sorted(operation.value for operation in power.does),
        "sleep": power.sleep.value,
        "never": sorted(power.never),
    }
    return plain
