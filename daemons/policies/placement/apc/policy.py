"""The policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemons.policies.placement.apc.decision import decision_of
from daemons.policies.placement.apc.objective import compare
from daemons.policies.placement.apc.params import parsed
from daemons.policies.placement.apc.problem import problem_of
from daemons.policies.placement.apc.rules import misplaced, rules_of
from daemons.policies.placement.apc.search import Search
from daemons.policies.placement.apc.state import State
from shared.model import PlacementDecision
from shared.ports import Needs
from shared.snapshot import Snapshot


class Apc:
    """Places jobs and web applications so that the smallest utilities are as large as can be (docs/policies.md).

    Parameters as in `Params`. A decision is never worse than changing nothing, nodes that are drained aside.
    """

    name = "apc"
    needs = Needs()
    event_driven = True

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` naming every key that is not known or cannot be used, and what would be right."""
        parsed(params, self.name)

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, None]:
        """The next placement; `state` is not used. Raises `InvalidInput` as `check_params` does, nothing else."""
        del state
        wanted = parsed(params, self.name)
        problem = problem_of(snapshot, wanted)
        rules = rules_of(problem)
        placement = State(problem, rules)
        if not snapshot.at_cycle and not wanted.event_driven_start:
            return decision_of(problem, placement, None), None
        floor = min((placement.before[row] for row in placement.jobs if problem.counted[row]), default=1.0)
        search = Search(placement, floor)
        search.run()
        if _worse(placement) and not any(misplaced(problem, rules, row) for row in placement.jobs):
            return decision_of(problem, State(problem, rules, still=True), search), None
        return decision_of(problem, placement, search), None


def _worse(state: State) -> bool:
    """Whether it would be better to change nothing."""
    rows = [row for row in state.jobs if state.problem.counted[row]]
    after = [state.utility(row) for row in rows]
    before = [state.before[row] for row in rows]
    order = compare(after, before, state.problem.params.tolerance)
    return order < 0 or (bool(rows) and min(after) < min(before) - 1e-9)
