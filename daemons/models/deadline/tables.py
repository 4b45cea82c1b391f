"""Every rule for sizes as a table, by its name."""

from __future__ import annotations

from daemons.models.deadline import phase_sizes
from daemons.models.deadline.costs import cost_table
from daemons.models.deadline.lp import lp_table
from daemons.models.deadline.optimal import optimal_table
from daemons.models.deadline.phase_sizes import PhaseSizeTable
from daemons.models.deadline.rules import METHODS, SizeTable, TableSpec
from daemons.models.deadline.threshold import static_table, threshold_table
from shared.base.errors import InvalidValue


def build(spec: TableSpec) -> SizeTable | PhaseSizeTable:
    """Build the table that `spec` describes. Raises `InvalidValue` for a method that is not in `METHODS`, or that has
    no table for a problem with phases."""
    problem = spec.problem
    if problem.phases is not None:
        if spec.method not in phase_sizes.METHODS:
            raise InvalidValue("method", spec.method, ", ".join(phase_sizes.METHODS))
        return phase_sizes.phase_table(spec.method, problem, spec.begin)
    return size_table(spec)


def size_table(spec: TableSpec) -> SizeTable:
    """Build the table as `build` does, for a problem with exponential service."""
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
