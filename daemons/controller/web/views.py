"""Views of web applications: what was asked for, what was measured, and where their instances are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import failure_view, newest_copy
from daemons.controller.state.usage import used_mhz
from daemons.controller.state.web_app import WebEntry, flow_utility, utility_of
from daemons.controller.web.snapshot import NOT_MEASURED, flow_now
from daemons.decision.gains import columns_of
from daemons.values.view_format import Row, age_since
from shared.values.web_app import Flow, Limits


def app_row(cluster: Cluster, web: WebEntry, now_s: float) -> Row:
    """Return a web application as a row of the list."""
    app = web.app
    replicas = cluster.replicas_wanted(app.name)
    allotments = [allotment for replica in replicas for allotment in replica.allotments]
    return {
        "name": app.name,
        "removed": web.removed,
        "importance": app.importance,
        "min_instances": app.min_instances,
        "max_instances": app.max_instances,
        "environment": app.environment,
        "wanted_instances": web.wanted_instances,
        "instances": len(replicas),
        "running": sum(replica.released for replica in replicas),
        "nodes": [allotment.node for allotment in allotments],
        "cpu_mhz": math.fsum(allotment.cpu_mhz for allotment in allotments),
        "used_mhz": web.used_mhz,
        "background_mhz": web.work.background_mhz,
        "utility": utility_of(web),
        "profile": "; ".join(dict.fromkeys(flow_now(web, flow).profile for flow in app.flows)),
        "measured_age_s": age_since(web.measured_at_s, now_s),
        "accepted_at_s": web.accepted_s,
    }


def app_details(cluster: Cluster, deciding: DecisionCycle, web: WebEntry, now_s: float) -> Row:
    """Return a web application in full detail."""
    replicas = cluster.replicas.get(web.app.name, {})
    return app_row(cluster, web, now_s) | {
        "spec": plain(asdict(web.app)),
        "flows": [_flow(web, flow) for flow in web.app.flows],
        "seats": [_replica(cluster, web, replica, now_s) for _, replica in sorted(replicas.items())],
        "traffic": asdict(traffic) if (traffic := web.traffic) is not None else None,
        "limits": _limits(web),
        "outlook": _outlook(deciding, web.app.name),
        "scrape_error": web.scrape_error,
        "balancer_error": web.unreachable[1] if web.unreachable is not None else "",
        "request": web.request,
    }


def _flow(web: WebEntry, flow: Flow) -> Row:
    now, measured = flow_now(web, flow), web.measured(flow)
    return {
        "name": flow.name,
        "mean_goal_s": flow.mean_s,
        "percentile": flow.percentile,
        "percentile_goal_s": flow.percentile_s,
        "throughput_goal_per_s": flow.throughput_per_s,
        "utility": flow_utility(flow, measured) if measured is not None else None,
        "measured": asdict(measured) if measured is not None else None,
        "rate_per_s": now.rate_per_s,
        "work_mcycles": now.work_mcycles,
        "profile": now.profile,
        "response_factor": web.factors.get(flow.name, NOT_MEASURED).value,
    }


def _limits(web: WebEntry) -> Row | None:
    """Return the limits that the balancer enforces: of the application where it sets them, else of the model; None:
    neither."""
    serving = web.app.serving
    if serving is None:
        return None
    told = web.served.limits if web.served is not None else Limits()
    return {
        "instance_max": told.instance_max if serving.instance_max is None else serving.instance_max,
        "queue_max": told.queue_max if serving.queue_max is None else serving.queue_max,
        "queue_limit_s": serving.queue_limit_s,
    }


def _rotation(web: WebEntry, vm: str) -> str | None:
    """Return whether the balancer sends requests to an instance, by its last answer; None: there was none."""
    if web.served is None:
        return None
    found = next((backend for backend in web.served.backends if backend.vm == vm), None)
    if found is None:
        return "out"
    return "draining" if found.drain else "in"


def _replica(cluster: Cluster, web: WebEntry, replica: JobEntry, now_s: float) -> Row:
    copies = [newest_copy(cluster, instance) for instance in replica.instances]
    newest = copies[0] if copies else None
    return {
        "vm": replica.job.name,
        "phase": replica.phase.value,
        "released": replica.released,
        "wanted_node": replica.allotments[0].node if replica.allotments else "",
        "cpu_mhz": replica.allotments[0].cpu_mhz if replica.allotments else 0.0,
        "node": newest[0].name if newest is not None else "",
        "state": newest[1].state.value if newest is not None else "absent",
        "address": newest[1].address if newest is not None else "",
        "rotation": _rotation(web, replica.job.name),
        "used_mhz": used_mhz(newest[0], replica.job.name) if newest is not None else None,
        "attempt": replica.attempt,
        "failures": replica.failures,
        "back_off_until_s": replica.not_before_s if replica.not_before_s > now_s else None,
        "last_failure": failure_view(replica.instances[0]) if replica.instances else None,
        "health": _health(replica.job.name, newest[0]) if newest is not None else None,
    }


def _health(vm: str, node: NodeEntry) -> Row | None:
    """Return the last health report on an instance from its node's application monitor, None: none."""
    rows = node.last.health if node.last is not None else ()
    found = next((row for row in rows if row.vm == vm), None)
    if found is None:
        return None
    told = {"healthy": found.healthy, "since_s": found.since_s, "detail": found.detail, "probes": found.probes}
    return {"node": node.name} | told


def _outlook(deciding: DecisionCycle, app: str) -> Row | None:
    """Return the outlook for the application in the last decision that predicted anything."""
    for record in deciding.history:
        gains = columns_of(record.gains)
        if len(gains):
            if app not in gains.names:
                return None
            gain = gains[gains.names.index(app)]
            figures = {"now": gain.now, "predicted": gain.predicted, "best": gain.best, "measured": gain.measured}
            return {"decision": record.number, "decided_at_s": record.at_s, **figures}
    return None


def waits_for(cluster: Cluster, deciding: DecisionCycle, app: str) -> Row | None:
    """Return why an application has fewer instances than its minimum, or than are wanted; None: it has them."""
    replicas = cluster.replicas.get(app, {}).values()
    waiting = {replica.job.name for replica in replicas if not replica.released}
    wanted = max(cluster.web[app].app.min_instances, cluster.web[app].wanted_instances or 0)
    if sum(replica.released for replica in replicas) >= wanted:
        return None
    pending = deciding.pending
    if pending is not None and any(change.workload in waiting for change in pending.held):
        text = f"no room until decision {pending.number} is approved"
        return {"code": "held", "decision": pending.number, "text": text, "words": text}
    reason = next(iter(deciding.refusal_rows(waiting).values()), None)
    not_yet = "it was not decided on yet"
    return reason or {"code": "not-yet", "text": not_yet, "words": not_yet}


def plain(value: Any) -> Any:
    """Return the value with lists in place of tuples, as decoded from a message."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value
