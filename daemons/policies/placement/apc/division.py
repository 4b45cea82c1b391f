"""How a node's CPU is divided: in order of ascending highest utility, everybody the least first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from daemons.policies.placement.apc.future import Place
from daemons.policies.placement.apc.problem import LARGEST, LEAST_MHZ, RUNNING, SLACK
from shared.snapshot import Bools, Floats, Ints

if TYPE_CHECKING:
    from daemons.policies.placement.apc.state import State


class Division:
    """Divides the CPU of a state, one node's or all."""

    def __init__(self, state: State) -> None:
        self.state, self.problem = state, state.problem
        nodes = self.problem.snapshot.nodes
        kinds: dict[tuple[float, float], int] = {}
        pairs = zip(self.problem.core_mhz, self.problem.most_mhz, strict=True)
        self.kind = [kinds.setdefault(pair, len(kinds)) for pair in pairs]
        self._first = [self.kind.index(kind) for kind in range(len(kinds))]
        self._limits: dict[int, tuple[list[float], list[float]]] = {}
        self._core_mhz, self._most_mhz = nodes.core_mhz, nodes.cpu_mhz

    def tables(self, node: int) -> tuple[list[float], list[float]]:
        """`limits` on a node of all workloads by row: the least, the most."""
        kind = self.kind[node]
        if kind not in self._limits:
            at = self._first[kind]
            least, most = self._bounds(self._core_mhz[at], self._most_mhz[at], slice(None))
            self._limits[kind] = least.tolist(), most.tolist()
        return self._limits[kind]

    def _bounds(self, core_mhz: Floats, most_mhz: Floats, rows: Ints | slice) -> tuple[Floats, Floats]:
        columns, vcpus = self.problem.columns, self.problem.snapshot.workloads.vcpus
        with np.errstate(all="ignore"):
            most = np.minimum(np.minimum(columns.req_mhz[rows], vcpus[rows] * core_mhz), most_mhz)
            return np.maximum(columns.least_mhz[rows], np.minimum(LEAST_MHZ, most)), most

    def limits(self, row: int, node: int) -> tuple[float, float]:
        """The least and the most MHz that an instance is given on a node; most < least: it cannot run there."""
        least, most = self.tables(node)
        return least[row], most[row]

    def node(self, node: int, rows: Sequence[int], gangs: Mapping[int, tuple[Place, float]]) -> dict[int, float] | None:
        """MHz per instance of the jobs on one node; None: it is not enough.

        Jobs of several instances keep their speed, `gangs` has that of those that are not yet placed. On a node that is
        being emptied everything stays as it is, and between cycles all that runs.
        """
        state, problem = self.state, self.problem
        if problem.leaving[node]:
            return {row: min(problem.home_mhz[row]) for row in rows}
        room = problem.cpu_mhz[node] - state.seat_mhz[node]
        given: dict[int, float] = {}
        singles = []
        for row in rows:
            if state.still and row in state.origin[node]:
                given[row] = state.jobs[row].mhz
                room -= state.used_mhz(row, node)
            elif problem.k[row] > 1:
                place, mhz = gangs[row] if row in gangs else (state.places[row] or (), state.jobs[row].mhz)
                given[row] = mhz
                room -= mhz * place.count(node)
            else:
                singles.append(row)
        singles.sort(key=problem.urgency.__getitem__)
        least, most = self.tables(node)
        for row in singles:
            if most[row] < least[row]:
                return None
            given[row] = least[row]
            room -= least[row]
        if room < -SLACK * problem.cpu_mhz[node]:
            return self._as_before(node, rows, gangs)
        for row in singles:
            if room <= 0.0:
                break
            extra = min(most[row] - least[row], room)
            given[row] += extra
            room -= extra
        return given

    def _as_before(
        self, node: int, rows: Sequence[int], gangs: Mapping[int, tuple[Place, float]]
    ) -> dict[int, float] | None:
        """A node that holds more than it has: what is there may stay as it is, nothing comes."""
        if any(row in gangs or row not in self.state.origin[node] for row in rows):
            return None
        return {row: min(self.problem.home_mhz[row]) for row in rows}

    # --- all nodes -----------------------------------------------------------------------------------------------

    def all(self) -> Floats:
        """MHz per instance of every job that may be changed, each as much as all its nodes can give; of the others
        what they have. float64[w], by row."""
        state, problem = self.state, self.problem
        mhz = np.array([min(home, default=0.0) for home in problem.home_mhz], dtype=np.float64)
        mhz[problem.snapshot.workloads.state != RUNNING] = 0.0
        mhz = np.where((mhz >= 0.0) & (mhz < LARGEST), mhz, 0.0)
        rows = [row for here in state.here for row in here]
        if any(problem.k[row] > 1 for row in rows):
            for row, given in self._with_gangs().items():
                mhz[row] = given
        elif rows:
            nodes = np.repeat(np.arange(len(state.here)), [len(here) for here in state.here])
            self._of_singles(np.array(rows, dtype=np.int64), nodes, mhz)
        return mhz

    def _of_singles(self, rows: Ints, nodes: Ints, mhz: Floats) -> None:
        """The same where every job has one instance, all at once."""
        columns = self.problem.columns
        order = np.lexsort((columns.urgency[rows], nodes))
        rows, nodes = rows[order], nodes[order]
        least, most = self._bounds(self._core_mhz[nodes], self._most_mhz[nodes], rows)
        count = len(columns.cpu_mhz)
        room = columns.cpu_mhz - np.array(self.state.seat_mhz) - np.bincount(nodes, least, count)
        wanted = np.clip(most - least, 0.0, None)
        before = wanted.cumsum() - wanted
        starts = np.searchsorted(nodes, nodes)
        given = least + np.clip(room[nodes] - (before - before[starts]), 0.0, wanted)
        kept = self._stuck(rows, nodes, room)
        mhz[rows] = np.where(kept, mhz[rows], given)

    def _stuck(self, rows: Ints, nodes: Ints, room: Floats) -> Bools:
        """Jobs whose CPU stays as it is: on nodes that are emptied, or that cannot give all there the least."""
        columns = self.problem.columns
        short = room < -SLACK * np.abs(columns.cpu_mhz)
        return np.asarray((columns.leaving | short)[nodes] & columns.movable[rows])

    def _with_gangs(self) -> dict[int, float]:
        state, problem = self.state, self.problem
        keep = self._kept()
        room = [cpu - seats for cpu, seats in zip(problem.cpu_mhz, state.seat_mhz, strict=True)]
        mhz: dict[int, float] = {}
        extra: list[tuple[int, int, float]] = []
        for node, rows in enumerate(state.here):
            for row in rows:
                if row not in mhz:
                    least, most = self._of_all_nodes(row)
                    mhz[row] = min(problem.home_mhz[row]) if row in keep else least
                    if row not in keep and most > least:
                        extra.append((problem.urgency[row], row, most - least))
                room[node] -= mhz[row] * (state.places[row] or ()).count(node)
        extra.sort()
        for _, row, more in extra:
            place = state.places[row] or ()
            for node in place:
                more = min(more, room[node] / place.count(node))
            if more > 0.0:
                mhz[row] += more
                for node in place:
                    room[node] -= more
        return mhz

    def _of_all_nodes(self, row: int) -> tuple[float, float]:
        """`limits` on all nodes of a placed job."""
        bounds = [self.limits(row, node) for node in self.state.places[row] or ()]
        return max(least for least, _ in bounds), min(most for _, most in bounds)

    def _kept(self) -> set[int]:
        """`_stuck` with jobs of several instances."""
        state, problem = self.state, self.problem
        keep = {row for node, rows in enumerate(state.here) if problem.leaving[node] for row in rows}
        while True:
            found: set[int] = set()
            for node, rows in enumerate(state.here):
                room = problem.cpu_mhz[node] - state.seat_mhz[node]
                for row in rows:
                    mhz = min(problem.home_mhz[row]) if row in keep else self._of_all_nodes(row)[0]
                    room -= mhz * (state.places[row] or ()).count(node)
                if room < -SLACK * abs(problem.cpu_mhz[node]):
                    found.update(row for row in rows if row not in keep and problem.state[row] == RUNNING)
            if not found:
                return keep
            keep |= found

    def claims(self) -> tuple[Floats, Floats]:
        """By node: the CPU that jobs there can use, and the least that they must have."""
        state, problem = self.state, self.problem
        most, least = [0.0] * len(state.here), [0.0] * len(state.here)
        for node, rows in enumerate(state.here):
            for row in rows:
                low, high = self.limits(row, node)
                count = (state.places[row] or ()).count(node)
                if any(problem.leaving[at] for at in state.places[row] or ()):  # all its instances keep their speed
                    low = high = min(problem.home_mhz[row], default=0.0)
                most[node] += max(low, high) * count
                least[node] += low * count
        return np.array(most), np.array(least)
