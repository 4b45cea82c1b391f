"""Profiles and the assurance of their sum: the figures of the paper and of a trace small enough to check by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats  # type: ignore[import-untyped]
from scipy.optimize import linprog  # type: ignore[import-untyped]

from daemons.models.assurance import comonotone, convolution, normal_form
from daemons.models.assurance.aggregate import Utility, empty, utility
from daemons.models.assurance.build import Series, profiles
from daemons.models.assurance.choice import Method, assurance
from daemons.models.assurance.correlation import Measured, measure, pair_variance
from daemons.models.assurance.intervals import half_width, wilson
from daemons.models.assurance.loss import gamma_of, theta_of
from daemons.models.assurance.normality import jarque_bera
from daemons.models.assurance.profile import Profile
from daemons.models.assurance.resources import binding
from shared.base.errors import InvalidValue
from tests.support.assurance_cases import (
    NORMAL_GAMMA,
    RHO,
    THETAS,
    constant,
    naive_sum,
    one_slot,
    random_profiles,
    small_series,
)

TABLE_1 = (one_slot(0.0, 0.14, 0.0, 0.66, 0.2), one_slot(0.0, 0.11, 0.03, 0.75, 0.11), one_slot(0, 0.14, 0, 0.83, 0.03))


def small() -> tuple[Utility, Measured]:
    """The small trace's sum."""
    observed = small_series()
    return utility(profiles(observed)), measure(observed)


def test_the_sum_of_the_small_trace() -> None:
    """Moments and correlations, measured and at their most."""
    whole, measured = small()

    assert np.allclose(whole.mean, [18.6, 18.1, 16.4])
    assert np.allclose(measured.mean, whole.mean)
    assert whole.peaks.tolist() == [26, 29, 26]
    assert np.allclose(whole.variance_sum, [5.42, 7.75, 5.4])
    assert np.allclose(measured.variance, [6.04, 2.69, 9.24])
    assert np.allclose(whole.sd(measured.rho) ** 2, measured.variance)
    assert np.allclose(comonotone.moments(whole.worst_cdf)[1], [27.44, 38.09, 29.04])
    assert np.allclose(measured.rho, RHO, atol=1e-8)
    assert np.allclose(whole.worst_rho(), [0.87081125, 0.85667811, 0.88654599], atol=1e-8)


def test_the_assurance_of_the_small_trace() -> None:
    """theta of 12, 16 and 20 servers, and the servers for four assurances."""
    whole, measured = small()

    normal = [[0.65682921, 0.66856362, 0.74928759], [0.86273563, 0.88608747, 0.92808522]]
    normal.append([0.98064095, 0.99531676, 0.99219167])
    exact = [[0.65563778, 0.67910681, 0.74551888], [0.86434719, 0.87995569, 0.94075495]]
    exact.append([0.98251443, 0.98177367, 0.99719477])
    assert np.allclose([whole.theta_normal(gamma, measured.rho) for gamma in (12, 16, 20)], normal, atol=1e-8)
    assert np.allclose([whole.theta_independent(gamma) for gamma in (12, 16, 20)], exact, atol=1e-8)
    assert [tuple(whole.gamma_normal(theta, measured.rho)) for theta in THETAS] == list(NORMAL_GAMMA)


def test_measured_variance_is_that_of_the_summed_trace() -> None:
    """Eq. 6 with rho of eq. 5 is an identity, with population moments."""
    observed = small_series()
    measured = measure(observed)

    for slot in range(3):
        sums = observed.demand[:, observed.slot == slot].sum(axis=0)
        assert measured.variance[slot] == pytest.approx(sums.var())


@pytest.mark.parametrize(
    ("mean", "sd", "wanted"), [(125.7, 8.45, (101, 113, 131, 141)), (147.0, 13.45, (117, 133, 158, 172))]
)
def test_table_2(mean: float, sd: float, wanted: tuple[int, ...]) -> None:
    """Eq. 8 inverted for a sum of peaks of 275."""
    found = [normal_form.gamma(theta, np.array([mean]), np.array([sd]), np.array([275])) for theta in THETAS]
    assert tuple(int(each[0]) for each in found) == wanted


def test_assurance_of_two_small_distributions() -> None:
    """{1: .5, 2: .5} and {1: .25, 2: .75}."""
    whole = utility([one_slot(0.0, 0.5, 0.5), one_slot(0.0, 0.25, 0.75)])
    found = [float(whole.theta_independent(gamma)[0]) for gamma in (1, 2, 3, 4)]
    assert found == pytest.approx([0.322917, 0.645833, 0.90625, 1.0], abs=5e-7)


def test_largest_covariances_of_table_1() -> None:
    """Of the three pairs of distributions, in closed form and by linear programs."""
    pairs = [(0, 1), (0, 2), (1, 2)]
    found = [float(comonotone.covariance_max(TABLE_1[a], TABLE_1[b])[0]) for a, b in pairs]

    assert found == pytest.approx([0.5988, 0.57, 0.495], abs=1e-12)
    assert found == pytest.approx([by_program(TABLE_1[a], TABLE_1[b]) for a, b in pairs], abs=1e-9)


def by_program(one: Profile, other: Profile) -> float:
    """The largest covariance by a linear program on the joint distribution (section 3.2)."""
    p, q = one.pmf[0], other.pmf[0]
    gain = -np.multiply.outer(np.arange(p.size), np.arange(q.size)).reshape(-1).astype(float)
    rows = np.concatenate([np.kron(np.eye(p.size), np.ones(q.size)), np.kron(np.ones(p.size), np.eye(q.size))])
    solved = linprog(gain, A_eq=rows, b_eq=np.concatenate([p, q]), bounds=(0, 1))
    assert solved.success
    return float(-solved.fun - one.mean()[0] * other.mean()[0])


def test_worst_case_is_the_linear_program() -> None:
    """Of random distributions, for all pairs of four applications at once."""
    for seed in range(12):
        four = random_profiles(seed, 4, 1, 6)
        programs = sum(by_program(four[a], four[b]) for a in range(4) for b in range(a))
        variances = sum(float(each.variance()[0]) for each in four)
        worst = float(comonotone.moments(comonotone.of_profiles(four))[1][0])
        assert worst == pytest.approx(variances + 2.0 * programs, abs=1e-9)


def test_convolution_is_enumeration() -> None:
    """All outcomes of four small applications."""
    for seed in range(5):
        four = random_profiles(seed, 4, 2, 4)
        found = convolution.of_profiles(four)
        for slot in range(2):
            each = np.zeros(sum(profile.units for profile in four) + 1)
            for values in product(*(range(profile.units + 1) for profile in four)):
                chances = (profile.pmf[slot, value] for profile, value in zip(four, values, strict=True))
                each[sum(values)] += np.prod(list(chances))
            assert np.abs(each[: found.shape[1]] - found[slot]).max() < 1e-15
            assert each[found.shape[1] :].sum() == 0.0


def test_transforms_err_less_than_they_say() -> None:
    """Many and wide distributions, beside convolution term by term; the bound is that of one transform (Higham)."""
    several = random_profiles(3, 300, 1, 60)
    found, naive = convolution.of_profiles(several)[0], naive_sum([each.pmf[0] for each in several])
    error = np.abs(np.pad(found, (0, naive.size - found.size)) - naive).sum()

    bound = 11.0 * np.finfo(np.float64).eps * np.log2(naive.size) * np.sqrt(naive.size)
    assert error < bound < 1e-11
    assert error < 1e-12
    gamma = float(np.searchsorted(naive.cumsum(), 0.97))
    assert abs(theta_of(found[None], gamma)[0] - theta_of(naive[None], gamma)[0]) < 1e-12


def test_transforms_of_any_length() -> None:
    """Two factors each, at which a transform one shorter would fold the last probability onto the first."""
    for length in range(50, 90):
        one, other = (np.random.default_rng(seed).dirichlet(np.ones(length)) for seed in (1, 2))
        found = convolution.convolved(one[None], other[None])[0]
        assert np.abs(found - np.convolve(one, other)).max() < 1e-16


def test_a_thousand_applications_in_extended_precision() -> None:
    """theta errs by less than 1e-12, wherever the sum is."""
    several = random_profiles(7, 1_000, 1, 8)
    naive = naive_sum([each.pmf[0].astype(np.longdouble) for each in several], np.longdouble)
    values = np.arange(1, naive.size)
    found = convolution.of_profiles(several)

    assert np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
    mean = int(found[0] @ np.arange(found.shape[1]))
    for gamma in (mean // 2, mean - 40, mean, mean + 40, mean + 120):
        exact = 1 - (naive[1:] * np.maximum(1 - gamma / values.astype(np.longdouble), 0)).sum()
        assert abs(float(theta_of(found, gamma)[0] - exact)) < 1e-12


def test_one_application_more_is_as_if_from_the_start() -> None:
    """In all that a utility keeps."""
    several = random_profiles(5, 9, 4, 5)
    grown = empty(4)
    for profile in several:
        grown = grown.added(profile)
    whole = utility(several)

    width = whole.pmf.shape[1]
    assert np.allclose(grown.pmf[:, :width], whole.pmf, atol=1e-15)
    assert not grown.pmf[:, width:].any()
    assert np.array_equal(grown.worst_cdf, whole.worst_cdf)
    assert np.allclose(grown.sd(0.3), whole.sd(0.3))
    assert np.array_equal(grown.peaks, whole.peaks)
    assert grown.applications == 9


def test_normal_form_is_its_integral() -> None:
    """By quadrature, near and far from the mean, with a peak that cuts and one that does not."""
    for gamma, mean, sd, peak in ((1, 100, 50, 400), (80, 100, 5, 130), (120, 100, 30, 125), (3, 4, 0.01, 9)):
        density = stats.norm(mean, sd)
        points = [mean] if gamma < mean < peak else None
        part = integrate.quad(lambda x, d=density: d.pdf(x) / x, gamma, peak, points=points, epsabs=1e-13, limit=500)[0]
        wanted = density.cdf(gamma) + gamma * part + gamma / peak * density.sf(peak)
        found = normal_form.theta(np.array(gamma), np.array(mean), np.array(sd), np.array(peak))
        assert float(found) == pytest.approx(wanted, abs=1e-9)


def test_normal_form_at_its_ends() -> None:
    """1 from the peak on, where the formula exceeds 1; a sum that never varies; none at all."""
    three = np.array([5.0, 5.0, 0.0])
    found = normal_form.theta(np.array([10.0, 4.0, 0.0]), three, np.array([2.0, 0.0, 0.0]), np.array([10.0, 9.0, 0.0]))
    assert found.tolist() == [1.0, 0.8, 1.0]
    assert normal_form.gamma(1.0, np.array([5.0]), np.array([2.0]), np.array([10])).tolist() == [10]
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(InvalidValue, match="gamma"):
            normal_form.theta(np.array(bad), np.array(5.0), np.array(1.0), np.array(9.0))


@pytest.mark.parametrize("sd", [1e-6, 1e-9, 1e-12, 1e-15, 1e-300])
def test_normal_form_of_a_sum_that_hardly_varies(sd: float) -> None:
    """It is the limit, whose points lie closer together than numbers do."""
    mean, spread, peak = np.array(100.3), np.array(sd), np.array(200.0)
    assert normal_form.theta(np.array([50.0, 90.0, 101.0]), mean, spread, peak) == pytest.approx(
        [50.0 / 100.3, 90.0 / 100.3, 1.0], abs=1e-8
    )


def test_demands_that_make_up_for_each_other() -> None:
    """Their sum never varies: rounding is no standard deviation, for which a unit more would be asked."""
    rng = np.random.default_rng(0)
    for days in range(5, 40):
        one = rng.integers(0, 29, days)
        demand = np.stack([one, 28 - one]).astype(np.int32)
        trace = Series(demand, np.arange(days), np.zeros(days, dtype=np.int64), 1)
        whole, measured = utility(profiles(trace)), measure(trace)
        assert (measured.sd.tolist(), whole.sd(measured.rho).tolist()) == ([0.0], [0.0])
        assert assurance(whole, measured, Method.NORMAL).gamma(0.5).tolist() == [14]


def test_guaranteed_is_the_sum_of_peaks() -> None:
    """By every method."""
    whole, measured = small()
    for method in Method:
        assert assurance(whole, measured, method).gamma(1.0).tolist() == [26, 29, 26]


def test_never_seen_in_35_days() -> None:
    """May still have 9.9 %."""
    low, high = wilson(np.array([0.0, 1.0, 0.3]), np.array([35.0, 35.0, 0.0]))
    assert high[0] == pytest.approx(0.099, abs=5e-4)
    assert low[0] == 0.0
    assert low[1] == pytest.approx(1.0 - high[0])
    assert (low[2], high[2]) == (0.0, 1.0)
    assert half_width(np.array([[0.5, 0.5]]), np.array([100])) == pytest.approx([0.0962], abs=5e-4)
    for bad in (-0.1, np.nan, 1.1):
        with pytest.raises(InvalidValue, match="frequency"):
            wilson(np.array([bad]), np.array([35.0]))
    with pytest.raises(InvalidValue, match="confidence"):
        wilson(np.array([0.1]), np.array([35.0]), confidence=1.0)


def test_normality_as_scipy_has_it() -> None:
    """The statistic and its p-value; too few and constant sums are not tested."""
    rng = np.random.default_rng(4)
    for sums in (rng.normal(10, 3, 200), rng.exponential(5, 100)):
        wanted = stats.jarque_bera(sums)
        assert jarque_bera(sums) == pytest.approx((wanted.statistic, wanted.pvalue))
    assert np.isnan(jarque_bera(np.arange(7.0))).all()
    assert np.isnan(jarque_bera(np.full(50, 3.1))).all()


def joint(seed: int, together: float, skewed: bool) -> tuple[Utility, Measured]:
    """Thirty applications on 200 days of one slot; in `together` of the days one number draws all."""
    rng = np.random.default_rng(seed)
    own, common = rng.random((30, 200)), rng.random(200)
    drawn = np.where(rng.random(200) < together, common, own)
    demand = 1 + (drawn > 0.95) * 5 if skewed else np.digitize(drawn, stats.norm(2, 1).cdf(np.arange(5)))
    observed = small_series()
    trace = type(observed)(demand.astype(np.int32), np.arange(200), np.zeros(200, dtype=np.int64), 1)
    return utility(profiles(trace)), measure(trace)


def test_automatic_choice() -> None:
    """Independent: exact. Correlated: the normal form, but not where normality is rejected. Unknown: the worst."""
    apart, apart_measured = joint(1, 0.0, skewed=False)
    assert assurance(apart, apart_measured).methods == (Method.CONVOLUTION,)
    skewed, skewed_measured = joint(2, 0.5, skewed=True)
    assert skewed_measured.normality_p[0] < 0.01
    assert assurance(skewed, skewed_measured).methods == (Method.MIXTURE,)
    assert assurance(apart).methods == (Method.WORST_CASE,)
    variance, rho, normal, independent = (np.array([value]) for value in (60.0, 0.05, 0.6, 1e-9))
    like_normal = Measured(apart.mean, variance, rho, normal, independent, np.array([200]))
    assert assurance(apart, like_normal).methods == (Method.NORMAL,)


def test_the_worst_case_is_that_of_the_variance() -> None:
    """One unit for two applications of 0 or 2 units serves more where they vary together than where they do not."""
    whole = utility([one_slot(0.5, 0.0, 0.5), one_slot(0.5, 0.0, 0.5)])
    assert whole.theta_worst(1.0).tolist() == [0.625]
    assert whole.theta_independent(1.0).tolist() == [0.5625]


def test_normal_form_is_obeyed_and_flagged() -> None:
    """Where normality is rejected."""
    skewed, measured = joint(2, 0.5, skewed=True)
    found = assurance(skewed, measured, Method.NORMAL)
    assert found.methods == (Method.NORMAL,)
    assert found.rejected.tolist() == [True]
    assert np.allclose(found.theta(50.0), skewed.theta_normal(50.0, measured.rho))
    for method in (Method.NORMAL, Method.MIXTURE):
        with pytest.raises(InvalidValue, match="no correlation was measured"):
            assurance(skewed, None, method)


def test_the_mixture_has_the_measured_variance() -> None:
    """And lies between the exact sum of independent demands and the worst case."""
    skewed, measured = joint(2, 0.5, skewed=True)
    found = assurance(skewed, measured, Method.MIXTURE)
    weight = float(found.weight[0])
    parts = (skewed.pmf, skewed.worst_pmf())
    size = max(part.shape[1] for part in parts)
    wide = [np.pad(part[0], (0, size - part.shape[1])) for part in parts]
    mixed = (1.0 - weight) * wide[0] + weight * wide[1]
    values = np.arange(size)

    assert 0.0 < weight < 1.0
    assert (mixed * (values - skewed.mean[0]) ** 2).sum() == pytest.approx(measured.variance[0])
    assert found.theta(50.0)[0] == pytest.approx(theta_of(mixed[None], 50.0)[0])
    assert skewed.theta_worst(50.0)[0] < found.theta(50.0)[0] < skewed.theta_independent(50.0)[0]


def test_different_methods_in_different_slots() -> None:
    """Each slot has its own."""
    whole, measured = small()
    each = [assurance(whole, measured, method).theta(16.0) for method in list(Method)[1:4]]
    mixed = assurance(whole, measured)
    chosen = type(mixed)(whole, tuple(list(Method)[1:4]), mixed.rho, mixed.rejected, mixed.weight)
    assert np.allclose(chosen.theta(16.0), [each[slot][slot] for slot in range(3)])


def test_bad_amounts() -> None:
    """NaN, negative, infinite and 0 units; assurances that there are not."""
    pmf, peaks = np.array([[0.5, 0.0, 0.5]]), np.array([2])
    for bad in (np.nan, -1.0, -np.inf):
        with pytest.raises(InvalidValue, match="gamma"):
            theta_of(pmf, bad)
    assert theta_of(pmf, np.inf).tolist() == [1.0]
    assert theta_of(pmf, 0.0).tolist() == [0.5]
    for bad in (0.0, -0.1, 1.1, np.nan):
        with pytest.raises(InvalidValue, match="theta"):
            gamma_of(pmf, bad, peaks)


def test_nobody_and_nothing() -> None:
    """No application needs nothing; one that needs nothing changes nothing; unlike ones are refused."""
    nobody = empty(2)
    assert nobody.gamma_independent(0.9).tolist() == nobody.gamma_worst(0.9).tolist() == [0, 0]
    assert nobody.theta_normal(0.0).tolist() == [1.0, 1.0]
    assert nobody.worst_rho().tolist() == [0.0, 0.0]
    idle = nobody.added(constant(0, 2))
    assert idle.gamma_normal(0.999).tolist() == [0, 0]
    for other in (constant(1, 3), constant(1, 2, "memory"), constant(1, 2, unit=2.0)):
        with pytest.raises(InvalidValue):
            nobody.added(other)
    for bad in (utility, comonotone.of_profiles, convolution.of_profiles):
        with pytest.raises(InvalidValue, match="at least one"):
            bad([])


def test_a_huge_demand() -> None:
    """Two of 100,000 units beside a small one."""
    wide = np.zeros(100_001)
    wide[[1, 100_000]] = 0.5
    whole = utility([one_slot(*wide), one_slot(*wide), one_slot(0.5, 0.5)])
    assert whole.peaks.tolist() == [200_001]
    assert whole.theta_independent(200_000)[0] == pytest.approx(1.0 - 0.125 / 200_001)
    assert whole.gamma_worst(0.999997).tolist() == [200_000]


def test_binding_resource() -> None:
    """Of which the largest part is needed."""
    assert binding({"servers": 3, "memory": 300}, {"servers": 4, "memory": 320}) == ("memory", 0.9375)
    assert binding({"servers": 0, "memory": 1}, {"servers": 0, "memory": 0}) == ("memory", np.inf)
    for needed, there in (({}, {}), ({"cpu": 1.0}, {}), ({"cpu": np.nan}, {"cpu": 1.0}), ({"cpu": -1.0}, {"cpu": 1.0})):
        with pytest.raises(InvalidValue):
            binding(needed, there)


def test_pairs_of_one() -> None:
    """Have nothing to vary with."""
    alone = one_slot(0.5, 0.5)
    assert pair_variance(alone.variance(), np.sqrt(alone.variance())).tolist() == [0.0]
    assert comonotone.covariance_max(alone, one_slot(0.0, 1.0)).tolist() == [0.0]
    assert comonotone.covariance_max(alone, alone).tolist() == alone.variance().tolist()
