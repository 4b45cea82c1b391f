"""At cycles running workloads move to where preferred rules hold, where it costs nothing."""

from __future__ import annotations

import numpy as np

from daemons.policies.placement.apc.problem import SLACK
from daemons.policies.placement.apc.search import Search
from daemons.policies.placement.apc.state import Trial

_TARGETS = 4  # nodes tried for each
_SAME = 1e-9


class Preferences:
    """Moves workloads of one instance whose preferred rules do not hold, those that lose most first.

    A move is made only where the sum of the weights of all broken preferences falls, no utility does, and nobody
    without a goal gets less CPU, the mover included: each move lowers the sum, so that moves do not undo each other
    from one cycle to the next. At most `preference_moves` in a decision. O(nodes) for each workload.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.state, self.problem = search, search.state, search.problem

    def run(self) -> None:
        """Move until no workload gains, or enough were moved."""
        left = self.problem.params.preference_moves
        if not left or not self.state.rules.preferring:
            return
        losses = [(-self._loss(row), row) for row in self.state.rows if self._may_move(row)]
        for loss, row in sorted(losses):
            if loss < -_SAME and left and self._move(row):
                left -= 1

    def _may_move(self, row: int) -> bool:
        problem, state = self.problem, self.state
        if problem.k[row] > 1 or not problem.movable[row] or problem.cool[row] or not state.rules.prefers(row):
            return False
        place = state.places[row]
        stays = place is not None and place == problem.home[row] and not problem.leaving[place[0]]
        return stays and row not in state.rules.no_migration

    def _loss(self, row: int) -> float:
        """Return the weights of the preferences that it breaks where it is."""
        (node,) = self.state.places[row] or (-1,)
        penalty = self.state.rules.penalty(row, self.state.layout)
        return 0.0 if penalty is None or node < 0 else penalty.item(node)

    def _move(self, row: int) -> bool:
        """Move a workload to the node where it breaks least; return whether there is one where that costs nothing."""
        search, state = self.search, self.state
        penalty = state.rules.penalty(row, state.layout)
        (at,) = state.places[row] or (-1,)
        if penalty is None or at < 0:
            return False
        nodes = (search.roomy(row) & (penalty < penalty.item(at) - _SAME)).nonzero()[0]
        spare = np.minimum(search.idle_mhz[nodes], search.caps(row)[nodes])
        for node in nodes[np.lexsort((-spare, penalty[nodes]))][:_TARGETS].tolist():
            trial = search.place([row], [(row, (node,), 0.0)])
            if trial is not None and trial.penalty < -_SAME and self._costs_nothing(trial):
                search.take(trial)
                search.preferred.add(row)
                return True
        return False

    def _costs_nothing(self, trial: Trial) -> bool:
        """Return whether no utility falls, and no workload without a goal is slower."""
        state, problem = self.state, self.problem
        if trial.level < state.levels.level - _SAME:
            return False
        for row, job in trial.changed.items():
            was = state.jobs[row]
            if problem.aims[row]:
                if job.utility(trial.level) < state.utility(row) - _SAME:
                    return False
            elif job.mhz / job.slow < was.mhz / was.slow * (1.0 - SLACK):
                return False
        return True
