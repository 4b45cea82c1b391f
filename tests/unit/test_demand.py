"""What is asked of simulated web applications."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import InvalidInput, InvalidValue
from sim_backend.demand import DAY_S, constant, daily, read_demand, steps, uneven


def test_forms() -> None:
    assert constant(7.0)(123.0) == 7.0
    curve = daily(100.0, 0.4, peak_s=14 * 3600.0)
    assert curve(14 * 3600.0) == pytest.approx(140.0)
    assert curve(2 * 3600.0) == pytest.approx(60.0)
    assert curve(2 * 3600.0 + 3 * DAY_S) == pytest.approx(60.0)
    stairs = steps([(10.0, 3.0), (20.0, 5.0)])
    assert [stairs(t) for t in (0.0, 9.9, 10.0, 19.9, 20.0, 1e9)] == [0.0, 0.0, 3.0, 3.0, 5.0, 5.0]


def test_unevenness_is_the_seeds_and_keeps_the_mean() -> None:
    trace = uneven(constant(10.0), seed=3, sigma=0.3)
    rates = [trace(300.0 * k) for k in range(4_000)]

    assert rates == [uneven(constant(10.0), 3, 0.3)(300.0 * k + 299.0) for k in range(4_000)]
    assert rates[:9] != [uneven(constant(10.0), 4, 0.3)(300.0 * k) for k in range(9)]
    assert sum(rates) / len(rates) == pytest.approx(10.0, rel=0.03)
    assert min(rates) < 7.0 < 13.0 < max(rates)


@pytest.mark.parametrize(
    "make",
    [
        lambda: constant(-1.0),
        lambda: constant(float("nan")),
        lambda: daily(1.0, 1.5),
        lambda: steps([]),
        lambda: steps([(1.0, 1.0), (1.0, 2.0)]),
        lambda: steps([(0.0, float("inf"))]),
    ],
)
def test_what_is_no_demand(make: object) -> None:
    with pytest.raises(InvalidValue):
        make()  # type: ignore[operator]


def test_a_trace_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("t_s,vms,requests\n0,2,30\n60,1,90\n")

    assert read_demand(path)(30.0) == 2.0
    assert read_demand(path, 1 / 60, "requests")(61.0) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ":1"),
        ("time,vms\n0,1\n", ":1"),
        ("t_s\n0\n", ":1"),
        ("t_s,vms\n0,1\n5,x\n", ":3"),
        ("t_s,vms\n0,1\n5\n", ":3"),
        ("t_s,vms\n5,1\n0,1\n", ""),
        ("t_s,vms\n0,-1\n", ""),
        ("t_s,vms\n", ""),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_demand(path)
    assert caught.value.problems[0].where == f"{path}{where}"
    with pytest.raises(InvalidInput):
        read_demand(tmp_path / "none.csv")
