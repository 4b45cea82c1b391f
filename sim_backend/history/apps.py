"""The web applications of a span, and the demand that their snapshots show as steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from daemons.values.records.cluster import WebRecord
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Snapshot
from shared.values.web_app import Flow, WebApp
from sim_backend.history.values import LoggedApp

UNMEASURED_S = 3_600.0


@dataclass(slots=True)
class _Seen:
    """An application in the snapshots so far; the last one's description of it counts."""

    from_s: float
    app: WebApp
    to_s: float
    rates: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    work_mcycles: dict[str, float] = field(default_factory=dict)


class AppReader:
    """Gathers applications from the snapshots of a span, one after the other."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self._from_s, self._to_s = from_s, to_s
        self._found: dict[str, _Seen] = {}

    def take(self, seen: Snapshot) -> None:
        """Look at one more snapshot."""
        at_s = max(seen.now_s - self._from_s, 0.0)
        for row, name in enumerate(seen.web.names):
            app = _described(seen, row)
            if app is None:
                continue
            known = self._found.setdefault(name, _Seen(at_s, app, at_s))
            known.app, known.to_s = app, at_s
            for at in np.flatnonzero(seen.flows.app == row).tolist():
                self._flow(known, seen, at, at_s)
        for name, known in self._found.items():
            if name not in seen.web.names and known.to_s < at_s:
                self._ended(known, at_s)

    def _flow(self, known: _Seen, seen: Snapshot, at: int, at_s: float) -> None:
        name, rate = seen.flows.names[at], seen.flows.rate_per_s.item(at)
        known.work_mcycles[name] = seen.flows.work_mcycles.item(at)
        points = known.rates.setdefault(name, [])
        if points and points[-1][0] == at_s:
            points[-1] = (at_s, rate)
        elif not points or points[-1][1] != rate:
            points.append((at_s, rate))

    def _ended(self, known: _Seen, at_s: float) -> None:
        """End an application's load at this time; the application may return."""
        for points in known.rates.values():
            if points[-1][1] != 0.0 and points[-1][0] < at_s:
                points.append((at_s, 0.0))

    def apps(self, records: Iterable[WebRecord]) -> tuple[LoggedApp, ...]:
        """Return all applications, described as in the store if they are still there."""
        known = {record.app.name: record.app for record in records}
        return tuple(
            LoggedApp(
                _simulated(known.get(name, seen.app)),
                seen.from_s,
                self._to_s - self._from_s,
                {flow: _begun(points) for flow, points in seen.rates.items()},
                dict(seen.work_mcycles),
            )
            for name, seen in self._found.items()
        )


def _begun(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the steps of a flow. The load is 0 before the first measurement. If that came soon after the application's
    begin, it applies from the begin."""
    begin_s = points[0][0]
    first = next((at for at, (_, rate) in enumerate(points) if rate > 0.0), 0)
    if points[first][0] - begin_s > UNMEASURED_S:
        return tuple(points)
    return ((begin_s, points[first][1]), *points[first + 1 :])


def _described(seen: Snapshot, row: int) -> WebApp | None:
    """Return an application as a snapshot describes it; None if it has no instance that shows its size."""
    replicas = np.flatnonzero(seen.workloads.app == row)
    if not len(replicas):
        return None
    work, replica, web = seen.workloads, replicas.item(0), seen.web
    try:
        return WebApp(
            web.names[row],
            tuple(_flow(seen, at) for at in np.flatnonzero(seen.flows.app == row).tolist()),
            int(work.memory_mib.item(replica)),
            max_mhz=work.max_mhz.item(replica),
            min_instances=web.min_instances.item(row),
            max_instances=max(len(replicas), 1),
            vcpus=work.vcpus.item(replica),
            importance=web.importance.item(row),
            required_labels=work.required_labels[replica],
        )
    except InvalidValue:
        return None


def _flow(seen: Snapshot, at: int) -> Flow:
    flows, percentile = seen.flows, seen.flows.percentile.item(at)
    goal = flows.goal.item(at)
    throughput = bool(flows.throughput.item(at))
    return Flow(
        flows.names[at],
        None if throughput or percentile else goal,
        percentile,
        percentile_s=goal if percentile and not throughput else None,
        throughput_per_s=goal if throughput else None,
        work_mcycles=flows.work_mcycles.item(at),
        t_min_s=flows.t_min_s.item(at),
        model=flows.model[at],
    )


def _simulated(app: WebApp) -> WebApp:
    """Return the application without the parts that are not simulated: environment, balancer, probe."""
    return replace(app, environment="", serving=None, probe=None, metrics_url="")
