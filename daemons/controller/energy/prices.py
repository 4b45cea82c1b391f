"""What energy costs: prices with a shape of the day, or those of a feed that is read again and again.

Where the feed knows no price it is forecast, so that there is always one. A feed that stops or contradicts itself is an
event and an alarm, never silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.models.prices import DAY_S, DAY_STEPS, PriceSeries, completed, day_prices, joined
from daemons.values.calendar import local_text, time_of_day_s
from daemons.values.settings import ControllerSettings
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, PriceView
from shared.ports.effects import PricesRead, ReadPrices, StartTimer

AHEAD_S = 48 * 3_600.0  # how far ahead policies are told prices
INTERVALS_MAX = 2_000
PAST_S = 15 * DAY_S  # prices before are of no use to forecasts
SPARE_S = 3_600.0  # so much further what is completed goes, so that it serves for a while
LOST_S = 60.0  # an answer that has not come by then is a feed that does not answer
STEP_S = DAY_S / DAY_STEPS
DETAIL_MAX = 300
SHAPE_SERIES = "series"

Loss = Callable[[float, Floats], Floats]
"""What a node that is taken costs besides, in currency, in intervals of a length from each of the begins on."""


class PriceBook:
    """Keeps the prices that are known. `trouble` says why prices are forecasts that should be known ("": they are not),
    since `trouble_s`. `added`: what taking a node costs besides energy (None: nothing)."""

    def __init__(self, unit_of_work: UnitOfWork, settings: ControllerSettings, added: Loss | None = None) -> None:
        self.unit_of_work, self.settings, self.cycle_s = unit_of_work, settings.prices, settings.decide_s
        self.trouble = ""
        self.trouble_s = 0.0
        self.added = added
        self.series: PriceSeries | None = None
        self._last: PricesRead | None = None
        self._error = ""
        self._asked_s: float | None = None
        self._whole: PriceSeries | None = None
        shape = "uniform" if self.is_read else self.settings.shape
        self._day = day_prices(shape, self.settings.per_kwh, self.settings.ratio)

    @property
    def is_read(self) -> bool:
        """Prices come from a feed."""
        return self.settings.shape == SHAPE_SERIES

    # --- the feed ---------------------------------------------------------------------------------------------------

    def due(self, now_s: float) -> None:
        """Have the feed read, unless an answer is still to come, and again after a while."""
        if self._asked_s is None:
            self._asked_s = now_s
            self.unit_of_work.effects.append(ReadPrices())
        self.unit_of_work.effects.append(StartTimer("prices", now_s + self.settings.read_every_s))
        self.look(now_s)

    def read(self, answer: PricesRead, now_s: float) -> None:
        """Take over what the feed says."""
        self._asked_s = None
        self._error = answer.error[:DETAIL_MAX]
        if not answer.error and answer is not self._last:
            self._last = answer
            self._take(answer, now_s)
        self.look(now_s)

    def _take(self, answer: PricesRead, now_s: float) -> None:
        try:
            newer = PriceSeries(np.array(answer.starts_s), np.array(answer.per_kwh), answer.until_s)
        except InvalidValue as error:
            self._error = str(error)[:DETAIL_MAX]
            return
        if self.series is not None:
            self._compare(self.series.until_s, newer, now_s)
        series = joined(self.series, newer)
        self.series = series.between(min(now_s, series.until_s) - PAST_S, math.inf)
        self._whole = None

    def _compare(self, known_s: float, newer: PriceSeries, now_s: float) -> None:
        known = f"prices were known until {self._text(known_s)}"
        if newer.until_s < known_s:
            self.unit_of_work.emit(now_s, "prices-went-back", "prices", f"ends {self._text(newer.until_s)}, {known}")
        elif newer.from_s > known_s:
            self.unit_of_work.emit(now_s, "prices-went-back", "prices", f"begins {self._text(newer.from_s)}, {known}")

    def look(self, now_s: float) -> None:
        """Notice that prices that should be known are not, and that they are again."""
        if not self.is_read:
            return
        trouble = self._trouble(now_s)
        if trouble and not self.trouble:
            self.trouble_s = now_s
            self.unit_of_work.emit(now_s, "prices-stale", "prices", trouble)
        elif self.trouble and not trouble:
            self.unit_of_work.emit(now_s, "prices-fresh", "prices")
        self.trouble = trouble

    def _trouble(self, now_s: float) -> str:
        if self._error:
            return self._error
        waits = self._asked_s is not None
        if self._asked_s is not None and now_s >= self._asked_s + LOST_S:
            return f"the feed has not answered since {self._text(self._asked_s)}"
        if self.series is None:
            return "" if waits else "nothing has been read"
        known_s = self.series.known_until(now_s)
        if known_s <= now_s:
            first, last = self._text(self.series.from_s), self._text(self.series.until_s)
            return f"the price of now is not known, those from {first} to {last} are"
        return "" if known_s >= now_s + self.cycle_s else f"prices are known until {self._text(known_s)} only"

    def _text(self, at_s: float) -> str:
        return local_text(at_s, self.settings.timezone)

    # --- asked for --------------------------------------------------------------------------------------------------

    def view(self, now_s: float, interval_s: float | None = None) -> PriceView:
        """Prices in the intervals that begin now, for the next `AHEAD_S`; they are as long as cycles if not said."""
        interval_s = interval_s or self.cycle_s
        self.look(now_s)
        count = max(1, min(INTERVALS_MAX, math.ceil(AHEAD_S / interval_s)))
        begins = now_s + interval_s * np.arange(count, dtype=np.float64)
        per_kwh = self._complete(now_s, now_s + count * interval_s).means(begins, begins + interval_s)
        added = np.zeros(count) if self.added is None else self.added(interval_s, begins)
        return PriceView(interval_s, per_kwh, added, self._known(now_s, interval_s, count), self.settings.currency)

    def _known(self, now_s: float, interval_s: float, count: int) -> int:
        known_s = self.known_until(now_s)
        return count if known_s is None else min(count, int((known_s - now_s) / interval_s))

    def kw_cost(self, from_s: float, to_s: float) -> float:
        """Return the cost of one kW between two moments."""
        if from_s >= to_s:
            return 0.0
        begin, end = np.array([from_s]), np.array([to_s])
        return float(self._make(from_s, to_s).integrals(begin, end)[0]) / 3_600.0

    def price(self, at_s: float) -> float:
        """Return the price of a kWh at a moment."""
        return float(self._complete(at_s, at_s + STEP_S).per_kwh[0])

    def known_until(self, at_s: float) -> float | None:
        """Return until when prices are known without a gap from a moment on (None: without end)."""
        if not self.is_read:
            return None
        return at_s if self.series is None else self.series.known_until(at_s)

    def _complete(self, from_s: float, until_s: float) -> PriceSeries:
        """Return a series with a price for every moment; it is rebuilt only now and then."""
        whole = self._whole
        if whole is None or not (whole.from_s <= from_s and until_s <= whole.until_s):
            whole = self._whole = self._make(from_s, until_s + SPARE_S)
        part = whole.between(from_s, until_s)
        assert part is not None
        return part

    def _make(self, from_s: float, until_s: float) -> PriceSeries:
        if self.is_read:
            return completed(self.series, from_s, until_s, self._earlier, self.settings.per_kwh)
        if self.settings.shape == "uniform":
            return PriceSeries(np.array([from_s]), self._day[:1], until_s)
        starts = STEP_S * np.arange(math.floor(from_s / STEP_S), math.ceil(until_s / STEP_S), dtype=np.float64)
        steps = [int(time_of_day_s(start_s, self.settings.timezone) // STEP_S) for start_s in starts.tolist()]
        starts[0] = from_s
        return PriceSeries(starts, self._day[steps], until_s)

    def _earlier(self, at_s: float, days: int) -> float:
        """Return when the clock showed the same time of day this many days before."""
        zone = self.settings.timezone
        before_s = at_s - days * DAY_S
        off_s = time_of_day_s(at_s, zone) - time_of_day_s(before_s, zone)
        return before_s + (off_s + DAY_S / 2) % DAY_S - DAY_S / 2
