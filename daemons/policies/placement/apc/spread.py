"""At cycles workloads without a goal move to where more CPU is left for them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from daemons.policies.placement.apc.problem import SLACK
from daemons.policies.placement.apc.search import Search
from daemons.policies.placement.apc.state import Trial
from shared.policy_api.snapshot import Floats

GAIN = 1.1  # who moves gets so many times as much CPU in the coming cycle, its own pause counted
_LOOKED_AT = 4  # of those on a node, the ones that are moved fastest
_TARGETS = 3  # nodes tried for each
_SAME = 1e-9


class Spread:
    """Moves workloads without a goal, of one instance, from the nodes where each gets least.

    A move is made only where the mover gains `GAIN`, none of those concerned gets less than the smallest of them had,
    and no utility falls. The speeds of those without a goal, in ascending order, so grow with every move, and the
    search ends. O(nodes) for each node and move.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.state, self.problem = search, search.state, search.problem

    def run(self) -> None:
        """Move until nobody gains, at most `passes` times over the nodes: each is looked at again after a move from it,
        the others in the next pass."""
        if not any(self._may_move(row) for row in self.state.rows):
            return
        given, weight = self._shared()
        for _ in range(self.problem.params.passes):
            if not self._pass(given, weight):
                return

    def _pass(self, given: Floats, weight: Floats) -> bool:
        """Move workloads from every node with unmet demand, the lowest level first; return whether any moved."""
        moved, worst = False, []
        for node in range(len(self.state.here)):
            movers = self._movers(node)
            if movers:
                worst.append((min(map(self.level, movers)), node))
        heapify(worst)
        while worst:
            _, node = heappop(worst)
            movers = self._movers(node)
            trial = next(filter(self._gains, self._trials(node, movers, given, weight)), None)
            if trial is None:
                continue
            moved = True
            self.search.take(trial)
            for touched in trial.nodes:
                given[touched], weight[touched] = self._shared_on(touched)
            movers = self._movers(node)
            if movers:
                heappush(worst, (min(map(self.level, movers)), node))
        return moved

    def _movers(self, node: int) -> list[int]:
        if self.problem.leaving[node]:
            return []
        return [row for row in self.state.here[node] if self._may_move(row) and self.hungry(row)]

    def _may_move(self, row: int) -> bool:
        problem, state = self.problem, self.state
        if problem.aims[row] or problem.k[row] > 1 or not problem.movable[row] or problem.cool[row]:
            return False
        place = state.places[row]
        return place is not None and place == problem.home[row] and row not in state.rules.no_migration

    def _shared(self) -> tuple[Floats, Floats]:
        """Return, by node, the MHz of workloads without a goal, and the sum of their weights, float64[n] each."""
        pairs = [self._shared_on(node) for node in range(len(self.state.here))]
        return np.array([mhz for mhz, _ in pairs]), np.array([weight for _, weight in pairs])

    def _shared_on(self, node: int) -> tuple[float, float]:
        state, aims, weight = self.state, self.problem.aims, self.problem.weight
        rows = [row for row in state.here[node] if not aims[row]]
        return sum([state.used_mhz(row, node) for row in rows]), sum([weight[row] for row in rows])

    def level(self, row: int) -> float:
        """Return the work that a workload does per second, relative to its weight."""
        job = self.state.jobs[row]
        return job.mhz / job.slow / self.problem.weight[row]

    def hungry(self, row: int) -> bool:
        """Return whether it would use more CPU. A permanent VM declares nothing: its least is its use plus headroom,
        and while that is below its previous allotment it needs no more."""
        problem, mhz = self.problem, self.state.jobs[row].mhz
        if problem.stays[row] and problem.least_mhz[row] < min(problem.home_mhz[row]) * (1.0 - SLACK):
            return False
        return mhz < float(self.search.caps(row).max(initial=0.0)) * (1.0 - SLACK)

    def _trials(self, node: int, movers: list[int], given: Floats, weight: Floats) -> Iterator[Trial]:
        problem, search = self.problem, self.search
        movers.sort(key=lambda row: (problem.migrate_s[row], self.level(row), problem.urgency[row]))
        for row in movers[:_LOOKED_AT]:
            fits = search.roomy(row)
            fits[node] = False
            own, caps = problem.weight[row], search.caps(row)
            alone = np.maximum(search.idle_mhz, (search.idle_mhz + given) * own / (weight + own))
            expected = np.minimum(alone, caps)
            nodes = (fits & (expected > GAIN * self.state.jobs[row].mhz)).nonzero()[0]
            for target in search.ranked(row, nodes, expected[nodes])[:_TARGETS].tolist():
                trial = search.place([row], [(row, (target,), 0.0)])
                if trial is not None:
                    yield trial

    def _gains(self, trial: Trial) -> bool:
        """Return whether the mover gains enough, and not at the expense of a workload that has no more than the mover
        had."""
        state, problem = self.state, self.problem
        (mover,) = trial.come
        before, after = [], []
        for row, job in trial.changed.items():
            if problem.aims[row]:
                if job.utility(trial.level) < state.utility(row) - _SAME:
                    return False
                continue
            rate = job.mhz / job.slow / problem.weight[row]
            if row == mover:
                rate *= max(0.0, 1.0 - job.delay_s / problem.cycle_s)
                if rate < GAIN * self.level(row):
                    return False
            before.append(self.level(row))
            after.append(rate)
        return min(after) >= min(before) * (1.0 - SLACK)
