"""The view of one VM: where it is, where it can be migrated to, and why to no other node."""

from __future__ import annotations

from daemons.controller.reconcile.migrations import Migrations
from daemons.controller.state.adoption import names_twice
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.failover import failover_view
from daemons.controller.state.jobs import Instance
from daemons.controller.state.migration_fit import why_bound, why_not_on
from daemons.controller.views.context import ViewContext
from daemons.controller.views.nodes import vm_row, vms_awaiting, vms_on
from daemons.values.view_format import Row
from shared.protocol.operator_messages import Query
from shared.values.vms import LIVE_STATES, VmStatus

FORECASTS_MAX = 20  # nodes


def vm(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return all that is known of a VM: a row for each node that lists it, and where it can be migrated to."""
    cluster, name = tables.cluster, query.subject
    twice = names_twice(cluster)
    rows = [
        vm_row(cluster, place, status, twice, now_s)
        for _, place in sorted(cluster.nodes.items())
        for status in (*vms_on(place), *vms_awaiting(cluster, place))
        if status.vm == name
    ]
    instance = cluster.instances.get(name)
    failover = None if instance is None else failover_view(instance.job)
    migration = migration_view(cluster, tables.reconciler.migrations, name, now_s)
    return {"vm": name, "rows": rows, "migration": migration, "failover": failover}


def is_listed(cluster: Cluster, vm: str) -> bool:
    """Return whether a node lists a VM or an image of this name."""
    return any(status.vm == vm for node in cluster.nodes.values() for status in vms_on(node))


def migration_view(cluster: Cluster, migrations: Migrations, vm: str, now_s: float) -> Row | None:
    """Return where a managed VM can be migrated to alive, how long that takes, and why to no other node; None for any
    other VM. A node that reports no features may take it, as far as is known."""
    instance = cluster.instances.get(vm)
    if instance is None:
        return None
    able: list[str] = []
    unable: list[Row] = []
    for name, node in sorted(cluster.nodes.items()):
        if node.inventory is None or name in instance.may_run_on:
            continue
        why = why_not_on(cluster, instance, name)
        if why:
            unable.append({"node": name, "why": list(why)})
        else:
            able.append(name)
    return {
        "needs": list(instance.needs),
        "cannot_move": list(why_bound(instance.needs)),
        "able": able,
        "unable": unable,
        "hugepages_mib": instance.pages.total_mib,
        "memory": _memory(cluster, instance),
        "forecasts": [
            _forecast(migrations, instance, home, name, now_s)
            for home in _homes(cluster, instance)
            for name in able[:FORECASTS_MAX]
        ],
    }


def _homes(cluster: Cluster, instance: Instance) -> list[str]:
    """Return the node on which a VM runs, as it was reported last."""
    found = [name for name in sorted(instance.may_run_on) if name in cluster.nodes]
    return [name for name in found if _is_live(cluster.nodes[name].vms.get(instance.vm))][:1]


def _is_live(status: VmStatus | None) -> bool:
    return status is not None and status.state in LIVE_STATES


def _memory(cluster: Cluster, instance: Instance) -> Row | None:
    """Return what a migration has to move (None: the VM does not run)."""
    for home in _homes(cluster, instance):
        status = cluster.nodes[home].vms[instance.vm]
        measured = status.dirty_mib_per_s >= 0.0
        return {
            "resident_mib": status.resident_mib or None,
            "dirty_mib_per_s": status.dirty_mib_per_s if measured else None,
            "working_set_mib": status.working_set_mib or None,
            "local_disk_mib": status.disk_mib,
        }
    return None


def _forecast(migrations: Migrations, instance: Instance, home: str, name: str, now_s: float) -> Row:
    """Return how a migration to a node is expected to go. Its figures are None where nothing is known of the links or
    of the guest's dirty rate, or it would not end: then `why_not` says so."""
    choice = migrations.choice(instance, home, name)
    found = None if choice is None or choice.guessed else choice.forecast
    why_not = migrations.refusal(instance, home, name, now_s)
    if not why_not and (too_long := migrations.pause_refusal(instance, home, name, now_s)) is not None:
        why_not = too_long[1]
    return {
        "node": name,
        "method": None if found is None else found.method.value,
        "duration_s": None if found is None else round(found.duration_s, 3),
        "downtime_s": None if found is None else round(found.downtime_s, 3),
        "why_not": why_not or None,
    }
