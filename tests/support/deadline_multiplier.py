"""The best rule for one multiplier on missing the deadline, for tests of the dynamic program by itself: the search
beneath `optimal` is otherwise seen only at the multiplier at which it ends."""

from __future__ import annotations

import numpy as np

from daemons.models.deadline.optimal import OptimalResult, _Recursion, _result
from daemons.models.deadline.problem import DeadlineProblem


def best_for(problem: DeadlineProblem, multiplier: float) -> OptimalResult:
    """The rule of least expected server cost + penalty + `multiplier` (0 or above) x miss probability, whether it keeps
    the promise or not, with the lower bound that this gives."""
    solution = _Recursion(problem).solve(np.full(problem.intervals, multiplier))
    return _result(problem, solution, solution.dual(1.0 - problem.confidence))
