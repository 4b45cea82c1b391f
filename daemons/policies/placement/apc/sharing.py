"""Who shares disks and networks, node by node, and how much that slows each down.

The formula of d-factor.txt, section 3.3, kept up to date by the sums of the loads on every node: the dilation of who
is there and of who might come costs a few operations each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from daemons.models.dilation.formula import waiting
from daemons.models.neighbours import Crowd, of_workloads, sound_parts, sound_servers
from daemons.policies.placement.apc.future import Place
from daemons.policies.placement.apc.problem import RUNNING, Problem
from shared.policy_api.snapshot import Bools, Floats, LoadingColumns

Totals = tuple[float, ...]
_SAME = 1e-12  # sums in another order differ by so much
ALONE = 1.0


class Sharing:
    """loads: by node, what all who are there load its resources, and `waits`, what one more request waits there for
    each, float64[n, m]. `fixed`: by node, the jobs there that must not be changed."""

    def __init__(self, problem: Problem, loading: LoadingColumns) -> None:
        self.problem, self.loading, self.model = problem, loading, loading.model
        self._parts, self._servers = sound_parts(loading), sound_servers(loading)
        self._kinds = loading.node_type
        self.kind: list[int] = loading.node_type.tolist()
        # Flat lists of floats: whatever holds others is looked through whenever garbage is collected.
        self._tables: list[list[list[float]]] = self._parts.transpose(0, 2, 1).tolist()
        self._limits: list[list[int]] = self._servers.tolist()
        used: Bools = np.asarray(self._parts.any(axis=(0, 2)))
        self._used: list[bool] = used.tolist()
        self._nothing: Totals = (0.0,) * len(loading.resources)
        count = len(self.kind)
        self.fixed: list[list[int]] = [[] for _ in range(count)]
        self._base = [self._nothing] * count
        self._replicas = [self._nothing] * count
        self._totals: list[list[float]] = [[0.0] * count for _ in loading.resources]
        self.loads: Floats = np.zeros((count, len(loading.resources)))
        self.waits: Floats = np.zeros((count, len(loading.resources)))
        self._settle()

    def _settle(self) -> None:
        """Count what runs and may not be changed."""
        problem = self.problem
        for row, state in enumerate(problem.state):
            if state != RUNNING or problem.movable[row]:
                continue
            for node in problem.home[row]:
                if 0 <= node < len(self.kind):
                    self._base[node] = self._with(self._base[node], node, row)
                    if not problem.is_replica[row] and self._used[row] and row not in self.fixed[node]:
                        self.fixed[node].append(row)

    def uses(self, row: int) -> bool:
        """Return whether the workload loads any shared resource."""
        return self._used[row]

    def key(self, row: int) -> tuple[float, ...]:
        """Equal for workloads that load everything alike; empty for those that load nothing."""
        return tuple(self._parts[:, row].ravel().tolist()) if self._used[row] else ()

    # --- sums ----------------------------------------------------------------------------------------------------

    def _with(self, totals: Totals, node: int, row: int, times: int = 1) -> Totals:
        if not self._used[row]:
            return totals
        tables = self._tables[self.kind[node]]
        return tuple([total + times * table[row] for total, table in zip(totals, tables, strict=True)])

    def add_replica(self, row: int, node: int, times: int) -> None:
        """Add an instance of a web application to a node (`times` 1), or remove it (-1)."""
        self._replicas[node] = self._with(self._replicas[node], node, row, times)
        self.put(node, self._with(self._noted(node), node, row, times))

    def put(self, node: int, totals: Totals) -> None:
        """Note the sums of a node."""
        for at, total in enumerate(totals):
            self._totals[at][node] = total
        self.loads[node] = totals
        self.waits[node] = waiting(self.loads[node], self._servers[self.kind[node]])

    def _noted(self, node: int) -> Totals:
        return tuple([totals[node] for totals in self._totals])

    def sums(
        self, node: int, rows: Iterable[int], places: Mapping[int, Place | None], now: Sequence[Place | None]
    ) -> Totals:
        """Return the sums of a node if these jobs were there; `places`: jobs that are elsewhere than `now`."""
        totals, used, k = self._base[node], self._used, self.problem.k
        if self._replicas[node] is not self._nothing:
            totals = tuple([a + b for a, b in zip(totals, self._replicas[node], strict=True)])
        for row in rows:
            if used[row]:
                times = 1 if k[row] == 1 else (places.get(row) or now[row] or ()).count(node)
                totals = self._with(totals, node, row, times)
        return totals

    # --- dilation ------------------------------------------------------------------------------------------------

    def slow(self, row: int, place: Place, totals: Mapping[int, Totals]) -> float:
        """Return the slowdown factor of a workload on a place, against running alone; `totals`: nodes with other sums
        than recorded."""
        if not self._used[row]:
            return ALONE
        worst = ALONE
        for node in place:
            if not 0 <= node < len(self.kind):
                continue
            slow, kind = ALONE, self.kind[node]
            there = totals[node] if node in totals else self._noted(node)
            for table, total, servers in zip(self._tables[kind], there, self._limits[kind], strict=True):
                part = table[row]
                beyond = total - part + 1.0 - servers
                if beyond > 0.0:
                    slow += part * beyond / servers
            worst = max(worst, slow)
        return worst

    def joined(self, row: int, waits: Floats | None = None) -> Floats:
        """Return the slowdown factor of a workload on each node with one more instance there, float64[n]."""
        each = self.waits if waits is None else waits
        if len(self._parts) == 1:
            return np.asarray(1.0 + each @ self._parts[0, row])
        return np.asarray(1.0 + (each * self._parts[self._kinds, row]).sum(axis=1))

    def joined_at(self, row: int, node: int, waits: Floats) -> float:
        """Return `joined` for one node."""
        return float(1.0 + waits[node] @ self._parts[self.kind[node], row])

    def own(self, row: int) -> Floats:
        """Return the approximate slowdown that each further instance of a workload on one node adds to the others,
        float64[n]."""
        each = (self._parts[:, row] ** 2 / self._servers).sum(axis=1)
        return np.asarray(each[self._kinds])

    def join(self, row: int, node: int, loads: Floats, waits: Floats) -> None:
        """Count one more instance in columns of sums and waits that are not the noted ones."""
        kind = self.kind[node]
        loads[node] += self._parts[kind, row]
        waits[node] = waiting(loads[node], self._servers[kind])

    def columns(self) -> tuple[Floats, Floats]:
        """Copies of the sums and waits, for `join`."""
        return self.loads.copy(), self.waits.copy()

    def recount(self, crowd: Crowd, model: str) -> Floats:
        """Recompute all sums; return the slowdown factor of each workload, float64[w]."""
        node, kind = crowd.node, self._kinds[crowd.node]
        known = node >= 0
        p = self._parts[kind, crowd.owner] * known[:, None]
        count = len(self.kind)
        columns = [np.bincount(node[known], p[known, at], count) for at in range(p.shape[1])]
        if columns:
            self.loads = np.stack(columns, axis=1).astype(np.float64)
            self._totals = self.loads.T.tolist()
            self.waits = waiting(self.loads, self._servers[self._kinds])
        return of_workloads(self.loading, crowd, len(self.problem.state), model)


def same(slow: float, was: float) -> bool:
    """Return whether two slowdown factors differ by rounding only."""
    return abs(slow - was) <= _SAME


def sharing_of(problem: Problem) -> Sharing | None:
    """None where sharing is not to count, or nothing is known that would slow anyone."""
    loading = problem.snapshot.loading
    if loading is None or not loading.resources or not problem.cpu_mhz or not sound_parts(loading).any():
        return None
    return Sharing(problem, loading)
