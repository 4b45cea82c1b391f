"""`CheckRules` in the controller: the view of its answer (docs/reference/views.md)."""

from __future__ import annotations

from daemons.controller.contract.feature import DONE
from daemons.controller.requests.job_changes import refuse_rules
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.node_fit import unknown_nodes
from daemons.controller.state.rule_conflicts import conflicts
from daemons.values.view_format import Row
from shared.protocol.operator_messages import CheckRules
from shared.values.jobs import Rules


def rules_view(cluster: Cluster, asked: CheckRules) -> Row:
    """Return which workloads cannot have the rules, by the names given, and why. O(workloads)."""
    refused: dict[str, tuple[str, str]] = {}
    given: dict[str, str] = {}  # by the name of the workload
    changes: dict[str, Rules] = {}
    for shared in asked.rules:
        for name in shared.workloads:
            entry = cluster.job_or_vm(name)
            if entry is not None and not entry.over:
                code, detail = refuse_rules(cluster, entry, shared.rules)
                workload = entry.job.name
            else:
                own = entry is not None and bool(entry.job.environment)
                lacking = "" if own else unknown_nodes(cluster, shared.rules)
                code, detail = ("unknown-node", lacking) if lacking else DONE
                workload = name
            if code:
                refused[name] = code, detail
            changes[workload], given[workload] = shared.rules, name
    for each in conflicts(cluster, changes):
        refused.setdefault(given[each.name], ("invalid-value", each.text))
    return {"refused": [{"name": name, "code": code, "detail": detail} for name, (code, detail) in refused.items()]}
