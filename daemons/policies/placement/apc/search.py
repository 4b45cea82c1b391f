"""The search: idle room is filled, then places are taken from those who are better off, node by node.

Three nested loops (apc.txt section 3.2.1). Over nodes, those with the happiest jobs first; over their jobs, which are
taken off one by one, the happiest first; over who waits, the unhappiest that fits first. The last loop is run from
several first jobs, the unhappiest of each memory size.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from daemons.policies.placement.apc.objective import better
from daemons.policies.placement.apc.problem import RUNNING, SLACK, SUSPENDED
from daemons.policies.placement.apc.rules import misplaced
from daemons.policies.placement.apc.state import Place, State, Trial
from daemons.policies.placement.apc.web import Web
from shared.snapshot import Bools, Floats

_WORTH = 0.1  # who comes gets at least this part of its full speed, or does not come
_LOOKED_AT = 16  # of the unhappiest of one memory size that may not be on a node, before the next size
_PARTIAL = 3
Arrival = tuple[int, Place, float]


class Queues:
    """Who waits, by where it may be and its memory, the unhappiest first."""

    def __init__(self, state: State, rows: Iterable[int]) -> None:
        self.state, self.problem = state, state.problem
        self.of: dict[tuple[int, float], list[tuple[float, int, int]]] = {}
        for row in rows:
            self.add(row)

    def key(self, row: int) -> tuple[float, int]:
        """Order of service: by what it can still reach if it goes on waiting, without a goal last."""
        problem = self.problem
        return (problem.idle[row] if problem.aims[row] else math.inf, problem.urgency[row])

    def add(self, row: int) -> None:
        """It waits from now on."""
        name = (self.state.rules.mask_of[row], self.problem.memory[row])
        insort(self.of.setdefault(name, []), (*self.key(row), row))

    def drop(self, row: int) -> None:
        """It does not wait any more."""
        name = (self.state.rules.mask_of[row], self.problem.memory[row])
        self.of[name].remove((*self.key(row), row))

    def firsts(self, node: int, free_mib: float, fits: Callable[[int], bool]) -> Iterator[tuple[float, int, int]]:
        """The unhappiest of each size that may come to the node now."""
        lists = self.state.rules.lists
        for (mask, memory), queue in self.of.items():
            if queue and memory <= free_mib and lists[mask][node]:
                for entry in queue[:_LOOKED_AT]:
                    if fits(entry[2]):
                        yield entry
                        break


class Search:
    """One search; `run` improves the state it was made for. `floor`: the smallest utility if nothing is changed."""

    def __init__(self, state: State, web: Web) -> None:
        self.state, self.problem, self.web = state, state.problem, web
        before = [state.before[row] for row in state.jobs if state.problem.counted[row]]
        self.floor = min([*before, *web.before.values()], default=1.0)
        problem, state_of = self.problem, state.problem.state
        self.free_mib: Floats = np.array(state.free_mib)
        self.idle_mhz: Floats = np.array([state.idle_mhz(node) for node in range(len(state.here))])
        self.waiting = [
            row
            for row in state.jobs
            if problem.may_start[row] and state_of[row] != RUNNING and row not in state.rules.contradictions
        ]
        self._caps: dict[tuple[float, int], Floats] = {}
        self.queues = Queues(state, [])
        self.waiting.sort(key=self.queues.key)

    def run(self) -> None:
        """Fill, then improve until a pass changes nothing, at most `passes` times."""
        self.drain()
        self.fill()
        if not self.problem.snapshot.at_cycle:
            return
        for row in self.waiting:
            if self.state.jobs[row].place is None and self.problem.k[row] == 1:
                self.queues.add(row)
        for _ in range(self.problem.params.passes):
            if not self.sweep():
                return

    # --- room ----------------------------------------------------------------------------------------------------

    def caps(self, row: int) -> Floats:
        """The most that one instance can be given on each node, float64[n]."""
        problem, nodes = self.problem, self.problem.snapshot.nodes
        key = problem.req_mhz[row], problem.vcpus[row]
        if key not in self._caps:
            with np.errstate(all="ignore"):
                most = np.minimum(np.minimum(key[0], key[1] * nodes.core_mhz), nodes.cpu_mhz)
            self._caps[key] = np.nan_to_num(most)
        return self._caps[key]

    def roomy(self, row: int) -> Bools:
        """Nodes that may take one instance and have the memory, bool[n]."""
        problem, caps = self.problem, self.caps(row)
        enough = self.free_mib >= problem.memory[row] * (1.0 - SLACK)
        return enough & self.state.rules.allowed(row) & (caps >= problem.least_mhz[row]) & (caps > 0.0)

    def take(self, trial: Trial) -> None:
        """Make a trial come true."""
        state = self.state
        state.apply(trial)
        touched = set(trial.nodes)
        for node in touched:
            self.free_mib[node] = state.free_mib[node]
            self.idle_mhz[node] = state.idle_mhz(node)

    def place(self, gone: Sequence[int], come: Sequence[Arrival]) -> Trial | None:
        """A trial, None too where a group forbids a place or there would be too many changes."""
        state, limit = self.state, self.problem.params.changes_max
        if state.rules.groups:
            targets: dict[int, Place | None] = dict.fromkeys(gone)
            targets.update({row: place for row, place, _ in come})

            def place_of(row: int) -> Place | None:
                return targets[row] if row in targets else state.place_of(row)

            if any(state.rules.clashes(row, place, place_of) for row, place, _ in come):
                return None
        trial = state.trial(gone, come)
        if trial is not None and limit and trial.moves > 0 and state.moves + trial.moves > limit:
            return None
        return trial

    # --- idle room -----------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Start who waits where there is room, the unhappiest first."""
        struck: set[tuple[object, ...]] = set()
        for row in self.waiting:
            if self.state.jobs[row].place is not None:
                continue
            problem = self.problem
            shape = (
                problem.memory[row],
                problem.req_mhz[row],
                problem.least_mhz[row],
                problem.vcpus[row],
                problem.k[row],
                problem.separate[row],
                self.state.rules.mask_of[row],
            )
            if shape in struck:
                continue
            if (
                not (self.fill_gang(row) if problem.k[row] > 1 else self.fill_one(row))
                and row not in self.state.rules.groups
            ):
                struck.add(shape)

    def fill_one(self, row: int) -> bool:
        """Place one job in idle room; False: no node has any."""
        roomy = self.roomy(row)
        if not roomy.any():
            if self.state.still or not self._make_way(row):
                return False
            roomy = self.roomy(row)
        caps = self.caps(row)
        full = roomy & (self.idle_mhz >= caps * (1.0 - SLACK))
        for node in self.best_nodes(row, full, caps):
            trial = self.place((), [(row, (node,), 0.0)])
            if trial is not None:
                self.take(trial)
                return True
        least = np.maximum(self.problem.least_mhz[row], _WORTH * caps)
        some = (roomy & ~full & (self.idle_mhz >= least)).nonzero()[0]
        best: Trial | None = None
        for node in some[np.argsort(-self.idle_mhz[some], kind="stable")][:_PARTIAL].tolist():
            trial = self.place((), [(row, (node,), 0.0)])
            if trial is not None and better(self.state, trial, best, self.floor):
                best = trial
        if best is not None:
            self.take(best)
        return bool(some.size) or bool(full.any())

    def _make_way(self, row: int) -> bool:
        """Memory for a job by stopping an instance of a web application that can do without."""
        node = self.web.give_way(self.problem.memory[row], self.state.rules.allowed(row).tolist())
        if node is None:
            return False
        self.free_mib[node], self.idle_mhz[node] = self.state.free_mib[node], self.state.idle_mhz(node)
        return True

    def best_nodes(self, row: int, full: Bools, caps: Floats) -> list[int]:
        """Where the job runs at full speed: its image's node, else the fastest, of these the one with the least memory
        to spare; with groups all of them, in that order."""
        if self.problem.state[row] == SUSPENDED and full[self.problem.home[row][0]]:
            first = [self.problem.home[row][0]]
            if row not in self.state.rules.groups:
                return first
        nodes = full.nonzero()[0]
        if not nodes.size:
            return []
        order = np.lexsort((self.free_mib[nodes], -caps[nodes]))
        ranked: list[int] = nodes[order].tolist()
        return ranked if row in self.state.rules.groups else ranked[:1]

    def fill_gang(self, row: int) -> bool:
        """Place all instances of a job in idle room, as fast as they can all be."""
        fastest = float(self.caps(row)[self.state.rules.allowed(row)].max(initial=0.0))
        least = max(self.problem.least_mhz[row], _WORTH * fastest)
        for part in (1.0, 0.75, 0.5, 0.25, 0.0):
            mhz = max(part * fastest, least)
            place = self.spread(row, mhz, self.free_mib, self.idle_mhz)
            if place is None:
                continue
            trial = self.place((), [(row, place, mhz)])
            if trial is not None:
                self.take(trial)
                return True
        return False

    def spread(self, row: int, mhz: float, free_mib: Floats, idle_mhz: Floats) -> Place | None:
        """Nodes for all instances at a speed, on the nodes of its images where they can be; None: there are too few."""
        problem, k = self.problem, self.problem.k[row]
        if mhz <= 0.0:
            return None
        fits = self.state.rules.allowed(row) & (self.caps(row) >= mhz * (1.0 - SLACK))
        with np.errstate(all="ignore"):
            slots = np.floor(idle_mhz / mhz + SLACK)
            if problem.memory[row] > 0.0:
                slots = np.minimum(slots, np.floor(free_mib / problem.memory[row] + SLACK))
        most = 1 if self._apart(row) else k
        slots = np.where(fits, np.clip(np.nan_to_num(slots), 0, most), 0).astype(np.int64)
        if self._together(row):
            slots = np.where(slots >= k, slots, 0)
        if slots.sum() < k:
            return None
        place = [-1] * k
        for index, node in enumerate(problem.home[row] if problem.state[row] == SUSPENDED else ()):
            if slots[node] > 0:
                place[index] = node
                slots[node] -= 1
        if row in self.state.rules.keep and -1 in place and problem.home[row]:
            return None
        rest = np.repeat(np.arange(slots.size), slots).tolist()
        return tuple(node if node >= 0 else rest.pop(0) for node in place)

    def _apart(self, row: int) -> bool:
        groups = self.state.rules.groups.get(row, ())
        return self.problem.separate[row] or any(group.alone and not group.together for group in groups)

    def _together(self, row: int) -> bool:
        return any(group.together for group in self.state.rules.groups.get(row, ()))

    # --- nodes to be emptied -------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Move what is on a node that it should leave, as far as there is room."""
        problem, rules = self.problem, self.state.rules
        for row in [row for row in self.state.jobs if problem.movable[row] and misplaced(problem, rules, row)]:
            if problem.cool[row] or row in rules.keep or not problem.snapshot.at_cycle:
                continue
            if self.state.jobs[row].place == problem.home[row]:
                self.move_off(row)

    def move_off(self, row: int) -> None:
        """Move the instances of a job from the nodes that it should leave, with those that must share its node."""
        rows = {row}
        for group in self.state.rules.groups.get(row, ()):
            if group.together:
                rows.update(o for o in group.rows if o in self.state.jobs and self.state.jobs[o].place is not None)
        if any(not self.problem.movable[member] or self.problem.cool[member] for member in rows):
            return
        for part in (1.0, 0.5, 0.25, 0.0) if any(self.problem.k[member] > 1 for member in rows) else (1.0,):
            come = self._away(sorted(rows), part)
            trial = self.place([member for member, _, _ in come], come) if come is not None else None
            if trial is not None:
                self.take(trial)
                return

    def _away(self, rows: Sequence[int], part: float) -> list[Arrival] | None:
        """New places for jobs that leave; those of several instances run at a part of their speed."""
        problem, rules = self.problem, self.state.rules
        free_mib, idle_mhz = self.free_mib.copy(), self.idle_mhz.copy()
        come: list[Arrival] = []
        only = None
        for row in rows:
            place = list(self.state.jobs[row].place or ())
            least = self.state.limits(row, place[0])[0]
            mhz = max(least, part * self.state.jobs[row].mhz) if problem.k[row] > 1 else least
            for index, node in enumerate(place):
                if not self._together(row) and rules.on(row, node) and not problem.leaving[node]:
                    continue
                target = self._refuge(row, place, mhz, free_mib, idle_mhz, only)
                if target is None:
                    return None
                place[index] = target
                free_mib[target] -= problem.memory[row]
                idle_mhz[target] -= mhz
                only = target if self._together(row) else None
            come.append((row, tuple(place), mhz))
        return come

    def _refuge(
        self, row: int, place: Sequence[int], mhz: float, free_mib: Floats, idle_mhz: Floats, only: int | None
    ) -> int | None:
        """The node with room for one more instance that has the most CPU idle; a single one may squeeze others."""
        problem, caps = self.problem, self.caps(row)
        fits = (free_mib >= problem.memory[row] * (1.0 - SLACK)) & self.state.rules.allowed(row)
        fits &= (caps >= problem.least_mhz[row]) & (caps > 0.0)
        if problem.k[row] > 1:
            fits &= (idle_mhz >= mhz * (1.0 - SLACK)) & (caps >= mhz * (1.0 - SLACK))
        if self._apart(row):
            fits[list(place)] = False
        if only is not None:
            fits &= np.arange(fits.size) == only
        nodes = fits.nonzero()[0]
        if not nodes.size:
            return None
        spare = np.minimum(idle_mhz[nodes], caps[nodes])
        return int(nodes[np.lexsort((free_mib[nodes], -spare))[0]])

    # --- places of others ----------------------------------------------------------------------------------------

    def sweep(self) -> bool:
        """One pass over the nodes, the ones with the happiest jobs first; whether anything was changed."""
        happiest = []
        for node, rows in enumerate(self.state.here):
            if self.problem.usable[node]:
                top = max((self.state.jobs[row].top for row in rows if self.may_go(row)), default=math.inf)
                happiest.append((-top, node))
        happiest.sort()
        changed = False
        for _, node in happiest:
            best = self.best_at(node)
            if best is not None:
                changed = True
                self.accept(best)
        return changed

    def accept(self, trial: Trial) -> None:
        """Make a trial come true, who waits included."""
        before = {row: self.state.jobs[row].place for row in trial.changed}
        self.take(trial)
        for row, was in before.items():
            now = self.state.jobs[row].place
            if self.problem.k[row] == 1 and (was is None) != (now is None):
                (self.queues.add if now is None else self.queues.drop)(row)

    def may_go(self, row: int) -> bool:
        """Whether a running job may be taken off its node."""
        problem = self.problem
        return problem.k[row] == 1 and not (problem.movable[row] and problem.cool[row])

    def best_at(self, node: int) -> Trial | None:
        """The best change of what runs on a node, None if it is best as it is."""
        state, best = self.state, None
        going = [row for row in state.here[node] if self.may_go(row)]
        level = state.levels.level
        going.sort(key=lambda row: (-state.jobs[row].utility(level), -self.problem.urgency[row]))
        for cut in range(len(going) + 1):
            gone = going[:cut]
            for come in self.additions(node, gone):
                for trial in self.variants(node, gone, come):
                    if not self.guarded(trial) and better(state, trial, best, self.floor):
                        best = trial
        return best

    def additions(self, node: int, gone: Sequence[int]) -> Iterator[list[int]]:
        """Who could come to a node once `gone` have left it: one list for each first job."""
        state, problem = self.state, self.problem
        free_mib = (state.free_mib[node] + sum(problem.memory[row] for row in gone)) * (1.0 + SLACK)
        staying = [row for row in state.here[node] if row not in gone]

        def fits(row: int) -> bool:
            return self.worth(node, staying, row)

        heads = sorted(self.queues.firsts(node, free_mib, fits))[: problem.params.heads]
        if gone:
            yield []
        for head in heads:
            yield self.added(node, gone, staying, head[-1], free_mib)

    def added(self, node: int, gone: Sequence[int], staying: Sequence[int], head: int, free_mib: float) -> list[int]:
        """The add loop: the head, then the unhappiest that fits, again and again; who left may come back."""
        come, rows = [head], [*staying, head]
        free_mib -= self.problem.memory[head]

        def fits(row: int) -> bool:
            return row not in come and self.worth(node, rows, row)

        while True:
            options = list(self.queues.firsts(node, free_mib, fits))
            options += [
                (*self.queues.key(row), row)
                for row in gone
                if self.problem.memory[row] <= free_mib and self.state.rules.on(row, node) and fits(row)
            ]
            if not options:
                return come
            row = min(options)[-1]
            come.append(row)
            rows.append(row)
            free_mib -= self.problem.memory[row]

    def worth(self, node: int, rows: Sequence[int], row: int) -> bool:
        """Whether the node's CPU is enough for one more job to get a fair part of its speed."""
        state, problem = self.state, self.problem
        least, most = state.limits(row, node)
        if most < least or most <= 0.0:
            return False
        room = problem.cpu_mhz[node] - state.seat_mhz[node]
        rank = problem.urgency[row]
        for other in rows:
            if problem.k[other] > 1:
                room -= state.jobs[other].mhz * (state.jobs[other].place or ()).count(node)
            else:
                low, high = state.limits(other, node)
                room -= high if problem.urgency[other] < rank else low
        return room >= max(least, _WORTH * most)

    def variants(self, node: int, gone: Sequence[int], come: Sequence[int]) -> Iterator[Trial]:
        """The trial, and the one in which those that leave go to other nodes where there is room."""
        arrivals: list[Arrival] = [(row, (node,), 0.0) for row in come]
        left = [row for row in gone if row not in come]
        if come or not left:
            trial = self.place(gone, arrivals)
            if trial is not None:
                yield trial
        moved = self.elsewhere(node, left)
        if moved:
            trial = self.place(gone, arrivals + moved)
            if trial is not None:
                yield trial

    def elsewhere(self, node: int, left: Sequence[int]) -> list[Arrival]:
        """Other nodes with idle room for those that left this one."""
        found: list[Arrival] = []
        free_mib, idle_mhz = self.free_mib, self.idle_mhz
        for row in left:
            if self.problem.movable[row] and row in self.state.rules.keep:
                continue
            caps = self.caps(row)
            fits = (
                self.roomy(row)
                if free_mib is self.free_mib
                else ((free_mib >= self.problem.memory[row] * (1.0 - SLACK)) & self.state.rules.allowed(row))
            )
            fits &= idle_mhz >= np.maximum(self.problem.least_mhz[row], _WORTH * caps)
            fits[node] = False
            nodes = fits.nonzero()[0]
            if nodes.size:
                spare = np.minimum(idle_mhz[nodes], caps[nodes])
                to = int(nodes[np.lexsort((free_mib[nodes], -spare))[0]])
                if free_mib is self.free_mib:
                    free_mib, idle_mhz = free_mib.copy(), idle_mhz.copy()
                free_mib[to] -= self.problem.memory[row]
                idle_mhz[to] -= min(idle_mhz[to], caps[to])
                found.append((row, (to,), 0.0))
        return found

    def guarded(self, trial: Trial) -> bool:
        """Whether the guard forbids it: who comes is not more urgent than who is to be suspended (both due times at
        the newcomer's own predicted utility)."""
        problem, guard = self.problem, self.problem.params.guard
        if guard == "off":
            return False
        losers = [
            row
            for row in trial.gone
            if problem.state[row] == RUNNING and problem.aims[row] and trial.changed[row].place is None
        ]
        if not losers:
            return False
        for row in trial.come:
            if row in trial.gone:
                continue
            utility = trial.changed[row].utility(trial.level)
            for loser in losers:
                alike = abs(problem.r_s[row] - problem.r_s[loser]) <= 0.01 * problem.r_s[loser]
                if (guard == "on" or alike) and not self._due_s(row, utility) < self._due_s(loser, utility):
                    return True
        return False

    def _due_s(self, row: int, utility: float) -> float:
        problem = self.problem
        if not problem.aims[row]:
            return math.inf
        weight = problem.weight[row]
        margin = utility * weight if utility > 0.0 else utility / weight
        return problem.goal_s[row] - margin * problem.r_s[row]
