"""The power that nodes draw."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daemons.models.power_curve import DEFAULT, Draws, PowerCurve, curve_of, fit
from shared.base.errors import InvalidValue


def test_a_line_from_idle_to_peak() -> None:
    curve = curve_of(100.0, 200.0, 5.0)
    assert curve.at([-0.5, 0.0, 0.25, 1.0, 1.5]).tolist() == [100.0, 100.0, 125.0, 200.0, 200.0]
    assert (curve.idle_w, curve.peak_w, curve.off_w) == (100.0, 200.0, 5.0)


def test_a_given_curve_goes_before_the_line() -> None:
    curve = curve_of(1.0, 2.0, 0.0, (100.0, 160.0, 180.0))
    assert curve.at([0.0, 0.25, 0.5, 0.75, 1.0]).tolist() == [100.0, 130.0, 160.0, 170.0, 180.0]


def test_each_node_draws_as_its_type_does() -> None:
    draws = Draws({DEFAULT: curve_of(100.0, 200.0), "big": curve_of(300.0, 700.0)})
    types = ("big", "", "small", "big")
    assert draws.watts(types, np.array([0.5, 0.5, 0.0, 1.0])).tolist() == [500.0, 150.0, 100.0, 700.0]
    assert draws.of("big").peak_w == 700.0
    assert draws.of("other").peak_w == 200.0
    assert draws.watts((), np.empty(0)).tolist() == []


def test_a_curve_is_found_again_from_what_was_measured() -> None:
    """Given noisy measurements of a curve, then the fit is within a watt of it."""
    truth = PowerCurve(np.array([90.0, 130.0, 150.0, 160.0, 165.0]))
    chance = np.random.default_rng(1)
    loads = chance.uniform(0.0, 1.0, 2_000)
    found = fit(loads, truth.at(loads) + chance.normal(0.0, 5.0, loads.size), points=5, off_w=4.0)
    assert np.abs(found.watts - truth.watts).max() < 1.0
    assert found.off_w == 4.0


def test_a_fit_is_straight_where_nothing_was_measured_and_never_falls() -> None:
    loads = np.array([0.1, 0.2, 0.8, 0.9])
    found = fit(loads, 100.0 + 100.0 * loads)
    np.testing.assert_allclose(found.at(np.linspace(0.0, 1.0, 21)), 100.0 + 100.0 * np.linspace(0.0, 1.0, 21), atol=0.2)
    falling = fit(np.array([0.0, 0.5, 1.0]), np.array([200.0, 150.0, 100.0]))
    assert falling.watts == pytest.approx(np.full(11, 150.0), abs=0.1)


@pytest.mark.parametrize(
    ("loads", "watts"),
    [([0.5], [1.0]), ([0.5, 1.5], [1.0, 1.0]), ([0.5, math.nan], [1.0, 1.0]), ([0.1, 0.2], [1.0, -1.0]), ([], [])],
)
def test_measurements_that_cannot_be(loads: list[float], watts: list[float]) -> None:
    with pytest.raises(InvalidValue):
        fit(np.array(loads), np.array(watts))


def test_figures_that_cannot_be() -> None:
    for wrong in ((100.0,), (100.0, math.nan), (100.0, -1.0)):
        with pytest.raises(InvalidValue, match="curve_w"):
            PowerCurve(np.array(wrong))
    with pytest.raises(InvalidValue, match="off_w"):
        curve_of(1.0, 2.0, -1.0)
    with pytest.raises(InvalidValue, match="default"):
        Draws({"big": curve_of(1.0, 2.0)})
