"""The recent demand of a web application, in requests, from which the load to plan for is derived."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from daemons.models.load_forecast import LoadForecast, forecast_loads
from daemons.values.settings import WebPlanning
from shared.policy_api.snapshot import Floats
from shared.values.web_app import FlowSample

POINT_S = 60.0  # shorter ones tell of chance more than of load
POINTS_MAX = 64
RECENT_S, RECENT_REQUESTS = 20.0, 1_000  # "now" is the last so many seconds, or requests if there were fewer


@dataclass(frozen=True, slots=True)
class _Window:
    """Requests that came in `seconds`, by flow."""

    seconds: float
    offered: Mapping[str, int]

    def load_mhz(self, works: Mapping[str, float]) -> float:
        """Return the CPU in MHz that the requests take, with the work of a request of each flow in Mcycles."""
        return sum(count * works.get(flow, 0.0) for flow, count in self.offered.items()) / self.seconds


@dataclass(slots=True)
class LoadHistory:
    """Of one application. Points, the last `POINTS_MAX` of about `POINT_S` each, are columns, float64[points]: when
    each ended, its seconds, and the requests by flow; all of them are looked at between any two decisions."""

    at_s: Floats = field(default_factory=lambda: np.zeros(0))
    seconds: Floats = field(default_factory=lambda: np.zeros(0))
    offered: dict[str, Floats] = field(default_factory=dict)
    recent: deque[_Window] = field(default_factory=deque)
    queued: dict[str, int] = field(default_factory=dict)

    def add(self, at_s: float, flows: Sequence[FlowSample]) -> None:
        """Take in a sample of all flows that ends at `at_s`."""
        seconds = max(one.window_s for one in flows)
        offered = {one.flow: one.offered or one.served + one.rejected for one in flows}
        self.queued = {one.flow: one.queued for one in flows}
        if not len(self.seconds) or self.seconds[-1] >= POINT_S * (1.0 - 1e-6):
            self.at_s, self.seconds = _longer(self.at_s), _longer(self.seconds)
            self.offered = {flow: _longer(counts) for flow, counts in self.offered.items() if counts.any()}
        self.at_s[-1] = at_s
        self.seconds[-1] += seconds
        for flow, count in offered.items():
            self.offered.setdefault(flow, np.zeros(len(self.at_s)))[-1] += count
        self.recent.append(_Window(seconds, offered))
        while len(self.recent) > 1 and self._is_old():
            self.recent.popleft()

    def _is_old(self) -> bool:
        """Return whether the oldest of the recent samples can be skipped."""
        rest = [*self.recent][1:]
        seconds = sum(one.seconds for one in rest)
        requests = sum(sum(one.offered.values()) for one in rest)
        return seconds >= POINT_S or (seconds >= RECENT_S and requests >= RECENT_REQUESTS)

    def now_mhz(self, works: Mapping[str, float]) -> float:
        """Return the load of now in MHz, with the work of a request of each flow in Mcycles; 0 before any sample."""
        seconds = sum(one.seconds for one in self.recent)
        return sum(one.load_mhz(works) * one.seconds for one in self.recent) / seconds if self.recent else 0.0

    def plan(
        self,
        app: str,
        works: Mapping[str, float],
        planning: WebPlanning,
        quantile: float | None = None,
        background_mhz: float = 0.0,
        forecast: LoadForecast | None = None,
    ) -> LoadPlan:
        """Return the load of `app` that a decision plans for, see `models.load_forecast`. Waiting requests are worked
        off in addition, and instances can use only part of their CPU. quantile: replaces that of the planning.
        background_mhz: what its instances use whatever they are asked for. forecast: that of `forecasts`, if already
        computed."""
        if not len(self.at_s):
            return LoadPlan(0.0, 0.0)
        if forecast is None:
            (forecast,) = forecasts([self], [works], planning.horizon_s)
        if planning.known_mhz is not None:
            planned = planning.known_mhz(app, float(self.at_s[-1]))
        else:
            planned = forecast.planned_mhz(planning.headroom_quantile if quantile is None else quantile)
        waiting = sum(count * works.get(flow, 0.0) for flow, count in self.queued.items())
        planned += waiting / planning.work_off_s + background_mhz
        return LoadPlan(planned / planning.usable_frac, (forecast.expected_mhz + background_mhz) / planning.usable_frac)

    def asked_mcycles(self, works: Mapping[str, float]) -> Floats:
        """Return the work that was asked for in each point, float64[points]."""
        asked = np.zeros(len(self.at_s))
        for flow, counts in self.offered.items():
            asked += counts * works.get(flow, 0.0)
        return asked


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The CPU in MHz that instances need: for the load to plan for, and for the expected load."""

    planned_mhz: float
    expected_mhz: float


def forecasts(
    histories: Sequence[LoadHistory], works: Sequence[Mapping[str, float]], horizon_s: float
) -> list[LoadForecast]:
    """Return the forecast of each load; a last point that is hardly begun does not count. Those with equally many
    points are computed at once."""
    found = [LoadForecast(0.0, 0.0, 0.0)] * len(histories)
    alike: dict[tuple[int, bool], list[int]] = {}
    for row, history in enumerate(histories):
        if points := len(history.at_s):
            alike.setdefault((points, bool(history.seconds[-1] < RECENT_S)), []).append(row)
    for (points, begun), rows in alike.items():
        whole = slice(points - begun)
        at_s, seconds = (np.array([column(histories[row]) for row in rows]) for column in _COLUMNS)
        asked = np.array([histories[row].asked_mcycles(works[row]) for row in rows])
        now_mhz = [histories[row].now_mhz(works[row]) for row in rows]
        ages, loads = at_s[:, -1:] - at_s[:, whole], asked[:, whole] / seconds[:, whole]
        for row, forecast in zip(rows, forecast_loads(ages, loads, now_mhz, horizon_s), strict=True):
            found[row] = forecast
    return found


_COLUMNS = attrgetter("at_s"), attrgetter("seconds")


def _longer(column: Floats) -> Floats:
    """Return the last values, and 0 for a new point."""
    return np.append(column[1 - POINTS_MAX :], 0.0)
