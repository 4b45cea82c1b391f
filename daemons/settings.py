"""What the controller's core is told once at its start; `daemons.main` builds it from the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.costs import COSTS, OperationCosts


class Automation(StrEnum):
    """How far a cycle decision goes by itself."""

    ADVISE = "advise"  # recorded, never carried out
    CONFIRM = "confirm"  # waits for an operator's approval
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Limits:
    """How many actions may be under way at once; 0 means no limit. A migration counts on both of its nodes."""

    actions_per_node: int = 8
    migrations_per_node: int = 1
    actions_total: int = 512
    migrations_total: int = 16


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy of a role by name, with its parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Periods and limits of the controller, all in seconds unless named otherwise.

    report_s: the agents' report period. silent_after_s: a node without a report for so long is unknown.
    fence_after_s: silent for so long, its power driver is asked to prove it off (None: no power driver, an operator
    must confirm). max_skew_s: a node whose clock is further off is not acted on. gang_timeout_s: after it a job of
    which not all instances are prepared is taken back, once no operation on it is under way. retry_s, retry_max_s:
    back-off after a failed operation, doubling. arrival_grace_s: how long after a migration the target's word that
    the VM is not there is not believed. scrape_s: how often web applications with counters are read.
    operation_costs: what policies take operations on VMs to cost.
    """

    report_s: float = 5.0
    reconcile_s: float = 5.0
    decide_s: float = 900.0
    decide_limit_s: float = 60.0
    silent_after_s: float = 15.0
    fence_after_s: float | None = None
    max_skew_s: float = 2.0
    probe_s: float = 2.0
    gang_timeout_s: float = 120.0
    action_ttl_s: float = 60.0
    arrival_grace_s: float = 10.0
    retry_s: float = 15.0
    retry_max_s: float = 900.0
    stall_after_s: float = 900.0
    scrape_s: float = 5.0
    automation: Automation = Automation.AUTO
    hold_starts: bool = False
    vm_overhead_mib: float = 0.0
    operation_costs: OperationCosts = COSTS["paper"]
    limits: Limits = Limits()
    placement: PolicyChoice = PolicyChoice("apc")
    provisioning: PolicyChoice = PolicyChoice("static")
