"""Loading vectors from completion times: eq. 13, Algorithm 1 over several numbers of copies, probes, other nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daemons.models.dilation import formula, product_form
from daemons.models.dilation.completion import composed
from daemons.models.dilation.inverse import (
    Inverted,
    ResourceFraction,
    Status,
    converted,
    mean,
    of_square,
    probed,
    regressed,
    vector_of,
)
from shared.base.errors import InvalidValue


def inverted(copies: int, dilation: float) -> Inverted:
    """From the dilation of so many copies that ran together."""
    return of_square((dilation - 1.0) / (copies - 1))


def test_equation_13() -> None:
    """Three copies at 2.64 are (0.9, 0.1) or (0.1, 0.9); four at 2.2 are slowed less than two resources allow."""
    found = inverted(3, 2.64)

    assert found.status is Status.OK
    assert (found.larger, found.smaller) == pytest.approx((0.9, 0.1))
    assert inverted(4, 2.2) == Inverted(Status.BELOW, 0.5, 0.5)


@pytest.mark.parametrize(("copies", "part"), [(2, 0.5), (2, 1.0), (3, 0.98), (5, 0.6), (40, 0.77)])
def test_it_inverts_the_formula(copies: int, part: float) -> None:
    """Theorem 2, and back."""
    dilation = float(formula.dilation(np.full((copies, 2), (part, 1.0 - part)))[0])

    found = inverted(copies, dilation)

    assert found.larger == pytest.approx(part, abs=1e-6)


def test_rounding_is_no_other_status() -> None:
    """Given exact times of jobs at the bounds, then a square or a sum that is above 1 by 2e-16 is still there."""
    for copies in range(2, 40):
        for alone_s in (3.1, 7.0, 56.0):
            found = inverted(copies, alone_s * copies / alone_s)
            assert found.status is Status.OK
            assert found.larger == pytest.approx(1.0, abs=1e-6)
            half = inverted(copies, alone_s * (1.0 + (copies - 1) / 2) / alone_s)
            assert half.status is Status.OK
            assert half.larger == pytest.approx(0.5, abs=1e-4)
    parts, status = vector_of([probed(7.0, 13.3), probed(7.0, 7.7)])
    assert status is Status.OK
    assert parts.tolist() == pytest.approx([0.9, 0.1])
    assert parts.sum() <= 1.0
    assert probed(3.1, 3.1 * 2.0 + 1e-15).status is Status.OK


def test_what_no_vector_fits() -> None:
    """More than n times slower, not slowed at all, faster than alone."""
    assert inverted(3, 3.2) == Inverted(Status.ABOVE, 1.0, 0.0)
    assert inverted(3, 1.0) == inverted(3, 0.97) == Inverted(Status.NOT_SLOWED, 0.0, 0.0)


def test_a_probe_decides_between_the_solutions() -> None:
    """The solution nearer to what a probe of the first resource found."""
    found = inverted(3, 2.64)

    assert found.decided(0.2) == (found.smaller, found.larger)
    assert found.decided(0.7) == (found.larger, found.smaller)
    assert found.decided(0.5) == (found.larger, found.smaller)


def test_regression_is_exact_on_exact_times() -> None:
    """Given dilations of one to five copies without noise, then the vector comes back and the interval has no width."""
    p = (0.7, 0.3)
    dilations = [float(formula.dilation(np.full((n, 2), p))[0]) for n in range(1, 6)]

    found = regressed(range(1, 6), dilations)

    assert found.samples == 4
    assert found.value == pytest.approx(0.58)
    assert found.high - found.low == pytest.approx(0.0, abs=1e-9)
    assert of_square(found.value).larger == pytest.approx(0.7)


def test_the_interval_of_the_regression_holds_the_truth() -> None:
    """Given noise, then some 95 % of the intervals hold the true slope."""
    rng = np.random.default_rng(9)
    copies = np.repeat(np.arange(1, 6), 3)
    held = 0
    for _ in range(400):
        found = regressed(copies.tolist(), (1.0 + 0.58 * (copies - 1) + rng.normal(0.0, 0.2, copies.size)).tolist())
        held += found.low <= 0.58 <= found.high

    assert 0.92 <= held / 400 <= 0.98


def test_one_number_of_copies_has_no_interval() -> None:
    """One measurement gives a slope and says that nothing is known of its error; none is refused."""
    found = regressed([3], [2.64])

    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.value == pytest.approx(0.82)
    for copies, dilations in (
        ([1, 1], [1.0, 1.0]),
        ([], []),
        ([0, 2], [1.0, 2.0]),
        ([2], [math.nan]),
        ([2], [1.0, 2.0]),
    ):
        with pytest.raises(InvalidValue):
            regressed(copies, dilations)


def test_a_mean_with_its_interval() -> None:
    """Student's interval of four values; of one there is none."""
    found = mean([1.0, 2.0, 3.0, 4.0])

    assert found.value == 2.5
    assert found.high - found.value == pytest.approx(3.182446 * math.sqrt(5.0 / 3.0 / 4.0), rel=1e-6)
    assert mean([3.0]).high == math.inf
    with pytest.raises(InvalidValue):
        mean([])


def test_probes_of_the_paper() -> None:
    """Section 4.2: FileComp, 78.08 s alone, 123.67 s beside 200 s of the CPU's standard job."""
    found = probed(78.08, 123.67, 200.0)

    assert found.status is Status.OK
    assert found.value == pytest.approx(0.58, abs=0.005)


@pytest.mark.parametrize("probe_s", [10.0, 40.0, 99.0, 101.0, 1_000.0])
def test_a_probe_may_end_first(probe_s: float) -> None:
    """Given a job and a probe of any length, then the part comes back from when the job ended."""
    beside_s = float(composed([(0.6, 0.4), (0.0, 1.0)], [100.0, probe_s])[0])

    assert probed(100.0, beside_s, probe_s).value == pytest.approx(0.4)


def test_several_probes_for_several_servers() -> None:
    """Given a disk that serves three at once, then five probes show the part, exactly; two could not slow the job."""
    p = np.array([(0.6, 0.4)] + [(0.0, 1.0)] * 5)
    slowed = float(product_form.dilation(p, (1, 3))[0])

    assert probed(100.0, 100.0 * slowed, copies=5, servers=3).value == pytest.approx(0.4)
    with pytest.raises(InvalidValue, match="servers"):
        probed(100.0, 120.0, copies=2, servers=3)
    with pytest.raises(InvalidValue, match="outlast"):
        probed(100.0, 120.0, 50.0, copies=3, servers=3)


@pytest.mark.parametrize(
    "times_s", [(0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, math.inf, 1.0), (1.0, 1.0, 0.0), (math.nan, 1.0, 1.0)]
)
def test_times_of_a_probe_that_cannot_be(times_s: tuple[float, float, float]) -> None:
    """They are refused by name."""
    with pytest.raises(InvalidValue, match="_s"):
        probed(*times_s)


def test_a_vector_from_probes() -> None:
    """A probe of each resource gives the vector; one that cannot be is scaled and says so."""
    fine, said = vector_of(
        [ResourceFraction(Status.OK, 0.5), ResourceFraction(Status.NOT_SLOWED, 0.0), ResourceFraction(Status.OK, 0.3)]
    )
    scaled, warned = vector_of([ResourceFraction(Status.OK, 0.9), ResourceFraction(Status.OK, 0.6)])

    assert (fine.tolist(), said) == ([0.5, 0.0, 0.3], Status.OK)
    assert (scaled.tolist(), warned) == ([pytest.approx(0.6), pytest.approx(0.4)], Status.ABOVE)
    assert vector_of([probed(10.0, 25.0), ResourceFraction(Status.NOT_SLOWED, 0.0)])[1] is Status.ABOVE
    assert vector_of([ResourceFraction(Status.NOT_SLOWED, 0.0)] * 2)[1] is Status.NOT_SLOWED


def test_another_type_of_node() -> None:
    """On twice as fast a disk the part of the disk halves, the others grow, and so it is on the way back."""
    p, factor = converted((0.5, 0.4), (10.0, 8.0), (10.0, 4.0))

    assert factor == pytest.approx(0.8)
    assert p == pytest.approx([0.625, 0.25])
    back, again = converted(p, (10.0, 4.0), (10.0, 8.0))
    assert back == pytest.approx([0.5, 0.4])
    assert factor * again == pytest.approx(1.0)
    with pytest.raises(InvalidValue, match="to_times_s"):
        converted((0.5, 0.4), (10.0, 8.0), (10.0, 0.0))
