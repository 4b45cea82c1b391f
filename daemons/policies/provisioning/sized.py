"""What all policies share that take sizes from a table: windows as problems, the broker, the nodes, the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daemons.models import node_choice
from daemons.models.deadline.breaches import without_prices
from daemons.models.deadline.capacity import breach
from daemons.models.deadline.phase_sizes import PhaseSizeTable
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import SizeTable, TableSpec
from daemons.policies.provisioning.broker import Claim, share
from daemons.policies.provisioning.chances import Chances, chances_of, risks_of, shown
from daemons.policies.provisioning.memory import Memory
from daemons.policies.provisioning.params import SWITCH, TOLERANCE, Check, check
from daemons.policies.provisioning.windows import Limits, Posed, limits_of, posed
from shared.policy_api.decision import ProvisioningDecision, Reason, ReasonCode, WindowSize
from shared.policy_api.policies import Needs, TableCache
from shared.policy_api.snapshot import Floats, Snapshot, WindowView

CHEAP = 5e6  # intervals x sizes x jobs that a decision computes itself where there is no table: below a second
SPENT = 0.25  # of what may still be added to the probability of breach, by one decision
ROUNDING = 1e-6  # of probabilities in tables
SAFE = 4.0  # standard deviations of the number of jobs still to come


@dataclass(frozen=True, slots=True)
class ObservedWindow:
    """A window, what it may have, and its problem (None: no node can serve it, or its numbers cannot be used)."""

    window: WindowView
    limits: Limits
    posed: Posed | None

    @property
    def present(self) -> int:
        """Reference nodes that it has now, within its limits."""
        return min(max(self.window.nodes, self.limits.least), self.limits.reachable)

    @property
    def interval(self) -> int:
        """The decision point, one that tables have."""
        return min(max(self.window.interval, 0), self.window.intervals - 1)


@dataclass(frozen=True, slots=True)
class SizeRequest:
    """How many reference nodes a window should have, and why. cost: from now on, where known."""

    observed: ObservedWindow
    nodes: int
    code: ReasonCode
    chances: Chances | None
    cost: float | None = None


class Sized:
    """A policy whose sizes are the table of `method`. by_price: they depend on prices; else one table serves them all.
    delays: it gives up nodes only when it wanted that at the decision point before too (algorithm 2).
    guards: whether the table is guarded unless a parameter says otherwise."""

    name: ClassVar[str]
    method: ClassVar[str]
    guards: ClassVar[bool] = False
    by_price: ClassVar[bool] = True
    delays: ClassVar[bool] = False
    needs = Needs()
    event_driven = False
    covers_all = False
    known: ClassVar[Mapping[str, Check]] = {"tolerance": TOLERANCE}

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for parameters that it does not know or cannot use."""
        check(self.name, params, self.known)

    def decide(
        self, snapshot: Snapshot, state: Any, params: Mapping[str, Any], table_cache: TableCache
    ) -> tuple[ProvisioningDecision, Any]:
        """Return the nodes that open windows need, and those that must stay. Raises `InvalidInput` as `check_params`
        does."""
        self.check_params(params)
        memory = Memory(state)
        requests = [
            self._request(observed, memory, params, table_cache) for observed in observed_windows(snapshot, memory)
        ]
        return decided(snapshot, requests), memory.state()

    def _request(
        self, observed: ObservedWindow, memory: Memory, params: Mapping[str, Any], table_cache: TableCache
    ) -> SizeRequest:
        window, problem = observed.window, observed.posed
        if problem is None:
            code = ReasonCode.BAD_PROFILE if observed.limits.most else ReasonCode.NO_NODES
            return SizeRequest(observed, observed.present if is_open(window) else 0, code, None)
        chances = chances_of(window, problem, table_cache)
        phased = problem.with_phases(self.method)
        risky = problem.phased is not None and not self.by_price  # decided on by what sizes risk alone
        table = None if risky else table_cache(self._spec(problem, phased, params))
        if not is_open(window):
            return SizeRequest(observed, 0, ReasonCode.NOT_YET, None)
        if chances is None if risky else not isinstance(table, SizeTable | PhaseSizeTable):
            return SizeRequest(observed, _without_table(observed, problem), ReasonCode.NO_TABLES, chances)
        nodes = observed.limits.least if table is None else self._of_table(observed, problem, table)
        if problem.phased is not None:
            nodes = self._kept_promise(observed, problem, nodes, memory, table_cache)
        if self.delays and nodes < observed.present and not memory.wanted_fewer(window):
            nodes = observed.present
            memory.want_fewer(window)
        cost = None if table is None or window.interval else table.value_at_0
        return SizeRequest(observed, nodes, self._code(observed, nodes, chances), chances, cost)

    @staticmethod
    def _of_table(observed: ObservedWindow, problem: Posed, table: SizeTable | PhaseSizeTable) -> int:
        """Return the size by the table, in reference nodes within the limits; if the servers do not change, neither do
        the nodes."""
        window, servers = observed.window, problem.servers(observed.present)
        if isinstance(table, PhaseSizeTable):
            begun = problem.begun(window.begun_s, window.interval_s)
            size = table.size(observed.interval, servers, window.jobs, begun)
        else:
            size = table.size(observed.interval, servers, problem.jobs(window.jobs))
        nodes = observed.present if size == servers else problem.nodes(size)
        return min(max(nodes, observed.limits.least), observed.limits.reachable)

    def _kept_promise(
        self, observed: ObservedWindow, problem: Posed, nodes: int, memory: Memory, table_cache: TableCache
    ) -> int:
        """Return `nodes`, or more for service with phases: decisions may not add more to the probability of breach than
        the confidence allows at the beginning of the period, and no more than `SPENT` of the rest at a time. If the
        confidence cannot be met even with that, they may add as much as it allows for the jobs that nodes help, given
        that all others are in time. A rule that ignores prices takes the fewest nodes that meet the confidence if
        nothing changes any more."""
        window, most = observed.window, observed.limits.reachable
        found = risks_of(window, problem, table_cache)
        if found is None:
            return nodes
        allowed = 1.0 - window.confidence
        sizes = range(nodes if self.by_price else observed.limits.least, most + 1)
        least = found.until_next((most,))[0]
        left = memory.risk_left(window)
        if left is None:
            left = allowed - least if least < allowed else allowed
        kept = least <= allowed
        added = _beyond((found.until_next if kept else found.others_until_next)(sizes))
        chosen = int(np.argmax(added <= SPENT * left + ROUNDING))
        if not self.by_price:  # the threshold rule itself, with phases
            chances = (found.never_changed if kept else found.others_never_changed)(sizes)
            enough = (np.asarray(chances) <= allowed) | (_beyond(chances) <= left)
            chosen = max(chosen, int(np.argmax(enough)))
        memory.leave_risk(window, max(0.0, left - float(added[chosen])))
        return sizes[chosen]

    def _spec(self, problem: Posed, phased: DeadlineProblem | None, params: Mapping[str, Any]) -> TableSpec:
        guarded = bool(params.get("guarded", self.guards))
        if phased is not None:
            return TableSpec(self.method, phased, guarded, problem.begin)
        return TableSpec(self.method, problem.problem if self.by_price else without_prices(problem.problem), guarded)

    def _code(self, observed: ObservedWindow, nodes: int, chances: Chances | None) -> ReasonCode:
        allowed = 1.0 - observed.window.confidence
        if chances is not None and chances((observed.limits.reachable,))[0] > allowed:
            return ReasonCode.OUT_OF_REACH
        if nodes > observed.present:
            return ReasonCode.PROMISE
        return ReasonCode.KEEP if nodes == observed.present else ReasonCode.SPARE


class Priced(Sized):
    """One whose sizes follow prices. `guarded`: sizes after which the promise may be out of reach are left out."""

    guards = True
    known: ClassVar[Mapping[str, Check]] = {"tolerance": TOLERANCE, "guarded": SWITCH}

    def _code(self, observed: ObservedWindow, nodes: int, chances: Chances | None) -> ReasonCode:
        code = super()._code(observed, nodes, chances)
        changed = code in (ReasonCode.PROMISE, ReasonCode.SPARE)
        return ReasonCode.CHEAPER if changed and _keeps(observed, observed.present, chances) else code


def observed_windows(snapshot: Snapshot, memory: Memory) -> list[ObservedWindow]:
    """Return every window of the snapshot, in their order."""
    seen = []
    for window in snapshot.windows:
        limits = limits_of(snapshot, window)
        most = limits.available or limits.most  # whatever others hold: tables stay valid
        price = memory.price(snapshot, window)
        found = posed(memory.with_times(window), price, most) if most else None
        if found is not None and found.phased is not None:
            found = replace(found, begin=memory.since(window, found.phased.digest()))
        seen.append(ObservedWindow(window, limits, found))
    return seen


def decided(snapshot: Snapshot, requests: list[SizeRequest]) -> ProvisioningDecision:
    """Return the decision for the requests: shared by the broker if nodes are short, and by name."""
    sizes = share([_claim(request) for request in requests], lambda sizes: node_choice.for_windows(snapshot, sizes)[1])
    chosen, _ = node_choice.for_windows(snapshot, sizes)
    recorded = tuple(
        recorded_size(request, size)
        for request, size in zip(requests, sizes, strict=True)
        if is_open(request.observed.window)
    )
    costs = [request.cost for request in requests if is_open(request.observed.window)]
    known = [cost for cost in costs if cost is not None]
    numbers = (("in_service", float(chosen.sum())), ("available", float(node_choice.available(snapshot).sum())))
    code = recorded[0].reason.code if recorded else ReasonCode.SPARE
    cost = math.fsum(known) if known and len(known) == len(costs) else None
    return ProvisioningDecision(node_choice.names(snapshot, chosen), Reason(code, numbers), cost, recorded)


def is_open(window: WindowView) -> bool:
    """Return whether the window is decided on now."""
    return not window.opens_s > 0.0


def _claim(request: SizeRequest) -> Claim:
    known = () if request.chances is None else request.chances(range(request.nodes + 1))
    return Claim(request.nodes, request.observed.window.weight, known)


def recorded_size(request: SizeRequest, size: int) -> WindowSize:
    """Return the record of a window that is given `size` reference nodes."""
    window, limits = request.observed.window, request.observed.limits
    numbers: dict[str, float] = {
        "jobs": window.jobs,
        "interval": window.interval,
        "present": window.nodes,
        "wanted": request.nodes,
    }
    if window.unavoidable > 1.0 - window.confidence:
        numbers["unavoidable"] = window.unavoidable
    breaches: tuple[float, ...] = ()
    if request.chances is not None:
        listed = shown(window, size, limits.reachable, request.chances)
        breaches = request.chances(listed)
        if listed[0] != max(window.nodes_min, 1):
            numbers["breach_from"] = listed[0]
    code = request.code if size == request.nodes else ReasonCode.OUT_OF_REACH
    reason = Reason(code, tuple((name, float(number)) for name, number in numbers.items()))
    return WindowSize(window.name, window.jobs, size, request.nodes, breaches, reason, request.cost)


def _beyond(chances: Sequence[float]) -> Floats:
    """Return the probability with which each size misses a deadline that the last one meets, float64[n]: 1 for all
    others if the last never meets it."""
    found = np.asarray(chances, dtype=np.float64)
    kept = 1.0 - found[-1]
    if kept <= ROUNDING:
        return np.asarray(np.arange(found.size) < found.size - 1, dtype=np.float64)
    return np.asarray(np.maximum(found - found[-1], 0.0) / kept, dtype=np.float64)


def _keeps(observed: ObservedWindow, nodes: int, chances: Chances | None) -> bool:
    """Return whether this number of nodes, never changed, meets the deadline target."""
    return chances is not None and chances((nodes,))[0] <= 1.0 - observed.window.confidence


def _without_table(observed: ObservedWindow, problem: Posed) -> int:
    """Return the size by the threshold rule for this moment if it is quickly computed; else the current nodes, or more
    if they would not finish the expected jobs."""
    window, limits, of = observed.window, observed.limits, problem.problem
    left = window.intervals - observed.interval
    jobs = problem.jobs(window.jobs)
    busiest = of.slots * of.servers_max * left / of.service
    if left * (of.servers_max - of.servers_min + 1) * busiest <= CHEAP:
        kept = breach(of, observed.interval, jobs) <= 1.0 - of.confidence
        servers = of.servers_min + int(np.argmax(kept)) if kept.any() else of.servers_max
        return min(max(problem.nodes(servers), limits.least), limits.reachable)
    expected = jobs + float(of.arrivals[observed.interval :, 0].sum())
    servers = math.ceil((expected + SAFE * math.sqrt(expected)) * of.service / (of.slots * left))
    return min(max(problem.nodes(servers), observed.present), limits.reachable)
