"""The view of one VM: where it is, where it can be migrated to, and why to no other node."""

from __future__ import annotations

from daemons.controller.state.adoption import names_twice
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.failover import failover_view
from daemons.controller.state.migration_fit import why_bound, why_not_on
from daemons.controller.views.context import ViewContext
from daemons.controller.views.nodes import vm_row, vms_on
from daemons.values.view_format import Row
from shared.protocol.operator_messages import Query


def vm(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return all that is known of a VM: a row for each node that lists it, and where it can be migrated to."""
    cluster, name = tables.cluster, query.subject
    twice = names_twice(cluster)
    rows = [
        vm_row(cluster, place, status, twice, now_s)
        for _, place in sorted(cluster.nodes.items())
        for status in vms_on(place)
        if status.vm == name
    ]
    instance = cluster.instances.get(name)
    failover = None if instance is None else failover_view(instance.job)
    return {"vm": name, "rows": rows, "migration": migration_view(cluster, name), "failover": failover}


def is_listed(cluster: Cluster, vm: str) -> bool:
    """Return whether a node lists a VM or an image of this name."""
    return any(status.vm == vm for node in cluster.nodes.values() for status in vms_on(node))


def migration_view(cluster: Cluster, vm: str) -> Row | None:
    """Return where a managed VM can be migrated to alive, and why to no other node; None for any other VM. A node that
    reports no features may take it, as far as is known."""
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
    }
