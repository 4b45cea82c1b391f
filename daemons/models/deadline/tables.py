"""Every rule for sizes as a table, by its name."""

from __future__ import annotations

from daemons.models.deadline.costs import cost_table
from daemons.models.deadline.lp import lp_table
from daemons.models.deadline.optimal import optimal_table
from daemons.models.deadline.rules import METHODS, SizeTable, TableSpec
from daemons.models.deadline.threshold import static_table, threshold_table
from shared.base.errors import InvalidValue


def build(spec: TableSpec) -> SizeTable:
    """The table that `spec` means. Raises `InvalidValue` for a method that is none of `METHODS`."""
    problem = spec.problem
    match spec.method:
        case "static":
            return static_table(problem)
        case "threshold" | "delayed-threshold":
            return threshold_table(problem, delayed=spec.method == "delayed-threshold")
        case "cost-aware" | "cost-aware-monotone" | "cost-aware-fast":
            monotone, fast = spec.method == "cost-aware-monotone", spec.method == "cost-aware-fast"
            return cost_table(problem, monotone, fast, spec.guarded)
        case "lp":
            return lp_table(problem, spec.guarded)
        case "optimal":
            return optimal_table(problem)
        case _:
            raise InvalidValue("method", spec.method, ", ".join(METHODS))
