"""Files of prices: what is read from them, and what is said of those that are wrong."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from daemons.config.controller import ControllerConfig, Prices
from daemons.drivers.price_feed import PriceFeed, feed_of, prices_of
from daemons.manifests.prices import read_prices
from daemons.service.settings_from_config import settings_of
from daemons.values.settings import Draw, PriceSettings
from shared.base.errors import InvalidInput
from shared.config.toml import parse
from shared.ports.effects import PricesRead
from tests.support import parts
from tests.support.shell_harness import FAST, RealRig, wait_for

TITLES = "hour,other,price\n"
HOUR_S = 3600.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prices.csv"


def epoch_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def clock_rows(day: str, zone: str, step_s: float = HOUR_S) -> list[str]:
    """What a clock shows through a day, as one writes it down."""
    local = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    end_s = (local + timedelta(days=1)).timestamp()
    shown = []
    at_s = local.timestamp()
    while at_s < end_s:
        shown.append(datetime.fromtimestamp(at_s, ZoneInfo(zone)).replace(tzinfo=None).isoformat(timespec="minutes"))
        at_s += step_s
    return shown


def written(path: Path, times: list[str]) -> Path:
    path.write_text(TITLES + "".join(f"{time},x,{at}.5\n" for at, time in enumerate(times)), "utf-8")
    return path


def read(path: Path, timezone: str = "UTC", factor: float = 1.0) -> PricesRead:
    return read_prices(path, "price", timezone, factor)


def said(path: Path, timezone: str = "UTC") -> list[str]:
    with pytest.raises(InvalidInput) as error:
        read(path, timezone)
    return [str(problem).removeprefix(f"{path}") for problem in error.value.problems]


# --- good files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2026-01-01T00:00", "2026-01-01T01:00"),
        ("2026-01-01 00:00:00", "2026-01-01 01:00:00"),
        ("2026-01-01T00:00Z", "2026-01-01T03:00+02:00"),
        ("1767225600", "1767229200.0"),
    ],
)
def test_times_may_be_written_in_several_ways(path: Path, first: str, second: str) -> None:
    path.write_text(f"{TITLES}{first},x,100\n\n{second},x,-20.5\n", "utf-8")

    found = read(path, factor=0.001)

    begin_s = epoch_s("2026-01-01T00:00")
    assert found == PricesRead((begin_s, begin_s + HOUR_S), (0.1, -0.0205), begin_s + 2 * HOUR_S)


@pytest.mark.parametrize("step_s", [HOUR_S, 900.0])
@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_days_on_which_the_clock_is_changed(path: Path, day: str, hours: int, step_s: float) -> None:
    """Given the rows of a day by the clock of Brussels, then periods follow each other without a gap."""
    times = clock_rows(day, "Europe/Brussels", step_s)
    assert len(times) == hours * HOUR_S / step_s

    found = read(written(path, times), "Europe/Brussels")

    begin_s = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Brussels")).timestamp()
    assert found.starts_s == tuple(begin_s + step_s * at for at in range(len(times)))
    assert found.until_s == begin_s + hours * HOUR_S


def test_market_time_knows_no_change_of_clocks(path: Path) -> None:
    times = clock_rows("2026-03-29", "Etc/GMT-1")
    assert len(read(written(path, times), "Etc/GMT-1").starts_s) == 24
    (problem,) = said(path, "Europe/Berlin")
    assert problem.startswith(":4: the clock of Europe/Berlin never shows 2026-03-29T02:00")
    assert "Etc/GMT-1" in problem


def test_hours_may_become_quarters_of_an_hour_once_for_all(path: Path) -> None:
    times = clock_rows("2026-06-01", "UTC") + clock_rows("2026-06-02", "UTC", 900.0)
    found = read(written(path, times))
    assert (len(found.starts_s), found.until_s) == (24 + 96, epoch_s("2026-06-03T00:00"))


def test_a_zipped_file_is_read_whatever_its_name(path: Path) -> None:
    plain = read(written(path, clock_rows("2026-06-01", "UTC")))
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert read(path) == plain


@pytest.mark.parametrize(
    ("name", "timezone", "rows"),
    [
        ("BE_day_ahead_2022_2023.csv.gz", "Europe/Brussels", 17_520),
        ("DE_day_ahead_with_forecasts.csv.gz", "Etc/GMT-1", 17_472),
    ],
)
def test_real_prices(data_folder: Path, name: str, timezone: str, rows: int) -> None:
    found = read_prices(data_folder / "electricity" / name, "price_eur_per_mwh", timezone, 0.001)
    assert len(found.starts_s) == rows
    assert found.until_s == found.starts_s[0] + rows * HOUR_S
    assert -0.2 < min(found.per_kwh) < -0.1


# --- wrong files -------------------------------------------------------------------------------------------------

WRONG = {
    "a gap": (
        "2026-01-01T00:00,x,1\n2026-01-01T01:00,x,1\n2026-01-01T02:00,x,1\n2026-01-01T04:00,x,1\n",
        [":5: 7200 s from 2026-01-01T02:00 to 2026-01-01T04:00 (expected a price every 3600 s)"],
    ),
    "not in order": (
        "2026-01-01T02:00,x,1\n2026-01-01T01:00,x,1\n2026-01-01T03:00,x,1\n",
        [":3: the time 2026-01-01T01:00 goes back (expected times that rise)"],
    ),
    "twice": (
        "2026-01-01T00:00,x,1\n2026-01-01T01:00,x,1\n2026-01-01T01:00,x,2\n2026-01-01T02:00,x,1\n",
        [":4: the time 2026-01-01T01:00 stands twice (expected times that rise)"],
    ),
    "no number": (
        "2026-01-01T00:00,x,1\n2026-01-01T01:00,x,nan\n2026-01-01T02:00,x,\n2026-01-01T03:00,x\n",
        [
            ":3: no price at 2026-01-01T01:00: 'nan' (expected a number)",
            ":4: no price at 2026-01-01T02:00: '' (expected a number)",
            ":5: no price at 2026-01-01T03:00: '' (expected a number)",
        ],
    ),
    "one row": ("2026-01-01T00:00,x,1\n", [" has 1 prices (expected two at least)".removeprefix(" ")]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_with_its_line(path: Path, wrong: str) -> None:
    rows, expected = WRONG[wrong]
    path.write_text(TITLES + rows, "utf-8")
    assert [problem.removeprefix(": ") for problem in said(path)] == expected


@pytest.mark.parametrize("time", ["yesterday", "nan", "inf", "1e300", "2026-13-01T00:00", ""])
def test_times_that_are_none(path: Path, time: str) -> None:
    path.write_text(f"{TITLES}{time},x,1\n2026-01-01T01:00,x,1\n", "utf-8")
    (problem,) = said(path)
    assert problem.startswith(f":2: '{time}' is no time (expected ISO 8601")


def test_a_file_that_holds_something_else(path: Path, tmp_path: Path) -> None:
    written(path, clock_rows("2026-06-01", "UTC"))
    with pytest.raises(InvalidInput, match=r":1: has no column 'cost' \(expected one of other, price\)"):
        read_prices(path, "cost", "UTC")
    with pytest.raises(InvalidInput, match="time zone such as"):
        read_prices(path, "price", "Europe/Nowhere")
    for content in (b"", b"\xff\xfe\x00", gzip.compress(b"hour,price\n")[:-9], b"\n\n"):
        path.write_bytes(content)
        assert said(path)
    assert said(tmp_path)
    assert said(tmp_path / "missing.csv")


# --- read again and again ----------------------------------------------------------------------------------------


def test_a_feed_reads_a_file_again_only_when_it_has_changed(path: Path) -> None:
    feed = PriceFeed(str(path), "price", "UTC")
    assert "prices.csv" in feed.read().error

    written(path, clock_rows("2026-06-01", "UTC"))
    first = feed.read()
    assert first.error == ""
    assert feed.read() is first

    written(path, clock_rows("2026-06-02", "UTC"))
    os.utime(path, ns=(1, 1))
    assert feed.read().starts_s[0] == epoch_s("2026-06-02T00:00")

    path.write_text("nonsense", "utf-8")
    assert "no column 'price'" in feed.read().error


# --- as configured -----------------------------------------------------------------------------------------------


def table(more: str) -> Prices:
    return parse(f"[prices]\n{more}\n", ControllerConfig).prices


def test_a_table_of_prices_is_what_the_core_is_told() -> None:
    prices = table('shape = "series"\nfile = "/p.csv"\ncolumn = "price"\nfactor = 0.001\ntimezone = "Europe/Brussels"')
    assert prices_of(prices) == PriceSettings("series", 0.30, 3.0, "EUR", "Europe/Brussels", 900.0, 0.0)
    assert "/p.csv" in feed_of(prices).read().error  # type: ignore[union-attr]
    assert feed_of(table("")) is None
    assert prices_of(table("")) == PriceSettings()


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ('shape = "series"', "prices.file"),
        ('file = "/p.csv"', "prices.shape"),
        ('timezone = "Europe/Nowhere"', "prices.timezone"),
    ],
)
def test_a_table_that_cannot_work_is_refused_by_its_key(more: str, key: str) -> None:
    with pytest.raises(InvalidInput) as error:
        prices_of(table(more))
    assert [problem.where for problem in error.value.problems] == [key]


def test_a_curve_goes_before_idle_and_peak() -> None:
    draw = "[power.draw.{}]\nidle_w = 1.0\npeak_w = 2.0\noff_w = 3.0\ncurve_w = {}\n"
    bus = '[bus]\nurl = "amqps://controller.a:p@broker/"\n'
    config = parse(draw.format("old", "[]") + draw.format("new", "[70.0, 90.0, 95.0]") + bus, ControllerConfig)
    draws = settings_of(config).power.draws
    assert draws == {"old": Draw(1.0, 2.0, 3.0), "new": Draw(70.0, 95.0, 3.0, (70.0, 90.0, 95.0))}
    with pytest.raises(InvalidInput, match=r"power\.draw\.short\.curve_w"):
        settings_of(parse(draw.format("short", "[70.0]") + bus, ControllerConfig))


def test_the_controller_reads_the_file_in_a_lane_of_its_own(path: Path, tmp_path: Path) -> None:
    """Given a real controller with a feed, then it knows the prices of the file soon after it leads."""
    rig = RealRig(tmp_path, nodes=1)
    begin_s = rig.clock.now_s() // HOUR_S * HOUR_S
    path.write_text(TITLES + "".join(f"{begin_s + HOUR_S * at},x,{at}\n" for at in range(48)), "utf-8")
    settings = replace(FAST, prices=PriceSettings(shape="series"))
    feed = PriceFeed(str(path), "price", "UTC", 0.5)
    running = rig.controller(settings=settings, feed=feed)
    try:
        book = parts.energy(running.shell.controller).prices  # type: ignore[attr-defined]
        wait_for(lambda: book.series is not None)
        assert book.series is not None
        assert book.series.per_kwh.tolist() == [0.5 * at for at in range(48)]
    finally:
        rig.end()
