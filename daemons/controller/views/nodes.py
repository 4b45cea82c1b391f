"""Views of nodes and of the VMs on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from msgspec import structs

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.state.adoption import names_twice, refusal
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.failover import waits_for
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.migration_fit import why_bound
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import last_node
from daemons.controller.state.usage import unmanaged_mhz, used_mhz
from daemons.controller.state.vm_terms import is_off_limits
from daemons.controller.views.context import ViewContext
from daemons.controller.views.jobs import reconciliation_paused_view
from daemons.controller.views.node_hardware import node_hardware
from daemons.values.view_format import Row, age_since
from shared.protocol.operator_messages import Query
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, NodeSample, NodeService
from shared.values.vms import VmState, VmStatus


def nodes(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return all nodes whose names begin with the subject."""
    found = [node for name, node in sorted(tables.cluster.nodes.items()) if name.startswith(query.subject)]
    left = [node for node in found if node.name > query.after]
    shown = left[: query.limit]
    following = shown[-1].name if len(left) > len(shown) else ""
    return {"total": len(found), "nodes": [node_row(node, now_s) for node in shown], "next": following}


def node(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return one node. KeyError when there is none of the name."""
    entry = tables.cluster.nodes[query.subject]
    details = node_details(tables.cluster, tables.features, entry, now_s)
    trouble = node_trouble(entry, tables.settings.unreachable_after_s, now_s)
    return {"node": details | {"trouble": trouble, "drain_blockers": _drain_blockers(tables, entry)}}


def _drain_blockers(tables: ViewContext, node: NodeEntry) -> list[Row]:
    """Return why a draining node is not empty: each VM that may be on it, and the known reason why it stays."""
    if node.service is not NodeService.DRAINING:
        return []
    reasons = tables.deciding.refusal_rows({instance.job.job.name for instance in node.claimed.values()})
    pending = tables.deciding.pending
    held = {change.workload for change in pending.held} if pending is not None else set()
    rows: list[Row] = []
    for vm, instance in sorted(node.claimed.items()):
        name = instance.job.job.name
        text = "{words} ({code})".format_map(reasons[name]) if name in reasons else ""
        if instance.in_flight is not None:
            text = f"{instance.in_flight.kind.value} is in progress"
        elif is_off_limits(instance.job):
            text = "its automation level is off: migrate it yourself, or set another level"
        elif name in held and pending is not None:
            text = f"decision {pending.number} waits for approval"
        rows.append({"vm": vm, "workload": name, "why": text or "it is next"})
    return rows


def vms(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return all VMs and images, or those of the node that the subject names; KeyError when there is none."""
    cluster = tables.cluster
    places = [cluster.nodes[query.subject]] if query.subject else [node for _, node in sorted(cluster.nodes.items())]
    found = [(place, vm) for place in places for vm in (*vms_on(place), *vms_awaiting(cluster, place))]
    node, _, last = query.after.partition("/")
    left = [(place, vm) for place, vm in found if (place.name, vm.vm) > (node, last)]
    shown = left[: query.limit]
    following = f"{shown[-1][0].name}/{shown[-1][1].vm}" if len(left) > len(shown) else ""
    twice = names_twice(cluster)
    rows = [vm_row(cluster, place, vm, twice, now_s) for place, vm in shown]
    return {"total": len(found), "vms": rows, "next": following}


def node_row(node: NodeEntry, now_s: float) -> Row:
    """Return a node as a row of the list."""
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
    """Return the actual and the desired scheduling state of a node, its current environment and the one that it is
    assigned to."""
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
    """Return a node in full detail."""
    facts, twice = node.inventory, names_twice(cluster)
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
            "migration_bounds": asdict(facts.migration_bounds) if facts else None,
            **node_hardware(node),
            "templates": list(facts.templates) if facts and facts.templates is not None else None,
            "sample": structs.asdict(node.last.sample) if node.last is not None else None,
            "vm_list": [vm_row(cluster, node, status, twice, now_s) for status in vms_on(node)],
            "action_list": [_action(instance) for _, instance in sorted(node.flights.items())],
        }
    )


def node_trouble(node: NodeEntry, unreachable_after_s: float, now_s: float) -> Row | None:
    """Return what a node's agent reports in place of its normal reports while it cannot read its hypervisor. None: it
    can, or the node is unreachable."""
    if node.trouble is None or now_s >= node.trouble[0] + unreachable_after_s:
        return None
    return {"at_s": node.trouble[0], "text": node.trouble[1]}


def age_of(node: NodeEntry, now_s: float) -> float | None:
    """Return the seconds since the node's last report of this boot, None before the first."""
    return age_since(node.seen_s if node.last is not None else None, now_s)


def silent_since_s(node: NodeEntry) -> float | None:
    """Return when an unreachable node last reported, None for one that is reachable or never reported."""
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


def vms_on(node: NodeEntry) -> Iterable[VmStatus]:
    """Return every VM and image of the node by its last report, sorted by name; none of a node that is off."""
    if node.condition is NodeCondition.OFF:
        return []
    reported = node.last.vms if node.last is not None else ()
    strangers = [status for status in reported if not status.managed and status.vm not in node.vms]
    return sorted([*node.vms.values(), *strangers], key=lambda status: status.vm)


def vms_awaiting(cluster: Cluster, node: NodeEntry) -> Iterable[VmStatus]:
    """Return every adopted VM that is to run and waits for the node, which is off, as far as is known; sorted by
    name."""
    if node.condition is not NodeCondition.OFF:
        return []
    entries = [entry for entry in cluster.adopted.values() if entry.phase is JobPhase.SHUT_OFF]
    there = [entry for entry in entries if last_node(entry.instances[0]) == node.name and waits_for(cluster, entry)]
    return [_as_defined(entry) for entry in sorted(there, key=lambda entry: entry.adopted)]


def _as_defined(entry: JobEntry) -> VmStatus:
    (instance,), job = entry.instances, entry.job
    return VmStatus(
        instance.vm,
        VmState.CRASHED,
        instance.generation,
        attempt=entry.attempt,
        memory_mib=job.memory_mib,
        vcpus=job.vcpus,
        migration_needs=instance.needs,
        adopted=True,
    )


def vm_row(cluster: Cluster, node: NodeEntry, status: VmStatus, twice: Mapping[str, int], now_s: float) -> Row:
    """Return a VM or image on a node. twice: `names_twice` of the cluster."""
    instance = cluster.instances.get(status.vm) if status.managed else None
    is_off = node.condition is NodeCondition.OFF
    waits = waits_for(cluster, instance.job) if is_off and instance is not None else ""
    return {
        "vm": status.vm,
        "node": node.name,
        "state": "waiting" if waits else status.state.value,
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
        "waits_for": waits or None,
        "report_age_s": age_of(node, now_s),
        "reconciliation_paused": reconciliation_paused_view(instance.job, now_s) if instance is not None else None,
        "cannot_move": list(why_bound(status.migration_needs)),
        "not_adoptable": None if instance is not None else refusal(cluster, node, status.vm, twice)[1],
    }
