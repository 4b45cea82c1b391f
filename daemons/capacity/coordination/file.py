"""Reads a file for `trimtab sim coordinate`: a log of jobs and a demand series on nodes that are shared, checked as a
whole.

`read` raises `InvalidInput` with every problem of the scenario, of the log and of the series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from daemons.capacity.coordination.demand import read_steps
from daemons.capacity.coordination.values import DEDICATED, FLB_NUB, ON_DEMAND, SECONDS_PER_HOUR, Setting, WebDemand
from daemons.capacity.swf import SwfJob, read_swf, replay_jobs
from shared.base.errors import InvalidInput, Problem
from shared.config.records import Above, Range
from shared.config.toml import load
from shared.ports.plugins import names, policy_group
from shared.values.actions import ActionKind
from shared.values.agreement import RATIO_MAX, BatchTerms, OnReclaim
from shared.values.operation_costs import COSTS
from shared.values.replay_job import ReplayJob

SECONDS_MAX = 1e10
NODES_MAX = 10_000_000
EVENTS_MAX = 10_000_000
MEMORY_MIB = 4_320.0  # of a job on a node, as in the experiments of apc.txt
T = TypeVar("T")

Seconds = Annotated[float, Range(1.0, SECONDS_MAX)]
Count = Annotated[int, Range(0, NODES_MAX)]
Ratio = Annotated[float, Range(0.0, RATIO_MAX)]


class Costs(StrEnum):
    """What suspending and resuming take."""

    NONE = "none"
    PAPER = "paper"


_SIZES = {DEDICATED: ("batch_nodes", "web_nodes"), ON_DEMAND: ()}  # of all other models: what both share


@dataclass(frozen=True, slots=True)
class Batch:
    """log: in the Standard Workload Format, beside the scenario. memory_mib: of a job on each of its nodes."""

    log: str
    divide_sizes: Annotated[int, Range(1, 1_000_000)] = 1
    skip_jobs: tuple[int, ...] = ()
    memory_mib: Annotated[float, Range(0.0, 1e9)] = MEMORY_MIB


@dataclass(frozen=True, slots=True)
class Web:
    """The web side of a scenario. demand: a CSV file next to the scenario. period_s: the period after which it repeats;
    None: the whole days that cover it."""

    demand: str
    scale: Annotated[float, Range(1e-6, 1e6)] = 1.0
    period_s: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """model: a registered coordination policy. Which sizes count depends on it: `batch_nodes` and `web_nodes`
    (dedicated), none (on-demand), else `size` or, meaning the same, `lower_bound`."""

    model: str
    size: Count | None = None
    lower_bound: Count | None = None
    batch_nodes: Count | None = None
    web_nodes: Count | None = None
    lease_s: Seconds = SECONDS_PER_HOUR
    first_timer_s: Seconds | None = None
    request_ratio: Ratio = 1.2
    release_ratio: Ratio = 0.2
    elastic_factor: Annotated[float, Range(1e-9, 1.0 - 1e-9)] = 0.5
    on_reclaim: OnReclaim = OnReclaim.SUSPEND
    operation_costs: Costs = Costs.PAPER


@dataclass(frozen=True, slots=True)
class Registered:
    """The model is a coordination policy that is known."""

    key: str = "cluster.model"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value, "" if the model is valid or another problem was already reported."""
        known = names(policy_group("coordination"))
        return "" if values.get(self.key, known[0]) in known else "one of " + ", ".join(known)


@dataclass(frozen=True, slots=True)
class FewTimers:
    """Timers come at most so often."""

    key: str = "cluster.lease_s"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value, "" if the condition holds or a value it depends on is missing."""
        if self.key not in values or "horizon_s" not in values:
            return ""
        few = values["horizon_s"] / values[self.key] <= EVENTS_MAX
        return "" if few else f"at most {EVENTS_MAX} lease units in the horizon"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A log of jobs and a demand that share a cluster, as the file says."""

    RULES: ClassVar[tuple[Any, ...]] = (
        Registered(),
        Above("cluster.request_ratio", "cluster.release_ratio"),
        FewTimers(),
    )

    horizon_s: Seconds
    batch: Batch
    web: Web
    cluster: Cluster

    def setting(self) -> Setting:
        """Return the simulated setting."""
        cluster, memory_mib = self.cluster, self.batch.memory_mib
        batch_lower, web_lower = _lower_bounds(cluster)
        costs = COSTS[cluster.operation_costs]
        return Setting(
            cluster.model,
            batch_lower,
            web_lower,
            horizon_s=self.horizon_s,
            lease_s=cluster.lease_s,
            terms=BatchTerms(cluster.request_ratio, cluster.release_ratio, cluster.elastic_factor, cluster.on_reclaim),
            suspend_s=costs.duration_s(ActionKind.SUSPEND, memory_mib),
            resume_s=costs.duration_s(ActionKind.RESUME, memory_mib),
            first_timer_s=cluster.first_timer_s,
        )


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario with what its files hold: jobs in order of arrival, submitted in [0, horizon)."""

    scenario: Scenario
    jobs: tuple[ReplayJob, ...]
    demand: WebDemand


@dataclass(frozen=True, slots=True)
class _Loose:
    """The same file with nothing checked, for the files that one with other problems names."""

    horizon_s: Any = None
    batch: Any = field(default_factory=dict)
    web: Any = field(default_factory=dict)
    cluster: Any = field(default_factory=dict)


def _lower_bounds(cluster: Cluster) -> tuple[int, int]:
    """Return the lower bounds of the batch and of the web side; if they share one, only the sum counts."""
    if cluster.model == DEDICATED:
        return cluster.batch_nodes or 0, cluster.web_nodes or 0
    if cluster.model == ON_DEMAND:
        return 0, 0
    return (cluster.size if cluster.lower_bound is None else cluster.lower_bound) or 0, 0


def read(path: Path) -> LoadedScenario:
    """Read the scenario at `path` with its log and its demand. Raises `InvalidInput` with each problem and its
    place."""
    problems: list[Problem] = []
    scenario = _tried(problems, lambda: load(path, Scenario))
    loose = load(path, _Loose) if scenario is None and _is_toml(path) else scenario
    if loose is None:
        raise InvalidInput(*problems)
    problems += _without_sizes(path, loose.cluster)
    log_file, demand_file = _file(path, loose.batch, "log"), _file(path, loose.web, "demand")
    jobs = None if log_file is None else _tried(problems, lambda: read_swf(log_file))
    scale, period_s = (_number(loose.web, key) for key in ("scale", "period_s"))
    demand = None if demand_file is None else _tried(problems, lambda: read_steps(demand_file, scale or 1.0, period_s))
    if scenario is not None and jobs is not None:
        chosen = _tried(problems, lambda: _chosen(scenario, jobs, str(log_file)))
    if scenario is not None and demand is not None and _changes(scenario, demand) > EVENTS_MAX:
        problems.append(Problem(f"{path}: horizon_s", "the demand changes too often", f"at most {EVENTS_MAX} changes"))
    if problems or scenario is None or chosen is None or demand is None:
        raise InvalidInput(*problems)
    return LoadedScenario(scenario, chosen, demand)


def _tried(problems: list[Problem], work: Callable[[], T]) -> T | None:
    """Return the result of `work`, None if its problems were recorded."""
    try:
        return work()
    except InvalidInput as error:
        problems += error.problems
        return None


def _is_toml(path: Path) -> bool:
    try:
        load(path, _Loose)
    except InvalidInput:
        return False
    return True


def _chosen(scenario: Scenario, jobs: tuple[SwfJob, ...], name: str) -> tuple[ReplayJob, ...]:
    batch = scenario.batch
    return replay_jobs(jobs, scenario.horizon_s, batch.divide_sizes, frozenset(batch.skip_jobs), name)


def _changes(scenario: Scenario, demand: WebDemand) -> float:
    return len(demand.times_s) * math.ceil(scenario.horizon_s / demand.period_s)


def _without_sizes(path: Path, cluster: Any) -> list[Problem]:
    """Sizes that the model needs and that are not there, or that are there twice."""
    held = {name: getattr(cluster, name) for name in Cluster.__slots__} if isinstance(cluster, Cluster) else cluster
    if not isinstance(held, dict):
        return []
    model, known = held.get("model"), {key: value for key, value in held.items() if value is not None}
    if not isinstance(model, str):
        return []
    if model in _SIZES:
        missing = [key for key in _SIZES[model] if key not in known]
    elif {"size", "lower_bound"} <= set(known) and known["size"] != known["lower_bound"]:
        return [Problem(f"{path}: cluster.size", "is not lower_bound", "one of them, or both alike")]
    else:
        missing = [] if {"size", "lower_bound"} & set(known) else ["lower_bound" if model == FLB_NUB else "size"]
    expected = f"a number of nodes for model {model}"
    return [Problem(f"{path}: cluster.{key}", "is missing", expected) for key in missing]


def _file(path: Path, table: Any, key: str) -> Path | None:
    """Return a file that the scenario names; None if its key is invalid, which other checks report."""
    name = table.get(key) if isinstance(table, dict) else getattr(table, key, None)
    return path.parent / name if isinstance(name, str) else None


def _number(table: Any, key: str) -> float | None:
    """Return a positive number of a possibly unchecked table; None if it is not one."""
    value = table.get(key) if isinstance(table, dict) else getattr(table, key, None)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < SECONDS_MAX
    return float(value) if good and value is not None else None
