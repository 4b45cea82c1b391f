"""A placement under construction: what runs where and how fast, what that leads to, and trials of changes to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from daemons.policies.placement.apc.level import Levels
from daemons.policies.placement.apc.problem import LEAST_MHZ, RUNNING, SLACK, Problem
from daemons.policies.placement.apc.rules import Rules
from shared.snapshot import Floats

Place = tuple[int, ...]
_FITS_MIB = 1e-6


@dataclass(slots=True, eq=False)
class Future:
    """A job under a placement: where (None: it does not run), MHz per instance, seconds without progress; then at the
    end of the cycle work left of all instances and best time, and the utility that it can still reach. `open`: it is
    in the equation, so that it has at most the level; else it has just that utility."""

    place: Place | None
    mhz: float
    delay_s: float
    a: float
    tb: float
    top: float
    open: bool

    def utility(self, level: float) -> float:
        """Under a common level."""
        return min(level, self.top) if self.open else self.top


@dataclass(slots=True, eq=False)
class Trial:
    """What a change to the state would lead to. nodes: the jobs on every node that it touches. moves: by how many the
    jobs suspended or moved grow."""

    changed: dict[int, Future]
    nodes: dict[int, list[int]]
    level: float
    given_mhz: float
    moves: int
    gone: tuple[int, ...] = ()
    come: tuple[int, ...] = ()
    worst: float = field(default=0.0)


def future_of(problem: Problem, row: int, place: Place | None, mhz: float, delay_s: float) -> Future:
    """What becomes of a job by the end of the cycle (apc.txt section 4.4.2)."""
    if not problem.aims[row]:
        return Future(place, mhz, delay_s, 0.0, 0.0, 1.0, False)
    run_s = problem.cycle_s - delay_s
    if place is None or run_s <= 0.0 or mhz <= 0.0:
        k_left = problem.k[row] * problem.left[row]
        if place is not None and k_left <= 0.0:
            return Future(place, mhz, delay_s, 0.0, 0.0, _ending(problem, row, problem.now_s + delay_s), False)
        return Future(place, mhz, delay_s, k_left, problem.best_s[row], problem.idle[row], k_left > 0.0)
    stages = problem.stages[row]
    if stages is not None:
        left, ran_s, best_s = _through(stages, mhz, run_s)
    else:
        full = problem.full_mhz[row]
        speed = min(mhz, full)
        left, ran_s = problem.left[row] - speed * run_s, run_s
        if left <= 0.0:
            left, ran_s = 0.0, problem.left[row] / speed
        best_s = left / full if left > 0.0 else 0.0
    if left <= 0.0:
        return Future(place, mhz, delay_s, 0.0, 0.0, _ending(problem, row, problem.now_s + delay_s + ran_s), False)
    top = _ending(problem, row, problem.now_s + problem.cycle_s + best_s)
    return Future(place, mhz, delay_s, problem.k[row] * left, best_s, top, True)


def _ending(problem: Problem, row: int, end_s: float) -> float:
    utility, weight = (problem.goal_s[row] - end_s) / problem.r_s[row], problem.weight[row]
    return utility if weight == 1.0 else (utility / weight if utility > 0.0 else utility * weight)


def _through(stages: Sequence[tuple[float, float]], mhz: float, run_s: float) -> tuple[float, float, float]:
    """Work left, seconds run and best time after running so long through stages of (work, full speed)."""
    left, best_s, to_go_s = 0.0, 0.0, run_s
    for work, full in stages:
        speed = min(mhz, full)
        if work <= speed * to_go_s:
            to_go_s -= work / speed
            continue
        rest = work - speed * to_go_s
        to_go_s = 0.0
        left += rest
        best_s += rest / full
    return left, run_s - to_go_s, best_s


class State:
    """The placement of all jobs. `jobs`: by row, of those in the prediction and those that may be changed; `here`: rows
    of the changeable jobs by node; `seat_mhz`: CPU that instances of web applications hold by node; `free_mib`."""

    def __init__(self, problem: Problem, rules: Rules, still: bool = False) -> None:
        self.problem, self.rules = problem, rules
        count = len(problem.cpu_mhz)
        self.here: list[list[int]] = [[] for _ in range(count)]
        self.origin: list[list[int]] = [[] for _ in range(count)]
        self.seat_place: dict[int, int] = {}
        self.seat_given: dict[int, float] = {}
        self.seats_coming_mib = [0.0] * count
        self.seat_mhz = [0.0] * count
        self.free_mib = list(problem.memory_mib)
        self.jobs: dict[int, Future] = {}
        self.levels = Levels(problem)
        self.fixed_mhz = sum(
            mhz
            for row, state in enumerate(problem.state)
            if state == RUNNING and not problem.seat[row] and not problem.movable[row]
            for mhz in problem.home_mhz[row]
            if math.isfinite(mhz)
        )
        self.moves = self.trials = 0
        self.still = still or not problem.snapshot.at_cycle
        for row, state in enumerate(problem.state):
            if problem.seat[row]:
                if problem.movable[row]:
                    self.seat(row, problem.home[row][0])
                    self.seat_given[row] = problem.home_mhz[row][0]
                    self.seat_mhz[problem.home[row][0]] += problem.home_mhz[row][0]
            elif problem.movable[row] or problem.counted[row] or problem.may_start[row]:
                place = problem.home[row] if state == RUNNING else None
                mhz = min(problem.home_mhz[row], default=0.0) if state == RUNNING else 0.0
                self.jobs[row] = future_of(problem, row, place, mhz, 0.0)
                if problem.movable[row]:
                    self._settle(row, problem.home[row])
        self._weigh(self.held_mhz())
        self.before = {row: self.utility(row) for row in self.jobs}
        if not self.still:
            self.redivide()

    def seat(self, row: int, node: int) -> None:
        """An instance of a web application runs on a node from now on; its CPU is `seat_given`."""
        problem = self.problem
        self.seat_place[row], self.seat_given[row] = node, 0.0
        self.free_mib[node] -= problem.memory[row]
        if problem.home[row] != (node,) or not problem.movable[row]:
            self.seats_coming_mib[node] += problem.memory[row]
            self.moves += problem.movable[row]

    def unseat(self, row: int) -> None:
        """An instance of a web application does not run any more."""
        problem, node = self.problem, self.seat_place.pop(row)
        self.seat_mhz[node] -= self.seat_given.pop(row)
        self.free_mib[node] += problem.memory[row]
        if problem.home[row] != (node,) or not problem.movable[row]:
            self.seats_coming_mib[node] -= problem.memory[row]
            self.moves -= problem.movable[row]

    def claims(self) -> tuple[Floats, Floats]:
        """By node: the CPU that jobs there can use, and the least that they must have."""
        most, least = np.zeros(len(self.here)), np.zeros(len(self.here))
        for node, rows in enumerate(self.here):
            for row in rows:
                low, high = self.limits(row, node)
                count = (self.jobs[row].place or ()).count(node)
                if self.problem.leaving[node]:
                    low = high = max(self.problem.home_mhz[row], default=0.0)
                most[node] += max(low, high) * count
                least[node] += low * count
        return most, least

    def spare_mhz(self, node: int) -> float:
        """CPU of the node beyond the least that all there must have."""
        rows = self.here[node]
        least = sum(self.limits(row, node)[0] * (self.jobs[row].place or ()).count(node) for row in rows)
        seats = sum(self.limits(row, node)[0] for row, at in self.seat_place.items() if at == node)
        return self.problem.cpu_mhz[node] - least - seats

    def any_open(self) -> bool:
        """Whether any job is in the equation."""
        return any(job.open for job in self.jobs.values())

    def _settle(self, row: int, place: Place) -> None:
        for node in set(place):
            self.here[node].append(row)
            self.origin[node].append(row)
        for node in place:
            self.free_mib[node] -= self.problem.memory[row]

    # --- what is where -------------------------------------------------------------------------------------------

    def place_of(self, row: int) -> Place | None:
        """Where a workload runs, None: nowhere; seats too."""
        if row in self.seat_place:
            return (self.seat_place[row],)
        job = self.jobs.get(row)
        return None if job is None else job.place

    def utility(self, row: int) -> float:
        """Predicted utility of a job."""
        return self.jobs[row].utility(self.levels.level)

    def idle_mhz(self, node: int) -> float:
        """CPU of the node that nobody is given."""
        used = sum(self._used_mhz(row, node) for row in self.here[node])
        return self.problem.cpu_mhz[node] - self.seat_mhz[node] - used

    def _used_mhz(self, row: int, node: int) -> float:
        job, problem = self.jobs[row], self.problem
        if problem.k[row] == 1:
            return job.mhz
        place = job.place or ()
        if self.still and place == problem.home[row]:
            return sum(mhz for at, mhz in zip(place, problem.home_mhz[row], strict=True) if at == node)
        return job.mhz * place.count(node)

    def held_mhz(self) -> float:
        """CPU that all jobs together are given now."""
        problem = self.problem
        return self.fixed_mhz + sum(sum(problem.home_mhz[row]) for row in self.jobs if problem.movable[row])

    def _given_mhz(self) -> float:
        problem = self.problem
        return self.fixed_mhz + sum(
            job.mhz * problem.k[row]
            for row, job in self.jobs.items()
            if job.place is not None and (problem.movable[row] or problem.state[row] != RUNNING)
        )

    # --- CPU -----------------------------------------------------------------------------------------------------

    def limits(self, row: int, node: int) -> tuple[float, float]:
        """The least and the most that an instance is given on the node; most < least: it cannot run there."""
        most = self.problem.cap_mhz(row, node)
        return max(self.problem.least_mhz[row], min(LEAST_MHZ, most)), most

    def divide(
        self, node: int, rows: Sequence[int], gangs: Mapping[int, tuple[Place, float]]
    ) -> dict[int, float] | None:
        """MHz per instance of the jobs on one node, in order of ascending highest utility; None: it is not enough.

        Jobs of several instances keep their speed, `gangs` has that of those that are not yet placed. On a node that is
        being emptied everything stays as it is.
        """
        problem = self.problem
        if problem.leaving[node]:
            return {row: min(problem.home_mhz[row]) for row in rows}
        room = problem.cpu_mhz[node] - self.seat_mhz[node]
        given: dict[int, float] = {}
        singles = []
        for row in rows:
            if self.still and row in self.origin[node]:
                given[row] = self.jobs[row].mhz
                room -= self._used_mhz(row, node)
            elif problem.k[row] > 1:
                place, mhz = gangs[row] if row in gangs else (self.jobs[row].place or (), self.jobs[row].mhz)
                given[row] = mhz
                room -= mhz * place.count(node)
            else:
                singles.append(row)
        singles.sort(key=problem.urgency.__getitem__)
        more = []
        for row in singles:
            least, most = self.limits(row, node)
            if most < least:
                return None
            given[row] = least
            more.append(most - least)
            room -= least
        if room < -SLACK * problem.cpu_mhz[node]:
            return self._as_before(node, rows, gangs)
        for row, extra in zip(singles, more, strict=True):
            if room <= 0.0:
                break
            extra = min(extra, room)
            given[row] += extra
            room -= extra
        return given

    def _as_before(
        self, node: int, rows: Sequence[int], gangs: Mapping[int, tuple[Place, float]]
    ) -> dict[int, float] | None:
        """A node that holds more than it has: what is there may stay as it is, nothing comes."""
        if any(row in gangs or row not in self.origin[node] for row in rows):
            return None
        return {row: min(self.problem.home_mhz[row]) for row in rows}

    def redivide(self) -> None:
        """Divide all CPU anew: jobs in order of ascending highest utility, each as much as all its nodes can give."""
        problem = self.problem
        keep = self._kept()
        room = [cpu - seats for cpu, seats in zip(problem.cpu_mhz, self.seat_mhz, strict=True)]
        mhz: dict[int, float] = {}
        extra: list[tuple[int, int, float]] = []
        for node, rows in enumerate(self.here):
            for row in rows:
                if row not in mhz:
                    least, most = self._bounds(row)
                    mhz[row] = min(problem.home_mhz[row]) if row in keep else least
                    if row not in keep and most > least:
                        extra.append((problem.urgency[row], row, most - least))
                room[node] -= mhz[row] * (self.jobs[row].place or ()).count(node)
        extra.sort()
        for _, row, more in extra:
            place = self.jobs[row].place or ()
            for node in place:
                more = min(more, room[node] / place.count(node))
            if more > 0.0:
                mhz[row] += more
                for node in place:
                    room[node] -= more
        self._note(mhz)

    def _bounds(self, row: int) -> tuple[float, float]:
        """`limits` on all nodes of a placed job."""
        bounds = [self.limits(row, node) for node in self.jobs[row].place or ()]
        return max(least for least, _ in bounds), min(most for _, most in bounds)

    def _kept(self) -> set[int]:
        """Jobs whose CPU stays as it is: on nodes that are being emptied, or that cannot give all there the least."""
        problem = self.problem
        keep = {row for node, rows in enumerate(self.here) if problem.leaving[node] for row in rows}
        while True:
            found: set[int] = set()
            for node, rows in enumerate(self.here):
                room = problem.cpu_mhz[node] - self.seat_mhz[node]
                for row in rows:
                    mhz = min(problem.home_mhz[row]) if row in keep else self._bounds(row)[0]
                    room -= mhz * (self.jobs[row].place or ()).count(node)
                if room < -SLACK * abs(problem.cpu_mhz[node]):
                    found.update(row for row in rows if row not in keep and problem.state[row] == RUNNING)
            if not found:
                return keep
            keep |= found

    def waits(self, nodes: Mapping[int, Sequence[int]], places: Mapping[int, Place | None]) -> dict[int, float]:
        """By node, with the jobs there: how long who arrives waits for suspends, the longest of them.

        Nothing where all who arrive fit into the memory that is free as it is. `places`: jobs that are elsewhere than
        in the state.
        """
        problem, found = self.problem, {}
        for node, rows in nodes.items():
            longest = 0.0
            for row in self.origin[node]:
                gone = places[row] is None if row in places else self.jobs[row].place is None
                if gone and problem.suspend_s[row] > longest:
                    longest = problem.suspend_s[row]
            if longest > 0.0:
                coming = self.seats_coming_mib[node]
                for row in rows:
                    place = places.get(row) or self.jobs[row].place or ()
                    coming += problem.memory[row] * problem.arriving(row, place, node)
                if coming <= problem.free_mib[node] + _FITS_MIB:
                    longest = 0.0
            found[node] = longest
        return found

    def _note(self, mhz: Mapping[int, float]) -> None:
        waits = self.waits(dict(enumerate(self.here)), {})
        for row, job in self.jobs.items():
            if row in mhz and job.place is not None:
                delay_s = self.problem.delay_s(row, job.place, waits)
                self.jobs[row] = future_of(self.problem, row, job.place, mhz[row], delay_s)
        self._weigh(self._given_mhz())

    def _weigh(self, given_mhz: float) -> None:
        for row, job in self.jobs.items():
            if self.problem.aims[row]:
                self.levels.set(row, job.a, job.tb)
        self.levels.solve(given_mhz)

    # --- trials --------------------------------------------------------------------------------------------------

    def trial(self, gone: Sequence[int], come: Sequence[tuple[int, Place, float]]) -> Trial | None:
        """What it leads to if jobs stop running, or run elsewhere: (row, place, MHz of each of several instances).

        A row in both moves. Memory and groups are for the caller to look at. None: there is not enough CPU.
        """
        problem, jobs = self.problem, self.jobs
        self.trials += 1
        nodes: dict[int, list[int]] = {}
        places: dict[int, Place | None] = dict.fromkeys(gone)
        for row in gone:
            for node in set(jobs[row].place or ()):
                nodes.setdefault(node, list(self.here[node])).remove(row)
        for row, place, _ in come:
            places[row] = place
            for node in set(place):
                nodes.setdefault(node, list(self.here[node])).append(row)
        for row in places:  # who is suspended, or is not any more, makes others wait where it ran
            for node in set(problem.home[row]) if problem.movable[row] else ():
                nodes.setdefault(node, list(self.here[node]))
        gangs = {row: (place, mhz) for row, place, mhz in come if problem.k[row] > 1}
        mhz: dict[int, float] = {}
        for node, rows in nodes.items():
            given = self.divide(node, rows, gangs)
            if given is None:
                return None
            mhz.update(given)
        changed: dict[int, Future] = {}
        for row, to in places.items():
            if to is None:
                changed[row] = future_of(problem, row, None, 0.0, 0.0)
        waits = self.waits(self._touched(nodes, mhz, places), places)
        for row, given_mhz in mhz.items():
            was = jobs[row]
            at = places.get(row) or was.place or ()
            delay_s = problem.delay_s(row, at, waits)
            if row in places or given_mhz != was.mhz or delay_s != was.delay_s:
                changed[row] = future_of(problem, row, at, given_mhz, delay_s)
        return self._valued(changed, nodes, tuple(gone), tuple(row for row, _, _ in come))

    def _touched(
        self, nodes: dict[int, list[int]], mhz: Mapping[int, float], places: Mapping[int, Place | None]
    ) -> dict[int, list[int]]:
        """The nodes whose suspends matter: those changed, and the others of jobs of several instances there."""
        if not any(self.problem.k[row] > 1 for row in mhz):
            return nodes
        others = {node for row in mhz for node in (places.get(row) or self.jobs[row].place or ())}
        return {node: self.here[node] for node in others} | nodes

    def _valued(
        self, changed: dict[int, Future], nodes: dict[int, list[int]], gone: tuple[int, ...], come: tuple[int, ...]
    ) -> Trial:
        problem, jobs = self.problem, self.jobs
        given_mhz, moves = self.levels.given_mhz, 0
        equation = []
        for row, job in changed.items():
            was = jobs[row]
            k = problem.k[row]
            given_mhz += ((job.mhz if job.place is not None else 0.0) - (was.mhz if was.place is not None else 0.0)) * k
            if problem.movable[row]:
                moves += (job.place != problem.home[row]) - (was.place != problem.home[row])
            if problem.aims[row] and (job.a != was.a or job.tb != was.tb):
                equation.append((row, job.a, job.tb))
        level = self.levels.trial(equation, given_mhz)
        return Trial(changed, nodes, level, given_mhz, moves, gone, come)

    def apply(self, trial: Trial) -> None:
        """Make the trial come true."""
        problem = self.problem
        equation = []
        for row, job in trial.changed.items():
            was = self.jobs[row]
            if job.place != was.place:
                for node in was.place or ():
                    self.free_mib[node] += problem.memory[row]
                for node in job.place or ():
                    self.free_mib[node] -= problem.memory[row]
            if problem.aims[row]:
                equation.append((row, job.a, job.tb))
            self.jobs[row] = job
        for node, rows in trial.nodes.items():
            self.here[node] = rows
        self.moves += trial.moves
        self.levels.apply(equation, trial.given_mhz, trial.level)
