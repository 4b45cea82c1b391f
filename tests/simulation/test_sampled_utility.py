"""The paper's sampled form: its figures 3 and 4, and how near it is to the exact level."""

from __future__ import annotations

import numpy as np
import pytest

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats
from tests.support.sampled_utility import LEVELS, interpolate, sample
from tests.support.utility import level_of


def test_figure_3() -> None:
    """x^3 and x^2 at 2 and 8, 150 to share."""
    found = interpolate(np.array([8.0, 4.0]), np.array([512.0, 64.0]), 150.0, constrained=False)

    assert found.round(1).tolist() == [131.3, 18.7]


def test_figure_4() -> None:
    """min(1000, x^3) and x^2 at 5 and 30, 1,180 to share: by ratio_g, and by the reading of Eq. 15."""
    lower, upper = np.array([125.0, 25.0]), np.array([1000.0, 900.0])

    assert interpolate(lower, upper, 1180.0, constrained=False).round(0).tolist() == [640.0, 540.0]
    assert interpolate(lower, upper, 1180.0, constrained=True).round(1).tolist() == [983.3, 196.7]


def test_a_job_at_its_highest_speed_keeps_it() -> None:
    found = interpolate(np.array([500.0, 100.0]), np.array([500.0, 300.0]), 700.0, constrained=True)

    assert found.tolist() == pytest.approx([500.0, 100.0 * (1.0 + 100.0 / 600.0)])


def test_no_cell_is_left() -> None:
    """By the reading alone the first job would get 450."""
    found = interpolate(np.array([100.0, 100.0]), np.array([110.0, 1000.0]), 900.0, constrained=True)

    assert found.tolist() == pytest.approx([110.0, 450.0])


def _jobs(n: int) -> tuple[Floats, Floats, Floats, Floats]:
    rng = np.random.default_rng(11)
    work = rng.uniform(1e5, 1e8, n)
    best_s = work / rng.choice([1560.0, 2340.0, 3900.0], n)
    goal_s = best_s * rng.choice([1.3, 2.5, 4.0], n)
    return work, goal_s - rng.uniform(0.0, 2.0, n) * best_s, goal_s, best_s


def test_cells_hold_the_target_or_the_highest_utility() -> None:
    a, b, r, tb = _jobs(20)

    sampled = sample(a, b, r, tb)

    assert sampled.w.shape == sampled.v.shape == (len(LEVELS), 20)
    assert sampled.w[0].tolist() == [0.0] * 20
    np.testing.assert_allclose(sampled.w[-1], a / tb)
    np.testing.assert_allclose(sampled.v[-1], (b - tb) / r)
    assert (np.diff(sampled.w, axis=0) >= 0.0).all()


def test_finer_levels_come_near_the_exact_one() -> None:
    jobs = _jobs(50)
    fine = (-np.inf, *np.linspace(-20.0, 1.0, 4000).tolist())

    for part in (0.3, 0.6, 0.9):
        omega_g = part * float((jobs[0] / jobs[3]).sum())
        exact = level_of(*jobs, omega_g)
        sampled = sample(*jobs, levels=fine)

        np.testing.assert_allclose(sampled.utilities(omega_g), exact.utilities(), atol=0.02)
        assert sampled.omegas(omega_g).sum() == pytest.approx(omega_g, rel=1e-3)


def test_no_cpu_and_more_than_enough() -> None:
    a, b, r, tb = _jobs(5)
    sampled = sample(a, b, r, tb)

    assert sampled.utilities(0.0).tolist() == [-np.inf] * 5
    np.testing.assert_allclose(sampled.utilities(1e12), (b - tb) / r)
    np.testing.assert_allclose(sampled.omegas(np.inf), a / tb)


@pytest.mark.parametrize("levels", [(-np.inf,), (0.0, 1.0), (-np.inf, 1.0, 0.5), (-np.inf, float("nan"))])
def test_levels_that_do_not_rise_are_refused(levels: tuple[float, ...]) -> None:
    with pytest.raises(InvalidValue):
        sample(*_jobs(2), levels=levels)
