"""The columns of web applications and the constraints of workloads, for snapshots."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.load_history import LoadPlan, forecasts
from daemons.controller.state.web_app import WebEntry
from daemons.models.response_calibration import ResponseFactor
from daemons.values.settings import WebPlanning
from shared.policy_api.snapshot import NO_FLOWS, NO_WEB, Floats, FlowColumns, Ints, WebColumns
from shared.values.jobs import NODE_SCOPE, Constraint, ConstraintKind, Preference, PreferenceKind, Rules
from shared.values.web_app import Flow, WebApp

NOT_MEASURED = ResponseFactor()
UNKNOWN = "unknown"  # the profile of a flow whose work is neither declared nor estimated


@dataclass(frozen=True, slots=True)
class FlowNow:
    """What is known of a flow now: arrivals a second, CPU work of a request in Mcycles, and where that comes from."""

    rate_per_s: float
    work_mcycles: float
    profile: str


def flow_now(web: WebEntry, flow: Flow) -> FlowNow:
    """Return a flow as policies see it. Its load is 0 until the first measurement.

    Work that is neither declared nor estimated is assumed to just meet the goal when the maximum number of instances
    runs at full speed. The application requests what these can use until the profiler has an estimate.
    """
    measured = web.measured(flow)
    rate_per_s = measured.offered_per_s if measured is not None else 0.0
    known = web.work.flows.get(flow.name)
    if flow.work_mcycles is not None and known is None:
        return FlowNow(rate_per_s, flow.work_mcycles, "declared")
    if known is not None:
        sure = f"±{100.0 * known.half_width_frac:.0f} %" if math.isfinite(known.half_width_frac) else "as an average"
        return FlowNow(rate_per_s, known.work_mcycles, f"profiled {sure}, {known.windows} windows")
    return FlowNow(rate_per_s, _cautious_mcycles(web.app, flow, rate_per_s), UNKNOWN)


def is_work_known(web: WebEntry, flow: Flow) -> bool:
    """Return whether the work of a flow's requests is declared or was estimated."""
    return flow.work_mcycles is not None or flow.name in web.work.flows


def _cautious_mcycles(app: WebApp, flow: Flow, rate_per_s: float) -> float:
    most_mhz = app.max_instances * app.max_mhz / len(app.flows)
    if flow.throughput_per_s is not None:
        return most_mhz / max(flow.throughput_per_s, rate_per_s)
    goal_s = flow.mean_s if flow.mean_s is not None else flow.percentile_s
    assert goal_s is not None
    spare_s = max(goal_s - flow.t_min_s, 0.01 * goal_s)
    return most_mhz * spare_s / (1.0 + rate_per_s * spare_s)


def web_columns(apps: list[WebEntry], at_cycle: bool = True) -> WebColumns:
    """Return one row per application that is not being removed."""
    if not apps:
        return NO_WEB
    sizes = [web.sizes(at_cycle) for web in apps]
    return WebColumns(
        tuple(web.app.name for web in apps),
        _ints([least for least, _ in sizes]),
        _ints([most for _, most in sizes]),
        _floats([web.app.max_instances * web.app.max_mhz for web in apps]),
        _floats([web.app.importance for web in apps]),
    )


def _loads(apps: list[WebEntry], works: list[dict[str, float]], planning: WebPlanning | None) -> list[LoadPlan]:
    """Return the loads to plan for, or the current loads where nothing is planned."""
    if planning is None:
        current = [web.load.now_mhz(work) + web.work.background_mhz for web, work in zip(apps, works, strict=True)]
        return [LoadPlan(load_mhz, 0.0) for load_mhz in current]
    ahead = forecasts([web.load for web in apps], works, planning.horizon_s)
    return [
        web.load.plan(web.app.name, work, planning, web.headroom_quantile, web.work.background_mhz, forecast)
        for web, work, forecast in zip(apps, works, ahead, strict=True)
    ]


def flow_columns(apps: list[WebEntry], planning: WebPlanning | None = None) -> FlowColumns:
    """Return one row per flow. The load of each is that of all flows of its application, which share its CPU: the load
    to plan for, or the current one where nothing is planned."""
    if not apps:
        return NO_FLOWS
    rows = [(row, flow, flow_now(web, flow)) for row, web in enumerate(apps) for flow in web.app.flows]
    works: list[dict[str, float]] = [{} for _ in apps]
    for row, flow, now in rows:
        works[row][flow.name] = now.work_mcycles
    loads = _loads(apps, works, planning)
    flows = [flow for _, flow, _ in rows]
    work = _floats([now.work_mcycles for _, _, now in rows])
    fitted = [now.work_mcycles if flow.c_mhz_s is None else flow.c_mhz_s for _, flow, now in rows]
    app = _ints([row for row, _, _ in rows])
    return FlowColumns(
        tuple(flow.name for flow in flows),
        app,
        _floats([_goal(flow) for flow in flows]),
        percentile=_floats([flow.percentile for flow in flows]),
        throughput=np.array([flow.throughput_per_s is not None for flow in flows], dtype=np.bool_),
        model=tuple(flow.model for flow in flows),
        t_min_s=_floats([flow.t_min_s for flow in flows]),
        c_mhz_s=_floats(fitted),
        load_mhz=_floats([loads[row].planned_mhz if flow.load_mhz is None else flow.load_mhz for row, flow, _ in rows]),
        rate_per_s=_floats([now.rate_per_s for _, _, now in rows]),
        work_mcycles=work,
        response_factor=_floats([apps[row].factors.get(flow.name, NOT_MEASURED).value for row, flow, _ in rows]),
        expected_mhz=_floats([loads[row].expected_mhz if flow.load_mhz is None else 0.0 for row, flow, _ in rows]),
    )


def _goal(flow: Flow) -> float:
    return next(goal for goal in (flow.mean_s, flow.percentile_s, flow.throughput_per_s) if goal is not None)


def constraints_of(jobs: Iterable[JobEntry], apps: Iterable[WebEntry]) -> tuple[Constraint, ...]:
    """Return the placement constraints of all workloads, preferences included: those about nodes and labels of each,
    and for every group and scope one of all that name them.

    A required group has the workloads that require it. A preference about a group is about all workloads that name the
    group in any rule; where its target is a workload's name, it is about that workload alone.
    """
    return _compiled(_ruled(jobs, apps))


def constraints_about(cluster: Cluster, names: Sequence[str], rules: Rules) -> tuple[Constraint, ...]:
    """Return the constraints about new workloads with these rules, beside all workloads that there are."""
    new = {*names}
    found = _compiled([*_ruled(cluster.active.values(), running_apps(cluster)), *((name, rules) for name in names)])
    return tuple(each for each in found if not (new.isdisjoint(each.members) and new.isdisjoint(each.about)))


def _ruled(jobs: Iterable[JobEntry], apps: Iterable[WebEntry]) -> list[tuple[str, Rules]]:
    ruled = [(entry.job.name, entry.job.rules) for entry in jobs if not entry.job.app]
    return ruled + [(web.app.name, web.app.rules) for web in apps]


def _compiled(ruled: Sequence[tuple[str, Rules]]) -> tuple[Constraint, ...]:
    found = _Constraints({name for name, _ in ruled})
    for name, rules in ruled:
        if rules != _FREE:
            found.add(name, rules)
    return tuple(found.all())


class _Constraints:
    """Gathers constraints; `names`: of all workloads."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._found: list[Constraint] = []
        self._required: dict[tuple[ConstraintKind, str], list[str]] = {}  # the members of each group
        self._named: dict[str, dict[str, None]] = {}  # who names it in any rule
        self._of_groups: dict[tuple[ConstraintKind, str, str, int], list[str]] = {}
        self._of_names: dict[tuple[ConstraintKind, str, str, int], list[str]] = {}

    def add(self, name: str, rules: Rules) -> None:
        """Add the rules of a workload."""
        of = ConstraintKind
        for kind, nodes, labels in (
            (of.PIN, rules.node_affinity, ()),
            (of.FORBID, rules.node_anti_affinity, ()),
            (of.PIN, (), rules.label_affinity),
            (of.FORBID, (), rules.label_anti_affinity),
        ):
            if nodes or labels:
                self._found.append(Constraint(kind, (name,), nodes, labels=labels))
        if rules.no_migration:
            self._found.append(Constraint(of.KEEP, (name,)))
        for kind, group, others, scope in (
            (of.TOGETHER, rules.affinity, rules.vm_affinity, rules.affinity_scope),
            (of.APART, rules.anti_affinity, rules.vm_anti_affinity, rules.anti_affinity_scope),
        ):
            if group:
                self._required.setdefault((kind, group), []).append(name)
                self._join(name, kind, group, scope, 0)
            for other in others:
                self._of_names.setdefault((kind, other, _key(scope), 0), []).append(name)
        for one in rules.preferred:
            self._prefer(name, one)

    def _prefer(self, name: str, one: Preference) -> None:
        kind, about_labels = _KINDS[one.kind]
        if about_labels is not None:
            nodes, labels = ((), (one.target,)) if about_labels else ((one.target,), ())
            self._found.append(Constraint(kind, (name,), nodes, labels=labels, weight=one.weight))
        elif one.target in self._names:
            self._of_names.setdefault((kind, one.target, _key(one.scope), one.weight), []).append(name)
        else:
            self._join(name, kind, one.target, one.scope, one.weight)

    def _join(self, name: str, kind: ConstraintKind, group: str, scope: str, weight: int) -> None:
        self._named.setdefault(group, {})[name] = None
        self._of_groups.setdefault((kind, group, _key(scope), weight), []).append(name)

    def all(self) -> Iterator[Constraint]:
        """Yield all constraints, those of groups and of named workloads after the others."""
        yield from self._found
        for (kind, group, scope, weight), members in self._of_groups.items():
            whole = tuple(self._named[group] if weight else self._required[kind, group])
            about = () if len(whole) == len(members) else whole
            yield Constraint(kind, tuple(members), scope=scope, weight=weight, about=about)
        for (kind, other, scope, weight), members in self._of_names.items():
            if other in members:
                yield Constraint(kind, (other,), scope=scope, weight=weight)
            holders = tuple(name for name in members if name != other)
            if holders and other in self._names:
                yield Constraint(kind, holders, scope=scope, weight=weight, about=(other,))


_KINDS: Mapping[PreferenceKind, tuple[ConstraintKind, bool | None]] = {
    PreferenceKind.NODE_AFFINITY: (ConstraintKind.PIN, False),
    PreferenceKind.NODE_ANTI_AFFINITY: (ConstraintKind.FORBID, False),
    PreferenceKind.LABEL_AFFINITY: (ConstraintKind.PIN, True),
    PreferenceKind.LABEL_ANTI_AFFINITY: (ConstraintKind.FORBID, True),
    PreferenceKind.AFFINITY: (ConstraintKind.TOGETHER, None),
    PreferenceKind.ANTI_AFFINITY: (ConstraintKind.APART, None),
}  # whether it is about labels (None: about workloads)
_FREE = Rules()


def _key(scope: str) -> str:
    """Return the scope as constraints have it: "" for the node."""
    return "" if scope == NODE_SCOPE else scope


def running_apps(cluster: Cluster) -> list[WebEntry]:
    """Return the applications that are not being removed, in the order of their submission."""
    return sorted((web for web in cluster.web.values() if not web.removed), key=lambda web: web.order)


def _floats(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
