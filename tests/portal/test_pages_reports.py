"""Reports with their pictures, notifications, and the audit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from daemons.controller.core.controller import Controller
from daemons.portal.present.charts import CHARTS_BYTES_MAX, LOOKS, Pictures, picture_html
from daemons.portal.present.spans import moment_of, span_of
from daemons.portal.process_pool import ProcessPool
from daemons.report.charts import Chart, Series, X
from daemons.report.draw import can_draw
from daemons.store import Batch, SqlStore
from daemons.values.records.notifications import NotificationRecord
from daemons.values.settings import NotifySettings
from shared.base.clock import ManualClock
from shared.base.errors import InvalidInput
from shared.ports.audit import Audited
from tests.portal.scene import Browser, Scene, job, scene
from tests.support import parts
from tests.support.store_samples import made_url
from tests.unit.daemons.store.test_history import use

NOW_S = 1.7e9
NOTIFY = {"notify": NotifySettings({"ops": "command"})}
EVIL = "<script>alert(1)</script>"


class Counting(Executor):
    """Notes what is called, and has another call it."""

    calls: ClassVar[list[str]] = []

    def __init__(self, pool: Executor) -> None:
        self.pool = pool
        self.calls.clear()

    def submit(self, fn: Callable[..., Any], /, *words: Any, **named: Any) -> Any:
        self.calls.append(fn.__name__)
        return self.pool.submit(fn, *words, **named)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    """A portal with a little history, of which some texts are hostile; it draws in a thread."""
    url = made_url(tmp_path / "store.db")
    audits = (
        Audited(
            NOW_S - 50.0,
            "operator.jane",
            "portal.sim",
            request="1",
            kind="drain-node",
            subject="n1",
            why=EVIL,
            done=True,
        ),
        Audited(
            NOW_S - 40.0,
            "owner.acme",
            "owner.acme",
            request="2",
            kind="cancel-job",
            subject="x",
            why="",
            done=False,
            code="unknown-job",
            detail="no x",
        ),
    )
    with closing(SqlStore(url, ManualClock(NOW_S))) as store:
        store.take_lead("a")
        store.append(Batch(uses=tuple(use("n1", NOW_S - 600.0 + 300.0 * slot, 0.25) for slot in range(2))))
        store.append(Batch(audits=audits))
        with scene(tmp_path, jobs=[job("a")], history=url, settings=NOTIFY) as found, ThreadPoolExecutor(1) as pool:
            found.portal.pictures = Pictures(ProcessPool("drawings", 0, pool))
            yield found


@pytest.mark.skipif(not can_draw(), reason="matplotlib (extra plots) is not installed")
def test_a_report_is_a_page_with_pictures_and_a_file(made: Scene) -> None:
    jane = made.browser("jane")

    page = jane.get("/reports?from=1h&zone=Europe/Berlin")
    pictures = re.findall(r"/charts/[0-9a-f]{32}\.[a-z-]+\.svg", page.text)
    drawn = [jane.get(path) for path in pictures[: len(LOOKS)]]
    file = jane.get("/reports/file?from=1h")

    assert page.status_code == 200
    assert "Europe/Berlin" in page.text
    assert "style=" not in page.text
    assert [each.headers["content-type"] for each in drawn] == ["image/svg+xml"] * len(LOOKS)
    assert len({each.text for each in drawn}) == len(LOOKS)
    assert "<title" in drawn[0].text
    assert "immutable" in drawn[0].headers["cache-control"]
    assert file.headers["content-disposition"].startswith("attachment; filename=")
    assert "<svg" in file.text


def test_drawing_is_warmed_up_where_drawings_are_made() -> None:
    with ThreadPoolExecutor(1) as pool:
        pictures = Pictures(ProcessPool("drawings", 0, Counting(pool)))
        asyncio.run(pictures.warm())
        assert (pictures.process_pool.waiting, Counting.calls) == (0, ["_warm"] if can_draw() else [])


def test_a_picture_is_shown_in_the_look_that_the_window_asks_for() -> None:
    """Narrow windows are given pictures that are drawn narrow, and darkness is asked for in both."""
    made = picture_html(lambda look: f"/x.{look}.svg?a=1&b=2", 'a "title"', 100)
    shown = re.findall(r'<source media="([^"]+)" srcset="/x.([a-z-]+).svg[^"]*" width="(\d+)" height="100">', made)
    assert shown == [
        ("(max-width: 40rem) and (prefers-color-scheme: dark)", "narrow-dark", "390"),
        ("(max-width: 40rem)", "narrow", "390"),
        ("(prefers-color-scheme: dark)", "dark", "720"),
    ]
    assert '<img src="/x.light.svg?a=1&amp;b=2" alt="a &quot;title&quot;" width="720" height="100"' in made


@pytest.mark.skipif(not can_draw(), reason="matplotlib (extra plots) is not installed")
def test_a_chart_is_drawn_in_every_look_once_and_in_no_other() -> None:
    chart = Chart("x", "Title", "unit", series=(Series("y", (0.0, 1.0), (0.0, 1.0)),), x=X.NUMBER)

    async def story(pictures: Pictures) -> list[bytes | None]:
        kept = pictures.keep(chart)
        assert kept is not None
        return [await pictures.svg(kept.id, look) for look in (*LOOKS, *LOOKS, "narrow-blue", "391")]

    with ThreadPoolExecutor(1) as pool:
        drawn = asyncio.run(story(Pictures(ProcessPool("drawings", 0, Counting(pool)))))

    sizes = [re.search(rb'<svg[^>]* width="(\d+)"', each or b"") for each in drawn]
    assert [found and int(found[1]) for found in sizes] == [390, 390, 720, 720] * 2 + [None, None]
    assert len(set(drawn)) == len(LOOKS) + 1
    assert Counting.calls == ["_draw"] * len(LOOKS)


def test_what_cannot_be_told_is_said(made: Scene) -> None:
    jane, acme = made.browser("jane"), made.browser("acme")

    wrong = [jane.get(f"/reports?{query}") for query in ("from=bla&to=blub", "from=now&to=1h", "zone=Nowhere/Town")]

    assert [each.status_code for each in wrong] == [422] * 3
    assert wrong[0].text.count("or an age such as") == 3
    assert jane.get("/reports/file?from=bla").status_code == 400
    for name, status in (("0.light.svg", 404), ("0.svg", 404), ("0.png", 404), ("..%2f0.light.svg", 400)):
        assert jane.get(f"/charts/{name}").status_code == status, name
    assert acme.get("/reports").status_code == 404


def test_the_audit_has_requests_and_logins_as_one(made: Scene) -> None:
    jane = made.browser("jane")

    every, one, kind, text = (
        jane.get(f"/audit?{query}").text for query in ("", "account=owner.acme", "kind=drain-node", "text=ALERT")
    )

    assert [word in every for word in ("drain-node", "cancel-job", "login", "unknown-job no x")] == [True] * 4
    assert EVIL not in every
    assert "&lt;script&gt;" in every
    assert ("cancel-job" in one, "drain-node" in one, "<td>login</td>" in one) == (True, False, False)
    assert ("cancel-job" in kind, "drain-node" in kind) == (False, True)
    assert ("cancel-job" in text, "&lt;script&gt;" in text) == (False, True)


def test_the_audit_goes_on_without_a_history(made: Scene) -> None:
    reading, made.portal.reading = made.portal.reading, None
    text = made.browser("jane").get("/audit").text
    made.portal.reading = reading

    assert "only the portal's own log is shown" in text
    assert "<td>login</td>" in text


def test_spans_are_understood_as_they_are_written() -> None:
    assert moment_of("from", "-2h", 10_000.0) == moment_of("from", "2h", 10_000.0) == 2_800.0
    assert moment_of("to", "", 7.0) == 7.0
    assert moment_of("to", "1970-01-02 00:00", 7.0) == moment_of("to", "1970-01-02T02:00+02:00", 7.0) == 86_400.0
    assert span_of({"from": "1d"}, 100_019.0).to_s == 99_960.0
    for text in ("nan", "1e999", "-5", "2020-13-01", "0001-01-01T00:00+10:00", "9" * 400):
        with pytest.raises(InvalidInput):
            moment_of("from", text, 7.0)


# --- notifications ------------------------------------------------------------------------------------------------


def dead(browser: Browser) -> list[str]:
    """Ids of notifications that may be tried again."""
    return re.findall(
        r'action="/notifications/retry".*?name="id" value="([^"]+)"', browser.get("/notifications").text, re.S
    )


def test_what_was_given_up_is_tried_again_or_dropped(made: Scene) -> None:
    jane = made.browser("jane")
    (shell,) = made.loop.controllers.values()
    assert isinstance(shell.core, Controller)
    parts.notifying(shell.core).load(
        NotificationRecord(
            "6-1-1.0",
            1.0,
            "ops",
            what="node-off",
            subject=EVIL,
            detail="",
            state="dead",
            tries=1,
            next_s=None,
            error="refused",
        )
    )
    parts.notifying(shell.core).loaded(made.now_s)

    ids = dead(jane)
    unknown = jane.post("/notifications/retry", {"id": "nobody"}, "/notifications")
    channel = jane.post("/notifications/test", {"channel": "nobody"}, "/notifications")

    assert ids == ["6-1-1.0"]
    assert EVIL not in jane.get("/notifications").text
    assert (unknown.status_code, channel.status_code) == (404, 404)
    assert "no notification" in unknown.text.lower() or "nobody" in unknown.text
    assert jane.post("/notifications/drop", {"id": ids[0]}, "/notifications").status_code == 303
    assert dead(jane) == []


@pytest.mark.skipif(not can_draw(), reason="matplotlib (extra plots) is not installed")
def test_a_report_that_is_kept_has_its_pictures_ready_again(made: Scene) -> None:
    """Given a report's page, when so many others' charts were kept since that its own are gone, then it has them."""
    jane, pictures = made.browser("jane"), made.portal.pictures
    first = re.findall(r"/charts/([0-9a-f]{32})\.light\.svg", jane.get("/reports?from=1h").text)

    pictures._charts.put("of others", b"x" * CHARTS_BYTES_MAX)
    gone = [id for id in first if pictures._charts.get(id) is None]
    again = re.findall(r"/charts/([0-9a-f]{32})\.light\.svg", jane.get("/reports?from=1h").text)

    assert len(gone) == len(first) > 0
    assert again == first
    assert all(pictures._charts.get(id) is not None for id in again)
