"""Reads a file for `trimtab sim provision`: a period with a deadline, checked as a whole.

`read` raises `InvalidInput` with every problem of the file and of the price series that it names.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from daemons.models.span_polynomial import SpanPolynomial
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config.records import Above, AtLeast, Range
from shared.config.toml import load

SECONDS_MAX = 1e9
SECONDS_PER_HOUR = 3600.0
ARRIVALS_MAX = 100_000
TERMS_MAX = 10
SERVERS_MAX = 1_000
INTERVALS_MAX = 10_000
TABLE_MIB_MAX = 512
STEPS_MAX = 2e9  # about a minute of computing for each pass over the period; a policy takes a few of them
_SIZE_BYTES = 2
REMOVE_S = 30.0
_NODES = 64  # of the quadrature that counts arrivals, in each interval

Positive = Annotated[float, Range(1e-6, SECONDS_MAX)]
NotNegative = Annotated[float, Range(0.0, SECONDS_MAX)]


class Shape(StrEnum):
    """How the price of a server changes over the period."""

    UNIFORM = "uniform"
    INCREASING = "increasing"
    DECREASING = "decreasing"
    QUADRATIC_1 = "quadratic-1"
    QUADRATIC_2 = "quadratic-2"
    SERIES = "series"


@dataclass(frozen=True, slots=True)
class Period:
    """submission_end, deadline: in intervals of interval_s from the begin of the period."""

    interval_s: Positive
    submission_end: Annotated[int, Range(0, INTERVALS_MAX)]
    deadline: Annotated[int, Range(2, INTERVALS_MAX)]


@dataclass(frozen=True, slots=True)
class Servers:
    """slots: jobs that one server executes at a time."""

    max: Annotated[int, Range(1, SERVERS_MAX)]
    min: Annotated[int, Range(1, SERVERS_MAX)] = 1
    deploy_s: NotNegative = 25.0
    remove_s: NotNegative = REMOVE_S
    slots: Annotated[int, Range(1, 1_000)] = 1


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Gaps of mean mean_s a(x) at the time x in s; profile: the coefficients of a, lowest power first."""

    mean_s: Positive
    profile: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, slots=True)
class Service:
    """mean_s: of the exponential service times."""

    mean_s: Positive


@dataclass(frozen=True, slots=True)
class Promise:
    """confidence: least probability that all jobs are done by the deadline. guarded: whether the cost-aware methods
    leave out sizes after which it may be lost."""

    confidence: Annotated[float, Range(1e-9, 1.0 - 1e-12)]
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Price:
    """ratio: largest to least price of a shape of mean 1. A series: a CSV file beside the scenario, the column, the
    time zone of its first column, and when the period starts there; watts: what one server takes (0: prices are
    used as they are)."""

    shape: Shape = Shape.UNIFORM
    ratio: Annotated[float, Range(1.0, 1e6)] = 3.0
    file: str = ""
    column: str = ""
    time_zone: str = "UTC"
    start: Any = ""
    watts: Annotated[float, Range(0.0, 1e6)] = 0.0


def _given(values: Mapping[str, Any], *keys: str) -> tuple[Any, ...] | None:
    """Return the values of these keys, None where one of them is missing or not good."""
    return tuple(values[key] for key in keys) if all(key in values for key in keys) else None


@dataclass(frozen=True, slots=True)
class PositiveProfile:
    """a(x) is above 0 from the begin of the period to the end of submission, and there are not too many arrivals."""

    key: str = "arrivals.profile"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the requirement that the profile does not meet, "" if it meets it or a value it depends on is
        invalid."""
        given = _given(values, "arrivals.profile", "arrivals.mean_s", "period.interval_s", "period.submission_end")
        if given is None:
            return ""
        terms, mean_s, interval_s, end = given
        if not 1 <= len(terms) <= TERMS_MAX:
            return f"1 to {TERMS_MAX} coefficients"
        try:
            at_s, least = SpanPolynomial.of(terms, end * interval_s).lowest()
        except InvalidValue as error:
            return error.expected
        if not least > 0.0:
            return f"rates that are not negative: a(x) above 0 (it is {least:g} at x = {at_s:g} s)"
        count = expected_arrivals(terms, mean_s, interval_s, end)
        return "" if count <= ARRIVALS_MAX else f"at most {ARRIVALS_MAX} arrivals (there are {count:.3g})"


@dataclass(frozen=True, slots=True)
class SmallTables:
    """The sizes of a policy, by interval, servers and jobs that can be done, fit in memory."""

    key: str = "servers.max"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the requirement that is not met, "" if it is met or a value it depends on is invalid."""
        given = _given(
            values,
            "servers.max",
            "servers.min",
            "servers.slots",
            "period.interval_s",
            "period.deadline",
            "service.mean_s",
        )
        if given is None:
            return ""
        most, least, slots, interval_s, deadline, mean_s = given
        jobs = slots * most * (deadline * interval_s / mean_s + 1.0)
        size_mib = _SIZE_BYTES * deadline * (most - least + 1) * jobs / 2**20
        return "" if size_mib <= TABLE_MIB_MAX else f"tables of at most {TABLE_MIB_MAX} MiB (they take {size_mib:,.0f})"


@dataclass(frozen=True, slots=True)
class ShortWork:
    """One pass over the period, for all sizes, takes a minute or so at most: the steps of an interval are what arrives
    and leaves in it, times the jobs at which it matters how many servers are busy."""

    key: str = "service.mean_s"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the requirement that is not met, "" if it is met or a value it depends on is invalid."""
        given = _given(
            values,
            "servers.max",
            "servers.min",
            "servers.slots",
            "period.interval_s",
            "period.deadline",
            "period.submission_end",
            "service.mean_s",
            "arrivals.mean_s",
            "arrivals.profile",
        )
        if given is None or PositiveProfile().broken(values):
            return ""
        most, least, slots, interval_s, deadline, end, mean_s, gap_s, terms = given
        busy = slots * np.arange(least, most + 1, dtype=np.float64)
        leave = busy * interval_s / mean_s
        come = expected_arrivals(terms, gap_s, interval_s, end) / end if end else 0.0
        moved = leave + come
        steps = float((end * moved * (busy + moved) + (deadline - end) * leave * (busy + leave)).sum())
        fits = "a longer one, a shorter period.interval_s, fewer intervals, servers or slots"
        return "" if steps <= STEPS_MAX else f"at most {STEPS_MAX:.0e} steps (there are {steps:.1e}): {fits}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A period with a deadline, as its file says."""

    RULES: ClassVar[tuple[Any, ...]] = (
        Above("period.deadline", "period.submission_end"),
        AtLeast("servers.max", "servers.min"),
        AtLeast("period.interval_s", "servers.deploy_s"),
        PositiveProfile(),
        SmallTables(),
        ShortWork(),
    )

    period: Period
    servers: Servers
    arrivals: Arrivals
    service: Service
    promise: Promise
    price: Price = field(default_factory=Price)

    @property
    def submission_end_s(self) -> float:
        """When nothing arrives any more, in s from the begin of the period."""
        return self.period.submission_end * self.period.interval_s

    def gap_factor(self, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(x) at times in s from the beginning of the period."""
        values: NDArray[np.float64] = Polynomial(self.arrivals.profile)(at_s)
        return values

    def rate_per_interval(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Arrivals per interval as a Poisson process, at times in intervals."""
        interval_s = self.period.interval_s
        return interval_s / (self.arrivals.mean_s * self.gap_factor(at * interval_s))


@dataclass(frozen=True, slots=True)
class PriceSeriesRequest:
    """Which prices: a column of a CSV file whose first column has times, by the clock of `time_zone` where they have no
    offset; `intervals` intervals of interval_s from `start` on that clock. remove_s: as in `Servers`."""

    file: Path
    column: str
    time_zone: str
    start: datetime.datetime
    interval_s: float
    intervals: int
    remove_s: float


@dataclass(frozen=True, slots=True)
class Paid:
    """float64[deadline] each, per server: `price` of an interval, `removal_price` of the time from its begin until a
    removed server is released. highest: the highest price of the period, per interval."""

    price: NDArray[np.float64]
    removal_price: NDArray[np.float64]
    highest: float

    def times(self, factor: float) -> Paid:
        """Convert the prices to another unit."""
        return Paid(self.price * factor, self.removal_price * factor, self.highest * factor)


Pay = Callable[[PriceSeriesRequest, str], Paid]
"""Reads a price series; the name of the scenario is for the problems that it raises as `InvalidInput`."""


@dataclass(frozen=True, slots=True)
class PricedScenario:
    """A scenario, with what its price series says; None for a shape."""

    scenario: Scenario
    paid: Paid | None = None


@dataclass(frozen=True, slots=True)
class _Loose:
    """The same file with nothing checked, for the series that a file with other problems names."""

    period: Any = None
    servers: Any = None
    arrivals: Any = None
    service: Any = None
    promise: Any = None
    price: Any = None


def read(path: Path, pay: Pay) -> PricedScenario:
    """Read the scenario at `path`; `pay` reads its price series. Raises `InvalidInput` with each problem and its
    place."""
    problems: list[Problem] = []
    scenario: Scenario | None = None
    try:
        scenario = load(path, Scenario)
    except InvalidInput as error:
        problems += error.problems
    paid: Paid | None = None
    try:
        paid = _series(path, pay)
    except InvalidInput as error:
        problems += [problem for problem in error.problems if problem not in problems]
    if problems or scenario is None:
        raise InvalidInput(*problems)
    return PricedScenario(scenario, paid)


def _series(path: Path, pay: Pay) -> Paid | None:
    """Return the prices in the file that a scenario names; None if it has another shape, or too many other values are
    invalid."""
    loose = load(path, _Loose)
    price, period = loose.price, loose.period
    if not isinstance(price, dict) or price.get("shape") != Shape.SERIES:
        return None
    start = _start(price, path)
    interval_s, intervals = (_number(period, key) for key in ("interval_s", "deadline"))
    strings = [price.get(key, "UTC") for key in ("file", "column", "time_zone")]
    if not interval_s or not 0 < intervals <= INTERVALS_MAX or not all(isinstance(each, str) for each in strings):
        return None  # told by the checks of these keys
    remove_s = _number(loose.servers, "remove_s", REMOVE_S)
    wanted = PriceSeriesRequest(
        path.parent / strings[0], strings[1], strings[2], start, interval_s, int(intervals), remove_s
    )
    watts = _number(price, "watts")
    # A price per MWh becomes one per server and interval.
    return pay(wanted, str(path)).times(watts / 1e6 * interval_s / SECONDS_PER_HOUR if watts else 1.0)


def _start(price: Mapping[str, Any], path: Path) -> datetime.datetime:
    """Return the start of the period. Raises `InvalidInput` for every required key of a series that is missing."""
    problems = [
        Problem(f"{path}: price.{key}", "is missing", what)
        for key, what in (("file", "a CSV file beside the scenario"), ("column", "the name of a column"))
        if price.get(key) in (None, "")
    ]
    raw = price.get("start", "")
    start = _moment(raw)
    if start is None:
        what = f"is {str(raw)[:60]!r}" if raw != "" else "is missing"
        problems.append(Problem(f"{path}: price.start", what, "a time such as 2022-01-10T08:00"))
    if problems or start is None:
        raise InvalidInput(*problems)
    return start


def _number(table: Any, key: str, default: float = 0.0) -> float:
    """Return a number of an unchecked table; 0 if it is unusable."""
    value = table.get(key, default) if isinstance(table, dict) else default
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < SECONDS_MAX
    return float(value) if good and value is not None else 0.0


def _moment(raw: object) -> datetime.datetime | None:
    """Parse a time in TOML or in ISO 8601; None if it is not one."""
    if isinstance(raw, datetime.datetime):
        return raw
    try:
        return datetime.datetime.fromisoformat(raw) if isinstance(raw, str) else None
    except ValueError:
        return None


# --- arrivals ---------------------------------------------------------------------------------------------------------


def expected_arrivals(terms: Sequence[float], mean_s: float, interval_s: float, end: int) -> float:
    """Mean number of arrivals of a Poisson process of rate 1 / (mean_s a(x)) up to the end of submission."""
    curve = SpanPolynomial.of(terms, end * interval_s)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    total = 0.0
    for begin, until in pairwise(np.linspace(0.0, end * interval_s, min(max(end, 1), 256) + 1)):
        middle, half = (begin + until) / 2.0, (until - begin) / 2.0
        with np.errstate(over="ignore", divide="ignore"):  # infinitely many are too many
            total += half * float(weights @ (1.0 / (mean_s * curve(middle + half * nodes))))
    return total
