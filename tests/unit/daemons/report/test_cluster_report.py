"""Reports: their figures are those of the history, and the file is safe, complete and readable whatever is in it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.history_store import Size, make
from daemons.cli.main import main
from daemons.report.charts import Chart, Series
from daemons.report.cluster_report import cluster_report
from daemons.report.draw import can_draw
from daemons.report.html import html, main_html
from daemons.report.report import Report, Section
from daemons.report.sections_deciding import TROUBLE
from daemons.report.spans import duration_text
from daemons.store import ActionEntry, Batch, SqlStore
from daemons.store.reading import Reading, reading
from shared.base.errors import InvalidValue
from shared.protocol.messages import Happened
from tests.architecture.sources import ROOT
from tests.support.store_samples import sqlite_url

NOW_S = 1_790_035_200.0  # a midnight
DAY_S = 86_400.0
SMALL = Size(nodes=2, days=2, jobs_a_day=48, events_a_day=70, actions_a_day=50, requests_a_day=5, changes=2, refusals=3)
HOSTILE = "<img src=x onerror=alert(1)>\x07\x1b]0;"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two days of two nodes, and a failed action with a detail that nobody should believe."""
    made = sqlite_url(tmp_path_factory.mktemp("report") / "history.db")
    make(made, SMALL, NOW_S)
    with closing(SqlStore(made)) as store:
        entry = ActionEntry("x", NOW_S - 5.0, "start", HOSTILE, "n", 1, None, NOW_S - 5.0, NOW_S, "refused", HOSTILE)
        store.append(Batch(actions=(entry,)))
        store.append(Batch(events=(Happened(NOW_S - 5.0, HOSTILE, "x"),)))
    return made


@pytest.fixture
def history(url: str) -> Iterator[Reading]:
    with closing(reading(url)) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(url: str) -> str:
    """The file."""
    with closing(reading(url)) as opened:
        return html(report(opened))


def report(history: Reading, days: float = 2.0) -> Report:
    return cluster_report(history, NOW_S - days * DAY_S, NOW_S, "Europe/Berlin")


def figures(found: Report) -> dict[str, object]:
    return {each.name: each.value for each in found.figures}


def test_its_figures_are_those_of_the_history(history: Reading) -> None:
    found = figures(report(history))
    costs = history.costs(0.0, NOW_S)
    rows = history.decisions(0.0, NOW_S)

    assert found["Decisions"] == len(rows) == 192
    jobs = history.jobs(0.0, NOW_S + 1.0)
    done = [job for job in jobs if job.phase == "completed" and job.finished_s is not None and job.finished_s < NOW_S]
    assert found["Jobs completed"] == len(done) > 80
    assert found["Energy"] == pytest.approx(sum(cost.kwh for cost in costs))
    assert found["Cost"] == pytest.approx(sum(cost.cost for cost in costs), abs=0.01)
    assert found["Mean utility, measured"] == pytest.approx(sum(row.measured_mean or 0.0 for row in rows) / 192)
    assert found["Actions carried out"] == 99
    assert found["Nodes in service, mean"] == pytest.approx(1.0, abs=0.01)


def test_a_part_of_the_span_has_a_part_of_it(history: Reading) -> None:
    assert figures(report(history, 1.0))["Decisions"] == 96
    assert report(history).notes == ()
    assert "history begins at 2026-09-20T02:00:00+02:00" in report(history, 9.0).notes[0]


def test_everything_the_report_promises_is_in_it(history: Reading) -> None:
    found = report(history)
    tables = {table.id: table for section in found.sections for table in section.tables}

    assert [section.id for section in found.sections] == [
        "utilities",
        "goals",
        "nodes",
        "costs",
        "decisions",
        "actions",
        "events",
    ]
    assert tables["failed"].rows[0][2:] == (HOSTILE, "n", "refused", HOSTILE)
    assert ("no-memory", "refusal", 192) in tables["reasons"].rows
    assert {row[0] for row in tables["trouble"].rows} == {"node-unreachable", "action-failed"}
    assert tables["predicted"].rows[0][1] == 192
    assert len(tables["worst"].rows) == 10
    assert tables["worst"].note == "From 12 of 192 measured decisions, evenly spread over the period."
    json.dumps(found.to_json(), allow_nan=False)


def test_an_empty_history_is_said_and_nothing_fails(tmp_path: Path) -> None:
    empty = sqlite_url(tmp_path / "empty.db")
    with closing(SqlStore(empty)) as store:
        store.take_lead("a")
    with closing(reading(empty)) as opened:
        found = cluster_report(opened, 0.0, DAY_S)

    assert found.notes == ("The history is empty.",)
    assert all(chart.is_empty for section in found.sections for chart in section.charts)
    assert "no completed jobs" in html(found)


def test_a_span_without_time_and_a_zone_that_is_none_are_refused(history: Reading) -> None:
    with pytest.raises(InvalidValue, match="to_s"):
        cluster_report(history, 5.0, 5.0)
    for zone in ("Mars/Base", "../etc/passwd", ""):
        with pytest.raises(InvalidValue, match="zone"):
            cluster_report(history, 0.0, 5.0, zone)


# --- the file ----------------------------------------------------------------------------------------------------


class Looked(HTMLParser):
    """What is in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]


def test_the_file_needs_nothing_else_and_lets_nothing_in(page: str) -> None:
    text, looked = page, Looked(page)

    assert not {"script", "link", "img", "iframe", "object", "form"} & set(looked.tags)
    assert not [name for name, _ in looked.attributes if name.startswith("on") or name == "style"]
    assert "&lt;img src=x onerror=alert(1)&gt;??]0;" in text
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert f"style-src &#x27;sha256-{digest}&#x27;" in text
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)


def test_the_file_can_be_read_without_seeing(page: str) -> None:
    looked = Looked(page)

    assert looked.tags.count("h1") == 1
    assert looked.tags.count("caption") == looked.tags.count("table") > 10
    assert len(looked.ids) == len(set(looked.ids))
    assert ("lang", "en") in looked.attributes
    if can_draw():
        assert looked.tags.count("svg") == looked.tags.count("figure") == looked.tags.count("desc") > 8


def test_without_pictures_charts_are_tables() -> None:
    chart = Chart("x", "Use", "u", series=(Series("all", (NOW_S,), (0.5,)),))
    found = Report("R", 0.0, NOW_S, "UTC", (), (Section("s", "S", charts=(chart,)),))

    text = main_html(found, None)
    assert "matplotlib is not installed: tables replace the charts." in text
    assert '<td class="n">0.5</td>' in text


def test_trouble_is_what_is_documented() -> None:
    """Each event that the report calls trouble is one that there is."""
    text = "".join((ROOT / name).read_text("utf-8") for name in ("docs/reference/events.md", "docs/reference/codes.md"))

    assert {what for what in TROUBLE if f"`{what}`" not in text} == set()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (1.234, "1.23 s"), (59.99, "60 s"), (61.0, "1 min 1 s"), (7_200.0, "2 h"), (-93_600.0, "-1 d 2 h")],
)
def test_lengths_of_time_for_people(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


# --- the command -------------------------------------------------------------------------------------------------


def called(*words: object) -> Result:
    return CliRunner().invoke(main, ["report", *(str(word) for word in words)], env={"COLUMNS": "200"})


@pytest.mark.full
def test_the_command_prints_and_writes(url: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    span = ("--from", NOW_S - DAY_S, "--to", "2026-09-22T02:00:00+02:00", "--store", url)
    answer = called(*span, "--html", file, "--output", "json")
    people = called(*span)

    assert answer.exit_code == 0, answer.stderr
    data = json.loads(answer.stdout)
    assert (data["to_s"] - data["from_s"], data["file"]) == (DAY_S, str(file))
    assert file.read_text("utf-8").startswith("<!doctype html>")
    assert people.exit_code == 0
    assert "Jobs completed" in people.stdout
    assert "\x1b]0;" not in people.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "yesterday"), "-7d"),
        (("--from", "2026-09-22T02:00:00"), "--from"),
        (("--from", "now", "--to", "-1d"), "later"),
        (("--zone", "Mars/Base"), "--zone"),
        (("--html", "/dev/null/x"), "--html"),
    ],
)
def test_mistakes_are_the_users(url: str, words: tuple[str, ...], said: str) -> None:
    answer = called("--store", url, *words)

    assert answer.exit_code == 2
    assert said in answer.stderr
    assert "Traceback" not in answer.output


def test_the_last_week_is_the_default_and_how_long_ago_can_be_said(url: str) -> None:
    spans = [called("--store", url, *words, "--output", "json") for words in ((), ("--from", "-12h", "--to", "now"))]

    lengths = [json.loads(each.stdout)["to_s"] - json.loads(each.stdout)["from_s"] for each in spans]
    assert lengths == [pytest.approx(7 * DAY_S), pytest.approx(DAY_S / 2)]
