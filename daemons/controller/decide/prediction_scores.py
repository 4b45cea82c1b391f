"""Keeps how far predictions of utility held, by policy and workload, and which input was wrong where they did not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from daemons.controller.contract.feature import Alarm
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.decision.gains import columns_of
from daemons.models.prediction_score import OFF, OVER_CYCLES, Cause, PredictionScore, scored
from daemons.models.web_utility import AppUtility, app_utilities, expected_flows
from daemons.values.records.cluster import DecisionRecord
from daemons.values.view_format import Row
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import FlowColumns, Snapshot, WebColumns, take_rows
from shared.values.jobs import JobPhase

SLOW_FRAC = 0.1  # of the work that its CPU would have done: less is no reason
JOBS = "jobs"  # the subject of the alarm about all jobs
NAMED = 3


@dataclass(frozen=True, slots=True)
class _Job:
    """Of a job when it was promised something: work done, and the CPU that it was to have from then on."""

    done_mcycles: float
    cpu_mhz: float


@dataclass(frozen=True, slots=True)
class _Promise:
    """What a decision's predictions rest on."""

    at_s: float
    web: WebColumns
    flows: FlowColumns
    vcpu_mhz: float
    jobs: Mapping[str, _Job]


class PredictionScores:
    """`scores`: by policy and workload; of workloads that are over none is kept."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.scores: dict[tuple[str, str], PredictionScore] = {}
        self._last: dict[tuple[str, str], tuple[float, float]] = {}
        self._promise: _Promise | None = None

    def distrusted(self) -> frozenset[str]:
        """Return the workloads for which nothing is moved or suspended."""
        return frozenset(workload for (_, workload), score in self.scores.items() if not score.trusted)

    def promised(self, snapshot: Snapshot, now_s: float) -> None:
        """Keep what the predictions of a cycle's decision rest on, once it is applied."""
        jobs = {
            name: _Job(entry.done_mcycles, min((one.cpu_mhz for one in entry.allotments), default=0.0))
            for name, entry in self._cluster.active.items()
            if entry.phase is JobPhase.RUNNING and not entry.job.app
        }
        speed_mhz = float(snapshot.nodes.core_mhz.max(initial=0.0)) or 1.0
        self._promise = _Promise(now_s, snapshot.web, snapshot.flows, speed_mhz, jobs)

    def measured(self, record: DecisionRecord, now: Snapshot, now_s: float) -> None:
        """Compare what a decision predicted with what has come of it. now: the cluster as the next decision sees it."""
        gains, promise = columns_of(record.gains), self._promise
        if promise is None or promise.at_s != record.at_s:
            promise = None
        rows = zip(gains.names, gains.predicted.tolist(), gains.measured.tolist(), strict=True)
        for name, predicted, measured in rows:
            if math.isnan(measured):
                continue
            key = (record.policy, name)
            before = self.scores.get(key, PredictionScore())
            is_over = promise is not None and predicted > measured + OFF
            cause = self._cause(promise, name, predicted, now, now_s) if promise is not None and is_over else None
            self.scores[key] = scored(before, predicted, measured, cause)
            self._last[key] = (predicted, measured)
        self._forget()

    def _forget(self) -> None:
        gone = [key for key in self.scores if key[1] not in self._cluster.active and key[1] not in self._cluster.web]
        for key in gone:
            del self.scores[key], self._last[key]

    # --- why ----------------------------------------------------------------------------------------------------------

    def _cause(self, promise: _Promise, name: str, predicted: float, now: Snapshot, now_s: float) -> Cause | None:
        entry = self._cluster.active.get(name)
        if entry is not None:
            return _of_job(promise, entry, now_s)
        if name not in promise.web.names or name not in now.web.names:
            return None
        try:
            return _of_app(promise, name, predicted, now)
        except InvalidValue:
            return None

    # --- shown --------------------------------------------------------------------------------------------------------

    def rows(self, limit: int, workload: str = "") -> list[Row]:
        """Return the scores, or those of one workload, as plain data: first those that are not trusted, then the most
        over-promised."""
        wanted = [one for one in self.scores.items() if not workload or one[0][1] == workload]
        every = sorted(wanted, key=lambda one: (one[1].trusted, -one[1].error, one[0]))
        return [
            {
                "workload": workload,
                "policy": policy,
                "cycles": score.cycles,
                "error": score.error,
                "over": score.over,
                "trusted": score.trusted,
                "cause": score.cause.value if score.cause is not None else None,
            }
            for (policy, workload), score in every[:limit]
        ]

    def alarms(self) -> Iterable[Alarm]:
        """Say of which workloads predictions do not hold, and why: each application, and all jobs together."""
        jobs: list[tuple[str, PredictionScore]] = []
        for (policy, name), score in sorted(self.scores.items()):
            if score.trusted:
                continue
            if name not in self._cluster.web:
                jobs.append((name, score))
                continue
            predicted, measured = self._last[policy, name]
            said = f"{policy} last predicted a utility of {predicted:.2f} and {measured:.2f} was measured"
            yield "prediction-missed", name, None, f"{said}: {_why(score.cause)}"
        if jobs:
            causes = Counter(score.cause for _, score in jobs if score.cause is not None)
            named = ", ".join(name for name, _ in jobs[:NAMED]) + (", ..." if len(jobs) > NAMED else "")
            most = causes.most_common(1)[0][0] if causes else None
            yield (
                "prediction-missed",
                JOBS,
                None,
                f"{len(jobs)} jobs ({named}) have lower utility than predicted: {_why(most)}",
            )


def _why(cause: Cause | None) -> str:
    what = "no known input explains it" if cause is None else f"wrong input: {cause.value}"
    return f"{what}; after {OVER_CYCLES} such cycles nothing is moved or suspended for it until predictions hold"


def _of_job(promise: _Promise, entry: JobEntry, now_s: float) -> Cause:
    """Return why a job fell behind: its start or move took longer, it has more work than declared, or it is slower than
    its CPU suggests; otherwise other load shares its CPU."""
    before = promise.jobs.get(entry.job.name)
    if before is None:
        return Cause.LOAD
    if entry.phase is JobPhase.RUNNING and not entry.released:
        return Cause.OPERATION_TIME
    if 0.0 < entry.job.work_mcycles < entry.done_mcycles:
        return Cause.WORK
    could_mcycles = before.cpu_mhz * (now_s - promise.at_s)
    if entry.done_mcycles - before.done_mcycles >= (1.0 - SLOW_FRAC) * could_mcycles:
        return Cause.LOAD
    return Cause.OPERATION_TIME if entry.changed_s >= promise.at_s else Cause.JOB_SPEED


def _of_app(promise: _Promise, name: str, predicted: float, now: Snapshot) -> Cause:
    """Return which figure of the model, when replaced by its current value, lowers the prediction most."""
    (then_app,) = np.flatnonzero(np.array(promise.web.names) == name)
    (now_app,) = np.flatnonzero(np.array(now.web.names) == name)
    web = take_rows(promise.web, np.array([then_app]))
    then = expected_flows(_flows_of(promise.flows, int(then_app)))
    today = _flows_of(now.flows, int(now_app))
    if then.names != today.names:
        return Cause.RESPONSE_MODEL
    mhz = float(_one(web, then, promise.vcpu_mhz).mhz(predicted))
    works = np.divide(today.work_mcycles, then.work_mcycles, out=np.ones(len(then.names)), where=then.work_mcycles > 0)
    load_then = float((then.rate_per_s * then.work_mcycles).sum())
    more_work = float((then.rate_per_s * today.work_mcycles).sum()) / load_then if load_then > 0.0 else 1.0
    more_load = float((today.rate_per_s * then.work_mcycles).sum()) / load_then if load_then > 0.0 else 1.0
    tried = {
        Cause.LOAD: replace(then, load_mhz=np.maximum(then.load_mhz, load_then * more_load)),
        Cause.WORK: replace(then, load_mhz=then.load_mhz * more_work, work_mcycles=then.work_mcycles * works),
        Cause.RESPONSE_MODEL: replace(then, response_factor=today.response_factor),
    }
    utilities = {cause: float(_one(web, flows, promise.vcpu_mhz).utility(mhz)) for cause, flows in tried.items()}
    cause, least = min(utilities.items(), key=lambda one: one[1])
    return cause if least < predicted - 1e-3 else Cause.RESPONSE_MODEL


def _one(web: WebColumns, flows: FlowColumns, vcpu_mhz: float) -> AppUtility:
    (app,) = app_utilities(web, flows, vcpu_mhz)
    return app


def _flows_of(flows: FlowColumns, app: int) -> FlowColumns:
    own = take_rows(flows, np.flatnonzero(flows.app == app))
    return replace(own, app=np.zeros(len(own.names), dtype=np.int64))
