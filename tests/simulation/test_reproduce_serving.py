"""Section 6.4 of phoenixcloud.txt in `trimtab sim reproduce phoenixcloud`: figures 8-1, 8-2 and 9."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shared.base.errors import InvalidInput
from sim_backend.experiments.coordination.demand import draw_demand, play_demand, rows_demand, work_demand
from sim_backend.experiments.coordination.serving import (
    ALONE_S,
    FULL_PER_S,
    LOADS,
    VMS,
    Point,
    draw_serving,
    play_serving,
    rows_of,
    rows_serving,
)
from tests.extent import first


@pytest.mark.parametrize("name", first(["hourly", "minute"]))
def test_figure_9(name: str, data_folder: Path) -> None:
    """Both series come out of the requests row by row, with a peak of 64; one that differs in a row is told."""
    found = next(each for each in play_demand(data_folder) if each.name == name)
    assert found.made == found.kept
    assert found.vm_hours == pytest.approx({"hourly": 4_593, "minute": 3_362}[name], abs=1)
    assert [row.holds for row in rows_demand([[found]])] == [True, True]
    other = replace(found, kept=[*found.kept[:-1], (found.kept[-1][0], 63)])
    (row, _) = rows_demand([[other]])
    assert (row.id, row.holds) == (f"fig9-{name}", False)


@pytest.mark.accept
def test_figure_9_is_drawn(data_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (path,) = draw_demand([play_demand(data_folder)], tmp_path)
    assert path.name == "phoenixcloud-figure-9.png"
    assert path.stat().st_size > 10_000


def test_figure_9_without_its_requests(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a folder with all other files, then what it lacks is named."""
    for part in data_folder.iterdir():
        if part.name != "worldcup98":
            (tmp_path / part.name).symlink_to(part)
    (tmp_path / "worldcup98").mkdir()
    hourly = "worldcup98/ws_demand_hourly_64vm.csv"
    (tmp_path / hourly).symlink_to(data_folder / hourly)
    monkeypatch.setenv("TRIMTAB_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match="requests_per_minute"):
        work_demand(1)


@pytest.mark.accept
def test_figures_8() -> None:
    """Without adjustment 16 instances answer all but what is beyond them, below 50 ms up to 80 %; with it each number
    of instances from 2 to 16 comes about under a growing load, and none is slow."""
    served = play_serving()
    assert [point.instances for point in served.off] == [VMS] * len(LOADS)
    for load, point in zip(LOADS, served.off, strict=True):
        assert point.served_per_s == pytest.approx(min(load, 0.98) * VMS * FULL_PER_S, rel=0.02)
    assert [point.instances for point in served.on] == list(range(2, VMS + 1))
    assert all(0.65 < point.use_frac < 0.85 for point in served.on)
    found = {row.id: row for row in rows_serving([served])}
    assert {id: row.holds for id, row in found.items()} == {
        "8-1/below-80": True,
        "8-1/at-97": None,
        "8-1/rises": True,
        "8-1/linear": True,
        "8-2/below-700": True,
        "8-2/linear": True,
    }
    assert "gives 45 ms at 80 %" in found["8-1/below-80"].why
    assert "gives 300 ms at 97 %" in found["8-1/at-97"].why


@pytest.mark.accept
def test_rows_of_any_points(tmp_path: Path) -> None:
    """Given points that were measured elsewhere, then the same rows judge them and the same pictures show them."""
    off = [Point(100.0 * use, 100.0 * use, 0.04 / (1.0 - use), use, 1.0) for use in (0.2, 0.5, 0.8, 0.97)]
    on = [Point(80.0 * count, 70.0 * count**2, 0.8, 0.8, count) for count in (1, 2, 3, 4)]
    held = {row.id: row.holds for row in rows_of(off, on, ALONE_S)}
    assert held == {
        "8-1/below-80": False,
        "8-1/at-97": None,
        "8-1/rises": False,
        "8-1/linear": True,
        "8-2/below-700": False,
        "8-2/linear": False,
    }
    pytest.importorskip("matplotlib")
    drawn = draw_serving(tmp_path, off, on)
    assert [path.name for path in drawn] == ["phoenixcloud-figure-8-1.png", "phoenixcloud-figure-8-2.png"]
    assert all(path.is_file() for path in drawn)
