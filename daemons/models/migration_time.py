"""How long live migrations take, and for how long their guests stand still.

Pre-copy sends all memory while the guest runs, then, in rounds, what the guest changed meanwhile, until the rest fits
into the downtime limit (Clark et al., Live Migration of Virtual Machines, NSDI 2005). The guest is taken to write to
pages of its working set at random: of W MiB, of which it changes m MiB within one second, it changes
W (1 - (1 - m / W)^t) MiB within t s. So what a round has to send never exceeds the working set, and each round sends
what the one before it has left. A round that leaves no less than it had to send will never end.

Auto-converge takes CPU time from the guest, and with it the same part of its writes: 20 % after the second period of at
least 1 s in which the guest changed more than half of what was sent, then 10 % more after every two such periods, up to
99 % (QEMU, qapi/migration.json: cpu-throttle-initial, cpu-throttle-increment, max-cpu-throttle,
throttle-trigger-threshold; migration/ram.c). Post-copy moves the guest after one round and fetches the rest (QEMU,
docs/devel/migration/postcopy.rst; Hines and Gopalan, Post-copy Based Live Virtual Machine Migration, VEE 2009): it
always ends. Local disks are copied before the memory, over one connection (libvirt, NBD).

All sizes are MiB, rates MiB/s and times s. Arrays are float64[n], one value per migration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shared.policy_api.snapshot import Floats
from shared.values.migration_terms import MigrationMethod

THROTTLE_FIRST, THROTTLE_STEP, THROTTLE_MAX = 0.20, 0.10, 0.99
THROTTLE_TRIGGER = 0.5  # of what was sent
THROTTLE_PERIOD_S = 1.0
THROTTLE_PERIODS = 2
SWITCH_OVER_S = 0.03  # state of devices, and the start at the target
SETUP_S = 1.0  # libvirt's preparations on both nodes
ROUNDS_MAX = 1_000
SATURATED = 0.8  # of a working set within 1 s: each page was written to 1.6 times
LEAST, MOST = 1e-9, 1e12  # of anything: less counts as nothing, what is infinite as the most
STAGNANT = 1e-3  # a round that leaves hardly less than it had will not end


@dataclass(frozen=True, slots=True)
class MigrationDemand:
    """What has to move. `memory_mib`: what the guest has touched of its memory, of which the part `zero_frac` (0 to 1)
    is zeros and not sent; `dirty_mib_per_s`: what it changes within one second (negative or NaN: unknown);
    `working_set_mib`: what it changes again and again (0 or NaN: unknown, taken as all memory); `disk_mib`: local
    disks. What is negative or NaN otherwise counts as 0."""

    memory_mib: float
    dirty_mib_per_s: float = math.nan
    working_set_mib: float = math.nan
    disk_mib: float = 0.0
    zero_frac: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the dirty rate was measured."""
        return self.dirty_mib_per_s >= 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """The way between two nodes. `mib_per_s`: what this migration gets of it, `stream_mib_per_s`: what one connection
    carries at most (encryption takes a core for each), `latency_s`: of a round trip, `streams`: connections for memory
    at most, at least 1."""

    mib_per_s: float
    latency_s: float = 0.0
    streams: int = 1
    stream_mib_per_s: float = math.inf

    def rate_mib_per_s(self, streams: int) -> float:
        """Return the rate over so many connections; 0 for a link that carries nothing."""
        rate = min(_clean(self.mib_per_s), max(1, streams) * _clean(self.stream_mib_per_s))
        return rate if rate > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class MigrationForecast:
    """How a migration is expected to go. `total_mib`: memory and disks sent; `rounds`: passes over the memory;
    `converges`: false if pre-copy never ends: then all times are infinite. `throttle_frac`: CPU time taken from the
    guest at the end; `lost_s`: guest time lost by standing still, throttling and fetching pages."""

    method: MigrationMethod
    streams: int
    duration_s: float
    downtime_s: float
    total_mib: float
    rounds: int
    converges: bool
    throttle_frac: float = 0.0
    lost_s: float = 0.0

    @property
    def source_s(self) -> float:
        """How long it takes until the guest runs at the target."""
        is_over = self.method is not MigrationMethod.POST_COPY or not self.converges
        return self.duration_s if is_over else self.duration_s - self.lost_s

    @property
    def pause_s(self) -> float:
        """For how long it may stop the guest: the downtime. In post-copy each access may wait for its page until the
        last one has arrived, which counts in full."""
        return self.lost_s if self.method is MigrationMethod.POST_COPY else self.downtime_s


@dataclass(frozen=True, slots=True)
class MigrationForecasts:
    """The fields of `MigrationForecast` for many migrations: float64[n], rounds int64[n], converges bool[n]."""

    duration_s: Floats
    downtime_s: Floats
    total_mib: Floats
    rounds: np.ndarray
    converges: np.ndarray
    throttle_frac: Floats
    lost_s: Floats


def forecast(
    demand: MigrationDemand,
    link: Link,
    method: MigrationMethod = MigrationMethod.PRE_COPY,
    streams: int = 1,
    downtime_limit_s: float = 0.3,
    setup_s: float = SETUP_S,
) -> MigrationForecast:
    """Return how one migration is expected to go by a method. `downtime_limit_s`: see `forecasts`. An unknown dirty
    rate counts as 0: look at `demand.is_known`."""
    found = forecasts([demand], [link], method, streams, downtime_limit_s, setup_s)
    return MigrationForecast(
        method,
        streams,
        duration_s=float(found.duration_s[0]),
        downtime_s=float(found.downtime_s[0]),
        total_mib=float(found.total_mib[0]),
        rounds=int(found.rounds[0]),
        converges=bool(found.converges[0]),
        throttle_frac=float(found.throttle_frac[0]),
        lost_s=float(found.lost_s[0]),
    )


def forecasts(
    demands: Sequence[MigrationDemand],
    links: Sequence[Link],
    method: MigrationMethod = MigrationMethod.PRE_COPY,
    streams: int = 1,
    downtime_limit_s: float = 0.3,
    setup_s: float = SETUP_S,
) -> MigrationForecasts:
    """Return how migrations are expected to go by one method, each over its own link.

    `downtime_limit_s`: the last round begins when what is left is sent within it; at least 1 ms is taken. `setup_s`:
    passes before anything is sent. O(n x rounds), at most `ROUNDS_MAX` rounds.
    """
    memory, dirty, working, disk = (_column(demands, name) for name in _FIELDS)
    memory = memory * (1.0 - np.clip(_column(demands, "zero_frac"), 0.0, 1.0))
    working = np.where(working > 0.0, np.minimum(working, memory), memory)
    many = 1 if method is MigrationMethod.POST_COPY else streams
    rate = np.array([link.rate_mib_per_s(min(many, max(1, link.streams))) for link in links], dtype=np.float64)
    single = np.array([link.rate_mib_per_s(1) for link in links], dtype=np.float64)
    latency = np.array([_clean(link.latency_s) for link in links], dtype=np.float64)
    limit_s = max(1e-3, downtime_limit_s)
    setup_s = _clean(setup_s)
    disk_s = _over(disk, single)
    fixed_s = SWITCH_OVER_S + 2.0 * latency
    if method is MigrationMethod.POST_COPY:
        first_s = _over(memory, rate)
        rest = dirtied(working, dirty, first_s)
        rest_s = _over(rest, rate)
        ends = np.isfinite(first_s + rest_s + disk_s)
        lost = fixed_s + rest_s  # at worst every access waits for its page
        return _put_together(
            ends, setup_s + disk_s + first_s + fixed_s + rest_s, fixed_s, disk + memory + rest, lost, 2
        )
    course = _pre_copy(memory, working, dirty, rate, limit_s, method is MigrationMethod.AUTO_CONVERGE)
    downtime = _over(course.left, rate) + fixed_s
    ends = course.converged & np.isfinite(disk_s)
    duration = setup_s + disk_s + course.time_s + downtime
    total = disk + course.sent + course.left
    return _put_together(ends, duration, downtime, total, course.lost_s + downtime, course.rounds, course.throttle)


def dirtied(working_mib: Floats, dirty_mib_per_s: Floats, time_s: Floats) -> Floats:
    """Return how much memory guests change within some time: W (1 - (1 - m / W)^t) of a working set of W MiB of which m
    MiB change within 1 s. Where m is about W, how fast they really write is not known: `SATURATED` of W is taken."""
    part = np.divide(dirty_mib_per_s, working_mib, out=np.zeros_like(working_mib), where=working_mib > 0.0)
    part = np.clip(part, 0.0, SATURATED)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.exp(np.where(time_s > 0.0, time_s, 0.0) * np.log1p(-part))
    kept = np.where((part <= 0.0) | (time_s <= 0.0), 1.0, np.nan_to_num(kept, nan=0.0))
    return np.asarray(working_mib * (1.0 - kept), dtype=np.float64)


@dataclass(slots=True)
class _Course:
    """Pre-copy so far: `left` MiB still to send, `sent` MiB within `time_s`."""

    left: Floats
    sent: Floats
    time_s: Floats
    lost_s: Floats
    rounds: np.ndarray
    throttle: Floats
    converged: np.ndarray


def _pre_copy(memory: Floats, working: Floats, dirty: Floats, rate: Floats, limit_s: float, throttles: bool) -> _Course:
    """Return the rounds of all migrations, side by side."""
    count = len(memory)
    course = _Course(
        left=memory.copy(),
        sent=np.zeros(count),
        time_s=np.zeros(count),
        lost_s=np.zeros(count),
        rounds=np.zeros(count, dtype=np.int64),
        throttle=np.zeros(count),
        converged=np.ones(count, dtype=np.bool_),
    )
    period = np.zeros((3, count))  # s, MiB sent, MiB changed since the throttle was last looked at
    high = np.zeros(count, dtype=np.int64)
    going = (rate > 0.0) & (memory > 0.0)
    course.converged = going | (memory <= 0.0)
    for number in range(ROUNDS_MAX):
        rows = np.flatnonzero(going)
        if not rows.size:
            break
        had, guest = course.left[rows], 1.0 - course.throttle[rows]
        took = had / rate[rows]
        left = dirtied(working[rows], dirty[rows], took * guest)  # a throttled guest has less time of its own
        course.sent[rows] += had
        course.time_s[rows] += took
        course.lost_s[rows] += took * course.throttle[rows]
        course.rounds[rows] += 1
        course.left[rows] = left
        done = left <= limit_s * rate[rows]
        stuck = (left >= had * (1.0 - STAGNANT)) & (number > 0)
        if throttles:
            period[:, rows] += (took, had, left)
            raised = _throttle(course.throttle, high, period, rows)
            stuck &= ~raised & (course.throttle[rows] >= THROTTLE_MAX)
        going[rows] = ~done & ~stuck
        course.converged[rows] = done | going[rows]
    course.converged &= ~going
    return course


def _throttle(throttle: Floats, high: np.ndarray, period: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Throttle the guests that change memory too fast for it; return bool[rows]: whether it was raised."""
    over = period[0, rows] >= THROTTLE_PERIOD_S
    high[rows] += over & (period[2, rows] > THROTTLE_TRIGGER * period[1, rows])
    period[:, rows[over]] = 0.0
    raised = high[rows] >= THROTTLE_PERIODS
    at = rows[raised]
    throttle[at] = np.where(throttle[at] > 0.0, np.minimum(throttle[at] + THROTTLE_STEP, THROTTLE_MAX), THROTTLE_FIRST)
    high[at] = 0
    return np.asarray(raised)


def _put_together(
    ends: np.ndarray,
    duration: Floats,
    downtime: Floats,
    total: Floats,
    lost: Floats,
    rounds: np.ndarray | int,
    throttle: Floats | None = None,
) -> MigrationForecasts:
    """Return the forecasts: what never ends takes infinitely long."""
    return MigrationForecasts(
        duration_s=np.where(ends, duration, math.inf),
        downtime_s=np.where(ends, downtime, math.inf),
        total_mib=np.where(ends, total, math.inf),
        rounds=np.broadcast_to(np.asarray(rounds, dtype=np.int64), ends.shape),
        converges=ends,
        throttle_frac=np.zeros(len(ends)) if throttle is None else throttle,
        lost_s=np.where(ends, lost, math.inf),
    )


_FIELDS = ("memory_mib", "dirty_mib_per_s", "working_set_mib", "disk_mib")


def _column(demands: Sequence[MigrationDemand], name: str) -> Floats:
    return np.array([_clean(getattr(demand, name)) for demand in demands], dtype=np.float64)


def _clean(value: float) -> float:
    return min(value, MOST) if value > LEAST else 0.0


def _over(mib: Floats, rate: Floats) -> Floats:
    """Return how long it takes; infinitely long where nothing is carried, 0 where there is nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(mib > 0.0, mib / rate, 0.0), dtype=np.float64)
