"""Assurance: what holds for any demands."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.models.assurance.aggregate import Utility, utility
from daemons.models.assurance.choice import Assurance, Method, assurance
from daemons.models.assurance.correlation import Measured
from daemons.models.assurance.loss import SLACK, theta_of
from daemons.models.assurance.profile import Profile
from tests.extent import examples

SLOTS = 2
weights = st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any)


@st.composite
def demands(draw: st.DrawFn) -> list[Profile]:
    """One to five applications of two slots."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        rows = [draw(weights) for _ in range(SLOTS)]
        pmf = np.zeros((SLOTS, max(map(len, rows))))
        for line, row in zip(pmf, rows, strict=True):
            line[: len(row)] = np.array(row) / sum(row)
        found.append(Profile(pmf, np.zeros(SLOTS, dtype=np.int64)))
    return found


def by(whole: Utility, method: Method, rho: float) -> Assurance:
    """The assurance by one method with one correlation."""
    p = np.ones(SLOTS)
    measured = Measured(whole.mean, whole.sd(rho) ** 2, np.full(SLOTS, rho), p, p, np.full(SLOTS, 35))
    return assurance(whole, measured, method)


methods = st.sampled_from([Method.CONVOLUTION, Method.NORMAL, Method.WORST_CASE, Method.MIXTURE])


@settings(max_examples=examples(60))
@given(demands(), methods, st.floats(0.0, 1.0), st.floats(0.01, 0.9999))
def test_gamma_is_the_least(several: list[Profile], method: Method, rho: float, theta: float) -> None:
    """It is enough, one unit less is not, and it lies between 0 and the sum of peaks."""
    whole = utility(several)
    found = by(whole, method, rho)
    gamma = found.gamma(theta)

    assert (found.theta(gamma.astype(np.float64)) >= theta - SLACK).all()
    short = found.theta(np.maximum(gamma - 1, 0).astype(np.float64))
    assert ((short < theta - SLACK) | (gamma == 0)).all()
    assert ((gamma >= 0) & (gamma <= whole.peaks)).all()


@settings(max_examples=examples(60))
@given(demands(), methods, st.floats(0.0, 1.0))
def test_more_units_serve_more(several: list[Profile], method: Method, rho: float) -> None:
    """From 0 to the sum of peaks, which serves all; always between 0 and 1."""
    whole = utility(several)
    found = by(whole, method, rho)
    table = np.array([found.theta(float(gamma)) for gamma in range(int(whole.peaks.max()) + 2)])

    assert (np.diff(table, axis=0) >= -1e-12).all()
    assert ((table >= 0.0) & (table <= 1.0)).all()
    assert np.allclose(table[whole.peaks, np.arange(SLOTS)], 1.0, atol=1e-12)


@settings(max_examples=examples(60))
@given(demands())
def test_the_worst_case_has_the_same_mean_and_the_larger_spread(several: list[Profile]) -> None:
    """And of every tail the heaviest: sum over y of max(y - k, 0) is at least that of independent demands."""
    whole = utility(several)
    worst, apart = whole.worst_pmf(), whole.pmf
    values = np.arange(max(worst.shape[1], apart.shape[1]), dtype=np.float64)
    worst, apart = (np.pad(each, ((0, 0), (0, values.size - each.shape[1]))) for each in (worst, apart))

    assert np.allclose(worst @ values, apart @ values)
    for k in values:
        beyond = np.maximum(values - k, 0.0)
        assert (worst @ beyond >= apart @ beyond - 1e-12).all()
    assert (whole.worst_rho() >= -1e-12).all()


@settings(max_examples=examples(60))
@given(demands(), st.integers(0, 40))
def test_theta_is_its_definition(several: list[Profile], gamma: int) -> None:
    """E[min(gamma / Y, 1)], term by term; one number or one for each slot."""
    pmf = utility(several).pmf
    wanted = [sum(p * (1.0 if y <= gamma else gamma / y) for y, p in enumerate(row.tolist())) for row in pmf]
    assert np.allclose(theta_of(pmf, gamma), wanted, atol=1e-13)
    assert np.allclose(theta_of(pmf, np.full(SLOTS, float(gamma))), wanted, atol=1e-13)


@settings(max_examples=examples(40))
@given(demands(), st.floats(0.05, 0.999))
def test_one_more_application_never_needs_less(several: list[Profile], theta: float) -> None:
    """By each method that is exact."""
    whole = utility(several)
    more = whole.added(several[0])
    assert (more.gamma_independent(theta) >= whole.gamma_independent(theta)).all()
    assert (more.gamma_worst(theta) >= whole.gamma_worst(theta)).all()
