"""What all policies share that take sizes from a table: windows as problems, the broker, the nodes, the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daemons.models import node_choice
from daemons.models.deadline.breaches import without_prices
from daemons.models.deadline.capacity import breach
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import SizeTable, TableSpec
from daemons.policies.provisioning.broker import Claim, share
from daemons.policies.provisioning.chances import Chances, chances_of, shown
from daemons.policies.provisioning.memory import Memory
from daemons.policies.provisioning.params import SWITCH, TOLERANCE, Check, check
from daemons.policies.provisioning.windows import Limits, Posed, limits_of, posed
from shared.policy_api.decision import ProvisioningDecision, Reason, ReasonCode, WindowSize
from shared.policy_api.policies import Needs, TableCache
from shared.policy_api.snapshot import Snapshot, WindowView

CHEAP = 5e6  # intervals x sizes x jobs that a decision computes itself where there is no table: below a second
SAFE = 4.0  # standard deviations of the number of jobs still to come


@dataclass(frozen=True, slots=True)
class Sight:
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
class Wish:
    """How many reference nodes a window should have, and why. cost: from now on, where known."""

    sight: Sight
    nodes: int
    code: ReasonCode
    chances: Chances | None
    cost: float | None = None


class Sized:
    """A policy whose sizes are the table of `method`. by_price: they depend on prices; else one table serves them all.
    guards: whether the table is guarded unless a parameter says otherwise."""

    name: ClassVar[str]
    method: ClassVar[str]
    guards: ClassVar[bool] = False
    by_price: ClassVar[bool] = True
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
        """The nodes that open windows need, and those that must stay. Raises `InvalidInput` as `check_params` does."""
        self.check_params(params)
        memory = Memory(state)
        wishes = [self._wish(sight, memory, params, table_cache) for sight in sights(snapshot, memory)]
        return decided(snapshot, wishes), memory.state()

    def _wish(self, sight: Sight, memory: Memory, params: Mapping[str, Any], table_cache: TableCache) -> Wish:
        window, problem = sight.window, sight.posed
        if problem is None:
            code = ReasonCode.BAD_PROFILE if sight.limits.most else ReasonCode.NO_NODES
            return Wish(sight, sight.present if is_open(window) else 0, code, None)
        chances = chances_of(window, problem, table_cache)
        table = table_cache(self._spec(problem.problem, params))
        if not is_open(window):
            return Wish(sight, 0, ReasonCode.NOT_YET, None)
        if not isinstance(table, SizeTable):
            return Wish(sight, _without_table(sight, problem), ReasonCode.NO_TABLES, chances)
        servers = problem.servers(sight.present)
        size = table.size(sight.interval, servers, problem.jobs(window.jobs))
        if table.delayed and size < servers and not memory.wanted_fewer(sight.window):
            size = servers
            memory.want_fewer(sight.window)
        nodes = sight.present if size == servers else problem.nodes(size)
        nodes = min(max(nodes, sight.limits.least), sight.limits.reachable)
        cost = table.value_at_0 if window.interval == 0 else None
        return Wish(sight, nodes, self._code(sight, nodes, chances), chances, cost)

    def _spec(self, problem: DeadlineProblem, params: Mapping[str, Any]) -> TableSpec:
        guarded = bool(params.get("guarded", self.guards))
        return TableSpec(self.method, problem if self.by_price else without_prices(problem), guarded)

    def _code(self, sight: Sight, nodes: int, chances: Chances | None) -> ReasonCode:
        allowed = 1.0 - sight.window.confidence
        if chances is not None and chances((sight.limits.reachable,))[0] > allowed:
            return ReasonCode.OUT_OF_REACH
        if nodes > sight.present:
            return ReasonCode.PROMISE
        return ReasonCode.KEEP if nodes == sight.present else ReasonCode.SPARE


class Priced(Sized):
    """One whose sizes follow prices. `guarded`: sizes after which the promise may be out of reach are left out."""

    guards = True
    known: ClassVar[Mapping[str, Check]] = {"tolerance": TOLERANCE, "guarded": SWITCH}

    def _code(self, sight: Sight, nodes: int, chances: Chances | None) -> ReasonCode:
        code = super()._code(sight, nodes, chances)
        changed = code in (ReasonCode.PROMISE, ReasonCode.SPARE)
        return ReasonCode.CHEAPER if changed and _keeps(sight, sight.present, chances) else code


def sights(snapshot: Snapshot, memory: Memory) -> list[Sight]:
    """Every window of the snapshot, in their order."""
    seen = []
    for window in snapshot.windows:
        limits = limits_of(snapshot, window)
        most = limits.available or limits.most  # whatever others hold: tables stay valid
        price = memory.price(snapshot, window)
        seen.append(Sight(window, limits, posed(window, price, most) if most else None))
    return seen


def decided(snapshot: Snapshot, wishes: list[Wish]) -> ProvisioningDecision:
    """What the wishes come to: shared by the broker where nodes are short, and by name."""
    sizes = share([_claim(wish) for wish in wishes], lambda sizes: node_choice.for_windows(snapshot, sizes)[1])
    chosen, _ = node_choice.for_windows(snapshot, sizes)
    told = tuple(told_of(wish, size) for wish, size in zip(wishes, sizes, strict=True) if is_open(wish.sight.window))
    costs = [wish.cost for wish in wishes if is_open(wish.sight.window)]
    known = [cost for cost in costs if cost is not None]
    numbers = (("in_service", float(chosen.sum())), ("available", float(node_choice.available(snapshot).sum())))
    code = told[0].reason.code if told else ReasonCode.SPARE
    cost = math.fsum(known) if known and len(known) == len(costs) else None
    return ProvisioningDecision(node_choice.names(snapshot, chosen), Reason(code, numbers), cost, told)


def is_open(window: WindowView) -> bool:
    """Whether it is decided on now."""
    return not window.opens_s > 0.0


def _claim(wish: Wish) -> Claim:
    known = () if wish.chances is None else wish.chances(range(wish.nodes + 1))
    return Claim(wish.nodes, wish.sight.window.weight, known)


def told_of(wish: Wish, size: int) -> WindowSize:
    """What is recorded of a window that is given `size` reference nodes."""
    window, limits = wish.sight.window, wish.sight.limits
    numbers = {"jobs": window.jobs, "interval": window.interval, "present": window.nodes, "wanted": wish.nodes}
    breaches: tuple[float, ...] = ()
    if wish.chances is not None:
        listed = shown(window, size, limits.reachable, wish.chances)
        breaches = wish.chances(listed)
        if listed[0] != max(window.nodes_min, 1):
            numbers["breach_from"] = listed[0]
    code = wish.code if size == wish.nodes else ReasonCode.OUT_OF_REACH
    reason = Reason(code, tuple((name, float(number)) for name, number in numbers.items()))
    return WindowSize(window.name, window.jobs, size, wish.nodes, breaches, reason, wish.cost)


def _keeps(sight: Sight, nodes: int, chances: Chances | None) -> bool:
    """Whether so many nodes, never changed, keep the promise."""
    return chances is not None and chances((nodes,))[0] <= 1.0 - sight.window.confidence


def _without_table(sight: Sight, problem: Posed) -> int:
    """The threshold rule for this moment where that is quickly known; else what is there now, or more where the jobs
    that are expected would not be done by it."""
    window, limits, of = sight.window, sight.limits, problem.problem
    left = window.intervals - sight.interval
    jobs = problem.jobs(window.jobs)
    busiest = of.slots * of.servers_max * left / of.service
    if left * (of.servers_max - of.servers_min + 1) * busiest <= CHEAP:
        kept = breach(of, sight.interval, jobs) <= 1.0 - of.confidence
        servers = of.servers_min + int(np.argmax(kept)) if kept.any() else of.servers_max
        return min(max(problem.nodes(servers), limits.least), limits.reachable)
    expected = jobs + float(of.arrivals[sight.interval :, 0].sum())
    servers = math.ceil((expected + SAFE * math.sqrt(expected)) * of.service / (of.slots * left))
    return min(max(problem.nodes(servers), sight.present), limits.reachable)
