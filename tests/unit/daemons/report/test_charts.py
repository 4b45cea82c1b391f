"""Charts and tables: thinned without losing what matters, told in words, drawn the same each time, safe in a page."""

from __future__ import annotations

import math
import re
import threading
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from daemons.report.charts import (
    Chart,
    Mark,
    Scale,
    Series,
    Style,
    X,
    cell_text,
    data_table,
    in_words,
    known,
    thinned,
)
from daemons.report.themes import THEMES, style_sheet
from daemons.values.text_format import time_text
from shared.base.errors import InvalidValue

START_S = 1_790_000_000.0
HOSTILE = "<script>alert(1)</script> $x_{$ \x07 & \"'"


def chart(id: str = "u", count: int = 50, name: str = "mean") -> Chart:
    xs = [START_S + 900.0 * at for at in range(count)]
    ys = [None if at == 7 else math.sin(at) for at in range(count)]
    return Chart(id, "Utility", "utility", series=(Series(name, xs, ys),), marks=(Mark("on goal", 0.0),))


# --- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [Style.LINE, Style.STEP, Style.AREA, Style.POINTS])
def test_thinning_keeps_the_extremes_the_ends_and_the_gaps(style: Style) -> None:
    """Given one spike up, one down and one gap among 100,000 values, then the few that are left have them."""
    ys: list[float | None] = [float(at % 3) for at in range(100_000)]
    ys[31_234], ys[77_777], ys[50_001] = 99.0, -99.0, None
    few = thinned(Series("x", range(100_000), ys, style=style), 400)

    assert len(few.xs) <= 410
    assert (few.xs[0], few.xs[-1]) == (0, 99_999)
    assert list(few.xs) == sorted(few.xs)
    assert {99.0, -99.0, None} <= set(few.ys)
    assert all(ys[int(x)] == y for x, y in zip(few.xs, few.ys, strict=True))


def test_thinning_keeps_both_edges_of_a_band_and_leaves_short_series_and_bars_alone() -> None:
    low: list[float] = [0.0] * 5_000
    low[2_500] = -7.0
    band = thinned(Series("x", range(5_000), [1.0] * 5_000, style=Style.BAND, edge=low), 100)
    bars = Series("x", range(5_000), [1.0] * 5_000, style=Style.BAR)

    assert -7.0 in band.edge
    assert thinned(bars, 100) is bars
    assert thinned(band, 1_000) is band


def test_a_series_of_unequal_lengths_is_none() -> None:
    with pytest.raises(InvalidValue, match="ys"):
        Series("x", (1.0,), ())


def test_a_chart_is_told_in_words() -> None:
    assert in_words(Chart("e", "Cost", "EUR", series=(), empty="no price was known")) == "Cost: no price was known."
    two = Chart(
        "c", "Nodes", "nodes", series=(Series("all", (0.0, 1.0), (3.0, 3.0)), Series("on", (0.0, 1.0), (2.5, None)))
    )
    assert in_words(two) == "Nodes, in nodes. all: 3. on: 2.5."
    assert known((1.0, None, math.nan, math.inf)) == [1.0]


def test_a_charts_values_are_a_table() -> None:
    bars = Series("ok", (0, 1), (5, None), style=Style.BAR)
    table = data_table(Chart("a", "Actions", "actions", series=(bars,), x=X.CATEGORY, x_names=("start", "stop")))
    long = data_table(chart(count=1_000), rows_max=100)

    assert (table.columns, table.rows) == (("category", "ok"), (("start", 5), ("stop", None)))
    assert (len(long.rows), long.note) == (100, "Showing one in 10 of 1,000 rows.")
    assert long.rows[0][0] == "2026-09-21T14:13:20Z"


def test_cells_and_times_for_people() -> None:
    assert [cell_text(cell) for cell in (None, "x", 3, 0.123456, 12345.6, math.nan)] == [
        "-",
        "x",
        "3",
        "0.1235",
        "12,346",
        "-",
    ]
    assert time_text(START_S, "Europe/Berlin") == "2026-09-21T16:13:20+02:00"


# --- drawings ----------------------------------------------------------------------------------------------------


def test_a_drawing_is_the_same_each_time_and_needs_no_style_and_no_script() -> None:
    draw = pytest.importorskip("daemons.report.draw")
    if not draw.can_draw():
        pytest.skip("matplotlib is missing")
    text = draw.svg(chart(name=HOSTILE), "page")
    root = ET.fromstring(text)

    assert draw.svg(chart(name=HOSTILE), "page") == text
    assert "<script" not in text
    assert not [each for each in root.iter() if each.get("style") or each.tag.endswith("style")]
    assert not [name for each in root.iter() for name in each.attrib if name.startswith("on")]
    assert "var(--chart-0, #0072b2)" in text
    shown = "".join(root.itertext())
    assert HOSTILE.replace("\x07", "?") in shown  # as text, and no formula
    assert root.get("role") == "img"
    assert [each.tag.rpartition("}")[2] for each in root][:2] == ["title", "desc"]


def test_drawings_in_one_page_share_no_id_and_lack_none() -> None:
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    bars = tuple(Series(name, (0, 1), (5, 2), style=Style.BAR, stacked=at > 0) for at, name in enumerate("abc"))
    one, other = (
        draw.svg(Chart(id, "A", "a", series=bars, x=X.CATEGORY, x_names=("p", "q"))) for id in ("one", "other")
    )

    ids = [re.findall(r' id="([^"]+)"', text) for text in (one, other)]
    assert not set(ids[0]) & set(ids[1])
    for text, own in zip((one, other), ids, strict=True):
        assert len(own) == len(set(own))
        assert set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text)) <= {(id, "") for id in own} | {
            ("", id) for id in own
        }


def test_pictures_in_both_themes_of_everything_that_can_be_drawn() -> None:
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    xs = [0.0, 1.0, 2.0]
    edges = {Style.BAND: [0.0, 0.1, 0.2], Style.SPAN: [1.0, 2.0, 3.0], Style.POINTS: [0.1, 0.1, 0.1]}
    series = [Series(style.value, xs, [1.0, None, 2.0], style=style, edge=edges.get(style, ())) for style in Style]
    full = Chart(
        "f",
        "All",
        "u",
        series=tuple(series[:-1]),
        x=X.NUMBER,
        x_label="n",
        marks=(Mark("m", 1.0, True),),
        x_min=0.0,
        y_max=9.0,
    )
    spans = Chart("s", "Spans", "", series=(Series("w", xs, xs, style=Style.SPAN, edge=[1.0, 2.0, 3.0]),), x=X.NUMBER)

    pictures = {
        theme: draw.png((full, spans, Chart("e", "Nothing", "", series=())), theme) for theme in ("light", "dark")
    }
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
    assert pictures["light"] != pictures["dark"]
    with pytest.raises(InvalidValue, match="theme"):
        draw.png(full, "pink")
    with pytest.raises(InvalidValue, match="charts"):
        draw.png(())


def test_charts_side_by_side() -> None:
    """Given three charts in rows of two, then two rows of them, of the width and height that are asked for."""
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    three = [replace(chart(id), title=f"chart {id}") for id in "abc"]
    root = ET.fromstring(draw.svg(three, width_px=800, height_px=200, columns=2))
    at = _texts(root)

    assert (root.get("width"), root.get("height")) == ("800", "400")
    assert at["chart a"][0] < at["chart b"][0]
    assert at["chart a"][1] == at["chart b"][1] < at["chart c"][1]
    with pytest.raises(InvalidValue, match="columns"):
        draw.png(three, columns=0)


def test_names_that_are_too_wide_beside_each_other_are_below_each_other() -> None:
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    names = ["one " * 10, "two " * 10]
    long = Chart("l", "L", "u", series=tuple(Series(name, (0.0, 1.0), (0.0, 1.0)) for name in names), x=X.NUMBER)
    wide, narrow = (_texts(ET.fromstring(draw.svg(long, width_px=width_px))) for width_px in (1_200, 390))

    assert len({wide[name.strip()][1] for name in names}) == 1
    assert len({narrow[name.strip()][1] for name in names}) == 2


def test_up_to_where_symmetric_logarithms_are_linear() -> None:
    """Given 1, 10 and 100, then 10 is far from 1 by logarithms and near where all up to 100 is linear."""
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    levels = tuple((value, f"level {value:g}") for value in (1.0, 10.0, 100.0))
    line = Series("x", (0.0, 1.0), (1.0, 100.0))
    chart = Chart("s", "S", "u", series=(line,), x=X.NUMBER, y_names=levels, scale=Scale.SYMLOG)
    parts = []
    for each in (chart, replace(chart, symlog_linear=100.0)):
        at = _texts(ET.fromstring(draw.svg(each)))
        low, middle, high = (at[name][1] for _, name in levels)
        parts.append((low - middle) / (low - high))

    assert parts == pytest.approx([0.5, 9.0 / 99.0], abs=0.05)


def test_numbers_of_logarithms_are_plain() -> None:
    """Texts are never read as formulas, which is how matplotlib would write powers of ten."""
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    for scale in (Scale.LOG, Scale.SYMLOG):
        chart = Chart("l", "L", "u", series=(Series("x", (0.0, 1.0), (20.0, 3_000.0)),), x=X.NUMBER, scale=scale)
        drawn = draw.svg(chart)
        assert "1,000" in _texts(ET.fromstring(drawn))
        assert "mathdefault" not in drawn


def test_a_cloud_of_points_stays_dense_in_a_picture_of_a_fixed_size() -> None:
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    count = 3_000
    cloud = Series("x", range(count), [(7_919 * at) % count for at in range(count)], style=Style.POINTS)
    every, few = (Chart("c", "C", "u", series=(series,), x=X.NUMBER) for series in (cloud, thinned(cloud, 600)))

    assert draw.png(every, width_px=300) != draw.png(few, width_px=300)
    assert draw.svg(every, width_px=300) == draw.svg(few, width_px=300)


def _texts(root: ET.Element) -> dict[str, tuple[float, float]]:
    """Where each text is, from the left and from the top."""
    there = [each for each in root.iter() if each.tag.endswith("}text")]
    return {
        "".join(each.itertext()).strip(): (float(each.get("x", "nan")), float(each.get("y", "nan"))) for each in there
    }


@pytest.mark.full
def test_threads_may_draw_at_once() -> None:
    draw = pytest.importorskip("daemons.report.draw")
    pytest.importorskip("matplotlib")
    wanted = {theme: draw.svg(chart(theme), theme) for theme in ("light", "dark")}
    found: list[tuple[str, str]] = []
    threads = [
        threading.Thread(target=lambda theme=theme: found.append((theme, draw.svg(chart(theme), theme))))
        for theme in ("light", "dark")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert dict(found) == wanted


def _contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)]
        red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_themes_stand_out_from_their_paper(name: str) -> None:
    theme = THEMES[name]

    assert min(_contrast(colour, theme.paper) for colour in (theme.ink, theme.muted)) >= 4.5
    assert min(_contrast(colour, theme.paper) for colour in theme.series) >= 3.0
    assert len({theme.ink, theme.muted, theme.grid, *theme.series}) == 3 + len(theme.series)
    assert f"--chart-ink:{theme.ink};" in style_sheet(name)
