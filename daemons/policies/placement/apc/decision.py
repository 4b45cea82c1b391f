"""What comes of a search: changes and refusals with their reasons, built when somebody reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemons.models.neighbours import SLOWED_MIN
from daemons.policies.placement.apc.future import Place
from daemons.policies.placement.apc.misplaced import misplaced, why_leave
from daemons.policies.placement.apc.problem import LEAST_MHZ, RUNNING, SLACK, WAITING, Problem
from daemons.policies.placement.apc.search import WORTH, Search
from daemons.policies.placement.apc.state import State
from daemons.policies.placement.apc.web import Web, best_mhz
from daemons.policies.placement.free_capacity import repeated
from daemons.policies.placement.waiting import FIXED, objection, profile_problem
from shared.policy_api.decision import (
    UNBOUNDED,
    Change,
    ChangeKind,
    Outlook,
    PlacementDecision,
    Reason,
    ReasonCode,
    Refusal,
)
from shared.policy_api.deferred import Deferred
from shared.policy_api.snapshot import Bools, Floats
from shared.values.jobs import Allotment

_RESIZED = 1e-6  # smaller changes of an allotment, relative, are not worth an action
_ORDER = tuple(ChangeKind(kind) for kind in ("stop", "suspend", "migrate", "resize", "resume", "start"))


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change before its reason is known."""

    row: int
    kind: ChangeKind
    place: Place
    mhz: float


def finite(value: float) -> float:
    """Numbers of reasons are finite."""
    return min(max(value, -UNBOUNDED), UNBOUNDED) if not math.isnan(value) else 0.0


def planned_changes(state: State) -> list[PlannedChange]:
    """Return the changes from the current placement to the state, those that free capacity first."""
    problem, found = state.problem, []
    speeds = state.columns.mhz.tolist()
    for row in state.rows:
        place, mhz = state.places[row], speeds[row]
        was = problem.home[row] if problem.state[row] == RUNNING else None
        if was is not None and not problem.movable[row]:
            continue
        if place is None:
            if was is not None:
                found.append(PlannedChange(row, ChangeKind.SUSPEND, (), 0.0))
        elif was is None:
            kind = ChangeKind.START if problem.state[row] == WAITING else ChangeKind.RESUME
            found.append(PlannedChange(row, kind, place, mhz))
        elif place != was:
            found.append(PlannedChange(row, ChangeKind.MIGRATE, place, mhz if mhz > 0.0 else LEAST_MHZ))
        elif not state.still and mhz > 0.0 and _differ(problem.home_mhz[row], mhz):
            found.append(PlannedChange(row, ChangeKind.RESIZE, place, mhz))
    found += _of_replicas(state)
    found.sort(key=lambda planned: (_ORDER.index(planned.kind), planned.row))
    return found


def _differ(had_mhz: Sequence[float], mhz: float) -> bool:
    """Return whether a change of CPU is worth an action."""
    return max(had_mhz) - mhz > _RESIZED * max(1.0, mhz) or mhz - min(had_mhz) > _RESIZED * max(1.0, mhz)


def _of_replicas(state: State) -> list[PlannedChange]:
    """Changes of the instances of web applications."""
    problem, found = state.problem, []
    for row, is_replica in enumerate(problem.is_replica):
        node, mhz = state.replica_place.get(row), state.replica_given_mhz.get(row, 0.0)
        if not is_replica or (node is None and not problem.movable[row]):
            continue
        if node is None:
            found.append(PlannedChange(row, ChangeKind.STOP, (), 0.0))
        elif not problem.movable[row]:
            found.append(PlannedChange(row, ChangeKind.START, (node,), mhz))
        elif problem.home[row] != (node,):
            found.append(PlannedChange(row, ChangeKind.MIGRATE, (node,), mhz))
        elif not state.still and abs(problem.home_mhz[row][0] - mhz) > _RESIZED * max(1.0, mhz):
            found.append(PlannedChange(row, ChangeKind.RESIZE, (node,), mhz))
    return found


@dataclass(slots=True, eq=False)
class Reader:
    """Makes the changes and refusals of a decision."""

    problem: Problem
    web: Web
    state: State
    search: Search | None
    _free: tuple[Floats, Floats] | None = None
    _again: frozenset[int] | None = None

    def change(self, planned: PlannedChange) -> Change:
        """Return the change with its reason."""
        work, nodes = self.problem.snapshot.workloads, self.problem.snapshot.nodes
        given = tuple(Allotment(nodes.names[node], planned.mhz) for node in planned.place)
        return Change(work.names[planned.row], work.revision.item(planned.row), planned.kind, given, self.why(planned))

    def why(self, planned: PlannedChange) -> Reason:
        """Return a code, and the utility before and after."""
        row = planned.row
        if planned.place and self._starved(row):
            return self._why_starved(row)
        if self.problem.is_replica[row]:
            return self._of_load(row, planned)
        numbers = self._compared(planned) + self._slowing(row)
        if planned.kind is ChangeKind.SUSPEND:
            gains = [self._gain(other) for node in self.problem.home[row] for other in self.state.here[node]]
            numbers.append(("gain_of_others", finite(max(gains, default=0.0))))
            return Reason(ReasonCode.PREEMPTED, tuple(numbers))
        if planned.kind is ChangeKind.MIGRATE and misplaced(self.problem, self.state.rules, row):
            return Reason(why_leave(self.problem, row), tuple(numbers))
        if planned.kind is ChangeKind.MIGRATE and self.search is not None and row in self.search.preferred:
            return Reason(ReasonCode.PREFERENCE, tuple(numbers))
        if planned.kind is ChangeKind.MIGRATE and self._escapes(row):
            return Reason(ReasonCode.SHARING, tuple(numbers))
        if planned.kind is ChangeKind.RESIZE and self._gave(row):
            return Reason(ReasonCode.PREEMPTED, tuple(numbers))
        takes = self.problem.state[row] == RUNNING or any(self._gave(other) for other in self._neighbours(planned))
        taken = ReasonCode.HIGHER_UTILITY if self.problem.aims[row] else ReasonCode.FAIR_SHARE
        return Reason(taken if takes else ReasonCode.IDLE_CAPACITY, tuple(numbers))

    def _compared(self, planned: PlannedChange) -> list[tuple[str, float]]:
        """Return the utility before and after; for a job without a goal, the MHz of all its instances."""
        row = planned.row
        if not self.problem.aims[row]:
            return self._in_mhz(planned)
        before, after = self.state.before[row], self.state.utility(row)
        numbers = [("before", finite(before)), ("after", finite(after))]
        return [*numbers, ("gain", finite(finite(after) - finite(before)))]

    def _in_mhz(self, planned: PlannedChange) -> list[tuple[str, float]]:
        row = planned.row
        had_mhz = sum(self.problem.home_mhz[row]) if self.problem.state[row] == RUNNING else 0.0
        return [("before_mhz", finite(had_mhz)), ("after_mhz", finite(planned.mhz * len(planned.place)))]

    def _slowing(self, row: int) -> list[tuple[str, float]]:
        """Return the slowdown of a job now, if it runs, and under the decision, as far as they are large enough to
        report."""
        state = self.state
        before = state.slow_before[row].item() if self.problem.state[row] == RUNNING else 1.0
        slow = state.jobs[row].slow if state.places[row] is not None else 1.0
        told = (("slowed_before", before), ("slowed", slow))
        return [(name, value) for name, value in told if value >= SLOWED_MIN]

    def _escapes(self, row: int) -> bool:
        """Return whether a job is moved away from jobs that slow it down rather than to more CPU."""
        job = self.state.jobs[row]
        freed = self.state.slow_before[row].item() > job.slow * SLOWED_MIN
        return freed and job.mhz <= min(self.problem.home_mhz[row]) * SLOWED_MIN

    def _neighbours(self, planned: PlannedChange) -> list[int]:
        """Return the workloads that ran on its destination nodes."""
        return [other for node in planned.place for other in self.state.origin[node] if other != planned.row]

    def _gave(self, row: int) -> bool:
        """Return whether a running job was moved, suspended or given less CPU."""
        had_mhz = min(self.problem.home_mhz[row])
        moved = self.state.places[row] != self.problem.home[row]
        return moved or self.state.jobs[row].mhz < had_mhz * (1.0 - _RESIZED)

    def _of_load(self, row: int, planned: PlannedChange) -> Reason:
        """About an instance of a web application: the utility of that."""
        app = self.problem.snapshot.workloads.app.item(row)
        before, after = finite(self.web.before[app]), finite(self.web.utilities()[app])
        leaves = planned.kind in (ChangeKind.MIGRATE, ChangeKind.STOP)
        drained = leaves and misplaced(self.problem, self.state.rules, row)
        code = why_leave(self.problem, row) if drained else ReasonCode.LOAD
        if planned.kind is ChangeKind.RESIZE and not self._aims(row):
            return Reason(ReasonCode.FAIR_SHARE, tuple(self._in_mhz(planned)))
        numbers = (("before", before), ("after", after), ("gain", after - before))
        return Reason(code, numbers)

    def _gain(self, row: int) -> float:
        return finite(finite(self.state.utility(row)) - finite(self.state.before[row]))

    # --- refusals ------------------------------------------------------------------------------------------------

    def refused(self) -> list[int]:
        """Return the rows of workloads that wait and are not placed, that should leave their node and do not, or that
        are starved."""
        problem, state = self.problem, self.state
        draining = any(problem.leaving)
        return [
            row
            for row, was in enumerate(problem.state)
            if (was != RUNNING and state.place_of(row) is None)
            or (draining and was == RUNNING and problem.leaving_any(row) and self._stays(row))
            or (self._starved(row) and self._same(row))
            or self._breaks(row)
        ]

    def _breaks(self, row: int) -> bool:
        """Return whether a running workload breaks a required rule that a cycle should have repaired."""
        problem, rules = self.problem, self.state.rules
        if problem.state[row] != RUNNING or not problem.snapshot.at_cycle:
            return False
        if row not in rules.offending and row not in rules.parts:
            return False
        return bool(rules.broken(row, self.state.place_of(row) or (), self.state.layout))

    def _same(self, row: int) -> bool:
        """Return whether it continues to run unchanged: for a change, the reason would report that it is starved."""
        problem, place = self.problem, self.state.place_of(row)
        held = problem.state[row] == RUNNING and place == problem.home[row]
        return held and (self.state.still or not _differ(problem.home_mhz[row], self._given_mhz(row)))

    def _starved(self, row: int) -> bool:
        """Return whether a workload without a goal runs, and others leave it next to nothing: less than a tenth of what
        its node could give it; for a permanent VM, less than it uses."""
        problem, place = self.problem, self.state.place_of(row)
        if not place or self._aims(row) or not (problem.movable[row] or problem.may_start[row]):
            return False
        mhz = self._given_mhz(row)
        if problem.stays[row]:
            return mhz < problem.least_mhz[row] * (1.0 - _RESIZED)
        return mhz < WORTH * min(problem.cap_mhz(row, node) for node in place)

    def refusal(self, row: int) -> Refusal:
        """Return the reason why a row of `refused` is one."""
        if self._again is None:
            self._again = repeated(self.problem.snapshot.workloads.names)
        if row in self._again:
            reason = Reason(ReasonCode.DUPLICATE, (("name_repeated", 1.0),))
        elif self._breaks(row) and not self.problem.leaving_any(row):
            reason = self._why_broken(row)
        elif self._starved(row) and not self.problem.leaving_any(row):
            reason = self._why_starved(row)
        else:
            reason = self.why_stays(row) if self.problem.state[row] == RUNNING else self.why_not(row)
        return Refusal(self.problem.snapshot.workloads.names[row], reason)

    def _aims(self, row: int) -> bool:
        """Return whether a job or the application of an instance has a goal."""
        app = self.problem.snapshot.workloads.app.item(row)
        return self.problem.aims[row] if app < 0 else self.web.apps[app].aims

    def _given_mhz(self, row: int) -> float:
        """Return the final MHz of each instance."""
        given = self.state.replica_given_mhz
        return given[row] if row in given else self.state.jobs[row].mhz

    def _why_starved(self, row: int) -> Reason:
        """Return its CPU, the CPU that it could use, and the most that another node has left."""
        problem, place = self.problem, self.state.place_of(row) or ()
        allowed = self.state.rules.allowed(row) & (self._room()[0] >= problem.memory[row] * (1.0 - SLACK))
        elsewhere = allowed & ~np.isin(np.arange(len(problem.leaving)), place)
        numbers = (
            ("given_mhz", finite(self._given_mhz(row))),
            ("wanted_mhz", finite(min(problem.cap_mhz(row, node) for node in place))),
            ("largest_free_mhz", finite(float(self._room()[1][elsewhere].max(initial=0.0)))),
        )
        return Reason(ReasonCode.STARVED, numbers)

    def _why_broken(self, row: int) -> Reason:
        """Return the rule that does not hold, how many nodes it and the others leave, and how many of these have the
        memory."""
        problem, state = self.problem, self.state
        open_ = state.rules.open_to(row, state.layout)
        roomy = open_ & (self._room()[0] >= problem.memory[row] * (1.0 - SLACK))
        name = state.rules.broken(row, state.place_of(row) or (), state.layout)
        numbers = [(name, 1.0), ("nodes_allowed", float(open_.sum())), ("nodes_with_room", float(roomy.sum()))]
        if problem.movable[row] and problem.cool[row]:
            numbers.append(("cool_down_s", problem.params.cool_down_s))
        return Reason(ReasonCode.CONSTRAINT, tuple(numbers))

    def _stays(self, row: int) -> bool:
        return not self.problem.movable[row] or self.state.place_of(row) == self.problem.home[row]

    def why_not(self, row: int) -> Reason:
        """Return the reason why a waiting or suspended workload is not placed."""
        problem, rules = self.problem, self.state.rules
        first = objection(problem.snapshot, row)
        if first is not None:
            return first
        if not problem.sound[row]:
            return Reason(ReasonCode.BAD_PROFILE, (("out_of_range", 1.0),))
        if not problem.may_start[row]:
            return Reason(ReasonCode.UNKNOWN_NODE, (("instances", float(problem.k[row])),))
        if row in rules.contradictions:
            return rules.contradictions[row]
        nodes = problem.snapshot.nodes
        if not problem.usable.any():
            return Reason(ReasonCode.NO_NODES, (("nodes", float(len(nodes.names))),))
        allowed = rules.allowed(row)
        if not allowed.any():
            return self._no_node_allowed(row)
        if problem.is_replica[row]:
            return self._no_demand(row)
        memory, k = problem.memory[row], problem.k[row]
        capacity, caps = np.array(problem.memory_mib), self._caps(row)
        least = max(problem.least_mhz[row], 0.0)
        empty = allowed & (capacity >= memory * (1.0 - SLACK)) & (caps >= least) & (caps > 0.0)
        if not empty.any():
            return Reason(
                ReasonCode.FITS_NO_NODE,
                (
                    ("needed_mib", memory),
                    ("largest_mib", finite(float(capacity[allowed].max()))),
                    ("needed_mhz", least),
                    ("largest_mhz", float(caps[allowed].max())),
                ),
            )
        if problem.spread[row] and empty.sum() < k:
            return Reason(ReasonCode.TOO_FEW_NODES, (("needed_nodes", float(k)), ("nodes", float(empty.sum()))))
        return self._crowded(row, empty)

    def _no_demand(self, row: int) -> Reason:
        app = self.problem.snapshot.workloads.app.item(row)
        now = finite(self.web.utilities()[app])
        return Reason(ReasonCode.NO_DEMAND, (("utility", now), ("tolerance", self.problem.params.tolerance)))

    def _no_node_allowed(self, row: int) -> Reason:
        snapshot = self.problem.snapshot
        needs = snapshot.workloads.required_labels[row]
        labelled = sum(set(needs) <= set(has) for has in np.array(snapshot.nodes.labels, dtype=object)) if needs else 0
        usable = float(self.problem.usable.sum())
        if needs and not labelled:
            return Reason(ReasonCode.LABELS, (("labels", float(len(needs))), ("nodes", usable)))
        excluded = self.state.rules.obstacles(row, self.problem.usable, self.state.layout)
        return Reason(ReasonCode.CONSTRAINT, (("nodes", usable), ("nodes_allowed", 0.0), *excluded))

    def _caps(self, row: int) -> Floats:
        nodes = self.problem.snapshot.nodes
        with np.errstate(all="ignore"):
            most = np.minimum(self.problem.req_mhz[row], self.problem.vcpus[row] * nodes.core_mhz)
            return np.nan_to_num(np.minimum(most, nodes.cpu_mhz))

    def _room(self) -> tuple[Floats, Floats]:
        """Memory and CPU that are free on every node in the end."""
        if self._free is None:
            idle = [self.state.idle_mhz(node) for node in range(len(self.state.here))]
            self._free = np.array(self.state.free_mib), np.array(idle)
        return self._free

    def _crowded(self, row: int, empty: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Reason:
        """Return the obstacle for a workload that would fit an empty node: memory, CPU, a group, or too small a
        gain."""
        problem, state = self.problem, self.state
        free_mib, idle = self._room()
        memory, tolerance = problem.memory[row], problem.params.tolerance
        numbers: tuple[tuple[str, float], ...] = (
            ("needed_mib", memory),
            ("largest_free_mib", finite(float(free_mib[empty].max()))),
            ("needed_mhz", finite(float(self._caps(row)[empty].max()))),
            ("largest_free_mhz", finite(float(idle[empty].max()))),
            ("utility", finite(state.utility(row))),
            ("tolerance", tolerance),
        )
        roomy = empty & (free_mib >= memory * (1.0 - SLACK))
        slow = 1.0
        if state.sharing is not None and state.sharing.uses(row) and roomy.any():
            slow = float(state.sharing.joined(row)[roomy].min())
            numbers += (("slowed", slow),) if slow >= SLOWED_MIN else ()
        if row in state.rules.relations and roomy.any():
            excluded = state.rules.obstacles(row, roomy, state.layout)
            if any(count for _, count in excluded) or self._divided(row):
                left = (("nodes_with_room", float(roomy.sum())), *excluded, *numbers[:2])
                return Reason(ReasonCode.CONSTRAINT, left)
        if self.search is not None and row in self.search.blocked:
            return self._forbidden(self.search.blocked[row], numbers)
        if not roomy.any():
            tried = self.search is not None and row in self.search.considered
            return Reason(ReasonCode.NO_GAIN if tried else ReasonCode.NO_MEMORY, numbers)
        if idle[roomy].max() < self._caps(row)[roomy].max() * (1.0 - SLACK):
            return Reason(ReasonCode.NO_CPU, numbers)
        return Reason(ReasonCode.SHARING if slow >= SLOWED_MIN else ReasonCode.NO_GAIN, numbers)

    def _divided(self, row: int) -> bool:
        """Return whether instances of the workload have rules between each other."""
        rules = self.state.rules
        return self.problem.k[row] > 1 and (rules.apart(row) or rules.together(row))

    def _forbidden(self, code: ReasonCode, numbers: tuple[tuple[str, float], ...]) -> Reason:
        if code is ReasonCode.MIGRATION_LIMIT:
            numbers = (("changes_max", float(self.problem.params.changes_max)), *numbers)
        return Reason(code, numbers)

    def why_stays(self, row: int) -> Reason:
        """Return the reason why a workload stays on a node that it should leave."""
        problem = self.problem
        if problem.snapshot.workloads.fixed[row]:
            return FIXED
        bad = profile_problem(problem.snapshot, row)
        if bad is not None:
            return bad
        if problem.cool[row]:
            changed_s = problem.snapshot.workloads.changed_s.item(row)
            return Reason(ReasonCode.COOL_DOWN, (("until_s", finite(changed_s + problem.params.cool_down_s)),))
        if row in self.state.rules.no_migration:
            return Reason(ReasonCode.CONSTRAINT, (("keep", 1.0),))
        if not problem.movable[row]:
            return Reason(ReasonCode.UNKNOWN_NODE, (("instances", float(problem.k[row])),))
        limit = problem.params.changes_max
        if limit and self.state.moves >= limit:
            return Reason(ReasonCode.MIGRATION_LIMIT, (("changes_max", float(limit)),))
        return self.why_not_moved(row)

    def _home(self, row: int) -> Bools:
        home = np.zeros(len(self.problem.leaving), dtype=np.bool_)
        home[[node for node in self.problem.home[row] if node >= 0]] = True
        return home

    def why_not_moved(self, row: int) -> Reason:
        """Return the reason why no other node takes it."""
        problem = self.problem
        allowed = self.state.rules.allowed(row)
        if not problem.usable.any():
            return Reason(ReasonCode.NO_NODES, (("nodes", float(len(problem.leaving))),))
        migration = problem.snapshot.migration
        able = migration.nodes_of(row) if migration is not None else None
        if able is not None and not (allowed & ~self._home(row)).any():
            numbers = (("nodes", float(problem.usable.sum())), ("nodes_able", float((problem.usable & able).sum())))
            return Reason(ReasonCode.MIGRATION_FIT, numbers)
        if not allowed.any():
            return self._no_node_allowed(row)
        others = allowed & ~self._barred(row)
        if not others.any():
            return Reason(ReasonCode.TOO_FEW_NODES, (("needed_nodes", 1.0), ("nodes", 0.0)))
        return self._no_refuge(row, others)

    def _barred(self, row: int) -> Bools:
        """Return the nodes that must not get another instance of the workload: they already have one."""
        problem, state = self.problem, self.state
        barred = np.zeros(len(problem.leaving), dtype=np.bool_)
        if problem.spread[row]:
            barred |= self._home(row)
        if problem.is_replica[row]:
            app = problem.snapshot.workloads.app
            for other in (app == app[row]).nonzero()[0].tolist():
                barred[list(state.place_of(other) or ())] = True
        return barred

    def _no_refuge(self, row: int, others: Bools) -> Reason:
        """Memory, a group or CPU is in the way of moving to `others`, in this order."""
        problem, state = self.problem, self.state
        free_mib, idle_mhz = self._room()
        memory = problem.memory[row]
        leaving = sum(problem.leaving[node] for node in problem.home[row])
        with np.errstate(all="ignore"):
            slots = np.clip(np.floor(free_mib[others] / memory + SLACK), 0, 1 if problem.spread[row] else leaving)
        short = leaving - int(np.nan_to_num(slots, nan=leaving).sum())
        numbers: tuple[tuple[str, float], ...] = (
            ("needed_mib", memory),
            ("largest_free_mib", finite(float(free_mib[others].max()))),
        )
        if short > 0:
            return Reason(ReasonCode.NO_MEMORY, (*numbers, ("instances_short", float(short))))
        roomy = others & (free_mib >= memory * (1.0 - SLACK))
        excluded = state.rules.obstacles(row, roomy, state.layout)
        if any(count for _, count in excluded) or self._divided(row):
            return Reason(ReasonCode.CONSTRAINT, (("nodes_with_room", float(roomy.sum())), *excluded, *numbers))
        least = max(problem.least_mhz[row], LEAST_MHZ)
        if state.still:
            least = max(least, WORTH * float(self._caps(row)[roomy].max()))
        if state.still or problem.k[row] > 1:  # others are not squeezed for it
            least = max(least, state.jobs[row].mhz) if state.still and problem.k[row] > 1 else least
            needed, most = least, float(idle_mhz[roomy].max())
        else:
            needed, most = least, max(state.spare_mhz(node) for node in roomy.nonzero()[0].tolist())
        return Reason(ReasonCode.NO_CPU, (("needed_mhz", finite(needed)), ("largest_free_mhz", finite(most))))


def outlook_of(web: Web) -> Outlook:
    """Return the predictions for every job, in the order of the rows, then for the web applications."""
    state = web.state
    problem, names = state.problem, state.problem.snapshot.workloads.names
    after, planned = web.expected(), web.utilities()
    rows = [row for row in state.rows if problem.counted[row]]
    predicted = state.utilities()
    level = state.levels.level if state.any_open() else None
    goalless = [names[row] for row in rows if not problem.aims[row]]
    goalless += [problem.snapshot.web.names[app.row] for app in web.apps if not app.aims]
    return Outlook(
        (*[names[row] for row in rows], *(problem.snapshot.web.names[app.row] for app in web.apps)),
        (*[state.before[row] for row in rows], *(web.expected_before[app.row] for app in web.apps)),
        (*[predicted[row] for row in rows], *(after[app.row] for app in web.apps)),
        (*[problem.top[row] for row in rows], *(app.expected_at(best_mhz(problem, app)) for app in web.apps)),
        level,
        tuple(goalless),
        (*[predicted[row] for row in rows], *(planned[app.row] for app in web.apps)),
    )


def decision_of(problem: Problem, web: Web, search: Search | None) -> PlacementDecision:
    """Return the decision that leads to the state."""
    state = web.state
    reader, wanted = Reader(problem, web, state, search), planned_changes(state)
    outlook = outlook_of(web)
    refused = reader.refused()
    changes: Sequence[Change] = Deferred(len(wanted), lambda: [reader.change(planned) for planned in wanted])
    return PlacementDecision(
        changes,
        Deferred(len(refused), lambda: [reader.refusal(row) for row in refused]),
        state.trials + 1,
        min(outlook.of_goals(), default=None),
        outlook,
    )
