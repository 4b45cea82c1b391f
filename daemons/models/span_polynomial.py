"""Polynomials on a span from 0 on, of coefficients that anybody may have written: nothing overflows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from shared.base.errors import InvalidValue

Floats = NDArray[np.float64]
TERM_MAX = 1e300
NEGLECTED = 1e-18  # of the largest term: it does not change a sum of them


@dataclass(frozen=True, slots=True)
class SpanPolynomial:
    """c0 + c1 x + c2 x^2 ... for 0 <= x <= span. `scaled`: the coefficients in x / span, so that none is more than its
    term can be."""

    scaled: Floats
    span: float

    @classmethod
    def of(cls, terms: Sequence[float], span: float) -> SpanPolynomial:
        """Scale the coefficients, lowest power first. Raises `InvalidValue` when a term can be more than `TERM_MAX` on
        the span."""
        with np.errstate(over="ignore", invalid="ignore"):
            powers = np.power(np.float64(span or 1.0), np.arange(max(len(terms), 1)))
            scaled: Floats = np.asarray(np.array(terms or [0.0], dtype=np.float64) * powers, dtype=np.float64)
        largest = float(np.max(np.abs(scaled)))
        if not largest <= TERM_MAX:
            raise InvalidValue("profile", list(terms), f"terms of at most {TERM_MAX:g} from 0 to {span:g}")
        scaled[np.abs(scaled) < NEGLECTED * largest] = 0.0
        return cls(np.asarray(polynomial.polytrim(scaled), dtype=np.float64), span)

    def __call__(self, places: Floats | float) -> Floats:
        """Return the values at these places."""
        within = np.asarray(places, dtype=np.float64) / (self.span or 1.0)
        return np.asarray(polynomial.polyval(within, self.scaled), dtype=np.float64)

    def lowest(self) -> tuple[float, float]:
        """Find where on the span it is lowest, and its value there."""
        roots = np.asarray(polynomial.polyroots(polynomial.polyder(self.scaled)), dtype=np.complex128) * self.span
        turns = roots.real[np.abs(roots.imag) < 1e-9 * (1.0 + np.abs(roots.real))]
        places = np.concatenate([[0.0, self.span], turns[(turns > 0.0) & (turns < self.span)]])
        values = self(places)
        at = int(np.argmin(values))
        return float(places[at]), float(values[at])
