"""What operators change of jobs and adopted VMs that are there: goal, importance, rules, and a VM's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from daemons.controller.contract.feature import DONE, Refused, RequestHandler
from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.node_fit import fits_nowhere, inventories, unknown_nodes
from daemons.controller.state.rule_conflicts import conflict
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import terms_of
from daemons.values.replies import unknown
from shared.base.errors import InvalidValue
from shared.protocol.operator_messages import SetJob
from shared.values.jobs import Job, Rules

IMPORTANCE_MIN, IMPORTANCE_MAX = 0.001, 1e6  # as in the files of workloads


def refuse_rules(cluster: Cluster, entry: JobEntry, rules: Rules) -> Refused:
    """Return why a job or an adopted VM cannot have these rules, whatever others have; ("", "") when it can."""
    lacking = "" if entry.job.environment else unknown_nodes(cluster, rules)
    if lacking:
        return "unknown-node", lacking
    try:
        job = replace(entry.job, rules=rules)
    except InvalidValue as problem:
        return "invalid-value", str(problem)
    there = {node for instance in entry.instances for node in instance.may_run_on} if entry.adopted else set()
    memory_mib = entry.instances[0].memory_mib if entry.adopted else None
    nodes = inventories(cluster, job.environment)
    misfit = fits_nowhere(job, nodes, cluster.vm_overhead_mib, there, memory_mib)
    return ("fits-no-node", misfit) if misfit else DONE


class JobChanges:
    """Carries them out; each checks everything first. `handlers`: by request."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork) -> None:
        self.cluster, self.unit_of_work = cluster, unit_of_work
        self.handlers: Mapping[type, RequestHandler] = {
            SetJob: lambda request, _caller, now_s: self.set(request, now_s)
        }

    def set(self, request: SetJob, now_s: float) -> Refused:
        """Change what is wanted of a job. Its VMs go on as they are; the next decision follows the new values."""
        instance = self.cluster.jobs.get(request.job)
        if instance is not None and instance.job.app:
            return "invalid-value", f"{request.job!r} is an instance of {instance.job.app!r}: set the web application"
        entry = self.cluster.job_or_vm(request.job)
        if entry is None:
            return "unknown-job", unknown("job", request.job, self.cluster.jobs)
        if entry.over:
            return "job-over", f"job {request.job!r} is {entry.phase} already"
        refused = self._refuse(entry, request, now_s)
        if refused != DONE:
            return refused
        try:
            job = self._changed(entry.job, request)
        except InvalidValue as problem:
            return "invalid-value", str(problem)
        terms = entry.terms if request.terms is None else request.terms.applied(terms_of(entry))
        if job == entry.job and terms == entry.terms:
            return DONE
        entry.job, entry.terms = job, terms
        transitions.outdate(entry)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "job-changed", entry.job.name)
        return DONE

    def _refuse(self, entry: JobEntry, request: SetJob, now_s: float) -> Refused:
        aims = request.goal_s is not None
        if request.importance is not None and not IMPORTANCE_MIN <= request.importance <= IMPORTANCE_MAX:
            bounds = f"a number from {IMPORTANCE_MIN:g} to {IMPORTANCE_MAX:g}"
            return "invalid-value", f"importance is {request.importance:g}, expected {bounds}"
        if request.goal_s is not None and request.goal_s <= now_s:
            return "invalid-value", "the goal has passed: give a time that is to come"
        if aims and request.best_effort:
            return "invalid-value", "a goal and no goal at once: give one of them"
        if aims and entry.adopted:
            return "invalid-value", f"{request.job!r} is an adopted VM without declared work; it cannot have a goal"
        if (aims or request.best_effort) and entry.job.queue:
            return "invalid-value", f"{request.job!r} is in queue {entry.job.queue!r}, whose deadline is its goal"
        if request.terms is not None and not entry.adopted:
            return (
                "not-a-vm",
                f"{request.job!r} is not an adopted VM; it has no automation level or budget",
            )
        if request.rules is not None:
            misfit = refuse_rules(self.cluster, entry, request.rules)
            if misfit != DONE:
                return misfit
            contradiction = "" if request.checked else conflict(self.cluster, entry.job.name, request.rules)
            if contradiction:
                return "invalid-value", contradiction
        return DONE

    @staticmethod
    def _changed(job: Job, request: SetJob) -> Job:
        goal_s = None if request.best_effort else job.goal_s if request.goal_s is None else request.goal_s
        return replace(
            job,
            importance=job.importance if request.importance is None else request.importance,
            rules=job.rules if request.rules is None else request.rules,
            goal_s=goal_s,
        )
