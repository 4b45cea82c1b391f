"""The report on hours of the closed loop: its figures are those of what was recorded, counted in another way."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daemons.report.charts import known
from daemons.report.cluster_report import cluster_report
from daemons.report.report import Report
from daemons.store.reading import reading
from tests.simulation.recorded_span import EPOCH_S, record_span

HOURS = 3.0
TO_S = EPOCH_S + 3_600.0 * HOURS


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("report") / "store.db"
    record_span(made, nodes=3, jobs=8, hours=HOURS)
    return made


def asked(path: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as opened:
        return opened.execute(question).fetchall()


def report(path: Path) -> Report:
    with closing(reading(f"sqlite:///{path}")) as opened:
        return cluster_report(opened, EPOCH_S, TO_S + 1.0)


@pytest.mark.full
def test_the_report_on_a_run_says_what_was_recorded(path: Path) -> None:
    found = report(path)
    figures = {each.name: each.value for each in found.figures}
    sections = {section.id: section for section in found.sections}
    charts = {chart.id: chart for section in found.sections for chart in section.charts}

    (completed,) = asked(path, "SELECT count(*) FROM jobs WHERE phase = 'completed' AND name NOT LIKE '%#%'")
    (done,) = asked(path, "SELECT count(*) FROM actions WHERE outcome = 'ok'")
    (decided,) = asked(path, "SELECT count(*) FROM decisions")
    assert (figures["Jobs completed"], figures["Actions carried out"], figures["Decisions"]) == (
        completed[0],
        done[0],
        decided[0],
    )
    assert min(completed[0], done[0], decided[0]) > 0
    assert sum(sum(known(series.ys)) for series in charts["goals"].series) == completed[0]
    assert sum(sum(known(series.ys)) for series in charts["actions"].series) == sum(
        row[2] for row in sections["actions"].tables[0].rows if isinstance(row[2], int)
    )


def test_utilities_predicted_and_measured_are_those_of_the_decisions(path: Path) -> None:
    """Given the packed records, then the columns beside them say the same."""
    with closing(reading(f"sqlite:///{path}")) as opened:
        rows = opened.decisions(EPOCH_S, TO_S)
        for row in rows:
            record = opened.decision(row.number)
            assert record is not None
            measured = [gain.measured for gain in record.gains if gain.measured is not None]
            assert row.measured_min == (min(measured) if measured else None)
            predicted = [gain.predicted for gain in record.gains]
            assert row.predicted_mean == (pytest.approx(sum(predicted) / len(predicted)) if predicted else None)
            given = [change.reason.code.value for change in record.changes]
            assert sum(count for what, _, count in row.reasons if what == "change") == len(given)
    assert any(row.measured_mean is not None for row in rows)
    assert any(table.rows for section in report(path).sections for table in section.tables if table.id == "worst")


def test_cpu_use_is_the_mean_of_the_nodes(path: Path) -> None:
    (mean,) = asked(path, "SELECT sum(cpu_frac * span_s) / sum(span_s) FROM samples")
    figures = {each.name: each.value for each in report(path).figures}

    assert figures["CPU use, mean"] == pytest.approx(100.0 * mean[0], abs=0.2)
