"""The policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daemons.models.placement_rules import PlacementRules, rules_of
from daemons.policies.placement.apc.decision import decision_of
from daemons.policies.placement.apc.exchange import Exchange
from daemons.policies.placement.apc.gangs import Gangs
from daemons.policies.placement.apc.misplaced import excluded, to_leave
from daemons.policies.placement.apc.objective import compare
from daemons.policies.placement.apc.params import Params, parsed
from daemons.policies.placement.apc.preferences import Preferences
from daemons.policies.placement.apc.problem import LEAST_MHZ, SLACK, Problem, problem_of
from daemons.policies.placement.apc.search import Search
from daemons.policies.placement.apc.spread import Spread
from daemons.policies.placement.apc.state import State
from daemons.policies.placement.apc.web import Web, apps_of
from shared.policy_api.decision import PlacementDecision
from shared.policy_api.policies import Needs
from shared.policy_api.snapshot import Snapshot

_SAME = 1e-9


class Apc:
    """Places jobs and web applications so that the smallest utilities are as large as can be (docs/policies/README.md).

    Parameters as in `Params`. A decision is never worse than changing nothing, nodes that are drained, or on which more
    CPU is promised or used by adopted VMs than there is, aside.
    """

    name = "apc"
    needs = Needs()
    event_driven = True
    shares_by_utility = True

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` naming every key that is not known or cannot be used, and what would be right."""
        parsed(params, self.name)

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, None]:
        """Return the next placement; `state` is not used. Raises `InvalidInput` as `check_params` does, nothing
        else."""
        del state
        wanted = parsed(params, self.name)
        with np.errstate(all="ignore"):  # what is not a number in a snapshot is dealt with where it matters
            return self._decided(snapshot, wanted), None

    def _decided(self, snapshot: Snapshot, wanted: Params) -> PlacementDecision:
        problem = problem_of(snapshot, wanted)
        rules = rules_of(snapshot, problem.usable)
        placement = State(problem, rules)
        web = Web(placement, apps_of(problem))
        fills = snapshot.at_cycle or wanted.event_driven_start
        if not fills and not any(problem.leaving):
            return decision_of(problem, web, None)
        if snapshot.at_cycle:
            web.settle()
        else:
            web.move_to_idle()
            if fills:
                web.start_idle()
        search = Search(placement, web)
        search.drain()
        if fills:
            search.run()
        if snapshot.at_cycle:
            exchange = Exchange(search)
            Gangs(search, exchange).run()
            exchange.run()
            Spread(search).run()
            Preferences(search).run()
            web.equalise(True)
        placement.foresee()
        if _worse(web) and not _has_to_change(placement, rules) and not _to_share(problem):
            placement = State(problem, rules, still=True)
            placement.foresee()
            return decision_of(problem, Web(placement, apps_of(problem)), search)
        return decision_of(problem, web, search)


def _has_to_change(placement: State, rules: PlacementRules) -> bool:
    """Return whether workloads should leave their nodes: always for those that must not be there, and for those for
    whom others are in the wrong place if the placement moves one of them."""
    problem = placement.problem
    return any(
        excluded(problem, rules, row) or placement.place_of(row) != problem.home[row]
        for row in to_leave(problem, rules)
    )


def _to_share(problem: Problem) -> bool:
    """Return whether more CPU is allotted on a node than it has, or an adopted VM uses more than its allotment, and the
    node can give all workloads there the least. In that case no workload has its current allotment, which is then no
    baseline for a decision."""
    least, claimed = np.zeros(len(problem.cpu_mhz)), np.zeros(len(problem.cpu_mhz))
    for row, movable in enumerate(problem.movable):
        least_mhz = max(problem.least_mhz[row], LEAST_MHZ)
        for node, mhz in zip(problem.home[row], problem.home_mhz[row], strict=True) if movable else ():
            least[node] += least_mhz
            claimed[node] += max(mhz, least_mhz) if problem.stays[row] else mhz
    cpu_mhz = np.array(problem.cpu_mhz)
    over = claimed - cpu_mhz > SLACK * np.array(problem.most_mhz)
    return bool((over & problem.usable & (least > 0.0) & (least <= cpu_mhz)).any())


def _worse(web: Web) -> bool:
    """Return whether it would be better to change nothing: the smallest utility falls, or the changed ones, in
    ascending order, are worse with and without the tolerance (many small gains below it may outweigh a loss above
    it)."""
    state, now = web.state, web.utilities()
    rows = [row for row in state.rows if state.problem.counted[row]]
    utilities = state.utilities()
    after = [utilities[row] for row in rows] + list(now.values())
    before = [state.before[row] for row in rows] + [web.before[row] for row in now]
    if min(after, default=1.0) < min(before, default=1.0) - _SAME:
        return True
    differ = [at for at, (new, old) in enumerate(zip(after, before, strict=True)) if new != old]
    after, before = [after[at] for at in differ], [before[at] for at in differ]
    return compare(after, before, state.problem.params.tolerance) < 0 and compare(after, before, _SAME) < 0
