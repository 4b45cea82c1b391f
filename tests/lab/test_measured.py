"""What Trimtab costs on real VMs, and how these slow one another: short runs of the measurements of `measure.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from shared.values.operation_costs import COSTLY
from sim_backend.experiments.dilation.measured import FORMULA, LINEAR, PRODUCT_FORM
from tests.lab import measure, measured_interference
from tests.lab.measure import Report
from tests.lab.measured_operations import AGENT, DRIVER, KINDS, VIRSH, WHOLE, Timing

pytestmark = [pytest.mark.full, pytest.mark.alone]

FOLDER = Path(__file__).resolve().parents[2] / "out" / "lab"
ROUNDS = 2
LEARNT_ROUNDS, LEARNT_WITHIN = 10, 0.3
SPEED = 2.0  # from second to second a machine whose cores are shared changes its speed by so much
NEAR = 0.1
LATER_S = 3.0  # what a loaded machine adds
AGENT_MIB_MAX = 80.0
AGENT_S_PER_MIN_MAX = 3.0  # a twentieth of a CPU


@pytest.fixture(scope="module")
def report(lab_tools: None) -> Iterator[Report]:  # noqa: ARG001  looks for what is needed
    made = Report()
    yield made
    made.write(FOLDER)


def test_operations_and_overhead(report: Report) -> None:
    timings = measure.measure_cluster(ROUNDS, report, overhead=((1.0, 5.0), (5.0, 10.0)))
    for kind in KINDS:
        plain_s = middle(timings, kind.value, VIRSH)
        assert middle(timings, kind.value, DRIVER) < 3 * plain_s + LATER_S, kind
        assert middle(timings, kind.value, AGENT) < 3 * plain_s + 2 * LATER_S, kind
    assert {one.kind.value for one in timings if one.way == WHOLE} == {kind.value for kind in KINDS} - {"set-cpu"}
    often, seldom = report.tables[measure.AGENT_TITLE]
    assert often["messages/s"] > seldom["messages/s"] > 0
    assert seldom["agent CPU s/min"] < AGENT_S_PER_MIN_MAX
    sizes = {line["process"]: line["RSS MiB"] for line in report.tables[measure.MEMORY_TITLE]}
    assert sizes["agent with 10 VMs"] < AGENT_MIB_MAX
    assert {"controller", "libvirtd", "RabbitMQ"} <= sizes.keys()


def test_after_ten_operations_of_a_kind_the_controller_knows_how_long_they_take(report: Report) -> None:
    found = measure.measure_learnt(LEARNT_ROUNDS, report)
    assert found.keys() == {kind.value for kind in COSTLY}
    for kind, (median_s, expected_s) in found.items():
        assert expected_s == pytest.approx(median_s, rel=LEARNT_WITHIN), kind


def middle(timings: list[Timing], kind: str, way: str) -> float:
    return median(one.took_s for one in timings if (one.kind.value, one.way) == (kind, way))


def part(cpu: float, io: float, longer: float) -> float:
    """On the CPU, where that takes so many times as long as the images were made for."""
    return cpu * longer / (cpu * longer + io)


def test_guests_slow_one_another_as_the_models_say(report: Report) -> None:
    measure.measure_interference(ROUNDS, 1, 0.6, report)
    alone = {line["work"]: (line["cpu"], line["io"]) for line in report.tables["Measured: alone on one core"]}
    assert alone["burner"] == (pytest.approx(1.0, abs=0.15), 0.0)
    for kind, made_for in measured_interference.LOADING.items():
        cpu, io = alone[measured_interference.NAMES[kind]]
        assert part(*made_for, 1 / SPEED) - NEAR < cpu < part(*made_for, SPEED) + NEAR
        assert 1.0 - cpu - 2 * NEAR < io < 1.0 - cpu + NEAR
    for line in report.tables["Measured: mean errors"]:
        assert max(line[f"{model} (%)"] for model in (FORMULA, PRODUCT_FORM)) < line[f"{LINEAR} (%)"]
    pairs = {(line["together"], line["of"]): line["measured"] for line in report.tables["Measured: pairs on one core"]}
    assert pairs["burner + burner", "burner"] == pytest.approx(2.0, rel=0.25)
    assert pairs["burner + reader", "burner"] < 1.6
