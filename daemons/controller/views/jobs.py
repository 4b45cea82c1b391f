"""Views of jobs; an instance of a web application is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from heapq import nsmallest

from daemons.controller.decide.predictions import job_utility, predicted_end_s, predicted_ends_s, predicted_utilities
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.job_lengths import LeftWork
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.queries import _copies, failure_view, is_unknown, newest_copy
from daemons.controller.state.vm_terms import moves_left, pause_left_s, terms_of
from daemons.controller.views.context import ViewContext
from daemons.controller.views.decisions import last_change
from daemons.values.view_format import Row, reason_view
from shared.policy_api.decision import Reason, ReasonCode
from shared.protocol.operator_messages import Query
from shared.values.jobs import JobPhase
from shared.values.vms import VmState

NAMES_SHOWN = 5
OVER_FROM = 1 << 62
NOT_OVER = "not-over"  # of jobs: every phase but those of jobs that are over


def all_jobs(cluster: Cluster) -> Iterable[JobEntry]:
    """Return every job, without instances of web applications."""
    return (entry for entry in cluster.jobs.values() if not entry.job.app)


def jobs(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return all jobs, those that are not over or those in the phase that the subject names; ValueError when it names
    none, or no page begins at `after`."""
    found = _chosen(tables.cluster, query.subject)
    after = int(query.after or -1)
    left = nsmallest(query.limit + 1, (each for each in found if _place(each) > after), key=_place)
    shown = left[: query.limit]
    following = f"{_place(shown[-1])}" if len(left) > len(shown) else ""
    reasons = tables.deciding.refusal_rows({entry.job.name for entry in shown})
    predicted = predicted_utilities(tables.deciding.history)
    estimates = tables.cluster.lengths.left(shown)
    rows = [_job(tables, entry, now_s, reasons, predicted, estimates) for entry in shown]
    return {"total": len(found), "jobs": rows, "next": following}


def _place(entry: JobEntry) -> int:
    """Return the place of a job in the list: those that are over come last, the newest first. A job that ends between
    two pages moves down: it may appear twice, but none is missed."""
    return OVER_FROM - entry.order if entry.over else entry.order


def _chosen(cluster: Cluster, subject: str) -> list[JobEntry]:
    """Return the jobs that a subject selects. Those that are over may be ten times as many as the others."""
    if subject == NOT_OVER:
        return [entry for entry in cluster.active.values() if not (entry.over or entry.job.app)]
    phase = JobPhase(subject) if subject else None
    return [entry for entry in all_jobs(cluster) if phase is None or entry.phase is phase]


def job(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Return one job. KeyError when there is none of the name."""
    entry = tables.cluster.jobs[query.subject]
    predicted = predicted_utilities(tables.deciding.history)
    estimates = tables.cluster.lengths.left([entry])
    row = _job(tables, entry, now_s, tables.deciding.refusal_rows({query.subject}), predicted, estimates)
    change = {"last_change": last_change(tables.deciding.history, query.subject)}
    return {"job": row | change | job_details(tables.cluster, entry)}


def definition(tables: ViewContext, query: Query, _now_s: float) -> Row:
    """Return the definition of an adopted VM as its node sent it last, in pieces. KeyError when there is no such
    job."""
    entry = tables.cluster.jobs[query.subject]
    pieces = list(entry.definition)
    return {"job": entry.job.name, "vm": entry.adopted, "digest": entry.definition_digest, "definition": pieces}


def _job(
    tables: ViewContext,
    entry: JobEntry,
    now_s: float,
    reasons: dict[str, Row],
    predicted: Mapping[str, float],
    estimates: Mapping[str, LeftWork],
) -> Row:
    refusal = reasons.get(entry.job.name)
    if entry.awaits:
        numbers = (("jobs", float(len(entry.awaits))),)
        names = ", ".join(entry.awaits[:NAMES_SHOWN])
        after = f"after {names}"
        refusal = reason_view(Reason(ReasonCode.AFTER, numbers)) | {"text": after, "words": after, "at_s": now_s}
    blocked, left = entry.job.name in tables.reconciler.blocked, estimates.get(entry.job.name)
    return job_row(entry, now_s, blocked, refusal, predicted, left)


def job_row(
    entry: JobEntry,
    now_s: float,
    blocked: bool,
    refusal: Row | None,
    predicted: Mapping[str, float],
    left: LeftWork | None,
) -> Row:
    """Return a job as a row of the list. `refusal`: the last one that named it; predicted: utilities by workload; left:
    its estimated remaining work (None: its declared work counts)."""
    job, end_s, early_s, late_s = entry.job, predicted_end_s(entry), None, None
    work_mcycles = job.work_mcycles
    if left is not None:
        end_s, early_s, late_s = predicted_ends_s(entry, left) or (None, None, None)
    done_mcycles = work_mcycles if entry.phase is JobPhase.COMPLETED else entry.done_mcycles
    not_before_s = max(entry.not_before_s, job.desired_start_s)
    return {
        "name": job.name,
        "phase": entry.phase.value,
        "held": entry.held,
        "adopted": bool(entry.adopted),
        "terms": terms_view(entry, now_s),
        "order": entry.order,
        "revision": entry.revision,
        "attempt": entry.attempt,
        "failures": entry.failures,
        "instances": job.instances,
        "environment": job.environment,
        "user": entry.user,
        "released": entry.released,
        "nodes": [allotment.node for allotment in entry.allotments],
        "cpu_mhz": math.fsum(allotment.cpu_mhz for allotment in entry.allotments),
        "done_mcycles": done_mcycles,
        "work_mcycles": work_mcycles,
        "left_mcycles": None if left is None else left.mean_mcycles,
        "progress_pct": _progress_pct(done_mcycles, work_mcycles, left),
        "submit_at_s": job.submit_s,
        "accepted_at_s": entry.accepted_s,
        "finished_at_s": entry.finished_s if entry.over else None,
        "goal_at_s": job.goal_s,
        "predicted_end_at_s": end_s,
        "predicted_end_early_at_s": early_s,
        "predicted_end_late_at_s": late_s,
        "utility": job_utility(entry, predicted, end_s),
        "importance": job.importance,
        "profile": entry.profile,
        "stalled": entry.stalled and not entry.over,
        "blocked": blocked,
        "reconciliation_paused": reconciliation_paused_view(entry, now_s),
        "back_off_until_s": not_before_s if not entry.over and not_before_s > now_s else None,
        "waits_for": None if entry.over else refusal,
    }


def terms_view(entry: JobEntry, now_s: float) -> Row | None:
    """Return the terms of an adopted VM, and what is left of its disruption budget; None for other jobs."""
    if not entry.adopted:
        return None
    terms = terms_of(entry)
    return {
        "running": terms.running,
        "on_shutdown": terms.on_shutdown.value,
        "suspend": terms.suspend,
        "automation": None if terms.automation is None else terms.automation.value,
        "moves_per_day": terms.moves_per_day,
        "moves_left": moves_left(entry, now_s),
        "pause_s_per_day": terms.pause_s_per_day,
        "pause_left_s": pause_left_s(entry, now_s),
        "post_copy": terms.post_copy,
        "failover": terms.failover,
    }


def _progress_pct(done_mcycles: float, work_mcycles: float, left: LeftWork | None) -> float | None:
    if work_mcycles <= 0.0:
        return None
    if left is not None:
        return 100.0 * done_mcycles / (done_mcycles + left.mean_mcycles)
    return min(100.0, 100.0 * done_mcycles / work_mcycles)


def reconciliation_paused_view(entry: JobEntry, now_s: float) -> Row | None:
    """Return the external change for which reconciliation of the job is paused; None when it is not paused."""
    return (
        asdict(entry.reconciliation_paused)
        if entry.reconciliation_paused is not None and entry.left_alone(now_s)
        else None
    )


def job_details(cluster: Cluster, entry: JobEntry) -> Row:
    """Return the details that a single job's view adds to its row."""
    spec = asdict(entry.job)
    spec["stages"] = [asdict(stage) for stage in entry.job.stages]
    rules = spec["rules"]
    spec["rules"] = {key: list(value) if isinstance(value, tuple) else value for key, value in rules.items()}
    spec |= {key: list(spec[key]) for key in ("required_labels", "depends_on", "arguments")}
    spec["resource_profile"] = dict(entry.job.resource_profile.parts)
    return {
        "spec": spec,
        "request": entry.request,
        "instance_list": [_instance(cluster, entry, index) for index in range(len(entry.instances))],
    }


def _instance(cluster: Cluster, entry: JobEntry, index: int) -> Row:
    instance = entry.instances[index]
    copies, newest = _copies(cluster, instance), newest_copy(cluster, instance)
    return {
        "vm": instance.vm,
        "state": newest[1].state.value if newest else "absent",
        "node": newest[0].name if newest else "",
        "wanted_node": entry.allotments[index].node if entry.allotments else "",
        "cpu_mhz": instance.cpu_mhz,
        "generation": instance.generation,
        "may_run_on": sorted(instance.may_run_on),
        "left": instance.left,
        "awaited": sorted(instance.awaited),
        "images_on": [node.name for node, status in copies if status.state is VmState.SUSPENDED],
        "ended": instance.ended,
        "done_mcycles": instance.done_mcycles,
        "action": instance.in_flight.kind.value if instance.in_flight else "",
        "retry_at_s": instance.retry_at_s or None,
        "last_failure": failure_view(instance),
        "unknown": is_unknown(cluster, instance),
    }
