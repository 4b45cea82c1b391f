"""Web applications: how many instances, where, and how much CPU, so that they are as happy as the jobs' common level.

Instances take what jobs leave idle first, then from jobs. What they take is found from one number, the utility that
all applications are to have: the more they get, the lower the jobs' level, so there is one point where both meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.web_utility import AppUtility, app_utilities, expected_flows
from daemons.policies.placement.apc.leftover import fair_level, share
from daemons.policies.placement.apc.misplaced import excluded, misplaced
from daemons.policies.placement.apc.problem import LEAST_MHZ, RUNNING, SLACK, Problem
from daemons.policies.placement.apc.state import State
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, FlowColumns, Snapshot, take_rows

_LOW = -1e9  # lower than any utility that matters
_ROUNDS = 12
_SPARE = 1.1  # an instance may go only if the others could do so much more than is needed
_WORTH = 0.1


@dataclass(slots=True, eq=False)
class App:
    """An application: its utility against CPU under the planned load (None: its figures are invalid) and under the
    expected load; its rows, those that run and may be changed, the CPU that its other instances hold, and their number.
    `best`: the highest utility that it can have. An application without a goal has the same utility at any CPU, and its
    instances share the CPU that those with goals leave."""

    row: int
    utility: AppUtility | None
    expected: AppUtility | None
    rows: list[int]
    running: list[int] = field(default_factory=list)
    fixed_mhz: float = 0.0
    fixed: int = 0
    best: float = field(init=False)

    def __post_init__(self) -> None:
        """Compute its maximum once: every step of a search uses it."""
        self.best = math.inf if self.utility is None else self.utility.best

    @property
    def aims(self) -> bool:
        """Whether it has a goal, so that its utility says something."""
        return self.utility is None or bool(self.utility.flows)

    def at(self, mhz: float) -> float:
        """Return its utility with `mhz` of CPU; 1 without valid figures."""
        return float(self.utility.utility(mhz)) if self.utility is not None else 1.0

    def expected_at(self, mhz: float) -> float:
        """Return its utility with `mhz` of CPU under the expected load; 1 without valid figures."""
        return float(self.expected.utility(mhz)) if self.expected is not None else 1.0

    def wants_mhz(self, utility: float) -> float:
        """Return the total CPU that instances which may be changed need for a utility."""
        if self.utility is None:
            return 0.0
        if not self.utility.flows:
            return math.inf
        return max(0.0, float(self.utility.mhz(utility)) - self.fixed_mhz)


def apps_of(problem: Problem) -> list[App]:
    """Return the applications of the snapshot with their running instances."""
    snapshot, found = problem.snapshot, []
    if not snapshot.web.names:
        return []
    of, planned, expected = snapshot.workloads.app, _models(snapshot), _models(snapshot, expected_flows(snapshot.flows))
    for app, models in enumerate(zip(planned, expected, strict=True)):
        rows = (of == app).nonzero()[0].tolist()
        made = App(app, *models, rows)
        for row in rows:
            if problem.movable[row]:
                made.running.append(row)
            elif problem.state[row] == RUNNING:
                made.fixed += 1
                made.fixed_mhz += sum(mhz for mhz in problem.home_mhz[row] if math.isfinite(mhz))
        found.append(made)
    return found


def _models(snapshot: Snapshot, flows: FlowColumns | None = None) -> Sequence[AppUtility | None]:
    flows = snapshot.flows if flows is None else flows
    core_mhz = snapshot.nodes.core_mhz
    vcpu_mhz = float(core_mhz[np.isfinite(core_mhz)].max(initial=0.0)) or 1.0
    try:
        models: Sequence[AppUtility] = app_utilities(snapshot.web, flows, vcpu_mhz)
    except (InvalidValue, ArithmeticError):
        return [_model(snapshot, flows, app, vcpu_mhz) for app in range(len(snapshot.web.names))]
    return [model if _is_sound(model) else None for model in models]


def _is_sound(model: AppUtility) -> bool:
    """Return whether utilities can be computed with the model."""
    ends = np.asarray(model.utility(np.array([0.0, 1.0, 1e6, np.inf])))
    return bool(np.isfinite(ends).all()) and math.isfinite(model.importance) and model.max_mhz >= 0.0


def _model(snapshot: Snapshot, flows: FlowColumns, app: int, vcpu_mhz: float) -> AppUtility | None:
    """Return the model of one application alone; None if its figures are invalid."""
    mine = (flows.app == app).nonzero()[0]
    alone = take_rows(flows, mine)
    try:
        model: AppUtility = app_utilities(snapshot.web, alone, vcpu_mhz)[app]
    except (InvalidValue, ArithmeticError):
        return None
    return model if _is_sound(model) else None


def best_mhz(problem: Problem, app: App) -> float:
    """Return the CPU of the application with the maximum number of instances, each with a node of its own."""
    if not app.rows:
        return 0.0
    nodes, row = problem.snapshot.nodes, app.rows[0]
    with np.errstate(all="ignore"):
        each = np.minimum(np.minimum(problem.vcpus[row] * nodes.core_mhz, nodes.cpu_mhz), problem.req_mhz[row])
    count = problem.snapshot.web.max_instances.item(app.row)
    return float(np.sort(np.nan_to_num(each))[::-1][:count].sum())


def filled(wanted: float, bounds: Floats) -> Floats:
    """Divide `wanted` evenly, each part at most its bound (>= 0); less if the sum of the bounds is less."""
    if wanted >= bounds.sum():
        return bounds.copy()
    order = np.sort(bounds)
    count = len(order)
    before = np.concatenate([[0.0], order.cumsum()[:-1]])
    heights = before + order * np.arange(count, 0, -1)
    at = int(np.searchsorted(heights, wanted))
    level = (wanted - before[at]) / (count - at)
    parts: Floats = np.minimum(bounds, level)
    return parts


class Web:
    """Gives CPU to the instances of web applications in a state, and instances to the applications."""

    def __init__(self, state: State, apps: list[App]) -> None:
        self.state, self.problem, self.apps = state, state.problem, apps
        self.target = math.inf
        self._claims = state.division.claims() if apps else (np.empty(0), np.empty(0))
        self.before, self.expected_before = self.utilities(), self.expected()

    # --- CPU -----------------------------------------------------------------------------------------------------

    def utilities(self) -> dict[int, float]:
        """Return the current utilities, by row of the applications."""
        return {app.row: app.at(self._given_mhz(app)) for app in self.apps}

    def expected(self) -> dict[int, float]:
        """Return the current utilities under the expected load, by row of the applications."""
        return {app.row: app.expected_at(self._given_mhz(app)) for app in self.apps}

    def _given_mhz(self, app: App) -> float:
        given = self.state.replica_given_mhz
        return app.fixed_mhz + sum(given[row] for row in app.running)

    def equalise(self, spare: bool) -> None:
        """Divide all CPU between applications and jobs; `spare`: what jobs do not use goes to the applications too."""
        if not any(app.running for app in self.apps):
            if self.state.sharing is not None or any(self.problem.k[row] > 1 for row in self.state.rows):
                self.state.redivide()
            else:
                self.state.weigh()
            return
        self._claims = self.state.division.claims()
        best = max(app.at(math.inf) for app in self.apps if app.running)
        lowest = min(app.at(app.fixed_mhz) for app in self.apps if app.running)
        low, high = max(min(lowest, best), _LOW), best
        if self._gap(high) < 0.0:
            high = low if self._gap(low) <= 0.0 else self._crossing(low, high)
        self.target = high
        self._give(high, spare)
        self.state.redivide()

    def _crossing(self, low: float, high: float) -> float:
        """Return the utility at which the gap changes its sign. If the gap jumps there is no root: the nearest point
        found is used."""
        found, _ = brentq(self._gap, low, high, xtol=1e-13, rtol=1e-14, full_output=True, disp=False)
        return float(found)

    def _gap(self, utility: float) -> float:
        """Return how far the jobs' level is above `utility` when the applications have that utility."""
        self._give(utility, False)
        self.state.redivide()
        level = self.state.levels.level
        return (level if self.state.any_open() else math.inf) - utility if math.isfinite(level) else _FAR

    def _give(self, utility: float, spare: bool) -> None:
        """Give the instances the CPU with which each application has the utility, as far as possible."""
        problem, state = self.problem, self.state
        state.replica_mhz = [0.0] * len(state.replica_mhz)
        used, least = self._claims
        for app in self.apps:
            for row in app.running:
                floor = self._limits(row)[0]
                state.replica_given_mhz[row] = floor
                state.replica_mhz[state.replica_place[row]] += floor
        for app in self.apps:
            if not app.running or not app.aims:
                continue
            nodes = np.array([state.replica_place[row] for row in app.running])
            floors = np.array([state.replica_given_mhz[row] for row in app.running])
            most = np.array([self._limits(row)[1] for row in app.running])
            cpu = np.array([problem.cpu_mhz[node] - state.replica_mhz[node] for node in nodes.tolist()])
            hard = np.clip(np.minimum(cpu - least[nodes], most - floors), 0.0, None)
            idle = np.minimum(np.clip(cpu - used[nodes], 0.0, None), hard)
            wanted = max(0.0, app.wants_mhz(math.inf if spare else self._worth(app, utility)) - float(floors.sum()))
            more = filled(wanted, idle)
            if spare:
                wanted = max(0.0, app.wants_mhz(self._worth(app, utility)) - float(floors.sum()))
            if wanted > more.sum():
                more = more + filled(wanted - float(more.sum()), hard - more)
            for row, node, extra in zip(app.running, nodes.tolist(), more.tolist(), strict=True):
                state.replica_given_mhz[row] += extra
                state.replica_mhz[node] += extra
        self._share_rest()

    def _worth(self, app: App, utility: float) -> float:
        """Return the utility for which CPU is taken from jobs: near its best, an application would take all CPU for a
        gain too small for any decision."""
        return min(utility, app.best - self.problem.params.tolerance)

    def _share_rest(self) -> None:
        """Give instances of applications without a goal their fair part of what those with goals can leave, beside the
        jobs without a goal on their nodes."""
        state, problem = self.state, self.problem
        here: dict[int, list[int]] = {}
        for row in (row for app in self.apps if not app.aims for row in app.running):
            here.setdefault(state.replica_place[row], []).append(row)
        for node, rows in here.items():
            room = problem.cpu_mhz[node] - state.replica_mhz[node] + sum([state.replica_given_mhz[row] for row in rows])
            limits = state.division.limits
            jobs = [(row, (state.places[row] or ()).count(node), limits(row, node)) for row in state.here[node]]
            room -= sum([max(low, high) * count for row, count, (low, high) in jobs if problem.aims[row]])
            others = [(row, count, limit) for row, count, limit in jobs if not problem.aims[row]]
            claims = [(low, max(low, high), problem.weight[row], float(count)) for row, count, (low, high) in others]
            claims += [(*self._limits(row), problem.weight[row], 1.0) for row in rows]
            level = fair_level(room, claims)
            for row in rows:
                mhz = share((*self._limits(row), problem.weight[row]), level)
                state.replica_mhz[node] += mhz - state.replica_given_mhz[row]
                state.replica_given_mhz[row] = mhz

    def _limits(self, row: int) -> tuple[float, float]:
        """Return the least and most MHz of an instance; one on a node that is being evacuated keeps its CPU."""
        node = self.state.replica_place[row]
        if self.problem.leaving[node]:
            mhz = self.problem.home_mhz[row][0]
            return mhz, mhz
        return self._limits_at(row, node)

    def _limits_at(self, row: int, node: int) -> tuple[float, float]:
        least, most = self.state.division.limits(row, node)
        return least, max(least, most)

    # --- instances -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Move instances off nodes that are being evacuated; run at least the minimum and at most the maximum; add more
        where they help."""
        for app in self.apps:
            self._move_off(app)
            self._at_most(app)
            self._at_least(app)
        self.equalise(False)
        for _ in range(_ROUNDS):
            grown = [self._grow(app) for app in self.apps]
            if not any(grown):
                return

    def start_idle(self) -> None:
        """Start what applications lack of their fewest instances where CPU is idle; nothing else is touched."""
        state = self.state
        for app in self.apps:
            least = self.problem.snapshot.web.min_instances.item(app.row)
            for row in self._waiting(app):
                if self._count(app) >= least:
                    break
                for node in self._spots(app, 0.0):
                    low, high = self._limits_at(row, node)
                    mhz = min(state.idle_mhz(node), high)
                    if mhz >= max(low, LEAST_MHZ) and self._start(app, row, node):
                        state.replica_given_mhz[row] = mhz
                        state.replica_mhz[node] += mhz
                        break

    def _spots(self, app: App, least_mhz: float) -> list[int]:
        """Return the nodes that may take another instance and have at least `least_mhz` idle, the idlest first, of
        these those with the lowest penalty."""
        rows = self._waiting(app)
        if not rows:
            return []
        state, problem, row = self.state, self.problem, rows[0]
        taken = set(self._nodes(app))
        penalty = state.rules.penalty(row, state.layout)
        spots = []
        for node in state.rules.open_to(row, state.layout).nonzero()[0].tolist():
            least, most = state.division.limits(row, node)
            if node in taken or most < least or problem.memory[row] > state.free_mib[node] * (1.0 + SLACK):
                continue
            idle = min(state.idle_mhz(node), most)
            if idle >= least_mhz * most and state.spare_mhz(node) >= least:
                spots.append((-idle, 0.0 if penalty is None else penalty.item(node), node))
        return [node for *_, node in sorted(spots)]

    def _nodes(self, app: App) -> Iterator[int]:
        """Yield the nodes of the application's instances, including those that cannot be changed."""
        for row in app.rows:
            if row in self.state.replica_place:
                yield self.state.replica_place[row]
            elif self.problem.state[row] == RUNNING:
                yield from self.problem.home[row]

    def _waiting(self, app: App) -> list[int]:
        return [
            row
            for row in app.rows
            if self.problem.may_start[row]
            and row not in self.state.replica_place
            and row not in self.state.rules.contradictions
        ]

    def _count(self, app: App) -> int:
        return len(app.running) + app.fixed

    def _start(self, app: App, row: int, node: int) -> bool:
        if self.state.rules.clashes(row, (node,), self.state.layout):
            return False
        self.state.add_replica(row, node)
        app.running.append(row)
        return True

    def _stop(self, app: App, row: int) -> None:
        self.state.remove_replica(row)
        app.running.remove(row)

    def move_to_idle(self) -> None:
        """Move instances between cycles from nodes to be evacuated to others with idle CPU."""
        state = self.state
        for app in self.apps:
            for row in list(app.running):
                if not self.problem.leaving[state.replica_place[row]] or self._stays(row):
                    continue
                node, mhz = state.replica_place[row], state.replica_given_mhz[row]
                state.remove_replica(row)
                refuges = self._refuges(app, row)
                if not refuges and self._is_spare(app):
                    app.running.remove(row)
                    continue
                idle = [(min(state.idle_mhz(at), self._limits_at(row, at)[1]), -at) for at in refuges]
                most_mhz, at = max(idle, default=(0.0, 0))
                least_mhz, full_mhz = self._limits_at(row, -at)
                if idle and most_mhz >= max(least_mhz, LEAST_MHZ, _WORTH * full_mhz):
                    node, mhz = -at, most_mhz
                state.add_replica(row, node)
                state.replica_given_mhz[row] = mhz
                state.replica_mhz[node] += mhz

    def _is_spare(self, app: App) -> bool:
        """Return whether one of its instances may be stopped."""
        return self._count(app) > self.problem.snapshot.web.min_instances.item(app.row)

    def _stays(self, row: int) -> bool:
        """Return whether a running instance may not be moved, or need not."""
        problem, state, limit = self.problem, self.state, self.problem.params.changes_max
        stays = not misplaced(problem, state.rules, row) or problem.cool[row] or row in state.rules.no_migration
        if stays or (limit and state.moves >= limit):
            return True
        place = (state.replica_place[row],)
        return not excluded(problem, state.rules, row) and not state.rules.clashes(row, place, state.layout)

    def _refuges(self, app: App, row: int) -> list[int]:
        """Return the nodes that can take a displaced instance, with the least CPU that it must have."""
        problem, state = self.problem, self.state
        taken = set(self._nodes(app))
        return [
            node
            for node in state.rules.open_to(row, state.layout).nonzero()[0].tolist()
            if node not in taken
            and problem.memory[row] <= state.free_mib[node] * (1.0 + SLACK)
            and state.division.limits(row, node)[0] <= min(state.division.limits(row, node)[1], state.spare_mhz(node))
            and not state.rules.clashes(row, (node,), state.layout)
        ]

    def _move_off(self, app: App) -> None:
        state = self.state
        for row in list(app.running):
            if self._stays(row):
                continue
            was = state.replica_place[row]
            state.remove_replica(row)
            penalty = state.rules.penalty(row, state.layout)
            spots = [
                (
                    -min(state.spare_mhz(node), state.division.limits(row, node)[1]),
                    0.0 if penalty is None else penalty.item(node),
                    node,
                )
                for node in self._refuges(app, row)
            ]
            if not spots and self.problem.leaving[was] and self._is_spare(app):
                app.running.remove(row)  # stopped: the node is to become empty
                continue
            state.add_replica(row, min(spots)[-1] if spots else was)

    def _at_most(self, app: App) -> None:
        most = self.problem.snapshot.web.max_instances.item(app.row)
        while app.running and self._count(app) > most:
            self._stop(
                app, max(app.running, key=lambda row: (-self.state.spare_mhz(self.state.replica_place[row]), row))
            )

    def _at_least(self, app: App) -> None:
        least = self.problem.snapshot.web.min_instances.item(app.row)
        for row in self._waiting(app):
            if self._count(app) >= least:
                return
            for node in self._spots(app, 0.0):
                if self._start(app, row, node):
                    break

    def _grow(self, app: App) -> bool:
        """Start as many more instances as the application needs, if they make it happier; whether any was started."""
        most = self.problem.snapshot.web.max_instances.item(app.row)
        before = self.utilities()[app.row]
        if self._count(app) >= most or not self._waiting(app):
            return False
        tolerance = self.problem.params.tolerance
        short = before < self.target - tolerance
        if not short and not before < app.at(math.inf) - tolerance:
            return False
        spots = self._spots(app, 0.0 if short else _WORTH)
        given = sum(self.state.replica_given_mhz[row] for row in app.running)
        missing = app.wants_mhz(self.target if short else math.inf) - given
        started: list[int] = []
        waiting = self._waiting(app)[: most - self._count(app)]
        for node in spots:
            if len(started) == len(waiting) or (missing <= 0.0 and started):
                break
            if self._start(app, waiting[len(started)], node):
                started.append(waiting[len(started)])
                missing -= max(self.state.idle_mhz(node), LEAST_MHZ)
        if not started:
            return False
        self.equalise(False)
        self.equalise(True)
        if self.utilities()[app.row] > before + tolerance:
            self.equalise(False)
            return True
        for row in started:
            self._stop(app, row)
        self.equalise(False)
        return False

    def give_way(self, memory_mib: float, allowed: Sequence[bool]) -> int | None:
        """Stop an instance that the application can do without where so much memory is wanted; its node."""
        state = self.state
        for app in self.apps:
            least = self.problem.snapshot.web.min_instances.item(app.row)
            if app.utility is None or self._count(app) <= max(least, 1):
                continue
            needed = app.wants_mhz(app.at(math.inf)) * _SPARE
            if not math.isfinite(needed):
                continue
            can = {row: min(state.spare_mhz(state.replica_place[row]), self._limits(row)[1]) for row in app.running}
            total = sum(can.values())
            for row in sorted(app.running, key=can.__getitem__):
                node = state.replica_place[row]
                room = state.free_mib[node] + self.problem.memory[row]
                if total - can[row] >= needed and allowed[node] and room * (1.0 + SLACK) >= memory_mib:
                    self._stop(app, row)
                    return node
        return None


_FAR = -1e18
