"""Questions about rows: whether an instance is busy, unknown, or its report older than its last action."""

from __future__ import annotations

import math
from dataclasses import asdict

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.values.view_format import Row
from shared.values.nodes import NodeCondition
from shared.values.vms import LIVE_STATES, VmState, VmStatus


def is_stale(instance: Instance, status: VmStatus) -> bool:
    """Return whether a node's saved image of a VM is beside disks that the VM has since run without, and is therefore
    useless."""
    return status.state is VmState.SUSPENDED and 0 < status.disks < instance.disks


def is_busy(cluster: Cluster, instance: Instance) -> bool:
    """Return whether an operation on the VM is in progress, ordered by this leader or an older one."""
    if instance.in_flight is not None:
        return True
    for name in (*instance.copies, *instance.may_run_on):
        node = cluster.nodes[name]
        if instance.vm in node.in_progress:
            return True
        status = node.vms.get(instance.vm)
        if status is not None and status.busy:
            return True
    return False


def is_unknown(cluster: Cluster, instance: Instance) -> bool:
    """Return whether the VM may be on a node whose state is unknown or whose report on it is awaited, or has left for
    an unknown place."""
    if (instance.sought and cluster.nodes_not_reported) or instance.left or instance.awaited:
        return True
    for name in instance.may_run_on:
        if name not in instance.copies or cluster.nodes[name].condition is not NodeCondition.UP:
            return True
    return False


def _copies(cluster: Cluster, instance: Instance) -> list[tuple[NodeEntry, VmStatus]]:
    return [(cluster.nodes[name], cluster.nodes[name].vms[instance.vm]) for name in sorted(instance.copies)]


def newest_copy(cluster: Cluster, instance: Instance) -> tuple[NodeEntry, VmStatus] | None:
    """Return the newest VM or image of an instance and its node, None when there is none."""
    copies = _copies(cluster, instance)
    return max(copies, key=lambda copy: (copy[1].generation, copy[1].state in LIVE_STATES), default=None)


def failure_view(instance: Instance) -> Row | None:
    """Return the last failure on an instance, None: none that this controller knows of."""
    failed = instance.failed
    if failed is None:
        return None
    words = f"{failed.kind} on {failed.node}: {failed.outcome} {failed.detail}".rstrip()
    return asdict(failed) | {"text": words}


def last_node(instance: Instance) -> str:
    """Return the node on which a VM is defined, or was seen last ("": not known)."""
    defined_on = "" if instance.failover is None else instance.failover.node
    return next(iter(sorted(instance.copies)), defined_on or instance.home or instance.counter_node)


def lost_mcycles_of(entry: JobEntry) -> float:
    """Return the Mcycles of work that would be lost if the job restarted now."""
    step = entry.job.checkpoint_mcycles
    saved = math.floor(entry.done_mcycles / step) * step if step > 0 else 0.0
    return math.fsum(max(instance.done_mcycles - saved, 0.0) for instance in entry.instances)
