"""One decision, computed: provisioning, then placement on what it leaves in service. Pure but for finding the
policies by name, so it runs in a worker process, inline in a simulation, or on a saved request, with one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daemons.gains import standing
from daemons.models.deadline.rules import TableSpec
from daemons.needed import TOLERANCE, Before, cover, rows, with_nodes
from daemons.policies.provisioning.analysers import Asked
from daemons.policies.provisioning.breaches import BreachSpec
from daemons.settings import PolicyChoice
from shared.decision import PlacementDecision, ProvisioningDecision
from shared.plugins import find_policy, load, names
from shared.ports import Needs, Shelf
from shared.snapshot import Snapshot

ANALYSERS = "trimtab.analysers"
Spec = TableSpec | BreachSpec


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """What to decide on and with which policies; `provisioning` is None between cycles. `analysers`: the parameters of
    the windows' analysers, by window."""

    snapshot: Snapshot
    placement: PolicyChoice
    placement_state: Any
    provisioning: PolicyChoice | None
    provisioning_state: Any
    analysers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecideOutcome:
    """The decisions and the policies' new states. `skipped`: why the data did not suffice ("": it did). `standing`: the
    utility of every job at the time of the snapshot; only at cycles. `missing`: the tables that were asked for and are
    not there, for a `PrepareRequest`."""

    placement: PlacementDecision
    placement_state: Any
    provisioning: ProvisioningDecision | None
    provisioning_state: Any
    skipped: str = ""
    standing: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[Spec, ...] = field(default=(), compare=False)


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
    """A shelf on which nothing lies."""


def run(request: DecideRequest, shelf: Shelf = no_tables) -> DecideOutcome:
    """Decide. Raises what a policy raises; a policy whose demands on the data are not met is not asked."""
    snapshot = request.snapshot
    placing = find_policy("placement", request.placement.name)
    state, params = request.placement_state, request.placement.params
    provisioned: ProvisioningDecision | None = None
    provisioning_state = request.provisioning_state
    noting = Noting(shelf, request.analysers)
    if request.provisioning is not None:
        policy = find_policy("provisioning", request.provisioning.name)
        lacking = unmet(policy.needs, snapshot) or unmet(placing.needs, snapshot)
        if lacking:
            return _skipped(request, lacking)
        choices = request.provisioning.params
        own, before = _unpacked(provisioning_state)
        provisioned, provisioning_state = policy.decide(snapshot, own, choices, noting)
        if not policy.covers_all:
            tolerance = float(choices.get("tolerance", TOLERANCE))
            covered = cover(
                snapshot, provisioned, lambda seen: placing.decide(seen, state, params)[0], tolerance, before
            )
            provisioned = covered.decision
            provisioning_state = {_POLICY: provisioning_state, _OTHERS: [covered.others, covered.nodes]}
        snapshot = with_nodes(snapshot, rows(snapshot, provisioned.in_service), at_last=False)
    lacking = unmet(placing.needs, snapshot)
    if lacking:
        return _skipped(request, lacking)
    placed, placement_state = placing.decide(snapshot, state, params)
    now = standing(request.snapshot) if request.snapshot.at_cycle else {}
    return DecideOutcome(
        placed, placement_state, provisioned, provisioning_state, standing=now, missing=tuple(noting.missing.values())
    )


_POLICY, _OTHERS = "policy", "others"  # parts of the state that is kept for provisioning


def _unpacked(state: Any) -> tuple[Any, Before | None]:
    """The policy's own state and how many nodes were enough for others, where that is kept beside it."""
    if not isinstance(state, dict) or state.keys() != {_POLICY, _OTHERS}:
        return state, None
    match state[_OTHERS]:
        case [int(others), int(nodes)]:
            return state[_POLICY], Before(others, nodes)
    return state[_POLICY], None


class Noting:
    """A shelf that notes what it does not have, and asks the analysers of windows."""

    def __init__(self, shelf: Shelf, params: Mapping[str, Mapping[str, Any]]) -> None:
        self._shelf, self._params = shelf, params
        self.missing: dict[str, Spec] = {}

    def __call__(self, spec: Any, /) -> Any:
        """The table, or what the analyser of a window says; None where neither is known."""
        if isinstance(spec, Asked):
            if spec.window.analyser not in names(ANALYSERS):
                return None
            params = self._params.get(spec.window.name, {})
            return load(ANALYSERS, spec.window.analyser)().breach(spec.window, spec.nodes, params)
        table = self._shelf(spec)
        if table is None and isinstance(spec, TableSpec | BreachSpec):
            self.missing.setdefault(name_of(spec), spec)
        return table


def name_of(spec: Spec) -> str:
    """A name for what the table depends on; equal for equal specs."""
    if isinstance(spec, BreachSpec):
        return spec.digest()
    return f"{spec.method} {spec.guarded} {spec.problem.digest()}"


def check(placement: PolicyChoice, provisioning: PolicyChoice) -> bool:
    """Whether placement acts on events too; raises `UnknownPolicy` or `InvalidInput` for a choice that cannot work."""
    for role, choice in (("provisioning", provisioning), ("placement", placement)):
        find_policy(role, choice.name).check_params(choice.params)
    return bool(find_policy("placement", placement.name).event_driven)


def unmet(needs: Needs, snapshot: Snapshot) -> str:
    """What the snapshot lacks of what a policy needs ("": nothing)."""
    if snapshot.reporting_frac < needs.reporting_frac:
        return f"{snapshot.reporting_frac:.0%} of the nodes report, {needs.reporting_frac:.0%} are needed"
    if snapshot.oldest_report_s > needs.report_age_s:
        return (
            f"the oldest report is {snapshot.oldest_report_s:.0f} s old, at most {needs.report_age_s:.0f} s are needed"
        )
    return ""


def _skipped(request: DecideRequest, why: str) -> DecideOutcome:
    return DecideOutcome(PlacementDecision(), request.placement_state, None, request.provisioning_state, why)
