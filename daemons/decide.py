"""One decision, computed: provisioning, then placement on what it leaves in service. Pure but for finding the
policies by name, so it runs in a worker process, inline in a simulation, or on a saved request, with one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daemons.gains import standing
from daemons.settings import PolicyChoice
from shared.decision import PlacementDecision, ProvisioningDecision
from shared.plugins import find_policy
from shared.ports import Needs, Shelf
from shared.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """What to decide on and with which policies; `provisioning` is None between cycles."""

    snapshot: Snapshot
    placement: PolicyChoice
    placement_state: Any
    provisioning: PolicyChoice | None
    provisioning_state: Any


@dataclass(frozen=True, slots=True)
class DecideOutcome:
    """The decisions and the policies' new states. `skipped`: why the data did not suffice ("": it did). `standing`: the
    utility of every job at the time of the snapshot; only at cycles."""

    placement: PlacementDecision
    placement_state: Any
    provisioning: ProvisioningDecision | None
    provisioning_state: Any
    skipped: str = ""
    standing: Mapping[str, float] = field(default_factory=dict)


def no_tables(_spec: Any) -> None:
    """A shelf on which nothing lies."""


def run(request: DecideRequest, shelf: Shelf = no_tables) -> DecideOutcome:
    """Decide. Raises what a policy raises; a policy whose demands on the data are not met is not asked."""
    snapshot = request.snapshot
    provisioned: ProvisioningDecision | None = None
    provisioning_state = request.provisioning_state
    if request.provisioning is not None:
        policy = find_policy("provisioning", request.provisioning.name)
        lacking = unmet(policy.needs, snapshot)
        if lacking:
            return _skipped(request, lacking)
        provisioned, provisioning_state = policy.decide(
            snapshot, provisioning_state, request.provisioning.params, shelf
        )
        snapshot = _in_service(snapshot, provisioned)
    policy = find_policy("placement", request.placement.name)
    lacking = unmet(policy.needs, snapshot)
    if lacking:
        return _skipped(request, lacking)
    placed, placement_state = policy.decide(snapshot, request.placement_state, request.placement.params)
    now = standing(request.snapshot) if request.snapshot.at_cycle else {}
    return DecideOutcome(placed, placement_state, provisioned, provisioning_state, standing=now)


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


def _in_service(snapshot: Snapshot, decision: ProvisioningDecision) -> Snapshot:
    wanted = frozenset(decision.in_service)
    inside = np.array([name in wanted for name in snapshot.nodes.names], dtype=np.bool_)
    nodes = replace(snapshot.nodes, schedulable=snapshot.nodes.schedulable & inside)
    return replace(snapshot, nodes=nodes)
