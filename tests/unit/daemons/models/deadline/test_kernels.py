"""The kernel within its stated bound, where the distribution after an interval has a closed form."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import legendre
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.deadline.kernels import Chain
from daemons.models.deadline.problem import DeadlineProblem, Floats
from shared.base.errors import InvalidValue
from tests.support.deadline_errors import error_bound

ROUNDING = 4e-14  # of the closed forms themselves


def problem(arrivals: list[float], service: float, servers_max: int, slots: int = 1) -> DeadlineProblem:
    rows = np.array([arrivals, [0.0] * len(arrivals)])
    return DeadlineProblem(
        rows,
        service,
        1,
        servers_max=servers_max,
        confidence=0.99,
        price=np.ones(2),
        removal_price=np.zeros(2),
        slots=slots,
    )


def a_server_for_every_job(given: DeadlineProblem, jobs: int, begin: float, end: float, width: int) -> Floats:
    """Those of now survive on their own, those who come are a Poisson count: nobody waits."""
    moments, weights = legendre.leggauss(40)
    times = begin + (end - begin) * (moments + 1.0) / 2.0
    rates = legendre.legval(2.0 * times - 1.0, given.arrivals[0])
    mean = (end - begin) / 2.0 * float(weights @ (rates * np.exp(-(end - times) / given.service)))
    stay = stats.binom.pmf(np.arange(jobs + 1), jobs, np.exp(-(end - begin) / given.service))
    return np.convolve(stay, stats.poisson.pmf(np.arange(width), mean))[:width]


@pytest.mark.full
@pytest.mark.parametrize("arrivals", [[0.0], [3.0], [3.0, 2.0, 0.5], [20.0, -19.0, 12.0, -5.0], [2e-9, 1e-9]])
@pytest.mark.parametrize(("begin", "end"), [(0.0, 1.0), (0.0, 0.03), (0.03, 1.0)])
@pytest.mark.parametrize("service", [0.4, 3.0])
def test_nobody_waits(arrivals: list[float], begin: float, end: float, service: float) -> None:
    given = problem(arrivals, service, servers_max=100, slots=3)
    chain = Chain(given, 250)
    start = np.eye(251)[[7]]

    after = chain.forward(0, start, np.array([100]), begin, end)[0]

    closed = a_server_for_every_job(given, 7, begin, end, 251)
    assert np.abs(after - closed).max() <= error_bound(chain, 0, 100, begin, end) + ROUNDING
    values = np.sin(np.arange(251.0))
    assert abs(chain.backward(0, values[None], np.array([100]), begin, end)[0, 7] - closed @ values) <= 1e-12


@pytest.mark.parametrize("arrivals", [[0.0], [40.0, 25.0, 3.0]])
@pytest.mark.parametrize(("begin", "end"), [(0.0, 1.0), (0.25, 1.0)])
def test_everybody_is_busy(arrivals: list[float], begin: float, end: float) -> None:
    given = problem(arrivals, 0.5, servers_max=20)
    chain, servers = Chain(given, 1_000), np.array([20])
    come, leave = chain.arrivals(0, begin, end), 40.0 * (end - begin)
    moved = np.arange(-300, 301)
    closed = np.array([stats.skellam.pmf(k, come, leave) for k in moved]) if come else stats.poisson.pmf(-moved, leave)

    after = chain.forward(0, np.eye(1_001)[[400]], servers, begin, end)[0]

    assert np.abs(after[100:701] - closed).max() <= error_bound(chain, 0, 20, begin, end) + 1e-12
    assert chain.backward(0, np.eye(1_001)[[390]], servers, begin, end)[0, 400] == pytest.approx(after[390], abs=1e-14)


def test_two_parts_of_an_interval_are_the_whole() -> None:
    given = problem([30.0, 14.0, -9.0, 3.0], 0.3, servers_max=12, slots=2)
    chain, servers = Chain(given, 300), np.array([3, 12, 7])
    start = np.random.default_rng(5).random((3, 301)) * (np.arange(301) < 120)

    parts = chain.forward(0, chain.forward(0, start, servers, 0.0, 0.37), servers, 0.37, 1.0)

    assert parts == pytest.approx(chain.forward(0, start, servers), abs=1e-12)
    assert chain.arrivals(0, 0.0, 0.37) + chain.arrivals(0, 0.37, 1.0) == pytest.approx(30.0)


def test_forward_and_backward_are_transposed() -> None:
    given = problem([11.0, 6.0], 0.7, servers_max=9)
    chain, rng = Chain(given, 200), np.random.default_rng(2)
    mass, values = np.zeros((2, 201)), rng.standard_normal((2, 201))
    mass[:, :100] = rng.random((2, 100))
    servers = np.array([9, 4])

    there, back = chain.forward(0, mass, servers), chain.backward(0, values, servers)

    assert (there * values).sum(axis=1) == pytest.approx((mass * back).sum(axis=1), rel=1e-12)


@pytest.mark.full
def test_many_events_go_in_pieces() -> None:
    given = problem([2_000.0, 1_500.0, -300.0], 0.01, servers_max=30)
    chain, counts = Chain(given, 6_000), np.arange(6_001.0)

    after = chain.forward(0, np.eye(6_001)[[4_500]], np.array([30]))[0]

    assert after @ counts == pytest.approx(4_500 + 2_000 - 3_000, rel=1e-12)
    assert after @ counts**2 - (after @ counts) ** 2 == pytest.approx(5_000.0, rel=1e-8)
    assert error_bound(chain, 0, 30) < 1e-10


def test_a_rate_below_zero_within_an_interval_is_refused() -> None:
    with pytest.raises(InvalidValue, match="arrivals"):
        problem([2.0, 2.5], 1.0, 3)
