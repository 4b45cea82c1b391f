"""The largest smallest utility that any placement of a small cluster has, found in two ways that share nothing.

Fix a level u. All utilities are at least u if and only if (1) each job can still reach u at full speed after the cycle,
or ends within it in time for u, and (2) the MHz given are no less than what the jobs with work left need for u,
sum a' / (b - r u): in (1) b - r u is no shorter than the best remaining time, so omega(u) is just that.
With d the delay of a job, T the cycle, c = b - r u, w its MHz and a its work left now, a' = a - w (T - d). So

* a job that is not placed needs c > 0 and a <= max c;
* a placed one with c > 0 needs w >= (a - max c) / (T - d) and adds w + min(a, w (T - d)) / c to the left side of
  sum w + sum (a - a') / c >= sum a / c;
* a placed one with c <= 0 must end: w >= a / (c + T - d). It adds w, and nothing to the right side.

What a job adds is concave and piecewise linear in w, so within a node the best division gives every job the least it
needs and then the rest to the steepest pieces: no other divisions matter. Which jobs are on a node then decides all
that it adds, but for the delay by jobs suspended there. Nodes are joined over subsets of jobs: a bit is set once its
job is placed or suspended, and every job that runs now must be one or the other. This is exact for each u; the smallest
utility falls as u grows, so halving finds the optimum.

For single-stage jobs of one instance with finite goals and work left, without constraints or web applications.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from shared.policy_api.snapshot import Floats, Snapshot
from shared.values.actions import ActionKind
from tests.simulation.place_judge import (
    Places,
    best_utility,
    counts,
    current,
    fits,
    own_operation_s,
    predict,
    stages_left,
    top_speed,
    unweighted,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A job on a node for a level: the least and most MHz, then what a MHz adds up to `bend` and after it (1)."""

    least: float
    most: float
    slope: float
    bend: float

    def value(self, mhz: float) -> float:
        return mhz + (self.slope - 1.0) * min(mhz, self.bend)


@dataclass(slots=True)
class Small:
    """A small cluster, its room for our own VMs, and what jobs of each node may do."""

    seen: Snapshot
    mib: list[float]
    mhz: list[float]
    homes: dict[int, int]
    jobs: range
    choices: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = field(default_factory=list)

    @classmethod
    def of(cls, seen: Snapshot) -> Small:
        work, nodes = seen.workloads, seen.nodes
        rows = range(len(work.names))
        plain = not seen.constraints and not seen.web.names and not work.fixed.any() and not any(work.required_labels)
        plain &= bool((work.instances == 1).all() and (work.stages == 1).all() and np.isfinite(work.goal_s).all())
        plain &= bool(
            nodes.schedulable.all() and not nodes.draining.any() and (work.done_mcycles < work.work_mcycles).all()
        )
        plain &= bool((np.maximum(work.desired_start_s, work.not_before_s) <= seen.now_s).all())
        if not plain or not all(counts(seen, row) for row in rows):
            raise ValueError("this cluster is not of the kind whose optimum is known")
        mib, mhz = nodes.free_memory_mib.tolist(), nodes.free_cpu_mhz.tolist()
        homes = {}
        for row, ((node, given),) in current(seen).items():
            mib[node] += work.memory_mib.item(row) + seen.vm_overhead_mib
            mhz[node] += given
            homes[row] = node
        small = cls(seen, mib, mhz, homes, rows)
        small.choices = [list(small._choices(node)) for node in range(len(nodes.names))]
        return small

    def _choices(self, node: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Which jobs can be on the node together, and with each such set which of those there now are suspended."""
        memory = (self.seen.workloads.memory_mib + self.seen.vm_overhead_mib).tolist()
        for size in range(len(self.jobs) + 1):
            sets = [s for s in combinations(self.jobs, size) if sum(memory[job] for job in s) <= self.mib[node] + 1e-6]
            if not sets:
                return
            for chosen in sets:
                leaving = [job for job, home in self.homes.items() if home == node and job not in chosen]
                for count in range(len(leaving) + 1):
                    yield from ((chosen, suspended) for suspended in combinations(leaving, count))

    def most_mhz(self, job: int, node: int) -> float:
        nodes, work = self.seen.nodes, self.seen.workloads
        return min(work.max_mhz.item(job), work.vcpus.item(job) * nodes.core_mhz.item(node), nodes.cpu_mhz.item(node))

    def crowded(self, node: int, chosen: tuple[int, ...]) -> bool:
        """Whether those of them who come to the node do not fit into what is free there now."""
        memory, overhead_mib = self.seen.workloads.memory_mib, self.seen.vm_overhead_mib
        need_mib = sum(memory.item(job) + overhead_mib for job in chosen if self.homes.get(job) != node)
        return not fits(need_mib, self.seen.nodes.free_memory_mib.item(node))

    def suspend_s(self, job: int) -> float:
        return self.seen.costs.duration_s(ActionKind.SUSPEND, self.seen.workloads.memory_mib.item(job))

    def delay_s(self, job: int, node: int, wait_s: float) -> float:
        if self.homes.get(job) == node:
            return 0.0
        return wait_s + own_operation_s(self.seen, job, 0, node)

    def margin_s(self, job: int, level: float) -> float:
        """c of the job: from the end of the cycle to when it must complete."""
        work, seen = self.seen.workloads, self.seen
        goal_s, r = work.goal_s.item(job), work.goal_s.item(job) - work.desired_start_s.item(job)
        return goal_s - seen.now_s - seen.cycle_s - r * unweighted(level, work.importance.item(job))

    def left(self, job: int) -> tuple[float, float]:
        """Work left in Mcycles and full speed in MHz."""
        (stage,) = stages_left(self.seen, job)
        return stage.work, min(stage.most, top_speed(self.seen, job))

    def part(self, job: int, node: int, wait_s: float, level: float) -> Part | None:
        """None: on this node it cannot reach the level."""
        work, full = self.left(job)
        c, run_s = self.margin_s(job, level), max(0.0, self.seen.cycle_s - self.delay_s(job, node, wait_s))
        most, slope, bend = self.most_mhz(job, node), 1.0, 0.0
        if c > 0.0:
            missing = max(0.0, work - full * c)
            least = 0.0 if missing == 0.0 else missing / run_s if run_s > 0.0 else math.inf
            if run_s > 0.0:
                slope, bend = 1.0 + run_s / c, work / run_s
        else:
            least = work / (c + run_s) if c + run_s > 0.0 else math.inf
        least = max(least, self.seen.workloads.min_mhz.item(job))
        return Part(least, most, slope, bend) if least <= most else None

    def rests(self, job: int, level: float) -> bool:
        """Whether a job that is not placed can still reach the level."""
        work, full = self.left(job)
        return self.margin_s(job, level) > 0.0 and work <= full * self.margin_s(job, level)

    def needed(self, level: float) -> float:
        """The right side: what all jobs that need not end within the cycle need as they are."""
        margins = {job: self.margin_s(job, level) for job in self.jobs}
        return sum(self.left(job)[0] / c for job, c in margins.items() if c > 0.0)


def divide(parts: list[Part], capacity_mhz: float) -> list[float] | None:
    """The best division of a node's CPU; None if it is less than they need."""
    given = [part.least for part in parts]
    left = capacity_mhz - sum(given)
    if left < -1e-9 * capacity_mhz:
        return None
    pieces = [(part.slope, min(part.most, part.bend), at) for at, part in enumerate(parts)]
    pieces += [(1.0, part.most, at) for at, part in enumerate(parts)]
    for _, up_to, at in sorted(pieces, key=lambda piece: -piece[0]):
        more = max(0.0, min(left, up_to - given[at]))
        given[at] += more
        left -= more
    return given


def _node_values(small: Small, node: int, level: float) -> dict[int, tuple[float, tuple[int, ...], list[float]]]:
    """By bits of jobs placed or suspended: the most that the node can add, with whom, at which MHz."""
    found: dict[int, tuple[float, tuple[int, ...], list[float]]] = {}
    parts: dict[tuple[int, float], Part | None] = {}
    rests = [small.rests(job, level) for job in small.jobs]
    suspend_s = [small.suspend_s(job) for job in small.jobs]
    for chosen, suspended in small.choices[node]:
        if not all(rests[job] for job in suspended):
            continue
        wait_s = max((suspend_s[job] for job in suspended), default=0.0) if small.crowded(node, chosen) else 0.0
        these = []
        for job in chosen:
            if (job, wait_s) not in parts:
                parts[job, wait_s] = small.part(job, node, wait_s, level)
            these.append(parts[job, wait_s])
        sound = [part for part in these if part is not None]
        given = divide(sound, small.mhz[node]) if len(sound) == len(these) else None
        if given is not None:
            value = sum(part.value(mhz) for part, mhz in zip(sound, given, strict=True))
            bits = sum(1 << job for job in (*chosen, *suspended))
            if bits not in found or value > found[bits][0]:
                found[bits] = (value, chosen, given)
    return found


def placement_for(small: Small, level: float) -> dict[int, Places] | None:
    """A placement whose smallest utility is at least `level`, None where there is none."""
    size = 1 << len(small.jobs)
    masks = np.arange(size)
    best: Floats = np.full(size, -np.inf)
    best[0] = 0.0
    steps = []
    for node in range(len(small.mib)):
        values = _node_values(small, node, level)
        came, by = np.full(size, -np.inf), np.zeros(size, dtype=np.int64)
        for bits, (value, _, _) in values.items():
            free = masks[(masks & bits) == 0]
            better = best[free] + value > came[free | bits]
            came[(free | bits)[better]] = best[free[better]] + value
            by[(free | bits)[better]] = bits
        best = came
        steps.append((values, by))
    must = sum(1 << job for job in small.homes) | sum(1 << job for job in small.jobs if not small.rests(job, level))
    sums = np.where((masks & must) == must, best, -np.inf)
    mask = int(sums.argmax())
    needed = small.needed(level)
    if not sums[mask] >= needed * (1 - 1e-9) or not math.isfinite(sums[mask]):
        return None
    placement: dict[int, Places] = {}
    for node, (values, by) in reversed(list(enumerate(steps))):
        _, chosen, given = values[int(by[mask])]
        placement.update({job: ((node, mhz),) for job, mhz in zip(chosen, given, strict=True)})
        mask &= ~int(by[mask])
    return placement


def is_reachable(seen: Snapshot, level: float) -> bool:
    """Whether some placement has no utility below `level`."""
    return placement_for(Small.of(seen), level) is not None


def best_min_utility(seen: Snapshot, within: float = 1e-5) -> tuple[float, dict[int, Places]]:
    """The optimum of the smallest utility to `within`, and a placement that has it."""
    small = Small.of(seen)
    low, high = _bounds(seen)
    chosen = placement_for(small, low)
    while high - low > within:
        middle = (low + high) / 2
        found = placement_for(small, middle)
        if found is None:
            high = middle
        else:
            low, chosen = middle, found
    return low, chosen if chosen is not None else current(seen)


def _bounds(seen: Snapshot) -> tuple[float, float]:
    """A level that can be reached by changing nothing or starting something, and one that cannot be surpassed."""
    high = min(best_utility(seen, row) for row in range(len(seen.workloads.names)))
    low = predict(seen, current(seen)).smallest
    if math.isinf(low):
        low, small = -1.0, Small.of(seen)
        while placement_for(small, low) is None and low > -1e9:
            low *= 2.0
    return low, max(low, high)


# --- the second way ------------------------------------------------------------------------------------------------

UNIT_MHZ = 1000.0


def best_by_milp(seen: Snapshot, within: float = 1e-3) -> float:
    """The same optimum to `within`: for each level one mixed-integer program with the jobs' places as binaries."""
    small = Small.of(seen)
    low, high = _bounds(seen)
    while high - low > within:
        middle = (low + high) / 2
        low, high = (middle, high) if _Program(small, middle).holds() else (low, middle)
    return low


class _Program:
    """For one level. Variables: `x` a job is placed on a node that arrivals wait so long for, `w` its MHz (in units),
    `p` its progress (share of its work left), `q` how long arrivals wait on a node, `e` all of them fit at once."""

    def __init__(self, small: Small, level: float) -> None:
        self.small, self.level = small, level
        self.index: dict[tuple[str, int, int, float], int] = {}
        self.upper: list[float] = []
        self.gain: list[float] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []
        for node in range(len(small.mib)):
            self._node(node)
        for job in small.jobs:
            self._job(job)

    def _waits(self, node: int) -> list[float]:
        return sorted({0.0, *(self.small.suspend_s(job) for job, home in self.small.homes.items() if home == node)})

    def _new(self, key: tuple[str, int, int, float], upper: float, gain: float = 0.0) -> int:
        self.index[key] = len(self.upper)
        self.upper.append(upper)
        self.gain.append(gain)
        return self.index[key]

    def _at_most(self, terms: dict[int, float], bound: float) -> None:
        self.rows.append((terms, -math.inf, bound))

    def _at_least(self, terms: dict[int, float], bound: float) -> None:
        self.rows.append((terms, bound, math.inf))

    def _node(self, node: int) -> None:
        small, waits = self.small, self._waits(node)
        levels = {wait: self._new(("q", -1, node, wait), 1.0) for wait in waits}
        self.rows.append((dict.fromkeys(levels.values(), 1.0), 1.0, 1.0))
        memory: dict[int, float] = {}
        coming: dict[int, float] = {}
        speed: dict[int, float] = {}
        for job in small.jobs:
            for wait in [0.0] if small.homes.get(job) == node else waits:
                x, w = self._seat(job, node, wait)
                memory[x] = (small.seen.workloads.memory_mib.item(job) + small.seen.vm_overhead_mib) / UNIT_MHZ
                speed[w] = 1.0
                if small.homes.get(job) != node:
                    coming[x] = memory[x]
                    self._at_most({x: 1.0, levels[wait]: -1.0}, 0.0)
        self._at_most(memory, small.mib[node] / UNIT_MHZ)
        self._at_most(speed, small.mhz[node] / UNIT_MHZ)
        if coming:
            free, every = small.seen.nodes.free_memory_mib.item(node) / UNIT_MHZ, sum(coming.values())
            self._at_most({**coming, self._new(("e", -1, node, 0.0), 1.0): every}, free + every)

    def _seat(self, job: int, node: int, wait: float) -> tuple[int, int]:
        small = self.small
        work, _ = small.left(job)
        c, most = small.margin_s(job, self.level), small.most_mhz(job, node) / UNIT_MHZ
        run_s = max(0.0, small.seen.cycle_s - small.delay_s(job, node, wait))
        x = self._new(("x", job, node, wait), 1.0)
        w = self._new(("w", job, node, wait), most, 1.0)
        p = self._new(("p", job, node, wait), 1.0, work / c / UNIT_MHZ if c > 0.0 else 0.0)
        self._at_most({w: 1.0, x: -most}, 0.0)
        self._at_least({w: 1.0, x: -small.seen.workloads.min_mhz.item(job) / UNIT_MHZ}, 0.0)
        self._at_most({p: 1.0, x: -1.0}, 0.0)
        self._at_most({p: 1.0, w: -run_s * UNIT_MHZ / work}, 0.0)
        if c <= 0.0:  # it is to end so long before the end of the cycle
            self._at_least({w: max(0.0, c + run_s) * UNIT_MHZ / work, x: -1.0}, 0.0)
        return x, w

    def _job(self, job: int) -> None:
        small = self.small
        work, full = small.left(job)
        c = small.margin_s(job, self.level)
        places = [at for key, at in self.index.items() if key[:2] == ("x", job)]
        progress = [at for key, at in self.index.items() if key[:2] == ("p", job)]
        self._at_most(dict.fromkeys(places, 1.0), 1.0)
        if c > 0.0:
            self._at_least(dict.fromkeys(progress, 1.0), 1.0 - full * c / work)
        else:
            self._at_least(dict.fromkeys(places, 1.0), 1.0)
        home = small.homes.get(job, -1)
        for wait in self._waits(home) if home >= 0 else ():
            if wait < small.suspend_s(job):  # arrivals wait no shorter unless it stays or moves, or all fit at once
                free = {self.index["e", -1, home, 0.0]: -1.0} if ("e", -1, home, 0.0) in self.index else {}
                self._at_most({self.index["q", -1, home, wait]: 1.0, **dict.fromkeys(places, -1.0), **free}, 0.0)

    def holds(self) -> bool:
        """Whether the MHz given can be as many as the jobs need."""
        count = len(self.upper)
        entries = [(row, at, value) for row, (terms, _, _) in enumerate(self.rows) for at, value in terms.items()]
        row, at, value = (np.array(column) for column in zip(*entries, strict=True))
        matrix = coo_array((value, (row, at)), shape=(len(self.rows), count)).tocsc()
        low, high = (np.array([bounds[side] for bounds in self.rows]) for side in (1, 2))
        whole = np.array([key[0] in "xqe" for key in self.index], dtype=np.int64)
        found = milp(
            -np.array(self.gain),
            integrality=whole,
            bounds=Bounds(np.zeros(count), np.array(self.upper)),
            constraints=LinearConstraint(matrix, low, high),
            options={"mip_rel_gap": 1e-7},
        )
        return bool(found.status == 0) and bool(-found.fun * UNIT_MHZ >= self.small.needed(self.level) * (1 - 1e-7))
