"""A scenario of a period with a deadline as the models take it, and as the simulation of chance takes it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daemons.capacity.provisioning.file import PricedScenario
from daemons.capacity.provisioning.monte_carlo import Period
from daemons.models.deadline.problem import DeadlineProblem, arrivals_from_rate
from daemons.models.deadline.shapes import shape_prices

ORDER = 12  # of the polynomials that stand for the rate within an interval

Floats = NDArray[np.float64]


def problem_of(given: PricedScenario, shape: str | None = None) -> DeadlineProblem:
    """Return the problem that a scenario describes; `shape`: of the prices, in place of its own."""
    scenario = given.scenario
    interval_s = scenario.period.interval_s
    service = scenario.service.mean_s / interval_s
    price, removal, most = _prices(given, shape)
    return DeadlineProblem(
        arrivals=arrivals_from_rate(
            scenario.rate_per_interval, scenario.period.deadline, scenario.period.submission_end, ORDER
        ),
        service=service,
        servers_min=scenario.servers.min,
        servers_max=scenario.servers.max,
        confidence=scenario.promise.confidence,
        price=price,
        removal_price=removal,
        deploy=scenario.servers.deploy_s / interval_s,
        penalty=service * max(most, 0.0),
        slots=scenario.servers.slots,
    )


def period_of(problem: DeadlineProblem) -> Period:
    """Return the same problem for `provision_monte_carlo`."""
    return Period(
        problem.service, problem.servers_min, problem.deploy, problem.price, problem.removal_price, problem.slots
    )


def _prices(given: PricedScenario, shape: str | None) -> tuple[Floats, Floats, float]:
    """Price and removal price of every interval, and the highest price."""
    scenario = given.scenario
    remove = scenario.servers.remove_s / scenario.period.interval_s
    if given.paid is not None and shape is None:
        return given.paid.price, given.paid.removal_price, given.paid.highest
    named = scenario.price.shape.value if shape is None else shape
    return shape_prices(named, scenario.price.ratio, scenario.period.deadline, remove)
