"""Views of web applications: what was asked for, what was measured, and where their instances are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from daemons.deciding import Deciding
from daemons.entries import JobEntry
from daemons.gains import columns_of
from daemons.snapshot_web import flow_now
from daemons.state import Cluster
from daemons.view_rows import Row, age_since, newest_copy, used_mhz
from daemons.web_entry import WebEntry, flow_utility, utility_of
from shared.model import JobPhase
from shared.webapp import Flow


def app_row(cluster: Cluster, web: WebEntry, now_s: float) -> Row:
    """A web application in the list of all."""
    app = web.app
    seats = _wanted(cluster, app.name)
    allotments = [allotment for seat in seats for allotment in seat.allotments]
    return {
        "name": app.name,
        "removed": web.removed,
        "importance": app.importance,
        "min_instances": app.min_instances,
        "max_instances": app.max_instances,
        "environment": app.environment,
        "wanted_instances": web.wanted_instances,
        "instances": len(seats),
        "running": sum(seat.released for seat in seats),
        "nodes": [allotment.node for allotment in allotments],
        "cpu_mhz": math.fsum(allotment.cpu_mhz for allotment in allotments),
        "used_mhz": web.used_mhz,
        "utility": utility_of(web),
        "profile": "; ".join(dict.fromkeys(flow_now(web, flow).profile for flow in app.flows)),
        "measured_age_s": age_since(web.measured_at_s, now_s),
        "accepted_at_s": web.accepted_s,
    }


def _wanted(cluster: Cluster, app: str) -> list[JobEntry]:
    seats = cluster.seats.get(app, {})
    return [seat for _, seat in sorted(seats.items()) if seat.phase is JobPhase.RUNNING]


def app_details(cluster: Cluster, deciding: Deciding, web: WebEntry, now_s: float) -> Row:
    """A web application with all that is known of it."""
    seats = cluster.seats.get(web.app.name, {})
    return app_row(cluster, web, now_s) | {
        "spec": plain(asdict(web.app)),
        "flows": [_flow(web, flow) for flow in web.app.flows],
        "seats": [_seat(cluster, seat, now_s) for _, seat in sorted(seats.items())],
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
    }


def _seat(cluster: Cluster, seat: JobEntry, now_s: float) -> Row:
    copies = [newest_copy(cluster, instance) for instance in seat.instances]
    newest = copies[0] if copies else None
    return {
        "vm": seat.job.name,
        "phase": seat.phase.value,
        "released": seat.released,
        "wanted_node": seat.allotments[0].node if seat.allotments else "",
        "cpu_mhz": seat.allotments[0].cpu_mhz if seat.allotments else 0.0,
        "node": newest[0].name if newest is not None else "",
        "state": newest[1].state.value if newest is not None else "absent",
        "used_mhz": used_mhz(newest[0], seat.job.name) if newest is not None else None,
        "attempt": seat.attempt,
        "failures": seat.failures,
        "back_off_until_s": seat.not_before_s if seat.not_before_s > now_s else None,
    }


def _outlook(deciding: Deciding, app: str) -> Row | None:
    """What the last decision that predicted something says of the application."""
    for record in deciding.history:
        gains = columns_of(record.gains)
        if len(gains):
            if app not in gains.names:
                return None
            gain = gains[gains.names.index(app)]
            figures = {"now": gain.now, "predicted": gain.predicted, "best": gain.best, "measured": gain.measured}
            return {"decision": record.number, "decided_at_s": record.at_s, **figures}
    return None


def plain(value: Any) -> Any:
    """The same with lists in place of tuples, as it comes out of a message."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value
