"""What `trimtab sim reproduce phoenixcloud` says: rows of every table, what it draws, and where it looks for data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from shared.base.errors import InvalidInput
from sim_backend.experiments.coordination.rows import rows_bounded, rows_lent, tables_bounded
from sim_backend.experiments.coordination.runs import data_folder as find_data
from sim_backend.experiments.coordination.runs import play_bounded, play_lent, play_studied
from sim_backend.experiments.coordination.settings import TABLE_1, TABLE_2, TABLE_3, TABLE_4
from sim_backend.experiments.coordination.studies import draw_studied, rows_studied, tables_studied
from sim_backend.experiments.experiment import Row

NODES = (128, 144)
PHASES_S = (3_000.0, 3_600.0)  # two are enough to see what they do


def by_id(rows: Sequence[Row]) -> Mapping[str, Row]:
    """Every row once."""
    found = {row.id: row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.accept
def test_fixed_bounds(data_folder: Path) -> None:
    """Tables 1 and 2 with every figure of the paper; where ours is another a reason stands beside it; suspending is
    never worse than killing."""
    results = [play_bounded(data_folder, "iPSC", PHASES_S), play_bounded(data_folder, "BLUE", PHASES_S)]
    found = by_id(rows_bounded(results))
    for table, log in enumerate(("iPSC", "BLUE"), 1):
        for system, figures in TABLE_1[log].items():  # type: ignore[index]
            rows = [found[f"1-{table}/{system}/{key}"] for key in ("completed", "execution", "turnaround")]
            assert [row.paper for row in rows] == list(figures)
        for peak, figures in TABLE_2[log].items():  # type: ignore[index]
            rows = [found[f"2-{table}/{NODES[table - 1]}-{peak}/{key}"] for key in ("saved", "completed", "turnaround")]
            assert [row.paper for row in rows] == list(figures)
    assert all(row.why for row in found.values() if row.holds is False)
    assert found["1-2/fb-144/turnaround"].ours == 6900.2
    assert "does not say when the lease timer ticks first: 6,900.2 to 9,223.1" in found["1-2/fb-144/turnaround"].why
    assert not any(row.why for id, row in found.items() if id.startswith("2-") and id.endswith("/saved"))
    assert (found["1-1/dcs/turnaround"].holds, "10 s" in found["1-1/dcs/turnaround"].why) == (True, True)
    assert all(row.holds for id, row in found.items() if id.startswith("suspend-"))
    assert found["text-1/40"].holds is False
    assert found["text-1/40-suspend"].holds
    lines = tables_bounded(results)["BLUE, FB: nodes taken from running jobs"]
    assert [line["jobs are"] for line in lines[:3]] == ["killed", "suspended", "suspended at no cost"]
    assert lines[0]["lost_node_hours"] > 50 * lines[1]["overhead_node_hours"] > 0


def test_lower_bounds(data_folder: Path) -> None:
    """Tables 3 and 4; completed jobs and EC2's figures are the paper's, node-hours are not, with a reason."""
    found = by_id(rows_lent([play_lent(data_folder, "iPSC", PHASES_S), play_lent(data_folder, "BLUE", PHASES_S)]))
    for table, log in enumerate(("iPSC", "BLUE"), 1):
        for system, figures in TABLE_3[log].items():  # type: ignore[index]
            rows = [found[f"3-{table}/{system}/{key}"] for key in ("completed", "turnaround", "peak", "node-hours")]
            assert [row.paper for row in rows] == list(figures)
        for peak, figures in TABLE_4[log].items():  # type: ignore[index]
            keys = ("completed", "execution", "turnaround", "saved")
            rows = [found[f"4-{table}/{NODES[table - 1]}-{peak}/{key}"] for key in keys]
            assert [row.paper for row in rows] == list(figures)
    assert all(row.holds for id, row in found.items() if "/ec2/" in id or id.endswith("/completed"))
    assert all(row.holds for id, row in found.items() if id.startswith("text-"))
    assert all(row.why for row in found.values() if row.holds is False)
    assert "1.5 to 10 %" in found["3-1/flb-nub/node-hours"].why


@pytest.mark.accept
def test_parameter_studies(data_folder: Path, tmp_path: Path) -> None:
    """Adjustments become fewer with the lease unit, the consumption grows with B; figures are drawn, 14 and 15 as
    12 and 13 are."""
    results = [play_studied(data_folder, "BLUE")]
    found = by_id(rows_studied(results))
    assert found["16/adjustments"].holds
    assert found["12/node-hours"].holds
    assert found["14/node-hours"].holds is False
    assert len(tables_studied(results)) == 5
    pytest.importorskip("matplotlib")
    drawn = {path.name for path in draw_studied(results, tmp_path, "")}
    assert drawn == {path.name for path in tmp_path.iterdir()}
    assert {name.removeprefix("phoenixcloud-figure-")[:2] for name in drawn} == {"12", "13", "16"}


def test_without_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit status 2, with the variable that names them, or with what its folder lacks."""
    monkeypatch.delenv("TRIMTAB_DATA", raising=False)
    outcome = CliRunner().invoke(main, ["sim", "reproduce", "phoenixcloud", "--output", "json"])
    assert outcome.exit_code == 2
    assert json.loads(outcome.stdout)["error"]["problems"][0]["where"] == "TRIMTAB_DATA"
    monkeypatch.setenv("TRIMTAB_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match="ws_demand_hourly_64vm"):
        find_data()
