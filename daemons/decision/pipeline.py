"""One decision, computed: provisioning, then placement on what it leaves in service. Pure but for finding the
policies by name, so it runs in a worker process, inline in a simulation, or on a saved request, with one result.

Where there are environments, placement is asked once for the pool and once for each environment with nodes of its own
(`daemons.decision.groups`); provisioning is about the pool alone, and the nodes of environments stay in service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daemons.decision import groups
from daemons.decision.gains import standing
from daemons.decision.pool_size import TOLERANCE, Before, rows, size_pool, with_nodes
from daemons.models.deadline.breaches import BreachSpec
from daemons.models.deadline.risks import RiskSpec
from daemons.models.deadline.rules import TableSpec
from daemons.models.outlook import slowed_by
from daemons.models.shortage import Shortage, shortage_of
from daemons.values.settings import PolicyChoice
from shared.policy_api.analysis import BreachQuery
from shared.policy_api.decision import PlacementDecision, ProvisioningDecision
from shared.policy_api.policies import Needs, TableCache
from shared.policy_api.snapshot import POOL, Snapshot
from shared.ports.plugins import find_policy, load, names, policy_group

ANALYSERS = "trimtab.analysers"
Spec = TableSpec | BreachSpec | RiskSpec


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """What to decide on and with which policies; `provisioning` is None between cycles. `analysers`: the parameters of
    the windows' analysers, by window. `scheduling`: the placement policies of environments with nodes of their own, by
    name; `placement` is for all else."""

    snapshot: Snapshot
    placement: PolicyChoice
    placement_state: Any
    provisioning: PolicyChoice | None
    provisioning_state: Any
    analysers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scheduling: Mapping[str, PolicyChoice] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecideOutcome:
    """The decisions and the policies' new states. `skipped`: why the data did not suffice ("": it did). `standing`: the
    utility of every job at the time of the snapshot; only at cycles. `missing`: the tables that were asked for and are
    not there, for a `PrepareRequest`. `lacking`, `failed`: by environment ("": the pool), why its part brought no
    decision while others did: the data did not suffice, or its policy raised. shortage: of the pool's CPU; only at
    cycles."""

    placement: PlacementDecision
    placement_state: Any
    provisioning: ProvisioningDecision | None
    provisioning_state: Any
    skipped: str = ""
    standing: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[Spec, ...] = field(default=(), compare=False)
    lacking: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    shortage: Shortage | None = None


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """Have tables computed, so that later decisions find them."""

    specs: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """How many tables are there now, and why the others are not."""

    count: int
    failed: tuple[str, ...] = ()


def no_tables(_spec: Any) -> None:
    """Return None: a table cache without a table."""


def run(request: DecideRequest, table_cache: TableCache = no_tables) -> DecideOutcome:
    """Decide. A policy whose data requirements are not met is not called. Raises the policy's exceptions; with
    environments, exceptions of the policies of some parts are reported in `failed` and the others' decisions stand."""
    recording_cache = RecordingCache(table_cache, request.analysers)
    if request.snapshot.environments is None:
        own = _state_of(request.placement_state, "", request.placement)
        return _decided(replace(request, placement_state=own), recording_cache)
    return _by_part(request, recording_cache)


def _decided(request: DecideRequest, recording_cache: RecordingCache) -> DecideOutcome:
    snapshot = request.snapshot
    placing = find_policy("placement", request.placement.name)
    state, params = request.placement_state, request.placement.params
    provisioned: ProvisioningDecision | None = None
    provisioning_state = request.provisioning_state
    if request.provisioning is not None:
        policy = find_policy("provisioning", request.provisioning.name)
        lacking = unmet(policy.needs, snapshot) or unmet(placing.needs, snapshot)
        if lacking:
            return _skipped(request, lacking)
        choices = request.provisioning.params
        own, before = _unpacked(provisioning_state)
        provisioned, provisioning_state = policy.decide(snapshot, own, choices, recording_cache)
        if not policy.covers_all:
            tolerance = float(choices.get("tolerance", TOLERANCE))
            covered = size_pool(
                snapshot, provisioned, lambda seen: placing.decide(seen, state, params)[0], tolerance, before
            )
            provisioned = covered.decision
            provisioning_state = {_POLICY: provisioning_state, _OTHERS: [covered.others, covered.nodes]}
        snapshot = with_nodes(snapshot, rows(snapshot, provisioned.in_service), at_last=False)
    lacking = unmet(placing.needs, snapshot)
    if lacking:
        return _skipped(request, lacking)
    placed, placement_state = placing.decide(snapshot, state, params)
    if snapshot.loading is not None:
        placed = replace(placed, slowed=slowed_by(snapshot, placed.changes))
    now = standing(request.snapshot) if request.snapshot.at_cycle else {}
    shortage = shortage_of(request.snapshot) if request.snapshot.at_cycle else None
    return DecideOutcome(
        placed,
        placement_state,
        provisioned,
        provisioning_state=provisioning_state,
        standing=now,
        shortage=shortage,
        missing=tuple(recording_cache.missing.values()),
    )


# --- parts -----------------------------------------------------------------------------------------------------------


def _by_part(request: DecideRequest, recording_cache: RecordingCache) -> DecideOutcome:
    shares = groups.parts(request.snapshot)
    answers: list[DecideOutcome] = []
    states: dict[str, Any] = {}
    lacking: dict[str, str] = {}
    failed: dict[str, str] = {}
    for part in shares:
        own = _of_part(request, part)
        states[part.environment] = [own.placement.name, own.placement_state]
        try:
            if not _is_asked(own, part):
                continue
            answer = _decided(own, recording_cache)
        except Exception as problem:  # noqa: BLE001  a policy may raise anything; the controller is told
            failed[part.environment] = f"{type(problem).__name__}: {problem}"
            continue
        if answer.skipped:
            lacking[part.environment] = answer.skipped
            continue
        states[part.environment] = [own.placement.name, answer.placement_state]
        answers.append(replace(answer, placement=groups.give_way(part, answer.placement)))
    state = {_PARTS: states}
    if lacking and not answers and not failed:
        return _skipped(replace(request, placement_state=state), next(iter(lacking.values())))
    pool = next((one for one in answers if one.provisioning is not None), None)
    return DecideOutcome(
        groups.merge(shares, [one.placement for one in answers]),
        state,
        None if pool is None else _with_held(request.snapshot, pool.provisioning),
        provisioning_state=request.provisioning_state if pool is None else pool.provisioning_state,
        standing={name: utility for one in answers for name, utility in one.standing.items()},
        shortage=None if pool is None else pool.shortage,
        missing=tuple(recording_cache.missing.values()),
        lacking=lacking,
        failed=failed,
    )


_PARTS = "environments"  # the state that is kept for placement where there are several parts: [policy, state] by name


def _of_part(request: DecideRequest, part: groups.Partition) -> DecideRequest:
    """Return the request for one part; provisioning for the pool only."""
    name = part.environment
    choice = request.scheduling.get(name, request.placement) if name else request.placement
    state = _state_of(request.placement_state, name, choice)
    own = replace(request, snapshot=part.snapshot, placement=choice, placement_state=state)
    return own if not name else replace(own, provisioning=None, provisioning_state=None)


def _is_asked(own: DecideRequest, part: groups.Partition) -> bool:
    """Return whether the part's policy is called now."""
    if own.snapshot.at_cycle:
        return not part.environment or bool(part.snapshot.workloads.names)
    return acts_on_events(own.placement) and bool(part.snapshot.workloads.names)


def _state_of(state: Any, name: str, choice: PolicyChoice) -> Any:
    """Return the state of a part's policy; None if another policy left it."""
    if not isinstance(state, dict) or state.keys() != {_PARTS}:
        return None if name else state
    match state[_PARTS].get(name):
        case [choice.name, own]:
            return own
    return None


def _with_held(snapshot: Snapshot, decision: ProvisioningDecision | None) -> ProvisioningDecision | None:
    """Return the decision with the nodes of environments, and those being reassigned, in service as well."""
    held = snapshot.environments
    if decision is None or held is None:
        return decision
    kept = (held.node != POOL) | held.leaving
    if snapshot.power is not None:
        kept |= snapshot.power.must_stay
    chosen = frozenset(decision.in_service) | {snapshot.nodes.names[row] for row in np.flatnonzero(kept).tolist()}
    return replace(decision, in_service=tuple(name for name in dict.fromkeys(snapshot.nodes.names) if name in chosen))


# --- provisioning ----------------------------------------------------------------------------------------------------


_POLICY, _OTHERS = "policy", "others"  # parts of the state that is kept for provisioning


def _unpacked(state: Any) -> tuple[Any, Before | None]:
    """Return the policy's own state and the number of nodes that sufficed for others, if that is stored next to it."""
    if not isinstance(state, dict) or state.keys() != {_POLICY, _OTHERS}:
        return state, None
    match state[_OTHERS]:
        case [int(others), int(nodes)]:
            return state[_POLICY], Before(others, nodes)
    return state[_POLICY], None


class RecordingCache:
    """A table cache that records what it does not have, and asks the analysers of windows."""

    def __init__(self, table_cache: TableCache, params: Mapping[str, Mapping[str, Any]]) -> None:
        self._table_cache, self._params = table_cache, params
        self.missing: dict[str, Spec] = {}

    def __call__(self, spec: Any, /) -> Any:
        """Return the table, or the result of a window's analyser; None if neither is known."""
        if isinstance(spec, BreachQuery):
            if spec.window.analyser not in names(ANALYSERS):
                return None
            params = self._params.get(spec.window.name, {})
            return load(ANALYSERS, spec.window.analyser)().breach(spec.window, spec.nodes, params)
        table = self._table_cache(spec)
        if table is None and isinstance(spec, Spec):
            self.missing.setdefault(name_of(spec), spec)
        return table


def name_of(spec: Spec) -> str:
    """Return an identifier of everything that the table depends on; equal for equal specs."""
    if isinstance(spec, TableSpec):
        return f"{spec.method} {spec.guarded} {spec.problem.digest()}"
    return spec.digest()


def check(placement: PolicyChoice, provisioning: PolicyChoice) -> bool:
    """Return whether placement acts on events too; raises `UnknownPolicy` or `InvalidInput` for a choice that cannot
    work."""
    for role, choice in (("provisioning", provisioning), ("placement", placement)):
        find_policy(role, choice.name).check_params(choice.params)
    return acts_on_events(placement)


def acts_on_events(placement: PolicyChoice) -> bool:
    """Return whether a placement policy is called between cycles too; an unknown one is not."""
    known = placement.name in names(policy_group("placement"))
    return known and bool(find_policy("placement", placement.name).event_driven)


def shares_by_utility(placement: PolicyChoice) -> bool:
    """Return whether a placement policy shares CPU to equalise utilities, and CPU must be shared that way between its
    decisions too; False for one that does not declare it, and for an unknown one."""
    known = placement.name in names(policy_group("placement"))
    return known and bool(getattr(find_policy("placement", placement.name), "shares_by_utility", False))


def unmet(needs: Needs, snapshot: Snapshot) -> str:
    """Return the requirements of a policy that the snapshot does not meet ("": none)."""
    if snapshot.reporting_frac < needs.reporting_frac:
        return f"{snapshot.reporting_frac:.0%} of the nodes report, {needs.reporting_frac:.0%} are needed"
    if snapshot.oldest_report_s > needs.report_age_s:
        return (
            f"the oldest report is {snapshot.oldest_report_s:.0f} s old, at most {needs.report_age_s:.0f} s are needed"
        )
    return ""


def _skipped(request: DecideRequest, why: str) -> DecideOutcome:
    return DecideOutcome(
        PlacementDecision(), request.placement_state, None, provisioning_state=request.provisioning_state, skipped=why
    )
