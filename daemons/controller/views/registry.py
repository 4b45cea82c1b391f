"""Every view of the spine by its name; those of features are beside them. docs/reference/views.md has the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daemons.controller.views.context import ViewContext
from daemons.controller.views.decisions import plan, plan_history
from daemons.controller.views.doctor import doctor
from daemons.controller.views.jobs import definition, job, jobs
from daemons.controller.views.migration import vm
from daemons.controller.views.nodes import node, nodes, vms
from daemons.controller.views.status import status
from daemons.decision.request_codec import to_bytes
from daemons.values.view_format import Row
from shared.protocol.operator_messages import Query


def snapshot(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return the input of a decision now, in pages, or a page of what was saved last; ValueError for a missing page,
    `InvalidValue` for a policy's state that cannot be saved."""
    if not query.subject:
        tables.pages.put(query.request, lambda: to_bytes(tables.deciding.request(now_s, True)))
        return tables.pages.page(0)
    if not tables.pages.has(query.subject):
        raise ValueError(query.subject)
    return tables.pages.page(int(query.subject.rpartition(".")[2]))


VIEWS: dict[str, Callable[[ViewContext, Query, float], dict[str, Any]]] = {
    "status": status,
    "nodes": nodes,
    "node": node,
    "jobs": jobs,
    "job": job,
    "vms": vms,
    "vm": vm,
    "definition": definition,
    "plan": plan,
    "plan-history": plan_history,
    "doctor": doctor,
    "snapshot": snapshot,
}
