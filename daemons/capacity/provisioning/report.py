"""What every policy does in a period with a deadline: computed exactly and, where wanted, played at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from daemons.capacity.provisioning.arrivals import thesis_arrivals
from daemons.capacity.provisioning.file import PricedScenario
from daemons.capacity.provisioning.monte_carlo import Outcome, Simulated, simulate
from daemons.capacity.provisioning.problem import period_of, problem_of
from daemons.models.deadline.capacity import breach, capacity
from daemons.models.deadline.evaluation import Evaluation, evaluate
from daemons.models.deadline.optimal import optimal
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import SizeTable, TableSpec
from daemons.models.deadline.tables import size_table
from shared.base.clock import perf_s

GUARDED = ("cost-aware", "cost-aware-monotone", "cost-aware-fast", "lp")
Values = dict[str, Any]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """One policy's expectations. mean_servers: in each interval; wall_s: what its sizes and expectations took;
    lower_bound: of cost and penalty of every policy that keeps the promise."""

    value_at_0: float | None
    expected_server_cost: float
    miss_probability: float
    missed_jobs: float
    deployment_events: float
    servers_deployed: float
    mean_servers: list[float]
    wall_s: float
    lower_bound: float | None = None

    def to_json(self) -> Values:
        """Return the keys of the output."""
        values = asdict(self)
        values["deployments"] = {"events": values.pop("deployment_events"), "servers": values.pop("servers_deployed")}
        bound = values.pop("lower_bound")
        return values if bound is None else values | {"lower_bound": bound}


@dataclass(frozen=True, slots=True)
class ProvisionReport:
    """Everything about a scenario. capacity: by interval, then by number of servers from servers_min on (None: not
    even without jobs is the promise kept); breach: at the begin, by number of servers kept from then on; infeasible:
    why no policy can keep the promise ("" where one can)."""

    servers_min: int
    capacity: list[list[int | None]]
    breach: dict[int, float]
    policies: dict[str, PolicyReport]
    monte_carlo: dict[str, Outcome] | None
    arrivals: Values
    infeasible: str
    wall_s: dict[str, float]

    def to_json(self) -> Values:
        """Return the keys of the output."""
        values: Values = {
            "capacity": self.capacity,
            "breach": {str(servers): value for servers, value in self.breach.items()},
            "policies": {name: each.to_json() for name, each in self.policies.items()},
        }
        if self.monte_carlo is not None:
            values["monte_carlo"] = {name: outcome_json(each) for name, each in self.monte_carlo.items()}
        return values | {"arrivals": self.arrivals, "infeasible": self.infeasible or None, "wall_s": self.wall_s}


def report_of(given: PricedScenario, policies: Sequence[str], runs: int, seed: int, tell: Tell) -> ProvisionReport:
    """Return the whole report; `runs` periods are simulated (0: none) from `seed`. `tell` receives progress
    messages."""
    problem = problem_of(given)
    begun_s = perf_s()
    tell("capacity")
    table = capacity(problem)
    taken_s = {"capacity": perf_s() - begun_s}
    begun_s = perf_s()
    tables: dict[str, SizeTable] = {}
    reports: dict[str, PolicyReport] = {}
    for name in policies:
        tell(name)
        tables[name], reports[name] = policy_report(problem, name, given.scenario.promise.guarded)
    taken_s["policies"] = perf_s() - begun_s
    arrivals: Values = {"expected": float(problem.arrivals[:, 0].sum())}
    played: Simulated | None = None
    if runs:
        tell(f"{runs} periods")
        begun_s = perf_s()
        played = simulate(period_of(problem), thesis_arrivals(given.scenario), tables, runs, seed)
        taken_s["monte_carlo"] = perf_s() - begun_s
        arrivals |= {"played_mean": played.arrivals_mean, "played_sd": played.arrivals_sd}
    at_begin = breach(problem, 0, 0).tolist()
    return ProvisionReport(
        problem.servers_min,
        [[None if jobs < 0 else jobs for jobs in row] for row in table.tolist()],
        {problem.servers_min + index: value for index, value in enumerate(at_begin)},
        policies=reports,
        monte_carlo=None if played is None else played.outcomes,
        arrivals=arrivals,
        infeasible=why_infeasible(problem),
        wall_s=taken_s,
    )


def policy_report(problem: DeadlineProblem, name: str, guarded: bool = False) -> tuple[SizeTable, PolicyReport]:
    """Return the sizes of one policy and their expected results."""
    begun_s = perf_s()
    table, bound = table_of(problem, name, guarded)
    found: Evaluation = evaluate(problem, table)
    return table, PolicyReport(
        table.value_at_0,
        found.expected_server_cost,
        found.miss_probability,
        missed_jobs=found.missed_jobs,
        deployment_events=found.deployments.events,
        servers_deployed=found.deployments.servers,
        mean_servers=found.mean_servers.tolist(),
        wall_s=perf_s() - begun_s,
        lower_bound=bound,
    )


def table_of(problem: DeadlineProblem, name: str, guarded: bool = False) -> tuple[SizeTable, float | None]:
    """Return the sizes of one policy and, for `optimal`, the lowest cost of any policy that meets the confidence."""
    if name == "optimal":
        best = optimal(problem)
        return best.table, best.lower_bound if math.isfinite(best.lower_bound) else None
    return size_table(TableSpec(name, problem, guarded and name in GUARDED)), None


def why_infeasible(problem: DeadlineProblem) -> str:
    """Explain why not even all servers from the first decision on meet the confidence; "" if they do."""
    count = problem.servers_max - problem.servers_min + 1
    sizes = np.full((problem.intervals, count, 1), problem.servers_max, dtype=np.uint16)
    sizes[0] = problem.servers_min + np.arange(count)[:, None]
    least = evaluate(problem, SizeTable(problem.servers_min, sizes)).miss_probability
    if least <= 1.0 - problem.confidence:
        return ""
    return (
        f"with all {problem.servers_max} servers from the first decision on a job misses the deadline with probability "
        f"{least:.4g}, more than {1.0 - problem.confidence:.4g}"
    )


def outcome_json(outcome: Outcome) -> Values:
    """Return the simulation results: means under the keys of the exact figures, and the 95 % interval of each."""
    estimates = {
        "expected_server_cost": outcome.cost,
        "miss_probability": outcome.miss_probability,
        "missed_jobs": outcome.missed_jobs,
        "deployments.events": outcome.deployment_events,
        "deployments.servers": outcome.servers_deployed,
    }
    return {
        "runs": outcome.runs,
        "runs_missed": outcome.missed,
        "expected_server_cost": outcome.cost.mean,
        "miss_probability": outcome.miss_probability.mean,
        "missed_jobs": outcome.missed_jobs.mean,
        "deployments": {"events": outcome.deployment_events.mean, "servers": outcome.servers_deployed.mean},
        "mean_servers": outcome.mean_servers.tolist(),
        "intervals_95": {name: [each.low, each.high] for name, each in estimates.items()},
    }
