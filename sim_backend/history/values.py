"""A span of history to be simulated. Times are seconds from its begin, unless stated otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from daemons.values.settings import PolicyChoice
from shared.values.jobs import Job
from shared.values.nodes import Node
from shared.values.operation_costs import OperationCosts
from shared.values.web_app import WebApp
from sim_backend.loop.closed_loop import Stages

Utilities = tuple[float, float, float]  # when, their mean and their least


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job as it was submitted, with absolute times, at `at_s` (0: it was there already, and `job` is what was left
    of it). `true_stages`: its real work per instance and most speed. accepted_s: absolute. cancelled_s: when somebody
    cancelled it (None: nobody)."""

    job: Job
    at_s: float
    true_stages: Stages
    accepted_s: float
    cancelled_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedApp:
    """A web application that was there from `from_s` to `to_s`; rates: requests a second of each flow, as steps of
    (from when, rate); work_mcycles of a request of each flow."""

    app: WebApp
    from_s: float
    to_s: float
    rates: Mapping[str, Sequence[tuple[float, float]]]
    work_mcycles: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LoggedPower:
    """Of nodes: whether any was seen asleep, how long deploying one takes (seconds; 0: none slept), and watts by node
    type: without load, at full CPU, asleep."""

    slept: bool = False
    deploy_s: float = 0.0
    draws: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoggedPrices:
    """Prices per kWh from absolute times on, until `until_s`; no starts: none were recorded."""

    starts_s: tuple[float, ...] = ()
    per_kwh: tuple[float, ...] = ()
    until_s: float = 0.0
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Log:
    """A span of history, from `from_s` to `to_s` (absolute). placement, provisioning, costs, cycle_s, overhead_mib: the
    settings of its first decision. utilities: at each cycle (absolute time), the mean and the lowest. not_reproduced:
    what the simulation leaves out, and how much of it there was."""

    from_s: float
    to_s: float
    nodes: tuple[Node, ...]
    jobs: tuple[LoggedJob, ...]
    apps: tuple[LoggedApp, ...]
    power: LoggedPower
    prices: LoggedPrices
    placement: PolicyChoice
    provisioning: PolicyChoice
    costs: OperationCosts
    cycle_s: float
    overhead_mib: float
    snapshots: int
    utilities: tuple[Utilities, ...]
    not_reproduced: Mapping[str, str]

    @property
    def span_s(self) -> float:
        """Its length."""
        return self.to_s - self.from_s
