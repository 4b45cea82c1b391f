"""The prices that decisions see: shapes of the day by the local clock, feeds that stop, go back and come again."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from daemons.controller.energy.prices import AHEAD_S, LOST_S, PriceBook
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.prices import DAY_S
from daemons.values.settings import ControllerSettings, PriceSettings
from shared.ports.effects import PricesRead, Publish, ReadPrices, StartTimer
from shared.protocol.messages import Happened

HOUR_S = 3600.0
CYCLE_S = 900.0
NOW_S = 20_000 * DAY_S  # midnight UTC
ZONE = "Europe/Brussels"


def book_of(**settings: object) -> PriceBook:
    return PriceBook(UnitOfWork(), ControllerSettings(decide_s=CYCLE_S, prices=PriceSettings(**settings)))  # type: ignore[arg-type]


def told(book: PriceBook) -> list[str]:
    """The events since the last time."""
    messages = [effect.message for effect in book.unit_of_work.effects if isinstance(effect, Publish)]
    book.unit_of_work.effects = []
    return [message.what for message in messages if isinstance(message, Happened)]


def hourly(first_day: int, days: int, price: float = 0.1) -> PricesRead:
    """Days from now on; each hour costs its number more than the first."""
    begin_s = NOW_S + first_day * DAY_S
    starts = tuple(begin_s + HOUR_S * at for at in range(24 * days))
    return PricesRead(starts, tuple(price + at % 24 for at in range(24 * days)), begin_s + days * DAY_S)


@pytest.fixture
def book() -> PriceBook:
    """Prices of a feed; nothing has been read."""
    return book_of(shape="series", per_kwh=0.25, currency="CHF")


# --- shapes of the day -------------------------------------------------------------------------------------------


def test_a_uniform_price() -> None:
    view = book_of().view(NOW_S, CYCLE_S)
    assert view.per_kwh.tolist() == [0.30] * int(AHEAD_S / CYCLE_S)
    assert (view.known, view.currency, float(view.added.sum())) == (192, "EUR", 0.0)


def test_a_shape_goes_by_the_clock_of_the_zone() -> None:
    """Given a price that rises through the day in Brussels, then at its midnight it begins anew."""
    book = book_of(shape="increasing", timezone=ZONE)
    midnight_s = datetime(2026, 6, 2, tzinfo=ZoneInfo(ZONE)).timestamp()
    before, after = book.view(midnight_s - 900.0, 900.0).per_kwh[:2]
    assert before == pytest.approx(0.45, rel=0.01)
    assert after == pytest.approx(0.15, rel=0.03)
    assert book.kw_cost(midnight_s, midnight_s + DAY_S) == pytest.approx(24 * 0.30)


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25)])
def test_a_shape_on_a_day_on_which_the_clock_is_changed(day: tuple[int, int, int], hours: int) -> None:
    """The same time of day has the same price; what is left out, or comes twice, lacks or counts twice."""
    book = book_of(shape="increasing", timezone=ZONE)
    begin_s = datetime(*day, tzinfo=ZoneInfo(ZONE)).timestamp()
    view = book.view(begin_s, HOUR_S)
    plain = book.view(begin_s - 5 * DAY_S, HOUR_S)
    shown = [datetime.fromtimestamp(begin_s + HOUR_S * at, ZoneInfo(ZONE)).hour for at in range(hours)]
    assert len(set(shown)) == min(hours, 24)
    np.testing.assert_allclose(view.per_kwh[:hours], [plain.per_kwh[hour] for hour in shown], rtol=1e-12)


# --- feeds -------------------------------------------------------------------------------------------------------


def test_a_feed_is_known_first_and_forecast_after(book: PriceBook) -> None:
    book.due(NOW_S)
    assert book.unit_of_work.effects == [ReadPrices(), StartTimer("prices", NOW_S + 900.0)]
    book.due(NOW_S + 1.0)  # the answer is still to come
    assert book.unit_of_work.effects[2:] == [StartTimer("prices", NOW_S + 901.0)]
    book.read(hourly(-10, 11), NOW_S + 2.0)
    assert told(book) == []
    book.due(NOW_S + 900.0)
    assert book.unit_of_work.effects[:1] == [ReadPrices()]

    view = book.view(NOW_S, CYCLE_S)

    assert (view.known, view.currency) == (96, "CHF")
    assert view.per_kwh[:96].tolist() == pytest.approx(view.per_kwh[96:].tolist())
    assert view.per_kwh[40] == pytest.approx(10.1)


def test_a_forecast_follows_the_clock_through_its_change() -> None:
    """Given the days before the clock is put forward, then the next day's prices are those of the same local hours."""
    book = book_of(shape="series", timezone=ZONE)
    change_s = datetime(2026, 3, 29, tzinfo=ZoneInfo(ZONE)).timestamp()
    starts = tuple(change_s - 5 * DAY_S + HOUR_S * at for at in range(5 * 24))
    book.read(PricesRead(starts, tuple(float(at % 24) for at in range(5 * 24)), change_s), change_s - HOUR_S)
    view = book.view(change_s, HOUR_S)
    assert view.known == 0
    assert view.per_kwh[:6].tolist() == [0.0, 1.0, 3.0, 4.0, 5.0, 6.0]


def test_a_feed_that_stops_is_told_once_and_forecast(book: PriceBook) -> None:
    """Given prices for today, when the day ends and no more come, then there is one event, and again one when they
    come."""
    answer = hourly(-3, 4)
    book.read(answer, NOW_S)
    book.view(NOW_S + DAY_S - 2 * CYCLE_S, CYCLE_S)
    assert told(book) == []
    for late_s in (-CYCLE_S / 2, 0.0, HOUR_S, 5 * HOUR_S):
        now_s = NOW_S + DAY_S + late_s
        view = book.view(now_s, CYCLE_S)
        book.read(answer, now_s)
        assert view.known == 0
        assert np.isfinite(view.per_kwh).all()
    assert told(book) == ["prices-stale"]
    assert "are" in book.trouble
    assert book.trouble_s == NOW_S + DAY_S - CYCLE_S / 2
    assert book.view(NOW_S + DAY_S + 5 * HOUR_S, HOUR_S).per_kwh[0] == pytest.approx(5.1)

    book.read(hourly(-3, 6), NOW_S + DAY_S + 6 * HOUR_S)
    assert told(book) == ["prices-fresh"]
    assert book.trouble == ""


def test_errors_are_told_once_and_prices_that_are_known_stay(book: PriceBook) -> None:
    book.read(hourly(-1, 3), NOW_S)
    for at in range(3):
        book.read(PricesRead(error="prices.csv: No such file"), NOW_S + at * CYCLE_S)
    assert told(book) == ["prices-stale"]
    assert book.trouble == "prices.csv: No such file"
    assert book.view(NOW_S, CYCLE_S).known == 192


def test_nothing_at_all_is_told_and_the_configured_price_taken(book: PriceBook) -> None:
    assert book.view(NOW_S, CYCLE_S).per_kwh.tolist() == [0.25] * 192
    assert told(book) == ["prices-stale"]


def test_a_feed_that_never_answers(book: PriceBook) -> None:
    book.due(NOW_S)
    book.look(NOW_S + LOST_S / 2)
    assert told(book) == []
    book.look(NOW_S + LOST_S)
    assert told(book) == ["prices-stale"]
    assert "has not answered since" in book.trouble


def test_a_file_that_goes_back_keeps_what_is_known(book: PriceBook) -> None:
    """Given prices until tomorrow, when a file ends today at other prices, then those are taken and tomorrow's stay."""
    book.read(hourly(-1, 3), NOW_S)
    book.read(hourly(-1, 2, price=100.0), NOW_S + 60.0)
    assert told(book) == ["prices-went-back"]
    view = book.view(NOW_S, HOUR_S)
    assert view.known == 48
    assert (view.per_kwh[0], view.per_kwh[24]) == (100.0, 0.1)


def test_a_file_that_is_corrected_is_taken_at_once_and_the_same_again_is_no_news(book: PriceBook) -> None:
    """Given a view of prices, when a file says others, then the next view has them; one that went back is told once."""
    book.read(hourly(0, 3), NOW_S)
    assert book.view(NOW_S).per_kwh[0] == 0.1
    shorter = hourly(0, 2, price=7.0)
    for at in range(3):
        book.read(shorter, NOW_S + at)
    assert book.view(NOW_S).per_kwh[0] == 7.0
    assert told(book) == ["prices-went-back"]


def test_a_file_that_begins_after_what_is_known_leaves_a_gap_that_is_forecast(book: PriceBook) -> None:
    book.read(hourly(-2, 3), NOW_S)
    book.read(hourly(2, 1), NOW_S + 60.0)
    assert told(book) == ["prices-went-back"]
    view = book.view(NOW_S, HOUR_S)
    assert view.known == 24
    assert view.per_kwh[24:48].tolist() == view.per_kwh[:24].tolist()


def test_a_file_of_each_day_is_none_that_goes_back(book: PriceBook) -> None:
    """Given files of today and tomorrow alone, then what is known of the days before stays for the forecast."""
    for day in range(10):
        book.read(hourly(day, 2, price=float(day)), NOW_S + day * DAY_S)
    assert told(book) == []
    view = book.view(NOW_S + 10 * DAY_S, HOUR_S)
    assert view.known == 24
    assert view.per_kwh[24] == pytest.approx(np.mean([4, 5, 6, 7, 8, 9, 9]))


def test_clocks_that_jump(book: PriceBook) -> None:
    """Given a clock that jumps by a year and back, then it is told, and all is as before afterwards."""
    book.read(hourly(-9, 11), NOW_S)
    before = book.view(NOW_S, HOUR_S)
    late = book.view(NOW_S + 365 * DAY_S, HOUR_S)
    assert (late.known, told(book)) == (0, ["prices-stale"])
    np.testing.assert_allclose(late.per_kwh[:24], before.per_kwh[:24])
    early = book.view(NOW_S - 365 * DAY_S, HOUR_S)
    assert (early.known, told(book)) == (0, [])
    again = book.view(NOW_S, HOUR_S)
    assert (again.per_kwh.tolist(), again.known) == (before.per_kwh.tolist(), before.known)
    assert told(book) == ["prices-fresh"]


@pytest.mark.parametrize(
    "wrong",
    [
        PricesRead((), (), NOW_S),
        PricesRead((NOW_S, NOW_S), (1.0, 1.0), NOW_S + 1.0),
        PricesRead((NOW_S,), (1.0, 2.0), NOW_S + 1.0),
        PricesRead((NOW_S,), (float("inf"),), NOW_S + 1.0),
    ],
)
def test_an_answer_that_is_no_series_is_an_error(book: PriceBook, wrong: PricesRead) -> None:
    book.read(hourly(0, 3), NOW_S)
    book.read(wrong, NOW_S)
    assert told(book) == ["prices-stale"]
    assert book.view(NOW_S, HOUR_S).known == 48


def test_what_a_kilowatt_costs_follows_the_price(book: PriceBook) -> None:
    book.read(hourly(0, 1), NOW_S)
    assert book.kw_cost(NOW_S + HOUR_S / 2, NOW_S + 3 * HOUR_S / 2) == pytest.approx((0.1 + 1.1) / 2)
    assert book.kw_cost(NOW_S, NOW_S) == 0.0
    assert book.price(NOW_S + 5.5 * HOUR_S) == pytest.approx(5.1)


def test_long_series_are_cut_to_what_forecasts_need(book: PriceBook) -> None:
    book.read(hourly(-700, 702), NOW_S)
    assert book.series is not None
    assert (book.series.from_s, book.series.until_s) == (NOW_S - 15 * DAY_S, NOW_S + 2 * DAY_S)
