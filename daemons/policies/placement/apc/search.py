"""Evacuate the nodes to be evacuated, then fill idle capacity."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

import numpy as np

from daemons.policies.placement.apc.future import Place
from daemons.policies.placement.apc.objective import better
from daemons.policies.placement.apc.problem import RUNNING, SLACK, SUSPENDED
from daemons.policies.placement.apc.queues import order_of
from daemons.policies.placement.apc.rules import to_leave
from daemons.policies.placement.apc.sharing import Sharing
from daemons.policies.placement.apc.state import State, Trial
from daemons.policies.placement.apc.web import Web
from shared.policy_api.decision import ReasonCode
from shared.policy_api.snapshot import Bools, Floats, Ints

WORTH = 0.1  # who comes gets at least this part of its full speed, or does not come
_PARTIAL = 3
_SAME = 1e-9
Arrival = tuple[int, Place, float]
Shape = tuple[bool, float, float, float, int, int, tuple[float, ...]]


class Search:
    """One search; `run` improves the state it was made for. `floor`: the smallest utility if nothing is changed.
    `blocked`: rows for whom something good was forbidden; `considered`: rows for whom others might have given way."""

    def __init__(self, state: State, web: Web) -> None:
        self.state, self.problem, self.web = state, state.problem, web
        before = [state.before[row] for row in state.rows if state.problem.counted[row]]
        self.floor = min([*before, *web.before.values()], default=1.0)
        problem, state_of = self.problem, state.problem.state
        self.free_mib: Floats = np.array(state.free_mib)
        self.idle_mhz: Floats = state.idle_of_all()
        self.waiting = [
            row
            for row in state.rows
            if problem.may_start[row] and state_of[row] != RUNNING and row not in state.rules.contradictions
        ]
        self.most_free_mib = float(self.free_mib.max(initial=0.0))
        self._no_way: dict[int, float] = {}
        self.blocked: dict[int, ReasonCode] = {}
        self.considered: set[int] = set()
        self._caps: dict[tuple[float, int], Floats] = {}
        self.waiting.sort(key=lambda row: order_of(state, row))

    def run(self) -> None:
        """Fill idle room."""
        if not self.fill_at_once():
            self.fill()

    # --- room ----------------------------------------------------------------------------------------------------

    def caps(self, row: int) -> Floats:
        """Return the most that one instance can be given on each node, float64[n]."""
        problem, nodes = self.problem, self.problem.snapshot.nodes
        key = problem.req_mhz[row], problem.vcpus[row]
        if key not in self._caps:
            with np.errstate(all="ignore"):
                most = np.minimum(np.minimum(key[0], key[1] * nodes.core_mhz), nodes.cpu_mhz)
            self._caps[key] = np.nan_to_num(most)
        return self._caps[key]

    def roomy(self, row: int) -> Bools:
        """Return the nodes that may take one instance and have the memory, bool[n]."""
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
        self.most_free_mib = float(self.free_mib.max(initial=0.0))

    def place(self, gone: Sequence[int], come: Sequence[Arrival]) -> Trial | None:
        """Return a trial; None also if a group forbids a place or there would be too many changes."""
        state = self.state
        if state.rules.groups:
            targets: dict[int, Place | None] = dict.fromkeys(gone)
            targets.update({row: place for row, place, _ in come})

            def place_of(row: int) -> Place | None:
                return targets[row] if row in targets else state.place_of(row)

            if any(state.rules.clashes(row, place, place_of) for row, place, _ in come):
                return None
        return self._within_limit(state.trial(gone, come))

    def exchange(self, node: int, gone: Sequence[int], come: Sequence[int]) -> Trial | None:
        """Return `place` for one node where all jobs have one instance."""
        state, k = self.state, self.problem.k
        if state.rules.groups or any(k[row] > 1 for row in state.here[node]):
            return self.place(gone, [(row, (node,), 0.0) for row in come])
        return self._within_limit(state.exchange(node, gone, come))

    def _within_limit(self, trial: Trial | None) -> Trial | None:
        limit = self.problem.params.changes_max
        if trial is not None and limit and trial.moves > 0 and self.state.moves + trial.moves > limit:
            self.blocked.update(dict.fromkeys(trial.come, ReasonCode.MIGRATION_LIMIT))
            return None
        return trial

    # --- idle room -----------------------------------------------------------------------------------------------

    def fill_at_once(self) -> bool:
        """Start all waiting jobs if they all fit at full speed; else none."""
        state, problem, sharing = self.state, self.problem, self.state.sharing
        if state.still or state.rules.groups or any(problem.k[row] > 1 for row in self.waiting):
            return False
        free_mib, idle_mhz = self.free_mib.copy(), self.idle_mhz.copy()
        loads = None if sharing is None else sharing.columns()
        shapes: dict[Shape, list[int]] = {}
        placed: list[tuple[int, int]] = []
        for row in self.waiting:
            memory, caps = problem.memory[row], self.caps(row)
            if problem.state[row] == SUSPENDED:
                home = problem.home[row][0]
                if (
                    home >= 0
                    and free_mib[home] >= memory
                    and idle_mhz[home] >= caps[home]
                    and state.rules.on(row, home)
                ):
                    free_mib[home] -= memory
                    idle_mhz[home] -= caps[home]
                    placed.append((row, home))
                    if sharing is not None and loads is not None:
                        sharing.join(row, home, *loads)
                    continue
            key = () if sharing is None else sharing.key(row)
            limits = memory, problem.req_mhz[row], problem.least_mhz[row], problem.vcpus[row]
            shapes.setdefault((bool(key), *limits, state.rules.mask_of[row], key), []).append(row)
        for shape in sorted(shapes, reverse=True):
            rows = shapes[shape]
            if sharing is not None and loads is not None and shape[0]:
                nodes = self._spread_apart(sharing, rows, free_mib, idle_mhz, loads)
            else:
                nodes = self._spread_equal(rows, free_mib, idle_mhz)
            if nodes is None:
                return False
            placed += zip(rows, nodes, strict=True)
        if placed:
            state.start(placed)
            if sharing is not None and self._falls():
                state.unstart(placed)
                return False
            self.free_mib, self.idle_mhz = np.array(state.free_mib), state.idle_of_all()
            self.most_free_mib = float(self.free_mib.max(initial=0.0))
        return True

    def _spread_equal(self, rows: Sequence[int], free_mib: Floats, idle_mhz: Floats) -> list[int] | None:
        """Return nodes for identical jobs, the fastest first, and take the capacity. None: there is not enough."""
        row, caps = rows[0], self.caps(rows[0])
        memory = self.problem.memory[row]
        fits = self.state.rules.allowed(row) & (caps >= self.problem.least_mhz[row]) & (caps > 0.0)
        with np.errstate(all="ignore"):
            slots = np.floor(idle_mhz / caps + SLACK)
            if memory > 0.0:
                slots = np.minimum(slots, np.floor(free_mib / memory + SLACK))
        slots = np.where(fits, np.clip(np.nan_to_num(slots), 0, len(rows)), 0).astype(np.int64)
        order = np.argsort(-caps, kind="stable")
        nodes = np.repeat(order, slots[order])[: len(rows)]
        if nodes.size < len(rows):
            return None
        taken = np.bincount(nodes, minlength=len(caps))
        free_mib -= taken * memory
        idle_mhz -= taken * caps
        found: list[int] = nodes.tolist()
        return found

    def _falls(self) -> bool:
        """Return whether the smallest utility is below that of changing nothing."""
        utilities, counted = self.state.utilities(), self.problem.counted
        return min((utilities[row] for row in self.state.rows if counted[row]), default=1.0) < self.floor - _SAME

    def _spread_apart(
        self, sharing: Sharing, rows: Sequence[int], free_mib: Floats, idle_mhz: Floats, loads: tuple[Floats, Floats]
    ) -> list[int] | None:
        """Return nodes as `_spread_equal` does, for jobs that slow each other down: each goes where it is then
        fastest."""
        row, caps = rows[0], self.caps(rows[0])
        memory = self.problem.memory[row]
        fits = self.state.rules.allowed(row) & (caps >= self.problem.least_mhz[row]) & (caps > 0.0)
        fits &= (free_mib >= memory * (1.0 - SLACK)) & (idle_mhz >= caps * (1.0 - SLACK))
        slow = sharing.joined(row, loads[1])
        heap = [(slow.item(node) / caps.item(node), node) for node in fits.nonzero()[0].tolist()]
        heapify(heap)
        found: list[int] = []
        while heap and len(found) < len(rows):
            node = heap[0][1]
            found.append(node)
            free_mib[node] -= memory
            idle_mhz[node] -= caps[node]
            sharing.join(row, node, *loads)
            if free_mib[node] >= memory * (1.0 - SLACK) and idle_mhz[node] >= caps[node] * (1.0 - SLACK):
                heapreplace(heap, (sharing.joined_at(row, node, loads[1]) / caps.item(node), node))
            else:
                heappop(heap)
        return found if len(found) == len(rows) else None

    def fill(self) -> None:
        """Start waiting jobs where there is free capacity, the lowest utility first."""
        struck: set[tuple[object, ...]] = set()
        for row in self.waiting:
            if self.state.places[row] is not None:
                continue
            problem = self.problem
            shape = (
                problem.memory[row],
                problem.req_mhz[row],
                problem.least_mhz[row],
                problem.vcpus[row],
                problem.k[row],
                problem.spread[row],
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
        if self.state.sharing is not None and self.state.sharing.uses(row):
            return self._fill_shared(self.state.sharing, row, roomy, caps)
        full = roomy & (self.idle_mhz >= caps * (1.0 - SLACK))
        for node in self.best_nodes(row, full, caps):
            trial = self.place((), [(row, (node,), 0.0)])
            if trial is not None:
                self.take(trial)
                return True
        least = np.maximum(self.problem.least_mhz[row], WORTH * caps)
        some = (roomy & ~full & (self.idle_mhz >= least)).nonzero()[0]
        best: Trial | None = None
        for node in some[np.argsort(-self.idle_mhz[some], kind="stable")][:_PARTIAL].tolist():
            trial = self.place((), [(row, (node,), 0.0)])
            if trial is not None and better(self.state, trial, best, self.floor):
                best = trial
        if best is not None:
            self.take(best)
        return bool(some.size) or bool(full.any())

    def _fill_shared(self, sharing: Sharing, row: int, roomy: Bools, caps: Floats) -> bool:
        """Do `fill_one` for a job that is slowed down by some of the jobs next to it, and slows them."""
        least = np.maximum(self.problem.least_mhz[row], WORTH * caps)
        speed = np.minimum(self.idle_mhz, caps) / sharing.joined(row)
        nodes = (roomy & (self.idle_mhz >= least)).nonzero()[0]
        if not nodes.size:
            return False
        order = np.lexsort((self.free_mib[nodes], -speed[nodes]))
        ranked: list[int] = nodes[order].tolist()
        image = self.problem.home[row][0] if self.problem.state[row] == SUSPENDED else -1
        if image in ranked[1:]:
            ranked.remove(image)
            ranked.insert(0, image)
        best, tried, top = None, 0, float(caps[ranked].max())
        for node in ranked:
            trial = self.place((), [(row, (node,), 0.0)])
            tried += trial is not None
            if trial is not None and better(self.state, trial, best, self.floor):
                best = trial
            if tried >= _PARTIAL or (best is not None and speed[node] >= top * (1.0 - SLACK)):
                break
        if best is not None:
            self.take(best)
        return True

    def _make_way(self, row: int) -> bool:
        """Memory for a job by stopping an instance of a web application that can do without."""
        memory, mask = self.problem.memory[row], self.state.rules.mask_of[row]
        if memory >= self._no_way.get(mask, math.inf):
            return False
        node = self.web.give_way(memory, self.state.rules.allowed(row).tolist())
        if node is None:
            self._no_way[mask] = memory
            return False
        self.free_mib[node], self.idle_mhz[node] = self.state.free_mib[node], self.state.idle_mhz(node)
        return True

    def best_nodes(self, row: int, full: Bools, caps: Floats) -> list[int]:
        """Return the nodes on which the job runs at full speed: its image's node, else the fastest, of these the one
        with the least memory to spare; with groups all of them, in that order."""
        image = self.problem.home[row][0] if self.problem.state[row] == SUSPENDED else -1
        if image >= 0 and full[image]:
            first = [image]
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
        least = max(self.problem.least_mhz[row], WORTH * fastest)
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
        """Return nodes for all instances at a speed, on the nodes of its images if possible; None: there are too
        few."""
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
            if node >= 0 and slots[node] > 0:
                place[index] = node
                slots[node] -= 1
        if row in self.state.rules.no_migration and -1 in place and max(problem.home[row], default=-1) >= 0:
            return None
        rest = self._in_order(row, slots)
        return tuple(node if node >= 0 else rest.pop(0) for node in place)

    def _in_order(self, row: int, slots: Ints) -> list[int]:
        """Return the slots, node by node; for a job that is slowed by sharing, those with the least slowdown first."""
        rest: list[int] = np.repeat(np.arange(slots.size), slots).tolist()
        sharing = self.state.sharing
        if sharing is None or not sharing.uses(row):
            return rest
        slow, own = sharing.joined(row).tolist(), sharing.own(row).tolist()
        seen: Counter[int] = Counter()
        cost = []
        for node in rest:
            cost.append(slow[node] + seen[node] * own[node])
            seen[node] += 1
        return [rest[at] for at in sorted(range(len(rest)), key=cost.__getitem__)]

    def _apart(self, row: int) -> bool:
        groups = self.state.rules.groups.get(row, ())
        return self.problem.spread[row] or any(group.alone and not group.together for group in groups)

    def _together(self, row: int) -> bool:
        return any(group.together for group in self.state.rules.groups.get(row, ()))

    # --- nodes to be emptied -------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Move workloads off nodes that they should leave, as far as there is capacity: between cycles only from nodes
        to be evacuated, and to idle CPU."""
        problem, rules = self.problem, self.state.rules
        for row in to_leave(problem, rules):
            if problem.is_replica[row] or problem.cool[row] or row in rules.no_migration:
                continue
            if not (problem.snapshot.at_cycle or problem.leaving_any(row)):
                continue
            if self.state.places[row] == problem.home[row]:
                self.move_off(row)

    def move_off(self, row: int) -> None:
        """Move the instances of a job from the nodes that it should leave, with those that must share its node."""
        rows = {row}
        for group in self.state.rules.groups.get(row, ()):
            if group.together:
                rows.update(o for o in group.rows if self.state.place_of(o) is not None)
        if any(not self.problem.movable[member] or self.problem.cool[member] for member in rows):
            return
        slower = not self.state.still and any(self.problem.k[member] > 1 for member in rows)
        for part in (1.0, 0.5, 0.25, 0.0) if slower else (1.0,):
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
            place = list(self.state.places[row] or ())
            least = self.state.division.limits(row, place[0])[0]
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
        """Return the node with capacity for one more instance that has the most idle CPU; in a scheduling cycle, a
        single instance may reduce the CPU of others."""
        problem, caps = self.problem, self.caps(row)
        fits = (free_mib >= problem.memory[row] * (1.0 - SLACK)) & self.state.rules.allowed(row)
        fits &= (caps >= problem.least_mhz[row]) & (caps > 0.0)
        if self.state.still:
            fits &= idle_mhz >= np.maximum(problem.least_mhz[row], WORTH * caps)
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
        sharing = self.state.sharing
        if sharing is not None and sharing.uses(row):
            spare = spare / sharing.joined(row)[nodes]
        return int(nodes[np.lexsort((free_mib[nodes], -spare))[0]])
