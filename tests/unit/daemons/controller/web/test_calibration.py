"""Measured response times tell of their model where the CPU did not change while they were measured."""

from __future__ import annotations

import pytest

from daemons.controller.state.response_log import EARLY_FRAC
from daemons.controller.state.web_app import Sample
from daemons.controller.web.calibration import calibrate, note_cpu
from shared.values.web_app import FlowSample
from tests.support.controller_harness import ControllerHarness
from tests.unit.daemons.controller.web.test_redistribution import led

SAMPLE_S = 5.0
SLOW = FlowSample("browse", SAMPLE_S, offered=500, served=500, mean_s=0.15)
LATE = FlowSample("browse", SAMPLE_S, offered=500, served=500, mean_s=0.15, queued=500)


@pytest.fixture
def harness() -> ControllerHarness:
    return led()


@pytest.mark.parametrize(("part", "counts"), [(0.0, True), (EARLY_FRAC, True), (0.3, False), (0.9, False)])
def test_a_sample_counts_where_cpu_changed_at_its_begin(harness: ControllerHarness, part: float, counts: bool) -> None:
    cluster, at_s = harness.controller.cluster, harness.now_s
    web = cluster.web["shop"]
    before, web.responses.mhz = web.factors.get("browse"), 1.0  # it has more since then
    note_cpu(web, cluster.replicas_wanted(web.app.name), at_s + part * SAMPLE_S)
    calibrate(cluster, web, Sample(at_s + SAMPLE_S, (SLOW,)))
    web.responses.given(2.0, at_s + SAMPLE_S)  # the window ends
    calibrate(cluster, web, Sample(at_s + 2.0 * SAMPLE_S, (SLOW,)))
    assert (web.factors.get("browse") != before) is counts


def test_what_an_earlier_overload_has_left_is_not_counted(harness: ControllerHarness) -> None:
    """More requests wait than are answered within the goal."""
    cluster, at_s = harness.controller.cluster, harness.now_s
    web = cluster.web["shop"]
    before = web.factors.get("browse")
    for row in range(1, 41):
        calibrate(cluster, web, Sample(at_s + row * SAMPLE_S, (LATE,)))
    assert web.factors.get("browse") == before
    for row in range(41, 81):
        calibrate(cluster, web, Sample(at_s + row * SAMPLE_S, (SLOW,)))
    assert web.factors.get("browse") != before


def test_short_samples_tell_the_same_as_long_ones(harness: ControllerHarness) -> None:
    """Given requests that take 1 s in each tenth sample of a second and 0.05 s in the others, then the factor is that
    of the mean over a minute."""
    cluster, at_s = harness.controller.cluster, harness.now_s
    web = cluster.web["shop"]
    factors = []
    for seconds in (1, 60):
        web.factors.clear()
        for end in range(seconds, 601, seconds):
            mean_s = (1.0 if end % 10 == 0 else 0.05) if seconds == 1 else 0.145
            sample = FlowSample("browse", float(seconds), offered=100 * seconds, served=100 * seconds, mean_s=mean_s)
            calibrate(cluster, web, Sample(at_s + end, (sample,)))
        factors.append(web.factors["browse"].log_sum)
        at_s += 1_000.0
    assert factors[0] == pytest.approx(factors[1], rel=1e-6)
