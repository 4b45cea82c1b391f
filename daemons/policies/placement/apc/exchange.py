"""Exchange places node by node: jobs with a low utility take the places of jobs with a higher one (apc.txt section
3.2.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from daemons.policies.placement.apc.future import Place
from daemons.policies.placement.apc.objective import better
from daemons.policies.placement.apc.problem import RUNNING, SLACK
from daemons.policies.placement.apc.queues import Entry, Queues, order_of
from daemons.policies.placement.apc.search import WORTH, Arrival, Search
from daemons.policies.placement.apc.state import Trial
from shared.policy_api.decision import ReasonCode

_RELIEVED = 4
_PROMISING = 24
_SAME = 1e-9
_SLOWED = 1.05  # who takes so many times as long as alone might be better off elsewhere
_ALIKE = 0.01  # relative goals this near to each other, relative, are equal to the guard


class Exchange:
    """Three nested loops: over nodes; over jobs there, removed one by one, the highest utility first; over waiting
    jobs. The last loop is run from several first jobs, the one with the lowest utility of each memory size.

    A first job must be able to gain more than the tolerance. Nodes without jobs of a sufficiently higher utility are
    skipped, and a later pass covers changed nodes only. With few jobs, all combinations are tried.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.state, self.problem = search, search.state, search.problem
        state, problem = self.state, self.problem
        self.tolerance = problem.params.tolerance
        self.exact = state.levels.exact
        waiting = [row for row in search.waiting if state.places[row] is None and problem.k[row] == 1]
        self.all = Queues(state, waiting)
        self.urgent = Queues(state, [row for row in waiting if self.gains(row)])
        guests = any(problem.movable[row] and not problem.aims[row] for row in state.rows)
        self.eager = Queues(state, [row for row in waiting if self.gains(row, _SAME)]) if guests else self.urgent
        self._least_mib = 0.0
        self._dirty: set[int] | None = None
        self._tried: set[tuple[frozenset[int], frozenset[int]]] = set()

    def run(self) -> None:
        """Run passes until one changes nothing, at most `passes`; with few jobs, relieve the jobs with the lowest
        utility after each."""
        for _ in range(self.problem.params.passes):
            changed = self.sweep()
            if self.exact:
                changed |= self.relieve_some()
            if not changed:
                break
        if not self.exact:
            self.relieve_some()

    def relieve_some(self) -> bool:
        """Call `relieve` a few times; return whether it ever changed anything."""
        for done in range(_RELIEVED):
            if not self.relieve():
                return done > 0
        return True

    def gains(self, row: int, least: float | None = None, wait_s: float = 0.0) -> bool:
        """Return whether running would raise its utility by more than `least` (None: the tolerance) after a wait."""
        problem, level = self.problem, self.state.levels.level
        if not problem.aims[row]:
            return False
        if self.exact:
            return True
        running = problem.movable[row]
        delay_s = problem.start_s[row] if not running and not problem.home[row] else problem.resume_s[row]
        if running:
            delay_s = problem.migrate_s[row]
        spared = max(0.0, problem.cycle_s - delay_s - wait_s) / problem.r_s[row]
        weight, idle = problem.weight[row], problem.idle[row]
        best = idle + spared * max(weight, 1.0 / weight)
        return min(level, best) > min(level, idle) + (self.tolerance if least is None else least)

    def sweep(self) -> bool:
        """Make one pass over the nodes, those with the highest utilities first; return whether anything was changed."""
        jobs, happiest = self.state.jobs, []
        dirty, self._dirty = self._dirty, set()
        for node in self.problem.usable.nonzero()[0].tolist():
            if dirty is not None and not self.exact and node not in dirty:
                continue
            top = max((jobs[row].top for row in self.state.here[node]), default=math.inf)
            happiest.append((-top, node))
        happiest.sort()
        changed = False
        self._least_mib = self.all.least_mib()
        for _, node in happiest:
            best = self.best_at(node)
            if best is not None:
                changed = True
                self.accept(best)
        return changed

    def accept(self, trial: Trial) -> None:
        """Make a trial come true, who waits included."""
        places = self.state.places
        before = {row: places[row] for row in trial.changed}
        self.search.take(trial)
        if self._dirty is not None:
            self._dirty.update(trial.nodes)
        for row, was in before.items():
            if self.problem.k[row] > 1 or (was is None) == (places[row] is None):
                continue
            if places[row] is None:
                self.all.add(row)
                if self.gains(row):
                    self.urgent.add(row)
                if self.eager is not self.urgent and self.gains(row, _SAME):
                    self.eager.add(row)
            else:
                for queues in (self.all, self.urgent, self.eager):
                    queues.drop(row)

    def may_go(self, row: int) -> bool:
        """Return whether a running job may be removed from its node."""
        problem = self.problem
        return problem.k[row] == 1 and not (problem.stays[row] or (problem.movable[row] and problem.cool[row]))

    # --- the unhappiest ------------------------------------------------------------------------------------------

    def relieve(self) -> bool:
        """Find another place for one of the jobs with the lowest utility that could gain, wherever it is now."""
        state, problem, level = self.state, self.problem, self.state.levels.level
        rows = [row for row in state.rows if problem.aims[row] and problem.k[row] == 1 and self._may_come(row)]
        utilities = state.utilities()
        unhappy = sorted((utilities[row], problem.urgency[row], row) for row in rows)
        could = [
            row
            for utility, _, row in unhappy
            if utility + self.tolerance < min(level, problem.top[row])
            or (self.exact and state.jobs[row].slow > _SLOWED)
        ]
        nodes = self._promising()
        for row in could[:_RELIEVED]:
            best = self._better_place(row, nodes)
            if best is not None:
                self.accept(best)
                return True
        return False

    def _may_come(self, row: int) -> bool:
        problem = self.problem
        if problem.movable[row]:
            return not problem.cool[row] and row not in self.state.rules.no_migration
        return problem.may_start[row] and row not in self.state.rules.contradictions

    def _promising(self) -> list[int]:
        """Usable nodes, of many those where somebody could best wait."""
        usable: list[int] = self.problem.usable.nonzero()[0].tolist()
        if self.exact:
            return usable
        idle, aims = self.problem.idle, self.problem.aims
        spare = [
            (-max((idle[row] if aims[row] else math.inf for row in self.state.here[node]), default=math.inf), node)
            for node in usable
        ]
        return [node for _, node in sorted(spare)[:_PROMISING]]

    def _better_place(self, row: int, nodes: Sequence[int]) -> Trial | None:
        state, problem, best = self.state, self.problem, None
        at = state.places[row]
        for node in nodes:
            if at == (node,) or not state.rules.on(row, node):
                continue
            going = [other for other in state.here[node] if self.may_go(other)]
            going.sort(key=lambda other: (-state.utility(other), -problem.urgency[other]))
            for cut in range(len(going) + 1):
                gone = going[:cut]
                free_mib = state.free_mib[node] + sum([problem.memory[other] for other in gone])
                if problem.memory[row] > free_mib * (1.0 + SLACK):
                    continue
                for trial in self._displacing(row, at, node, gone):
                    if self.preferred(trial, best, self.search.floor):
                        best = trial
        return best

    def _displacing(self, row: int, at: Place | None, node: int, gone: Sequence[int]) -> Iterator[Trial]:
        """Yield trials in which the job moves to the node. Jobs that leave it wait, or move to nodes with free
        capacity; one may get the place that the job leaves."""
        leaving = [*gone] if at is None else [row, *gone]
        come: list[Arrival] = [(row, (node,), 0.0)]
        trial = self.search.place(leaving, come)
        if trial is not None:
            yield trial
        left = None if at is None else (at[0], self.problem.memory[row], self.state.jobs[row].mhz)
        moved = self.elsewhere(node, gone, left) if gone else []
        if moved:
            trial = self.search.place(leaving, come + moved)
            if trial is not None:
                yield trial

    # --- one node ------------------------------------------------------------------------------------------------

    def best_at(self, node: int) -> Trial | None:
        """Return the best change of the jobs on a node, None if it is best unchanged."""
        state, problem, level = self.state, self.problem, self.state.levels.level
        jobs, here = state.jobs, state.here[node]
        going = [(-jobs[row].utility(level), -problem.urgency[row], row) for row in here if self.may_go(row)]
        going.sort()
        guests = any(not problem.aims[row] for row in here)
        heads = self.eager if guests else self.urgent
        lowest = heads.lowest(node)
        slow = self._slow(node)
        happiest = -going[0][0] if going else -math.inf
        wanted = lowest < math.inf and (happiest > min(level, lowest) + self.tolerance or guests)
        cuts = len(going) if wanted or slow or self.exact else 0
        if not cuts and state.free_mib[node] < heads.least_mib():
            return None
        best: Trial | None = None
        self._tried.clear()
        floor = self.search.floor
        for cut in range(cuts + 1):
            gone = [row for _, _, row in going[:cut]]
            if best is not None and not self.exact:
                break
            for come in self.additions(node, gone, slow, heads):
                for trial in self.variants(node, gone, come):
                    if self.preferred(trial, best, floor):
                        best = trial
        return best

    def preferred(self, trial: Trial, best: Trial | None, floor: float) -> bool:
        """Return whether a trial is better than the best so far, and the guard allows it."""
        if not better(self.state, trial, best, floor):
            return False
        if self.guarded(trial):
            self.search.blocked.update(dict.fromkeys(trial.come, ReasonCode.GUARD))
            return False
        return True

    def _slow(self, node: int) -> bool:
        """Return whether a job on the node has less CPU than it can use, or would gain by sharing with others."""
        most, jobs = self.state.division.tables(node)[1], self.state.jobs
        if any(jobs[row].mhz < most[row] * (1.0 - SLACK) for row in self.state.here[node]):
            return True
        return self.state.sharing is not None and any(self._held_up(row) for row in self.state.here[node])

    def _held_up(self, row: int) -> bool:
        """Return whether a job would gain more than the tolerance if no other slowed it down."""
        job, problem, level = self.state.jobs[row], self.problem, self.state.levels.level
        if job.slow <= 1.0 or not problem.aims[row]:
            return False
        weight = problem.weight[row]
        gain = problem.cycle_s * (1.0 - 1.0 / job.slow) / problem.r_s[row] * max(weight, 1.0 / weight)
        return min(level, job.top + gain) > job.utility(level) + self.tolerance

    def additions(self, node: int, gone: Sequence[int], slow: bool, heads: Queues) -> Iterator[list[int]]:
        """Yield the jobs that could come to a node once `gone` have left it: one list for each first job."""
        state, memory = self.state, self.problem.memory
        free_mib = (state.free_mib[node] + sum([memory[row] for row in gone])) * (1.0 + SLACK)
        staying = [row for row in state.here[node] if row not in gone]

        def fits(row: int) -> bool:
            return self.worth(node, staying, row)

        firsts = sorted(heads.firsts(node, free_mib, fits))[: self.problem.params.heads]
        can_move = self._can_move(gone)
        if gone and (slow or self.exact) and can_move:
            yield []
        wait_s = 0.0 if can_move else self._wait_s(node, gone)
        for *_, head in firsts:
            self.search.considered.add(head)
            if wait_s == 0.0 or self.gains(head, None if heads is self.urgent else _SAME, wait_s):
                yield self.added(node, gone, staying, head, free_mib)

    def _can_move(self, gone: Sequence[int]) -> bool:
        """Return whether any node has the memory for one of the jobs that leave."""
        memory, most = self.problem.memory, self.search.most_free_mib
        return any(memory[row] <= most for row in gone)

    def _wait_s(self, node: int, gone: Sequence[int]) -> float:
        """Return how long a job that takes the place of `gone` waits for their suspends."""
        suspend_s, origin = self.problem.suspend_s, self.state.origin[node]
        return max([suspend_s[row] for row in gone if row in origin], default=0.0)

    def added(self, node: int, gone: Sequence[int], staying: Sequence[int], head: int, free_mib: float) -> list[int]:
        """Run the add loop: the head, then again and again the job with the lowest utility that fits; jobs that left
        may come back."""
        memory, on = self.problem.memory, self.state.rules.on
        come, rows = [head], [*staying, head]
        free_mib -= memory[head]

        def fits(row: int) -> bool:
            return row not in come and self.worth(node, rows, row)

        while free_mib >= self._least_mib or any(memory[row] <= free_mib for row in gone if row not in come):
            options: list[Entry] = list(self.all.firsts(node, free_mib, fits))
            for row in gone:
                if memory[row] <= free_mib and on(row, node) and fits(row):
                    options.append(order_of(self.state, row))
            if not options:
                break
            row = min(options)[-1]
            come.append(row)
            rows.append(row)
            free_mib -= memory[row]
        return come

    def worth(self, node: int, rows: Sequence[int], row: int) -> bool:
        """Return whether the node's CPU suffices for one more job to get a fair part of its speed."""
        state, problem = self.state, self.problem
        least, most = state.division.tables(node)
        if most[row] < least[row] or most[row] <= 0.0:
            return False
        room = problem.cpu_mhz[node] - state.replica_mhz[node]
        rank, urgency, k = problem.urgency[row], problem.urgency, problem.k
        for other in rows:
            if k[other] > 1:
                room -= state.used_mhz(other, node)
            else:
                room -= most[other] if urgency[other] < rank else least[other]
        return room >= max(least[row], WORTH * most[row])

    def variants(self, node: int, gone: Sequence[int], come: Sequence[int]) -> Iterator[Trial]:
        """Yield the trial, and the variant in which the jobs that leave go to other nodes with free capacity."""
        left = [row for row in gone if row not in come]
        new = [row for row in come if row not in gone]
        key = frozenset(left), frozenset(new)
        if key in self._tried or not (left or new):
            return
        self._tried.add(key)
        if new and not self._hopeless(left, new):
            trial = self.search.exchange(node, left, new)
            if trial is not None:
                yield trial
        moved = self.elsewhere(node, left) if self._can_move(left) else []
        if moved:
            trial = self.search.place(left, [(row, (node,), 0.0) for row in new] + moved)
            if trial is not None:
                yield trial

    def _hopeless(self, left: Sequence[int], new: Sequence[int]) -> bool:
        """Return whether some job to be suspended would then have a utility no higher than the current one of all jobs
        that come."""
        problem, level = self.problem, self.state.levels.level
        if not left or self.exact:
            return False
        lost = min([problem.idle[row] if problem.aims[row] else math.inf for row in left])
        now = min([problem.idle[row] if problem.aims[row] else math.inf for row in new])
        return min(lost, level) <= min(now, level) + self.tolerance and lost < math.inf

    def elsewhere(self, node: int, left: Sequence[int], freed: tuple[int, float, float] | None = None) -> list[Arrival]:
        """Other nodes with idle room for those that left this one; `freed`: a node, MiB and MHz that are free too."""
        search, problem = self.search, self.problem
        found: list[Arrival] = []
        free_mib, idle_mhz = search.free_mib, search.idle_mhz
        if freed is not None:
            free_mib, idle_mhz = free_mib.copy(), idle_mhz.copy()
            free_mib[freed[0]] += freed[1]
            idle_mhz[freed[0]] += freed[2]
        sharing = self.state.sharing
        loads = sharing.columns() if sharing is not None and len(left) > 1 else None
        for row in left:
            caps = search.caps(row)
            fits = free_mib >= problem.memory[row] * (1.0 - SLACK)
            fits[node] = False
            if not fits.any():
                continue
            fits &= search.open_to(row)
            fits &= (idle_mhz >= np.maximum(problem.least_mhz[row], WORTH * caps)) & (caps > 0.0)
            nodes = fits.nonzero()[0]
            if nodes.size:
                spare = np.minimum(idle_mhz[nodes], caps[nodes])
                if sharing is not None and sharing.uses(row):
                    spare = spare / sharing.joined(row, None if loads is None else loads[1])[nodes]
                to = int(search.ranked(row, nodes, spare, free_mib)[0])
                if free_mib is search.free_mib:
                    free_mib, idle_mhz = free_mib.copy(), idle_mhz.copy()
                free_mib[to] -= problem.memory[row]
                idle_mhz[to] -= min(idle_mhz[to], caps[to])
                found.append((row, (to,), 0.0))
                if sharing is not None and loads is not None:
                    sharing.join(row, to, *loads)
        return found

    # --- the guard -----------------------------------------------------------------------------------------------

    def guarded(self, trial: Trial) -> bool:
        """Return whether the guard forbids the trial: a newcomer is not more urgent than a job to be suspended (both
        due times at the newcomer's own predicted utility)."""
        problem = self.problem
        if problem.params.guard == "off":
            return False
        losers = [
            row
            for row in trial.gone
            if problem.state[row] == RUNNING and problem.aims[row] and trial.changed[row].place is None
        ]
        if not losers:
            return False
        return any(self._alike(row, loser, trial) for row in trial.come for loser in losers)

    def _alike(self, row: int, loser: int, trial: Trial) -> bool:
        """Return whether a job takes the place of another that is no less urgent; the guard then objects."""
        problem, places = self.problem, self.state.places
        job, had = trial.changed.get(row), places[loser] or ()
        if job is None or job.place is None or job.place == places[row] or set(job.place).isdisjoint(had):
            return False
        if problem.params.guard == "equal" and abs(problem.r_s[row] - problem.r_s[loser]) > _ALIKE * problem.r_s[loser]:
            return False
        utility = job.utility(trial.level)
        return not self._due_s(row, utility) < self._due_s(loser, utility)

    def _due_s(self, row: int, utility: float) -> float:
        problem = self.problem
        if not problem.aims[row]:
            return math.inf
        weight = problem.weight[row]
        margin = utility * weight if utility > 0.0 else utility / weight
        return problem.goal_s[row] - margin * problem.r_s[row]
