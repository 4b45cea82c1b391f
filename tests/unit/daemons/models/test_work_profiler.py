"""The work profiler finds what a made-up application does, and says when it cannot."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from daemons.models.work_profiler import (
    UsageSample,
    WorkEstimate,
    WorkEstimateStatus,
    WorkWindows,
    estimate,
)
from shared.base.errors import InvalidValue

WORK = (20.0, 80.0)
BACKGROUND_MHZ = 150.0


def _run(
    rates: np.ndarray, noise_mhz: np.ndarray, instances: int = 3, background_mhz: float = BACKGROUND_MHZ
) -> WorkWindows:
    """Windows of 20 s in which the requests needed WORK each and every instance `background_mhz`."""
    samples = []
    for row, noise in zip(rates, noise_mhz, strict=True):
        used = float(row @ np.array(WORK[: len(row)])) + background_mhz * instances + float(noise)
        samples.append(UsageSample(20.0, max(0.0, used), instances, tuple(row * 20.0), (0.0,) * len(row)))
    return WorkWindows(tuple(f"flow{k}" for k in range(rates.shape[1])), tuple(samples))


def _rates(rng: np.random.Generator, windows: int) -> np.ndarray:
    return rng.uniform([20.0, 2.0], [120.0, 30.0], (windows, 2))


def _work(found: WorkEstimate) -> list[float]:
    return [flow.work_mcycles for flow in found.flows]


def test_without_noise_it_is_exact() -> None:
    rng = np.random.default_rng(1)

    found = estimate(_run(_rates(rng, 30), np.zeros(30)))

    assert found.standing is WorkEstimateStatus.ESTIMATED
    assert _work(found) == pytest.approx(WORK)
    assert found.background_known
    assert found.background_mhz == pytest.approx(BACKGROUND_MHZ)
    assert [flow.samples for flow in found.flows] == [30, 30]
    assert max(flow.half_width_frac for flow in found.flows) < 1e-6


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of 200 runs with noise, the 95 % interval misses in 4 to 16 (a fair one in 10 on average)."""
    rng = np.random.default_rng(2)
    misses = 0
    for _ in range(200):
        found = estimate(_run(_rates(rng, 60), rng.normal(0.0, 200.0, 60)))
        flow = found.flows[0]
        misses += abs(flow.work_mcycles - WORK[0]) > flow.half_width_frac * flow.work_mcycles

    assert 4 <= misses <= 16


def test_windows_in_which_something_else_ran_count_little() -> None:
    """One window in eight has a back-up job of 20,000 MHz in it."""
    rng = np.random.default_rng(3)
    noise = rng.normal(0.0, 50.0, 80)
    noise[::8] += 20_000.0

    found = estimate(_run(_rates(rng, 80), noise))

    assert _work(found) == pytest.approx(WORK, rel=0.05)
    assert found.noise_mhz == pytest.approx(60.0, abs=30.0)


def test_queued_requests_have_used_nothing() -> None:
    rng = np.random.default_rng(4)
    honest = _run(_rates(rng, 30), np.zeros(30))
    held = tuple(
        dataclasses.replace(
            sample,
            answered=tuple(n + extra for n in sample.answered),
            queued=(float(extra), float(extra)),
        )
        for sample, extra in zip(honest.samples, rng.integers(0, 500, 30), strict=True)
    )

    assert _work(estimate(dataclasses.replace(honest, samples=held))) == pytest.approx(WORK)
    assert UsageSample(10.0, 1.0, 1, (5.0,), (7.0,)).served_per_s == (0.0,)


def test_flows_that_rise_and_fall_together_are_not_told_apart() -> None:
    rng = np.random.default_rng(5)
    first = rng.uniform(20.0, 120.0, 40)
    other = rng.uniform(20.0, 120.0, 40)
    rates = np.stack([first, 0.25 * first, other], axis=1)
    used = rates @ np.array([20.0, 80.0, 40.0]) + rng.normal(0.0, 5.0, 40)
    samples = tuple(
        UsageSample(1.0, float(mhz), 1, tuple(row), (0.0, 0.0, 0.0)) for row, mhz in zip(rates, used, strict=True)
    )

    found = estimate(WorkWindows(("a", "b", "c"), samples))

    assert found.standing is WorkEstimateStatus.NOT_APART
    assert [math.isinf(flow.half_width_frac) for flow in found.flows] == [True, True, False]
    assert found.flows[2].work_mcycles == pytest.approx(40.0, rel=0.02)
    assert _work(found)[0] + 0.25 * _work(found)[1] == pytest.approx(40.0, rel=0.02)


def test_an_even_load_cannot_tell_the_background() -> None:
    rng = np.random.default_rng(6)
    rates = 50.0 + rng.uniform(-0.5, 0.5, (40, 1))

    found = estimate(_run(rates, rng.normal(0.0, 1.0, 40), instances=1, background_mhz=0.0))

    assert (found.background_known, found.background_mhz) == (False, 0.0)
    assert _work(found) == pytest.approx([20.0], rel=0.01)


def test_nothing_is_negative() -> None:
    """More requests of the second kind with less CPU used: least squares alone would credit them."""
    samples = tuple(
        UsageSample(1.0, 100.0 + 10.0 * (k % 5), 0, (10.0 + k % 5, 9.0 - 2.0 * (k % 5)), (0.0, 0.0)) for k in range(20)
    )

    found = estimate(WorkWindows(("a", "b"), samples))

    assert min(_work(found)) >= 0.0
    assert found.flows[1].half_width_frac == math.inf or found.flows[1].work_mcycles > 0.0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_windows(count: int) -> None:
    found = estimate(_run(_rates(np.random.default_rng(7), count), np.zeros(count)))

    assert (found.standing, found.samples) == (WorkEstimateStatus.NOT_ENOUGH, count)
    assert all(math.isnan(work) for work in _work(found))


def test_a_flow_without_requests_is_left_out() -> None:
    rng = np.random.default_rng(8)
    rates = _rates(rng, 30) * [1.0, 0.0]

    found = estimate(_run(rates, np.zeros(30)))

    assert found.flows[0].work_mcycles == pytest.approx(20.0)
    assert math.isnan(found.flows[1].work_mcycles)
    assert [flow.samples for flow in found.flows] == [30, 0]
    assert estimate(_run(rates * 0.0, np.zeros(30))).standing is WorkEstimateStatus.NOT_ENOUGH


def test_an_idle_application_uses_nothing() -> None:
    rng = np.random.default_rng(9)
    idle = tuple(dataclasses.replace(sample, used_mhz=0.0) for sample in _run(_rates(rng, 30), np.zeros(30)).samples)

    found = estimate(WorkWindows(("a", "b"), idle))

    assert _work(found) == [0.0, 0.0]
    assert [flow.half_width_frac for flow in found.flows] == [math.inf, math.inf]


def test_longer_windows_count_more() -> None:
    rng = np.random.default_rng(10)
    samples = []
    for k in range(100):
        rate, window_s = rng.uniform(10.0, 100.0), 1.0 if k % 2 else 400.0
        used = 30.0 * rate + 100.0 * rng.normal() / math.sqrt(window_s)
        samples.append(UsageSample(window_s, max(0.0, used), 0, (rate * window_s,), (0.0,)))
    alike = tuple(
        dataclasses.replace(sample, window_s=1.0, answered=(sample.answered[0] / sample.window_s,))
        for sample in samples
    )

    weighted, flat = (estimate(WorkWindows(("a",), each)).flows[0] for each in (tuple(samples), alike))

    assert weighted.half_width_frac < 0.75 * flat.half_width_frac
    assert weighted.work_mcycles == pytest.approx(30.0, rel=0.01)


def test_figures_out_of_range_are_refused() -> None:
    good = UsageSample(1.0, 1.0, 1, (1.0,), (0.0,))

    for name, bad in {
        "window_s": (0.0, math.nan, math.inf),
        "used_mhz": (-1.0, math.nan, math.inf),
        "instances": (-1,),
        "answered": ((-1.0,), (math.nan,), (1.0, 2.0)),
        "queued": ((-1.0,), (math.inf,), ()),
    }.items():
        for value in bad:
            with pytest.raises(InvalidValue):
                dataclasses.replace(good, **{name: value})  # type: ignore[arg-type]
