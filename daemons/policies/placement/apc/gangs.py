"""Jobs of several instances that wait: others make room for all of their instances, or for none."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.policies.placement.apc.exchange import Exchange
from daemons.policies.placement.apc.search import Search
from daemons.policies.placement.apc.state import Trial
from shared.policy_api.snapshot import Floats

_TRIED = 8  # of those that wait, the unhappiest first
_VICTIMS = 512  # the happiest: more would take too long to choose from
_SPARED = 32  # victims that are looked at again: whether it goes without them
_PARTS = (1.0, 0.5, 0.25)


class Gangs:
    """Suspends the happiest jobs until all instances fit, then spares whom it can."""

    def __init__(self, search: Search, exchange: Exchange) -> None:
        self.search, self.exchange = search, exchange
        self.state, self.problem = search.state, search.problem
        self._spare_mhz = search.spare_mhz()

    def run(self) -> None:
        """Serve the waiting jobs, the lowest utility first."""
        waiting = [row for row in self.search.waiting if self.state.places[row] is None and self.problem.k[row] > 1]
        for row in [row for row in waiting if self.exchange.gains(row)][:_TRIED]:
            best = self._best(row)
            if best is not None:
                self.exchange.accept(best)
                self._spare_mhz = self.search.spare_mhz()

    def _best(self, row: int) -> Trial | None:
        state, problem, search = self.state, self.problem, self.search
        search.considered.add(row)
        victims = self._victims(row)
        fastest = float(search.caps(row)[state.rules.allowed(row)].max(initial=0.0))
        best: Trial | None = None
        for part in _PARTS:
            mhz = max(part * fastest, problem.least_mhz[row])
            chosen = self._fewest(row, mhz, victims)
            place = self._place(row, mhz, chosen) if chosen is not None else None
            if chosen is None or place is None:
                continue
            trial = search.place(chosen, [(row, place, mhz)])
            if trial is not None and self.exchange.preferred(trial, best, search.floor):
                best = trial
        return best

    def _victims(self, row: int) -> list[int]:
        """Return the jobs with a higher utility, the highest first."""
        state, problem = self.state, self.problem
        least = min(state.utility(row), problem.idle[row]) + problem.params.tolerance
        found = [
            other
            for here in state.here
            for other in here
            if not (problem.stays[other] or (problem.movable[other] and problem.cool[other]))
            and (problem.idle[other] > least or not problem.aims[other])
        ]
        return sorted(dict.fromkeys(found), key=lambda other: (-problem.idle[other], other))[:_VICTIMS]

    def _room(self, victims: Sequence[int]) -> tuple[Floats, Floats]:
        """Memory and CPU that are free without them, and with what permanent VMs can spare."""
        free_mib, idle_mhz = self.search.free_mib.copy(), self.search.idle_mhz + self._spare_mhz
        for row in victims:
            place = self.state.places[row] or ()
            for node in set(place):
                idle_mhz[node] += self.state.used_mhz(row, node)
            for node in place:
                free_mib[node] += self.problem.memory[row]
        return free_mib, idle_mhz

    def _place(self, row: int, mhz: float, victims: Sequence[int]) -> tuple[int, ...] | None:
        return self.search.spread(row, mhz, *self._room(victims))

    def _fewest(self, row: int, mhz: float, victims: Sequence[int]) -> list[int] | None:
        """Return as few of the victims, from the first on, as free enough capacity; then drop those that are not
        needed."""
        if self._place(row, mhz, victims) is None:
            return None
        low, high = 0, len(victims)
        while low < high:
            middle = (low + high) // 2
            if self._place(row, mhz, victims[:middle]) is None:
                low = middle + 1
            else:
                high = middle
        chosen = list(victims[:high])
        for victim in chosen[-_SPARED:]:
            fewer = [other for other in chosen if other != victim]
            if self._place(row, mhz, fewer) is not None:
                chosen = fewer
        return chosen
