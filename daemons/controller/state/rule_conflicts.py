"""Whether the rules of two workloads that name each other can both hold."""

from __future__ import annotations

from daemons.controller.state.cluster import Cluster
from shared.values.jobs import NODE_SCOPE, Rules


def conflict(cluster: Cluster, name: str, rules: Rules) -> str:
    """Return why the rules of a workload cannot hold together with those of one that they name ("": they can). O(named
    workloads)."""
    for other in rules.vm_affinity:
        theirs = _rules_of(cluster, other)
        if theirs is None:
            continue
        scope = rules.affinity_scope
        if name in theirs.vm_anti_affinity and _within(scope, theirs.anti_affinity_scope):
            return f"vm_affinity names {other!r}, whose vm_anti_affinity names {name!r}"
        if _share(rules.anti_affinity, theirs.anti_affinity) and _within(scope, rules.anti_affinity_scope):
            return f"vm_affinity names {other!r}, which has the same anti_affinity, {rules.anti_affinity!r}"
    for other in rules.vm_anti_affinity:
        theirs = _rules_of(cluster, other)
        if theirs is None:
            continue
        if name in theirs.vm_affinity and _within(theirs.affinity_scope, rules.anti_affinity_scope):
            return f"vm_anti_affinity names {other!r}, whose vm_affinity names {name!r}"
        if _share(rules.affinity, theirs.affinity) and _within(rules.affinity_scope, rules.anti_affinity_scope):
            return f"vm_anti_affinity names {other!r}, which has the same affinity, {rules.affinity!r}"
    return ""


def _rules_of(cluster: Cluster, name: str) -> Rules | None:
    web, entry = cluster.web.get(name), cluster.job(name)
    if web is not None:
        return web.app.rules
    return None if entry is None or entry.over else entry.job.rules


def _share(mine: str, theirs: str) -> bool:
    return bool(mine) and mine == theirs


def _within(together: str, apart: str) -> bool:
    """Return whether workloads that share a domain of one scope share one of the other too."""
    return together in (NODE_SCOPE, apart)
