"""A deadline window as it stands: its period, the forecast that holds for it, and what has come of both.

The forecast is frozen for a period, so that tables of sizes stay valid; it is raised (or lowered) only when what
happens leaves its band (docs/adr/0012-windows-and-forecasts.md).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from daemons.controller.state.jobs import JobEntry
from daemons.controller.windows.node_rates import JobSize
from daemons.models.arrivals import (
    CountedDays,
    Floats,
    WorkEstimate,
    busier_at_most,
    count_band,
    joined_work,
    left_work_band,
    most_likely_at_most,
    profile_of,
    work_of,
)
from daemons.models.deadline.phases import Phases
from daemons.models.deadline.service_times import JOBS_LEAST, ServiceTimes, service_times
from daemons.values.calendar import DAY_S, Period, Stretch
from daemons.values.records.cluster import CountedDay, ServedJob, WindowRecord
from daemons.values.settings import ServiceModel, WindowSettings
from shared.values.jobs import Job

DAYS_MAX = 60
SERVED_MAX = 2_000
MEAN_MAX = 400  # of these, the last ones that the mean is taken from
SIZES_MAX = 200  # jobs by which it is told how much room one takes
MARGIN_MAX = 4.0
MARGIN_END = 1.02
NEXT_S = DAY_S  # a window is shown to policies for so long before it opens
MOVED_FRAC = 0.2  # a forecast of work that would change by less stands: new ones need new tables
CHECKED_FRAC = 0.5  # of an interval: in less time nothing is told by what happens
GRACE_FRAC = 0.01  # of an interval: a decision that is so late still counts as in time


class WindowEntry:
    """One window. `live`: jobs of its queue that are not over; `jobs_seen`: the last ones that were submitted, of which
    `jobs_seen_new` are not part of `size` yet, the usual one (None: no job is known)."""

    def __init__(self, settings: WindowSettings, interval_s: float) -> None:
        self.settings, self.interval_s = settings, interval_s
        self.record = WindowRecord(settings.name)
        self.dirty = False
        self.live: dict[str, JobEntry] = {}
        self.jobs_seen: deque[Job] = deque(maxlen=SIZES_MAX)
        self.jobs_seen_new = False
        self.size: JobSize | None = None
        self.counts: list[int] = []
        self.arrived_since = 0
        self._stretches: tuple[Stretch, ...] = ()
        self._phases: tuple[float, Phases | None] | None = None  # when the period opens that they are for
        self._phases_by: tuple[ServedJob, ...] = ()
        self.told_breach: float | None = None  # probability of breach when danger was last told

    def change(self, **fields: object) -> None:
        """Change what is kept in the store."""
        self.record = replace(self.record, **fields)  # type: ignore[arg-type]  # names are those of fields
        self.dirty = True

    # --- the period -------------------------------------------------------------------------------------------------

    @property
    def has_period(self) -> bool:
        """Return whether a period is in progress or comes next."""
        return self.record.deadline_s > 0.0

    def is_open(self, now_s: float) -> bool:
        """Return whether the time is between opening and deadline."""
        return self.has_period and self.record.opens_s <= now_s < self.record.deadline_s

    def is_near(self, now_s: float) -> bool:
        """Open, or opening within a day."""
        return self.has_period and self.record.opens_s - NEXT_S <= now_s < self.record.deadline_s

    @property
    def intervals(self) -> int:
        """d: decision intervals of the period, counted back from the deadline; the first may begin before it opens."""
        lasts_s = self.record.deadline_s - self.record.opens_s
        return max(2, math.ceil(lasts_s / self.interval_s - 1e-9))

    def interval_at(self, now_s: float) -> int:
        """Return s, the index of the current interval: the number of all intervals less the whole ones left; d when
        less than one is left."""
        left = math.floor((self.record.deadline_s - now_s) / self.interval_s + GRACE_FRAC)
        return self.intervals - min(max(left, 0), self.intervals)

    def row_of(self, at_s: float) -> int:
        """Return the interval that contains a moment; the first or last one for a moment outside."""
        ahead = math.ceil((self.record.deadline_s - at_s) / self.interval_s - 1e-9)
        return min(max(self.intervals - ahead, 0), self.intervals - 1)

    def begin(self, period: Period) -> None:
        """Begin a period, or continue one after a change of controllers: nothing has been counted yet."""
        self._stretches = self.settings.periods.slots(period, self.interval_s)
        self.counts = [0] * self.slots
        self.arrived_since = 0

    @property
    def slots(self) -> int:
        """Slots of a submission period, by local time."""
        periods = self.settings.periods
        return max(1, math.ceil((periods.submit_until_s - periods.submit_from_s) / self.interval_s))

    def arrived(self, at_s: float, jobs: int) -> None:
        """Count jobs that were accepted."""
        from_s = max(self.record.opens_s, self.record.since_s)
        if not self._stretches or not from_s <= at_s < self.record.submit_until_s:
            return
        index = bisect_right(self._stretches, at_s, key=lambda stretch: stretch.from_s) - 1
        self.counts[min(self._stretches[index].slot, self.slots - 1)] += jobs
        if at_s >= self.record.from_s:
            self.arrived_since += jobs

    def jobs_at(self) -> int:
        """Return n: the jobs of the queue that can be executed now."""
        return sum(entry.job.instances for entry in self.live.values() if not (entry.awaits or entry.held))

    # --- the forecast -----------------------------------------------------------------------------------------------

    def freeze(self, now_s: float, speed_mhz: float, running: Sequence[float], speeds: Mapping[str, float]) -> None:
        """Make the forecast of the period from all that is known. speed_mhz: of a job on the reference node (0: no node
        is known); running: work that unfinished jobs have got; speeds: of node types against their clocks."""
        record = self.record
        history = self._history()
        weekday = self._weekday()
        declared = self.settings.arrivals_per_day / self.slots
        profile = profile_of(history, weekday, declared)
        self.change(
            rates=tuple((profile.rates * record.arrivals_margin).tolist()),
            spread=profile.spread,
            releases=(),
            arrivals_factor=1.0,
            from_s=max(now_s, record.opens_s),
        )
        self.freeze_work(speed_mhz, running, speeds)

    def freeze_work(self, speed_mhz: float, running: Sequence[float], speeds: Mapping[str, float]) -> None:
        """Do the same as `freeze`, only for the work of jobs."""
        done = self._done(speeds)[-MEAN_MAX:]
        work = work_of(done, running, self.settings.service_s * speed_mhz)
        mcycles = work.mean * self.record.service_margin
        self.change(mcycles=mcycles, mcycles_error=work.error, mcycles_cv=work.cv, service_factor=1.0)

    def _done(self, speeds: Mapping[str, float], until_s: float = math.inf) -> list[float]:
        """Return the work of completed jobs, in Mcycles, oldest first."""
        return [job.mcycles * speeds.get(job.node_type, 1.0) for job in self.record.served if job.finished_s <= until_s]

    def service_times(self, running: Sequence[float], speeds: Mapping[str, float]) -> ServiceTimes | None:
        """Return the distribution of the work of jobs, in Mcycles, from all data; None while it is assumed exponential.
        running: work done for unfinished jobs."""
        return None if self.phases(speeds) is None else service_times(self._done(speeds), running)

    def phases(self, speeds: Mapping[str, float]) -> Phases | None:
        """Return the phases of a job's work, in Mcycles. They use the data from the start of the period, which keeps
        tables valid, or from the moment in it when there is enough data; None where the work is assumed exponential."""
        opens_s = self.record.opens_s
        if self._phases is None or self._phases[0] != opens_s:
            self._phases = opens_s, self._phases_of(self._done(speeds, opens_s))
            self._phases_by = ()
        if self._phases[1] is None and self._phases_by is not self.record.served:
            self._phases_by = self.record.served
            self._phases = opens_s, self._phases_of(self._done(speeds))
        return self._phases[1]

    def phase_count(self, speeds: Mapping[str, float]) -> int:
        """Return how many phases service times have; 1: they are exponential."""
        found = self.phases(speeds)
        return 1 if found is None else found.count

    def _phases_of(self, done: Sequence[float]) -> Phases | None:
        known = None if self.settings.service is ServiceModel.EXPONENTIAL else service_times(done, ())
        if known is None or known.jobs < JOBS_LEAST:
            return None
        return None if self.settings.service is ServiceModel.AUTO and known.is_exponential else known.phases()

    def _weekday(self) -> int:
        period = self.settings.periods.at(self.record.opens_s)
        return period.weekday if period is not None else 0

    def _history(self) -> CountedDays:
        days = self.record.days
        starts_s = float(self.settings.periods.submit_from_s)
        on_grid = [_on_grid(day, starts_s, self.interval_s, self.slots) for day in days]
        shape = (len(days), self.slots)
        return CountedDays(
            np.array([counts for counts, _ in on_grid]).reshape(shape),
            np.array([exposure for _, exposure in on_grid]).reshape(shape),
            np.array([day.weekday for day in days], dtype=np.int64),
            np.array([max(0.0, self.record.opens_s - day.opens_s) / DAY_S for day in days], dtype=np.float64),
        )

    @property
    def service_mcycles(self) -> float:
        """Work of a job that is counted on (0: nothing is known)."""
        return self.record.mcycles * self.record.service_factor

    def expected(self, from_s: float, to_s: float) -> float:
        """Return the number of jobs that come in between two moments, by the forecast."""
        return self.record.arrivals_factor * math.fsum(
            self._rate(stretch.slot) * max(0.0, min(to_s, stretch.to_s) - max(from_s, stretch.from_s))
            for stretch in self._stretches
        )

    def _rate(self, slot: int) -> float:
        rates = self.record.rates
        return rates[min(slot, len(rates) - 1)] / self.interval_s if rates else 0.0

    def arrivals(self) -> Floats:
        """Return float64[d, 1]: jobs that come in or are released in each interval."""
        found = np.zeros((self.intervals, 1))
        for stretch in self._stretches:
            rate = self._rate(stretch.slot) * self.record.arrivals_factor
            at_s = stretch.from_s
            while at_s < stretch.to_s:
                row = self.row_of(at_s)
                ends_s = self.record.deadline_s - (self.intervals - row - 1) * self.interval_s
                to_s = min(stretch.to_s, ends_s) if ends_s > at_s else stretch.to_s
                found[row, 0] += rate * (to_s - at_s)
                at_s = to_s
        releases = np.array(self.record.releases)
        if len(releases) == self.intervals:
            found[:, 0] += releases
        return found

    def slot_bands(self, band: float = 0.95) -> list[tuple[float, float, float, float, int]]:
        """Return for each slot of the submission period: its start, the number of jobs expected by the forecast, the
        band of that number, and how many came in."""
        declared = self.settings.arrivals_per_day / self.slots
        spread = profile_of(self._history(), self._weekday(), declared).slot_spread
        rows = []
        for slot, stretches in groupby(sorted(self._stretches, key=_by_slot), key=lambda stretch: stretch.slot):
            parts = list(stretches)
            mean = self._rate(slot) * self.record.arrivals_factor * math.fsum(part.to_s - part.from_s for part in parts)
            index = min(slot, self.slots - 1)
            low, high = count_band(np.array([mean]), spread[index : index + 1], band)
            rows.append((parts[0].from_s, mean, float(low[0]), float(high[0]), self.counts[index]))
        return rows

    # --- the band ---------------------------------------------------------------------------------------------------

    def arrival_band(self, now_s: float) -> tuple[float, float, float]:
        """Return the number of jobs expected since the forecast was last made, and the limits of its band."""
        mean = self.expected(self.record.from_s, now_s)
        low, high = count_band(np.array([mean]), np.array([self.record.spread]))
        return mean, float(low[0]), float(high[0])

    def check(self, now_s: float, running: Sequence[float], speeds: Mapping[str, float]) -> list[str]:
        """Change the forecast where what has happened was not foreseen; returns what that was, in words."""
        return self._check_arrivals(now_s) + self._check_work(running, speeds)

    def _check_arrivals(self, now_s: float) -> list[str]:
        if now_s - self.record.from_s < CHECKED_FRAC * self.interval_s:
            return []
        came = self.arrived_since
        mean, low, high = self.arrival_band(now_s)
        if low <= came <= high:
            return []
        told = f"{came} jobs came in since the forecast was made, {mean:.1f} were expected ({low:.0f} to {high:.0f})"
        spread = self.record.spread / (1.0 + self.record.spread * came)
        if mean > 1e-6 * came:
            factor = self.record.arrivals_factor * busier_at_most(came, mean, self.record.spread)
            self.change(arrivals_factor=factor, spread=spread, from_s=now_s)
        else:  # nothing was foreseen that could be raised
            slots = max((now_s - self.record.from_s) / self.interval_s, 1.0)
            rate = most_likely_at_most(came) / slots
            self.change(rates=(rate,) * self.slots, arrivals_factor=1.0, spread=spread, from_s=now_s)
        self.arrived_since = 0
        return [told]

    def _check_work(self, running: Sequence[float], speeds: Mapping[str, float]) -> list[str]:
        record = self.record
        done = [
            job.mcycles * speeds.get(job.node_type, 1.0) for job in record.served if job.finished_s >= record.opens_s
        ]
        period = work_of(done, running, 0.0)
        forecast = WorkEstimate(self.service_mcycles, record.mcycles_error, record.mcycles_cv, 0)
        made = WorkEstimate(record.mcycles, record.mcycles_error, record.mcycles_cv, 0)
        likely = joined_work(made, period)
        factor = likely.mean * (1.0 + likely.error) / record.mcycles if record.mcycles > 0.0 else 1.0
        moved = abs(factor / record.service_factor - 1.0) > MOVED_FRAC
        too_high = factor < record.service_factor > 1.0
        if not moved or not (too_high or left_work_band(period, forecast)):
            return []
        self.change(service_factor=max(factor, 1.0) if too_high else factor)
        low, high = forecast.band()
        return [f"jobs take {period.mean:.6g} Mcycles, {forecast.mean:.6g} were expected ({low:.6g} to {high:.6g})"]

    # --- the end of a period ----------------------------------------------------------------------------------------

    def close(self, missed: int) -> None:
        """Close the period: keep its counts and the error of its forecast."""
        record = self.record
        exposure = np.zeros(self.slots)
        for stretch in self._stretches:
            looked_s = max(0.0, stretch.to_s - max(stretch.from_s, record.since_s))
            exposure[min(stretch.slot, self.slots - 1)] += looked_s / self.interval_s
        starts_s = float(self.settings.periods.submit_from_s)
        day = CountedDay(
            record.opens_s, self._weekday(), starts_s, self.interval_s, tuple(self.counts), tuple(exposure.tolist())
        )
        self.change(
            days=(*record.days, day)[-DAYS_MAX:],
            arrivals_margin=_margin(record.arrivals_margin, record.arrivals_factor),
            service_margin=_margin(record.service_margin, record.service_factor),
            missed=missed,
            missed_s=record.deadline_s,
        )

    def served(self, job: ServedJob) -> None:
        """Record a completed job of the queue."""
        self.change(served=(*self.record.served, job)[-SERVED_MAX:])


def _by_slot(stretch: Stretch) -> tuple[int, float]:
    return stretch.slot, stretch.from_s


def _margin(margin: float, factor: float) -> float:
    """Half of what a forecast had to be raised by is remembered; what is remembered halves when it had not to be."""
    if factor > 1.0:
        return min(MARGIN_MAX, margin * (1.0 + (factor - 1.0) / 2.0))
    margin = 1.0 + (margin - 1.0) / 2.0
    return margin if margin > MARGIN_END else 1.0


def _on_grid(day: CountedDay, starts_s: float, slot_s: float, slots: int) -> tuple[Floats, Floats]:
    """Return a day's counts and exposure on the current slots; they may have been counted on others."""
    edges = day.starts_s + day.slot_s * np.arange(len(day.counts) + 1)
    wanted = starts_s + slot_s * np.arange(slots + 1)
    counts = np.interp(wanted, edges, np.concatenate(([0.0], np.cumsum(day.counts))))
    exposure = np.interp(wanted, edges, np.concatenate(([0.0], np.cumsum(day.exposure)))) * day.slot_s / slot_s
    return np.diff(counts), np.diff(exposure)
