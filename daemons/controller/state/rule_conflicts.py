"""Whether the rules that workloads are to have can hold together with each other and with those of all others."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.node_fit import inventories
from daemons.models.rule_contradictions import Contradiction, Ruled, contradictions
from shared.values.jobs import Rules


def conflict(cluster: Cluster, name: str, rules: Rules) -> str:
    """Return why the rules of a workload cannot hold together with those of others ("": they can). O(workloads)."""
    return next((each.text for each in conflicts(cluster, {name: rules})), "")


def conflicts(cluster: Cluster, changes: Mapping[str, Rules]) -> list[Contradiction]:
    """Return why workloads cannot have these rules all at once. A workload that there is not yet is of no environment.
    Workloads of another environment are not looked at: who asks may not know of them. O(workloads)."""
    found: list[Contradiction] = []
    by_environment: dict[str, dict[str, Rules]] = {}
    if not _is_any_tied(cluster, changes):
        return []
    for name, rules in changes.items():
        by_environment.setdefault(_environment_of(cluster, name), {})[name] = rules
    for environment, changed in by_environment.items():
        ruled = _ruled(cluster, environment)
        for name, rules in changed.items():
            ruled[name] = Ruled(rules, ruled[name].required_labels if name in ruled else ())
        found += contradictions(ruled, changed, _labels(cluster, environment))
    return found


def _is_any_tied(cluster: Cluster, changes: Mapping[str, Rules]) -> bool:
    """Return whether any of the workloads would have to share a domain with another. Most do not, and this is quick."""
    if any(rules.affinity or rules.vm_affinity for rules in changes.values()):
        return True
    ruled = (
        *(entry.job.rules.vm_affinity for entry in cluster.active.values()),
        *(web.app.rules.vm_affinity for web in cluster.web.values()),
    )
    return any(name in changes for names in ruled for name in names)


def _environment_of(cluster: Cluster, name: str) -> str:
    web, entry = cluster.web.get(name), cluster.job(name)
    if web is not None:
        return web.app.environment
    return "" if entry is None or entry.over else entry.job.environment


def _ruled(cluster: Cluster, environment: str) -> dict[str, Ruled]:
    """Return the rules of all workloads of an environment ("": of none) that are not over."""
    jobs = (
        entry.job
        for entry in cluster.active.values()
        if entry.job.environment == environment and not entry.over and not entry.job.app
    )
    found = {job.name: Ruled(job.rules, job.required_labels) for job in jobs}
    for web in cluster.web.values():
        if web.app.environment == environment and not web.removed:
            found[web.app.name] = Ruled(web.app.rules, web.app.required_labels)
    return found


def _labels(cluster: Cluster, environment: str) -> dict[str, frozenset[str] | None]:
    """Return the labels of the nodes on which workloads of an environment may run (None: not reported yet)."""
    known: dict[str, frozenset[str] | None] = {
        facts.name: frozenset(facts.labels) for facts in inventories(cluster, environment)
    }
    return known | {name: None for name, node in cluster.nodes.items() if node.inventory is None}
