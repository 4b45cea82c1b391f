"""Which running workloads should leave their nodes: what is drained, and what a required rule does not allow."""

from __future__ import annotations

from daemons.models.placement_rules import PlacementRules
from daemons.policies.placement.apc.problem import RUNNING, Problem
from shared.policy_api.decision import ReasonCode


def to_leave(problem: Problem, rules: PlacementRules) -> list[int]:
    """Return the rows of the workloads that may be changed and should leave a node: first those that must not be on it
    at all, then those for whom others are in the wrong place, the fastest to move first."""
    if len(rules.masks) == 1 and not any(problem.leaving) and not rules.offending:
        return []
    rows = [row for row, movable in enumerate(problem.movable) if movable and excluded(problem, rules, row)]
    rest = sorted(row for row in rules.offending.difference(rows) if problem.movable[row])
    return rows + sorted(rest, key=lambda row: problem.migrate_s[row])


def excluded(problem: Problem, rules: PlacementRules, row: int) -> bool:
    """Return whether a running workload is on a node that is drained, or that it may not be on wherever others are."""
    return problem.state[row] == RUNNING and any(
        problem.leaving[node] or not rules.on(row, node) for node in problem.home[row]
    )


def misplaced(problem: Problem, rules: PlacementRules, row: int) -> bool:
    """Return whether a running workload is where it should not be, by its node or by where others are."""
    return row in rules.offending or excluded(problem, rules, row)


def why_leave(problem: Problem, row: int) -> ReasonCode:
    """Return the reason for which a misplaced workload leaves its node."""
    return ReasonCode.DRAIN if problem.leaving_any(row) else ReasonCode.RULE
