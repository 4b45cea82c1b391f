"""A placement under construction: what runs where and how fast, what that leads to, and trials of changes to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from daemons.models.neighbours import FORMULA, Crowd
from daemons.models.placement_relations import Layout
from daemons.models.placement_rules import PlacementRules
from daemons.policies.placement.apc.future import Future, FutureColumns, Place, columns_of, future_of
from daemons.policies.placement.apc.leftover import Claim, contested, fair_gangs, fair_level, fair_shares, share
from daemons.policies.placement.apc.level import Levels
from daemons.policies.placement.apc.problem import LARGEST, LEAST_MHZ, RUNNING, SLACK, SUSPENDED, WAITING, Problem
from daemons.policies.placement.apc.sharing import Sharing, Totals, same, sharing_of
from shared.policy_api.snapshot import Bools, Floats, Ints

_FITS_MIB = 1e-6
NOBODY = Crowd(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(slots=True, eq=False)
class Trial:
    """What a change to the state would lead to. nodes: the jobs on every node that it touches. moves: by how many the
    jobs suspended or moved grow. totals: what is shared on these nodes (None: nothing anywhere). penalty: by how much
    the weights of broken preferences grow."""

    changed: dict[int, Future]
    nodes: dict[int, list[int]]
    level: float
    given_mhz: float
    moves: int
    gone: tuple[int, ...] = ()
    come: tuple[int, ...] = ()
    worst: float = field(default=0.0)
    totals: Mapping[int, Totals] | None = None
    penalty: float = 0.0


class Futures(dict[int, Future]):
    """The futures of jobs by row, made from the columns when asked for."""

    def __init__(self, columns: FutureColumns, places: list[Place | None]) -> None:
        super().__init__()
        self._columns, self._places = columns, places

    def __missing__(self, row: int) -> Future:
        self[row] = made = self._columns.future(row, self._places[row])
        return made


class State:
    """The placement of all jobs. `rows`: of the jobs that are predicted or may be changed; `jobs`: their futures;
    `here`: rows of the changeable jobs by node; `seat_place`, `seat_given`: node and MHz of instances of web
    applications that may be changed, `seat_mhz` by node; `free_mib`; `before`: utility by row if nothing is changed,
    `slow_before`: how many times as long as alone each takes then. `sharing`: None where it is not to count."""

    def __init__(self, problem: Problem, rules: PlacementRules, still: bool = False) -> None:
        self.problem, self.rules = problem, rules
        count = len(problem.cpu_mhz)
        self.rows = problem.tracked
        self.here: list[list[int]] = [[] for _ in range(count)]
        self.origin: list[list[int]] = [[] for _ in range(count)]
        self.replica_place: dict[int, int] = {}
        self.replica_given_mhz: dict[int, float] = {}
        self.replicas_here: list[list[int]] = [[] for _ in range(count)]
        self.replicas_coming_mib = [0.0] * count
        self.replica_mhz = [0.0] * count
        self.free_mib = list(problem.memory_mib)
        self.places: list[Place | None] = [None] * len(problem.state)
        self.levels = Levels(problem)
        self.moves = self.trials = 0
        self.still = still or not problem.snapshot.at_cycle
        self.layout = Layout(self.place_of)
        self.division = Division(self)
        self.sharing: Sharing | None = sharing_of(problem)
        self.had_mhz = mhz = self._settle()
        self._fixed = ~problem.columns.movable & self._of_jobs()
        self.columns, self.jobs = self._futures(self._slowest(mhz), np.zeros(len(mhz)))
        self._weigh(float((mhz / self.columns.slow)[self._of_jobs()].sum()))
        self.before: list[float] = self.columns.utilities(self.levels.level).tolist()
        self.slow_before = self.columns.slow.copy()
        self._placed_first = self.columns.placed.copy()
        self._at_first = self.crowd() if self.sharing is not None else NOBODY
        if not still and problem.snapshot.at_cycle:
            self.redivide()

    def foresee(self) -> None:
        """Predict by the model that is asked for what was searched for by the formula: what there is now, and what it
        would be if nothing were changed."""
        if self.sharing is None or self.sharing.model == FORMULA:
            return
        model, no_s = self.sharing.model, np.zeros(len(self.places))
        self.slow_before = self.sharing.recount(self._at_first, model)
        columns = columns_of(self.problem, self._placed_first, self._slowest(self.had_mhz), no_s, self.slow_before)
        self.levels.set_all(columns.a, columns.tb)
        level = self.levels.solve(float((self.had_mhz / self.slow_before)[self._of_jobs()].sum()))
        self.before = columns.utilities(level).tolist()
        now = self.columns
        slow = self._slow(model)
        self.columns = columns_of(self.problem, now.placed, now.mhz, now.delay_s, slow)
        self.jobs = Futures(self.columns, self.places)
        self.weigh()

    def _of_jobs(self) -> Bools:
        work = self.problem.snapshot.workloads
        return np.asarray((work.state == RUNNING) & (work.app < 0))

    def _settle(self) -> Floats:
        """Put everything where it is; MHz of all instances of what runs, float64[w]."""
        problem = self.problem
        mhz = [0.0] * len(problem.state)
        for row, state in enumerate(problem.state):
            if state != RUNNING:
                continue
            home = problem.home[row]
            mhz[row] = sum(problem.home_mhz[row])
            self.places[row] = home
            if problem.movable[row]:
                if problem.is_replica[row]:
                    self.add_replica(row, home[0])
                    self.replica_given_mhz[row] = mhz[row]
                    self.replica_mhz[home[0]] += mhz[row]
                    continue
                for node in home if len(home) == 1 else set(home):
                    self.here[node].append(row)
                    self.origin[node].append(row)
                for node in home:
                    self.free_mib[node] -= problem.memory[row]
        total = np.array(mhz, dtype=np.float64)
        return np.where((total >= 0.0) & (total < LARGEST), total, 0.0)

    def _slowest(self, total_mhz: Floats) -> Floats:
        """MHz of the slowest instance, float64[w]."""
        mhz = total_mhz.copy()
        for row in (self.problem.snapshot.workloads.instances > 1).nonzero()[0].tolist():
            mhz[row] = min(self.problem.home_mhz[row], default=0.0) if mhz[row] > 0.0 else 0.0
        return mhz

    def _futures(self, mhz: Floats, delay_s: Floats) -> tuple[FutureColumns, Futures]:
        placed = np.array([place is not None for place in self.places], dtype=np.bool_)
        columns = columns_of(self.problem, placed, mhz, delay_s, self._slow())
        return columns, Futures(columns, self.places)

    def _slow(self, model: str = FORMULA) -> Floats:
        """Return the slowdown factor of each workload, float64[w]."""
        if self.sharing is None:
            return np.ones(len(self.places))
        return self.sharing.recount(self.crowd(), model)

    def crowd(self) -> Crowd:
        """Return the node of every instance, including web applications."""
        problem = self.problem
        owner: list[int] = []
        node: list[int] = []
        for row, place in enumerate(self.places):
            if place and not (problem.is_replica[row] and problem.movable[row]):
                owner += [row] * len(place)
                node += place
        owner += self.replica_place.keys()
        node += self.replica_place.values()
        where = np.array(node, dtype=np.int64)
        return Crowd(np.array(owner, dtype=np.int64), np.where(where < len(self.here), where, -1))

    def _weigh(self, given_mhz: float) -> None:
        self.levels.set_all(self.columns.a, self.columns.tb)
        self.levels.solve(given_mhz)

    # --- instances of web applications ---------------------------------------------------------------------------

    def add_replica(self, row: int, node: int) -> None:
        """Record that an instance of a web application runs on a node from now on; its CPU is `seat_given`."""
        problem = self.problem
        self.replica_place[row], self.replica_given_mhz[row] = node, 0.0
        self.replicas_here[node].append(row)
        if self.sharing is not None:
            self.sharing.add_replica(row, node, 1)
        self.free_mib[node] -= problem.memory[row]
        if problem.home[row] != (node,) or not problem.movable[row]:
            self.replicas_coming_mib[node] += problem.memory[row]
            self.moves += problem.movable[row]
        self.layout.changed()

    def remove_replica(self, row: int) -> None:
        """Record that an instance of a web application no longer runs."""
        problem, node = self.problem, self.replica_place.pop(row)
        self.replicas_here[node].remove(row)
        self.replica_mhz[node] -= self.replica_given_mhz.pop(row)
        if self.sharing is not None:
            self.sharing.add_replica(row, node, -1)
        self.free_mib[node] += problem.memory[row]
        if problem.home[row] != (node,) or not problem.movable[row]:
            self.replicas_coming_mib[node] -= problem.memory[row]
            self.moves -= problem.movable[row]
        self.layout.changed()

    # --- what is where -------------------------------------------------------------------------------------------

    def place_of(self, row: int) -> Place | None:
        """Return the nodes of a workload, None: it does not run; includes instances of web applications."""
        if row in self.replica_place:
            return (self.replica_place[row],)
        return None if self.problem.is_replica[row] and self.problem.movable[row] else self.places[row]

    def utility(self, row: int) -> float:
        """Predicted utility of a job."""
        return self.jobs[row].utility(self.levels.level)

    def utilities(self) -> list[float]:
        """Predicted utilities of all jobs, by row."""
        found: list[float] = self.columns.utilities(self.levels.level).tolist()
        return found

    def any_open(self) -> bool:
        """Return whether any job is in the equation."""
        return bool(self.columns.open.any())

    def idle_mhz(self, node: int) -> float:
        """Return the unallocated CPU of the node."""
        used = sum(self.used_mhz(row, node) for row in self.here[node])
        return self.problem.cpu_mhz[node] - self.replica_mhz[node] - used

    def idle_of_all(self) -> Floats:
        """Return `idle_mhz` of every node, float64[n]."""
        problem = self.problem
        rows = [row for here in self.here for row in here]
        if any(problem.k[row] > 1 for row in rows):
            return np.array([self.idle_mhz(node) for node in range(len(self.here))])
        nodes = np.repeat(np.arange(len(self.here)), [len(here) for here in self.here])
        used = np.bincount(nodes, self.columns.mhz[np.array(rows, dtype=np.int64)], len(self.here))
        idle: Floats = problem.columns.cpu_mhz - np.array(self.replica_mhz) - used
        return idle

    def start(self, placed: Sequence[tuple[int, int]]) -> None:
        """Place jobs of one instance that wait, (row, node), for which there is all the room that they want."""
        for row, node in placed:
            self.places[row] = (node,)
            self.here[node].append(row)
            self.free_mib[node] -= self.problem.memory[row]
        self.layout.changed()
        self.trials += 1
        self.redivide()

    def used_mhz(self, row: int, node: int) -> float:
        """Return the CPU that a job is given on a node."""
        job, problem = self.jobs[row], self.problem
        if problem.k[row] == 1:
            return job.mhz
        place = job.place or ()
        if self.still and place == problem.home[row]:
            return sum(mhz for at, mhz in zip(place, problem.home_mhz[row], strict=True) if at == node)
        return job.mhz * place.count(node)

    def spare_mhz(self, node: int) -> float:
        """Return the CPU of the node beyond the least that all workloads there must have."""
        limits = self.division.limits
        least = sum(limits(row, node)[0] * (self.places[row] or ()).count(node) for row in self.here[node])
        replicas = sum(limits(row, node)[0] for row in self.replicas_here[node])
        return self.problem.cpu_mhz[node] - least - replicas

    def redivide(self) -> None:
        """Divide all CPU again, see `Division.all`."""
        problem = self.problem
        mhz = self.division.all()
        delay_s = np.zeros(len(mhz))
        come = [row for row in self.rows if self.places[row] is not None and not self._stays(row)]
        if come:
            nodes = {node: self.here[node] for row in come for node in self.places[row] or ()}
            waits = self.waits(nodes, {})
            for row in come:
                delay_s[row] = problem.delay_s(row, self.places[row] or (), waits)
        self.columns, self.jobs = self._futures(mhz, delay_s)
        self.weigh()

    def unstart(self, placed: Sequence[tuple[int, int]]) -> None:
        """Take `start` back."""
        for row, node in placed:
            self.places[row] = None
            self.here[node].remove(row)
            self.free_mib[node] += self.problem.memory[row]
        self.layout.changed()
        self.redivide()

    def weigh(self) -> None:
        """Solve the level exactly for all the CPU that is given."""
        problem, work = self.problem, self.problem.snapshot.workloads
        mine = self.columns.placed & (problem.columns.movable | ~self._of_jobs()) & (work.app < 0)
        slow = self.columns.slow
        fixed_mhz = float((self.had_mhz / slow)[self._fixed].sum())
        self._weigh(fixed_mhz + float((self.columns.mhz * work.instances / slow)[mine].sum()))

    def _stays(self, row: int) -> bool:
        return self.problem.state[row] == RUNNING and self.places[row] == self.problem.home[row]

    def waits(self, nodes: Mapping[int, Sequence[int]], places: Mapping[int, Place | None]) -> dict[int, float]:
        """Return, by node with the jobs there: how long arrivals wait for suspends, the longest of them.

        0 if all arrivals fit into the memory that is already free. `places`: jobs that are elsewhere than in the state.
        """
        problem, found = self.problem, {}
        for node, rows in nodes.items():
            longest = 0.0
            for row in self.origin[node]:
                gone = places[row] is None if row in places else self.places[row] is None
                if gone and problem.suspend_s[row] > longest:
                    longest = problem.suspend_s[row]
            if longest > 0.0:
                coming = self.replicas_coming_mib[node]
                for row in rows:
                    place = places.get(row) or self.places[row] or ()
                    coming += problem.memory[row] * problem.arriving(row, place, node)
                if coming <= problem.free_mib[node] + _FITS_MIB:
                    longest = 0.0
            found[node] = longest
        return found

    # --- trials --------------------------------------------------------------------------------------------------

    def trial(self, gone: Sequence[int], come: Sequence[tuple[int, Place, float]]) -> Trial | None:
        """Return the trial in which jobs stop running, or run elsewhere: (row, place, MHz of each of several
        instances).

        A row in both moves. The caller checks memory and relations. None: there is not enough CPU.
        """
        problem, jobs = self.problem, self.jobs
        self.trials += 1
        nodes: dict[int, list[int]] = {}
        places: dict[int, Place | None] = dict.fromkeys(gone)
        for row in gone:
            for node in set(self.places[row] or ()):
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
            given = self.division.node(node, rows, gangs)
            if given is None:
                return None
            mhz.update(given)
        changed: dict[int, Future] = {}
        for row, to in places.items():
            if to is None:
                changed[row] = future_of(problem, row, None, 0.0, 0.0)
        waits = self.waits(self._touched(nodes, mhz, places), places)
        totals = self._totals(nodes, places)
        for row, given_mhz in mhz.items():
            was = jobs[row]
            at = places.get(row) or was.place or ()
            delay_s = problem.delay_s(row, at, waits)
            slow = self._slowed(row, at, totals)
            if row in places or given_mhz != was.mhz or delay_s != was.delay_s or slow != was.slow:
                changed[row] = future_of(problem, row, at, given_mhz, delay_s, slow)
        return self._valued(changed, nodes, tuple(gone), tuple(row for row, _, _ in come), totals)

    def exchange(self, node: int, gone: Sequence[int], come: Sequence[int]) -> Trial | None:
        """Return the `trial` of a change on one node only, where all jobs there and those that come have one
        instance."""
        problem, jobs, origin = self.problem, self.jobs, self.origin[node]
        moving = (row for row in (*gone, *come) if problem.movable[row])
        if self.replicas_coming_mib[node] or any(problem.home[row] != (node,) for row in moving):
            return self.trial(gone, [(row, (node,), 0.0) for row in come])
        self.trials += 1
        rows = [row for row in self.here[node] if row not in gone]
        rows += come
        mhz = self.division.node(node, rows, {})
        if mhz is None:
            return None
        wait_s = self._wait_s(node, gone, rows)
        place, changed = (node,), {row: future_of(problem, row, None, 0.0, 0.0) for row in gone if row not in come}
        totals = self._totals({node: rows}, {})
        for row, given_mhz in mhz.items():
            was = jobs[row]
            delay_s = 0.0 if row in origin else wait_s + self._own_s(row, node)
            slow = self._slowed(row, place, totals)
            if given_mhz != was.mhz or delay_s != was.delay_s or was.place is None or slow != was.slow:
                changed[row] = future_of(problem, row, place, given_mhz, delay_s, slow)
        return self._valued(changed, {node: rows}, tuple(gone), tuple(come), totals)

    def _totals(
        self, nodes: Mapping[int, Sequence[int]], places: Mapping[int, Place | None]
    ) -> Mapping[int, Totals] | None:
        """Return the shared load on nodes with these jobs."""
        sharing = self.sharing
        if sharing is None:
            return None
        return {node: sharing.sums(node, rows, places, self.places) for node, rows in nodes.items()}

    def _slowed(self, row: int, place: Place, totals: Mapping[int, Totals] | None) -> float:
        """Return the slowdown factor of a job on a place; its current one if only rounding differs."""
        if totals is None or self.sharing is None:
            return 1.0
        slow, was = self.sharing.slow(row, place, totals), self.jobs[row].slow
        return was if same(slow, was) else slow

    def _of_others(self, changed: dict[int, Future], totals: Mapping[int, Totals]) -> None:
        """Update the other affected jobs: those on these nodes that must not be changed, and those with further
        instances elsewhere."""
        assert self.sharing is not None
        for node in totals:
            for row in self.sharing.fixed[node]:
                was = self.jobs[row]
                slow = self._slowed(row, was.place or (), totals)
                if slow != was.slow:
                    changed[row] = future_of(self.problem, row, was.place, was.mhz, was.delay_s, slow)

    def _wait_s(self, node: int, gone: Sequence[int], rows: Sequence[int]) -> float:
        """Return the `waits` of one node."""
        problem, longest = self.problem, 0.0
        for row in self.origin[node]:
            if row not in rows and (row in gone or self.places[row] is None):
                longest = max(longest, problem.suspend_s[row])
        if longest > 0.0:
            coming = sum([problem.memory[row] for row in rows if row not in self.origin[node]])
            if coming <= problem.free_mib[node] + _FITS_MIB:
                return 0.0
        return longest

    def _own_s(self, row: int, node: int) -> float:
        """Return the duration of the operation that brings a job of one instance to a node."""
        problem, state = self.problem, self.problem.state[row]
        if state == WAITING:
            return problem.start_s[row]
        away = problem.migrate_s[row] if problem.home[row][0] != node else 0.0
        return problem.resume_s[row] + away if state == SUSPENDED else away

    def _touched(
        self, nodes: dict[int, list[int]], mhz: Mapping[int, float], places: Mapping[int, Place | None]
    ) -> dict[int, list[int]]:
        """Return the nodes whose suspends matter: those changed, and the others of jobs of several instances there."""
        if not any(self.problem.k[row] > 1 for row in mhz):
            return nodes
        others = {node for row in mhz for node in (places.get(row) or self.places[row] or ())}
        return {node: self.here[node] for node in others} | nodes

    def _valued(
        self,
        changed: dict[int, Future],
        nodes: dict[int, list[int]],
        gone: tuple[int, ...],
        come: tuple[int, ...],
        totals: Mapping[int, Totals] | None,
    ) -> Trial:
        problem, jobs = self.problem, self.jobs
        given_mhz, moves = self.levels.given_mhz, 0
        equation = []
        if totals is not None:
            self._of_others(changed, totals)
        for row, job in changed.items():
            was = jobs[row]
            given_mhz += self._more_mhz(row, job, was)
            if problem.movable[row]:
                moves += (job.place != problem.home[row]) - (was.place != problem.home[row])
            if problem.aims[row] and (job.a != was.a or job.tb != was.tb):
                equation.append((row, job.a, job.tb, was.a, was.tb))
        level = self.levels.trial(equation, given_mhz)
        return Trial(changed, nodes, level, given_mhz=given_mhz, moves=moves, gone=gone, come=come, totals=totals)

    def _more_mhz(self, row: int, job: Future, was: Future) -> float:
        """Return the increase in the progress of all instances of a job together, as the equation counts it."""
        if self.sharing is not None and self._fixed[row]:
            had_mhz = self.had_mhz.item(row)
            return had_mhz / job.slow - had_mhz / was.slow
        now_mhz = job.mhz / job.slow if job.place is not None else 0.0
        before_mhz = was.mhz / was.slow if was.place is not None else 0.0
        return (now_mhz - before_mhz) * self.problem.k[row]

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
                equation.append((row, job.a, job.tb, was.a, was.tb))
            if job.place != self.places[row]:
                self.layout.changed()
            self.jobs[row], self.places[row] = job, job.place
            self.columns.note(row, job)
        for node, rows in trial.nodes.items():
            self.here[node] = rows
            if self.sharing is not None and trial.totals is not None:
                self.sharing.put(node, trial.totals[node])
        self.moves += trial.moves
        self.levels.apply(equation, trial.given_mhz, trial.level)


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
        """Return the `limits` on a node of all workloads by row: the least, the most."""
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
        """Return the least and the most MHz that an instance is given on a node; most < least: it cannot run there."""
        least, most = self.tables(node)
        return least[row], most[row]

    def node(self, node: int, rows: Sequence[int], gangs: Mapping[int, tuple[Place, float]]) -> dict[int, float] | None:
        """Return the MHz per instance of the jobs on one node; None: it is not enough.

        Jobs of several instances keep their speed; `gangs` has that of jobs not yet placed. On a node that is being
        evacuated everything stays unchanged, and between cycles all running workloads do.
        """
        state, problem = self.state, self.problem
        if problem.leaving[node]:
            return {row: min(problem.home_mhz[row]) for row in rows}
        room = problem.cpu_mhz[node] - state.replica_mhz[node]
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
        for at, row in enumerate(singles):
            if room <= 0.0:
                break
            if not problem.aims[row] and at + 1 < len(singles):  # the rest has no goal either: it comes last
                self._share(singles[at:], given, room, most)
                break
            extra = min(most[row] - least[row], room)
            given[row] += extra
            room -= extra
        return given

    def _share(self, rows: Sequence[int], given: dict[int, float], room: float, most: Sequence[float]) -> None:
        """Add what is left of a node's CPU to the least that workloads without a goal are given."""
        if sum([most[row] - given[row] for row in rows]) <= room:
            given.update([(row, most[row]) for row in rows])
            return
        weight = self.problem.weight
        claims = [(given[row], most[row], weight[row]) for row in rows]
        level = fair_level(room + sum([claim[0] for claim in claims]), [(*claim, 1.0) for claim in claims])
        given.update([(row, share(claim, level)) for row, claim in zip(rows, claims, strict=True)])

    def _as_before(
        self, node: int, rows: Sequence[int], gangs: Mapping[int, tuple[Place, float]]
    ) -> dict[int, float] | None:
        """Return the current division of an overcommitted node: workloads there may stay unchanged, and none may
        come."""
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
        """Divide the CPU where every job has one instance, all at once."""
        columns = self.problem.columns
        order = np.lexsort((columns.urgency[rows], nodes))
        rows, nodes = rows[order], nodes[order]
        least, most = self._bounds(self._core_mhz[nodes], self._most_mhz[nodes], rows)
        count = len(columns.cpu_mhz)
        room = columns.cpu_mhz - np.array(self.state.replica_mhz) - np.bincount(nodes, least, count)
        wanted = np.clip(most - least, 0.0, None)
        before = wanted.cumsum() - wanted
        starts = np.searchsorted(nodes, nodes)
        given = least + np.clip(room[nodes] - (before - before[starts]), 0.0, wanted)
        aims = columns.aims[rows]
        short, rest = contested(nodes, room, wanted, aims)
        few = short[nodes] & ~aims & (most >= least)
        if few.any():
            at, weight = nodes[few], self.problem.snapshot.workloads.importance[rows[few]]
            rest += np.bincount(at, least[few], count)
            given[few] = fair_shares(at, rest, least[few], most[few], weight)
        kept = self._stuck(rows, nodes, room)
        mhz[rows] = np.where(kept, mhz[rows], given)

    def _stuck(self, rows: Ints, nodes: Ints, room: Floats) -> Bools:
        """Return the jobs whose CPU stays unchanged: on nodes that are being evacuated, or that cannot give all jobs
        there the least."""
        columns = self.problem.columns
        short = room < -SLACK * np.abs(columns.cpu_mhz)
        return np.asarray((columns.leaving | short)[nodes] & columns.movable[rows])

    def _with_gangs(self) -> dict[int, float]:
        state, problem = self.state, self.problem
        keep = self._kept()
        room = [cpu - replicas for cpu, replicas in zip(problem.cpu_mhz, state.replica_mhz, strict=True)]
        mhz: dict[int, float] = {}
        extra: list[tuple[int, int, float]] = []
        claims: dict[int, Claim] = {}
        for node, rows in enumerate(state.here):
            for row in rows:
                if row not in mhz:
                    least, most = self._of_all_nodes(row)
                    mhz[row] = min(problem.home_mhz[row]) if row in keep else least
                    if row not in keep and most > least and not problem.aims[row]:
                        claims[row] = Claim(least, most, problem.weight[row], Counter(state.places[row] or ()))
                    elif row not in keep and most > least:
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
        for claim in claims.values():
            for node, times in claim.counts.items():
                room[node] += claim.least * times
        return mhz | fair_gangs(claims, room)

    def _of_all_nodes(self, row: int) -> tuple[float, float]:
        """Return the `limits` on all nodes of a placed job."""
        bounds = [self.limits(row, node) for node in self.state.places[row] or ()]
        return max(least for least, _ in bounds), min(most for _, most in bounds)

    def _kept(self) -> set[int]:
        """Return `_stuck` for jobs of several instances."""
        state, problem = self.state, self.problem
        keep = {row for node, rows in enumerate(state.here) if problem.leaving[node] for row in rows}
        while True:
            found: set[int] = set()
            for node, rows in enumerate(state.here):
                room = problem.cpu_mhz[node] - state.replica_mhz[node]
                for row in rows:
                    mhz = min(problem.home_mhz[row]) if row in keep else self._of_all_nodes(row)[0]
                    room -= mhz * (state.places[row] or ()).count(node)
                if room < -SLACK * abs(problem.cpu_mhz[node]):
                    found.update(row for row in rows if row not in keep and problem.state[row] == RUNNING)
            if not found:
                return keep
            keep |= found

    def claims(self) -> tuple[Floats, Floats]:
        """Return, by node, the CPU that jobs there can use, and the least that they must have."""
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
