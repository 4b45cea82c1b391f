"""Evacuate the nodes to be evacuated, then fill idle capacity."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from itertools import product

import numpy as np

from daemons.policies.placement.apc.future import Place
from daemons.policies.placement.apc.misplaced import excluded, to_leave
from daemons.policies.placement.apc.objective import better, harmless
from daemons.policies.placement.apc.problem import RUNNING, SLACK, SUSPENDED
from daemons.policies.placement.apc.queues import order_of
from daemons.policies.placement.apc.sharing import Sharing
from daemons.policies.placement.apc.state import State, Trial
from daemons.policies.placement.apc.web import Web
from shared.policy_api.decision import ReasonCode
from shared.policy_api.snapshot import Bools, Floats, Ints

WORTH = 0.1  # who comes gets at least this part of its full speed, or does not come
_PARTIAL = 3
_PREFERRED = 8  # nodes tried for a job with preferences, those where it breaks least first
_DOMAINS = 8  # racks, zones, ... tried for workloads that must share one
_SAME = 1e-9
Arrival = tuple[int, Place, float]
Shape = tuple[bool, float, float, float, int, int, tuple[float, ...]]


class Search:
    """One search; `run` improves the state it was made for. `floor`: the smallest utility if nothing is changed.
    `blocked`: rows for whom something good was forbidden; `considered`: rows for whom others might have given way;
    `preferred`: rows that were moved for preferred rules alone."""

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
        self.preferred: set[int] = set()
        self._caps: dict[tuple[float, int], Floats] = {}
        self.waiting.sort(key=lambda row: order_of(state, row))
        permanent = () if state.still else (row for row in state.rows if problem.stays[row] and problem.movable[row])
        self._permanent = [*permanent]

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
        return enough & self.open_to(row) & (caps >= problem.least_mhz[row]) & (caps > 0.0)

    def open_to(self, row: int) -> Bools:
        """Return the nodes that required rules leave to the workload, given where the others are, bool[n]."""
        return self.state.rules.open_to(row, self.state.layout)

    def ranked(self, row: int, nodes: Ints, worth: Floats, free_mib: Floats | None = None) -> Ints:
        """Return the nodes in order: the most `worth` (float64[nodes given]) first, of these the lowest penalty, of
        these the least memory to spare (free_mib: float64[n], None: what is free now)."""
        rules, free_mib = self.state.rules, self.free_mib if free_mib is None else free_mib
        penalty = rules.penalty(row, self.state.layout) if rules.preferring else None
        keys = (free_mib[nodes],) if penalty is None else (free_mib[nodes], penalty[nodes])
        return nodes[np.lexsort((*keys, -worth))]

    def spare_mhz(self) -> Floats:
        """Return the CPU on each node that permanent VMs are given beyond the least that they must have, float64[n].
        They never end: who waited for it would wait for ever. Between cycles they keep it. O(permanent VMs)."""
        state, spare = self.state, np.zeros(len(self.problem.leaving))
        for row in self._permanent:
            place = state.places[row]
            if place and not self.problem.leaving[place[0]]:
                spare[place[0]] += max(0.0, state.used_mhz(row, place[0]) - state.division.limits(row, place[0])[0])
        return spare

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
        """Return a trial; None also if a required rule forbids a place or there would be too many changes."""
        state, rules = self.state, self.state.rules
        if not rules.relations and not rules.preferring:
            return self._within_limit(state.trial(gone, come))
        targets: dict[int, Place | None] = dict.fromkeys(gone)
        targets.update({row: place for row, place, _ in come})

        if rules.relations:
            then = state.layout.after(targets)
            if any(rules.clashes(row, place, then) for row, place, _ in come):
                return None
        trial = self._within_limit(state.trial(gone, come))
        if trial is not None and rules.preferring:
            trial.penalty = rules.added_penalty(targets, state.layout)
        return trial

    def exchange(self, node: int, gone: Sequence[int], come: Sequence[int]) -> Trial | None:
        """Return `place` for one node where all jobs have one instance."""
        state, rules, k = self.state, self.state.rules, self.problem.k
        if rules.relations or rules.preferring or any(k[row] > 1 for row in state.here[node]):
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
        related = state.rules.relations or state.rules.preferring
        if state.still or related or any(problem.k[row] > 1 for row in self.waiting):
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
                and row not in self.state.rules.relations
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
        if self.state.rules.prefers(row):
            return self._fill_preferred(row, roomy, caps)
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
        return bool(some.size) or bool(full.any()) or self._fill_beside(row, roomy, least)

    def _fill_beside(self, row: int, roomy: Bools, least: Floats) -> bool:
        """Do `fill_one` for a job without a goal where permanent VMs can spare the CPU."""
        if self.problem.aims[row] or not self._permanent:
            return False
        room = self.idle_mhz + self.spare_mhz()
        nodes = (roomy & (room >= least)).nonzero()[0]
        for node in nodes[np.argsort(-room[nodes], kind="stable")][:_PARTIAL].tolist():
            trial = self.place((), [(row, (node,), 0.0)])
            if trial is not None and harmless(self.state, trial, self.floor):
                self.take(trial)
                return True
        return False

    def _fill_preferred(self, row: int, roomy: Bools, caps: Floats) -> bool:
        """Do `fill_one` for a job with preferences: of the places with about the same utility the one where it breaks
        least."""
        least = np.maximum(self.problem.least_mhz[row], WORTH * caps)
        nodes = (roomy & (self.idle_mhz >= least)).nonzero()[0]
        penalty = self.state.rules.penalty(row, self.state.layout)
        speed = np.minimum(self.idle_mhz, caps)
        if self.state.sharing is not None and self.state.sharing.uses(row):
            speed = speed / self.state.sharing.joined(row)
        fastest = self.ranked(row, nodes, speed[nodes])[:_PARTIAL].tolist()
        if penalty is not None:
            fastest += nodes[np.lexsort((self.free_mib[nodes], -speed[nodes], penalty[nodes]))][:_PREFERRED].tolist()
        image = self.problem.home[row][0] if self.problem.state[row] == SUSPENDED else -1
        best: Trial | None = None
        for node in dict.fromkeys([image, *fastest] if image in nodes else fastest):
            trial = self.place((), [(row, (node,), 0.0)])
            if trial is not None and better(self.state, trial, best, self.floor):
                best = trial
        if best is not None:
            self.take(best)
        return bool(nodes.size)

    def _fill_shared(self, sharing: Sharing, row: int, roomy: Bools, caps: Floats) -> bool:
        """Do `fill_one` for a job that is slowed down by some of the jobs next to it, and slows them."""
        least = np.maximum(self.problem.least_mhz[row], WORTH * caps)
        speed = np.minimum(self.idle_mhz, caps) / sharing.joined(row)
        nodes = (roomy & (self.idle_mhz >= least)).nonzero()[0]
        if not nodes.size:
            return False
        ranked: list[int] = self.ranked(row, nodes, speed[nodes]).tolist()
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
        node = self.web.give_way(memory, self.open_to(row).tolist())
        if node is None:
            if row not in self.state.rules.relations:
                self._no_way[mask] = memory
            return False
        self.free_mib[node], self.idle_mhz[node] = self.state.free_mib[node], self.state.idle_mhz(node)
        return True

    def best_nodes(self, row: int, full: Bools, caps: Floats) -> list[int]:
        """Return the nodes on which the job runs at full speed: its image's node, else the fastest, of these the one
        with the least memory to spare; with relations all of them, in that order."""
        image = self.problem.home[row][0] if self.problem.state[row] == SUSPENDED else -1
        if image >= 0 and full[image]:
            first = [image]
            if row not in self.state.rules.relations:
                return first
        nodes = full.nonzero()[0]
        if not nodes.size:
            return []
        ranked: list[int] = self.ranked(row, nodes, caps[nodes]).tolist()
        return ranked if row in self.state.rules.relations else ranked[:1]

    def fill_gang(self, row: int) -> bool:
        """Place all instances of a job in idle room, as fast as they can all be."""
        fastest = float(self.caps(row)[self.state.rules.allowed(row)].max(initial=0.0))
        least = max(self.problem.least_mhz[row], WORTH * fastest)
        rooms = [self.idle_mhz]
        if self._permanent and not self.problem.aims[row]:
            rooms.append(self.idle_mhz + self.spare_mhz())
        for room, part in product(rooms, (1.0, 0.75, 0.5, 0.25, 0.0)):
            mhz = max(part * fastest, least)
            place = self.spread(row, mhz, self.free_mib, room)
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
        slots = self._slots(row, mhz, free_mib, idle_mhz)
        if slots.sum() < k:
            return None
        homes = problem.home[row] if problem.state[row] == SUSPENDED else ()
        if row in self.state.rules.relations or self.state.rules.prefers(row):
            return self._chosen(row, slots, k, homes)
        place = [-1] * k
        for index, node in enumerate(homes):
            if node >= 0 and slots[node] > 0:
                place[index] = node
                slots[node] -= 1
        if row in self.state.rules.no_migration and -1 in place and max(problem.home[row], default=-1) >= 0:
            return None
        rest = self._in_order(row, slots)
        return tuple(node if node >= 0 else rest.pop(0) for node in place)

    def _slots(self, row: int, mhz: float, free_mib: Floats, idle_mhz: Floats) -> Ints:
        """Return how many instances at a speed each node could take, regardless of other workloads, int64[n]."""
        problem = self.problem
        fits = self.state.rules.allowed(row) & (self.caps(row) >= mhz * (1.0 - SLACK))
        with np.errstate(all="ignore"):
            slots = np.floor(idle_mhz / mhz + SLACK)
            if problem.memory[row] > 0.0:
                slots = np.minimum(slots, np.floor(free_mib / problem.memory[row] + SLACK))
        most = 1 if problem.spread[row] else problem.k[row]
        return np.where(fits, np.clip(np.nan_to_num(slots), 0, most), 0).astype(np.int64)

    def _chosen(
        self, row: int, slots: Ints, count: int, homes: Place = (), kept: Place = (), rank: Floats | None = None
    ) -> Place | None:
        """Return nodes for instances of a workload with relations or preferences, None if there are none."""
        rules, sharing = self.state.rules, self.state.sharing
        if rank is None and sharing is not None and sharing.uses(row):
            rank = sharing.joined(row)
        place = rules.choose(row, slots, count, self.state.layout, homes, rank, kept)
        bound = row in rules.no_migration and max(homes, default=-1) >= 0
        return None if place is not None and bound and place != homes else place

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
        """Move the instances of a job from the nodes that it should leave; if it must share a domain with others, and
        that has no room, with all of these."""
        rules, problem = self.state.rules, self.problem
        if row in rules.relations:
            if not (excluded(problem, rules, row) or rules.clashes(row, problem.home[row], self.state.layout)):
                return  # another one has moved
            if self._move_alone(row):
                return
        rows = rules.near(row, self.state.layout)
        if any(not problem.movable[member] or problem.cool[member] for member in rows):
            return
        if any(problem.is_replica[member] or member in rules.no_migration for member in rows):
            return
        barred = np.zeros(len(problem.leaving), dtype=np.bool_)
        for _ in range(_DOMAINS if len(rows) > 1 else 1):
            target = self._move_all(sorted(rows), barred)
            if target is None:
                return
            for relation in rules.relations.get(row, ()):
                if relation.together:
                    barred |= relation.domain == relation.domain.item(target)

    def _move_all(self, rows: Sequence[int], barred: Bools) -> int | None:
        """Move jobs that must share a domain, together, not to `barred` nodes; return the node that the first could
        have gone to if it is impossible, None if it is done or no node is left."""
        slower = not self.state.still and any(self.problem.k[member] > 1 for member in rows)
        tried = None
        for part in (1.0, 0.5, 0.25, 0.0) if slower else (1.0,):
            come, first = self._away(rows, part, barred)
            tried = first if tried is None else tried
            trial = self.place([member for member, _, _ in come], come) if come is not None else None
            if trial is not None:
                self.take(trial)
                return None
        return tried

    def _move_alone(self, row: int) -> bool:
        """Move only those instances of a job with relations that are in the wrong place; return whether it was done."""
        problem, state, rules = self.problem, self.state, self.state.rules
        was, open_ = state.places[row] or (), self.open_to(row)
        kept = [open_.item(node) and not problem.leaving[node] for node in was]
        if rules.clashes(row, tuple(node for node, stays in zip(was, kept, strict=True) if stays), state.layout):
            kept = [False] * len(was)
        count = kept.count(False)
        if not count:
            return False
        least = max(state.division.limits(row, node)[0] for node in was)
        if problem.k[row] == 1:
            target = self._refuge(row, (), least, self.free_mib, self.idle_mhz, open_)
            trial = None if target is None else self.place([row], [(row, (target,), least)])
            if trial is not None:
                self.take(trial)
            return trial is not None
        stay = tuple(node for node, stays in zip(was, kept, strict=True) if stays)
        for part in (1.0,) if state.still else (1.0, 0.5, 0.25, 0.0):
            mhz = max(least, part * state.jobs[row].mhz)
            slots = self._slots(row, mhz, self.free_mib, self.idle_mhz)
            if problem.spread[row]:
                slots[list(stay)] = 0
            chosen = self._chosen(row, slots, count, kept=stay, rank=-np.minimum(self.idle_mhz, self.caps(row)))
            if chosen is None:
                continue
            rest = iter(chosen)
            place = tuple(node if stays else next(rest) for node, stays in zip(was, kept, strict=True))
            trial = self.place([row], [(row, place, mhz)])
            if trial is not None:
                self.take(trial)
                return True
        return False

    def _away(self, rows: Sequence[int], part: float, barred: Bools) -> tuple[list[Arrival] | None, int | None]:
        """Return new places for jobs that leave, those of several instances run at a part of their speed (None: there
        are none), and the first node that was chosen."""
        problem, state, rules = self.problem, self.state, self.state.rules
        free_mib, idle_mhz = self.free_mib.copy(), self.idle_mhz.copy()
        come: list[Arrival] = []
        first: int | None = None
        targets: dict[int, Place | None] = dict.fromkeys(rows)
        layout = state.layout.after(targets)
        for row in rows:
            place = list(state.places[row] or ())
            least = state.division.limits(row, place[0])[0]
            mhz = max(least, part * state.jobs[row].mhz) if problem.k[row] > 1 else least
            relations = [each for each in rules.relations.get(row, ()) if each.together]
            open_ = rules.open_to(row, layout) & ~barred
            for index, node in enumerate(place):
                if not relations and rules.on(row, node) and not problem.leaving[node]:
                    continue
                others = [*place[:index], *place[index + 1 :]] if row in rules.relations else place
                target = self._refuge(row, others, mhz, free_mib, idle_mhz, open_)
                if target is None:
                    return None, first
                place[index] = target
                first = target if first is None else first
                free_mib[target] -= problem.memory[row]
                idle_mhz[target] -= mhz
                for relation in relations:
                    open_ = open_ & (relation.domain == relation.domain.item(target))
            come.append((row, tuple(place), mhz))
            targets[row] = tuple(place)
        return come, first

    def _refuge(
        self, row: int, others: Sequence[int], mhz: float, free_mib: Floats, idle_mhz: Floats, open_: Bools
    ) -> int | None:
        """Return the node in `open_` with capacity for one more instance that has the most idle CPU; in a scheduling
        cycle, a single instance may reduce the CPU of others. others: where the rest of its instances are."""
        problem, caps = self.problem, self.caps(row)
        fits = (free_mib >= problem.memory[row] * (1.0 - SLACK)) & open_
        fits &= (caps >= problem.least_mhz[row]) & (caps > 0.0)
        if self.state.still:
            fits &= idle_mhz >= np.maximum(problem.least_mhz[row], WORTH * caps)
        if problem.k[row] > 1:
            fits &= (idle_mhz >= mhz * (1.0 - SLACK)) & (caps >= mhz * (1.0 - SLACK))
        if problem.spread[row]:
            fits[list(others)] = False
        for relation in self.state.rules.relations.get(row, ()):
            if relation.alone and not relation.together:
                fits &= ~np.isin(relation.domain, [relation.domain_of(node) for node in others])
        nodes = fits.nonzero()[0]
        if not nodes.size:
            return None
        spare = np.minimum(idle_mhz[nodes], caps[nodes])
        sharing = self.state.sharing
        if sharing is not None and sharing.uses(row):
            spare = spare / sharing.joined(row)[nodes]
        return int(self.ranked(row, nodes, spare, free_mib)[0])
