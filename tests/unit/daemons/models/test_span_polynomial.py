"""Polynomials on a span: as the plain ones, but that nothing overflows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

from daemons.models.span_polynomial import SpanPolynomial
from shared.base.errors import InvalidValue

COEFFICIENTS = st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("terms", "span", "lowest"),
    [
        ([2.0, -3e-5], 57_600.0, (57_600.0, 0.272)),
        ([2.0, -1.04167e-4, 1.80845e-9], 57_600.0, (28_800.077, 0.5)),
        ([3.0], 10.0, (0.0, 3.0)),
        ([3.0, 1.0], 0.0, (0.0, 3.0)),
        ([1.0, 0.0, 5e-324], 1e3, (0.0, 1.0)),  # whose roots a division by the last coefficient would make infinite
    ],
)
def test_where_it_is_lowest(terms: list[float], span: float, lowest: tuple[float, float]) -> None:
    assert SpanPolynomial.of(terms, span).lowest() == pytest.approx(lowest, abs=1e-2)


@given(terms=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), span=st.floats(0.1, 1e4))
def test_it_is_the_plain_polynomial(terms: list[float], span: float) -> None:
    """And nowhere of a thousand places lower than where it is lowest."""
    places = np.linspace(0.0, span, 1_000)
    curve = SpanPolynomial.of(terms, span)
    size = float(np.max(np.abs(terms) * span ** np.arange(len(terms)))) or 1.0

    assert curve(places) == pytest.approx(Polynomial(terms)(places), abs=1e-12 * size)
    assert curve.lowest()[1] <= curve(places).min() + 1e-9 * size


@given(terms=COEFFICIENTS, span=st.floats(0.0, 1e9))
def test_nothing_overflows(terms: list[float], span: float) -> None:
    """It is refused, or finite everywhere; a warning of numpy's would be an error here."""
    try:
        curve = SpanPolynomial.of(terms, span)
    except InvalidValue:
        return

    assert np.isfinite(curve.lowest()).all()
    assert np.isfinite(curve(np.linspace(0.0, span, 20))).all()
