"""Whether a migration gets ahead of its guest, judged by the statistics of libvirt's job: pure but for what it
remembers.

A round is a pass over the memory; each begins with what the guest changed during the one before it. While rounds begin
with ever less, the migration converges. With auto-converge QEMU slows the guest step by step, and as long as it does,
a migration is not given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from shared.values.migration_terms import NOT_MEASURED, MigrationMethod, MigrationTerms

ROUNDS_STUCK = 5  # rounds in a row that begin with no less
STUCK_S = 5.0  # and that last so long together: short rounds say little
THROTTLING_S = 15.0  # the same while auto-converge can still take more from the guest
LESS_FRAC = 0.95  # of what the best round began with
THROTTLE_MAX_FRAC = 0.99
SWITCH_FRAC = 0.5  # of the time limit: then post-copy where it is allowed
_MIB = float(1 << 20)


class Step(Enum):
    """What follows."""

    GO_ON = "go on"
    SWITCH = "switch to post-copy"
    ABORT_STUCK = "will not converge"
    ABORT_LATE = "too late"


@dataclass(frozen=True, slots=True)
class JobSample:
    """A migration in progress. `rounds` counts the passes begun; `remaining_mib`: memory still to be sent in this one;
    `dirty_mib_per_s`: what the guest changed during the last one (negative: not known yet)."""

    elapsed_s: float
    rounds: int
    remaining_mib: float
    sent_mib: float
    dirty_mib_per_s: float = NOT_MEASURED
    throttle_frac: float = 0.0
    downtime_s: float = 0.0


def sample_of(stats: Mapping[str, Any]) -> JobSample | None:
    """Return the sample in libvirt's statistics of a job; None without a job. What libvirt leaves out is 0."""
    if not stats.get("type"):
        return None
    rounds = int(stats.get("memory_iteration", 0))
    page_mib = float(stats.get("memory_page_size", 4096)) / _MIB
    pages = float(stats.get("memory_dirty_rate", 0))
    sent = float(stats.get("data_processed", 0)) or sum(
        float(stats.get(key, 0)) for key in ("memory_processed", "disk_processed")
    )
    return JobSample(
        elapsed_s=float(stats.get("time_elapsed", 0)) / 1e3,
        rounds=rounds,
        remaining_mib=float(stats.get("memory_remaining", 0)) / _MIB,
        sent_mib=sent / _MIB,
        dirty_mib_per_s=pages * page_mib if rounds > 1 else NOT_MEASURED,
        throttle_frac=float(stats.get("auto_converge_throttle", 0)) / 100.0,
        downtime_s=float(stats.get("downtime", 0)) / 1e3,
    )


class Convergence:
    """Judges the samples of one migration, in order. `may_switch`: to post-copy."""

    def __init__(self, terms: MigrationTerms, limit_s: float, may_switch: bool) -> None:
        self._method, self._limit_s, self._may_switch = terms.method, limit_s, may_switch
        self._round = 0
        self._begins_mib = 0.0  # the most that was left in this round
        self._best_mib = float("inf")
        self._best_round, self._best_s = 0, 0.0
        self._throttle_frac = 0.0

    def judge(self, sample: JobSample | None, elapsed_s: float) -> Step:
        """Return what follows from a sample (None: there is none), `elapsed_s` after the begin."""
        rounds = 0 if sample is None else sample.rounds
        if elapsed_s >= self._limit_s:
            return Step.ABORT_STUCK if rounds > 2 else Step.ABORT_LATE
        if sample is None:
            return Step.GO_ON
        stuck = self._is_stuck(sample)
        if self._may_switch and rounds > 1:
            late = elapsed_s >= SWITCH_FRAC * self._limit_s
            if self._method is MigrationMethod.POST_COPY or stuck or late:
                return Step.SWITCH
            return Step.GO_ON
        return Step.ABORT_STUCK if stuck else Step.GO_ON

    def _is_stuck(self, sample: JobSample) -> bool:
        if sample.rounds <= 1:
            self._best_s = sample.elapsed_s
            return False
        if sample.rounds != self._round:
            self._take_in_round(sample.elapsed_s)
            self._round, self._begins_mib = sample.rounds, sample.remaining_mib
        else:
            self._begins_mib = max(self._begins_mib, sample.remaining_mib)
        if sample.throttle_frac > self._throttle_frac:
            self._throttle_frac = sample.throttle_frac
            self._best_round, self._best_s = sample.rounds, sample.elapsed_s
            self._best_mib = float("inf")
        throttles = self._method is MigrationMethod.AUTO_CONVERGE and self._throttle_frac < THROTTLE_MAX_FRAC
        lasts_s = THROTTLING_S if throttles else STUCK_S
        return (
            sample.rounds - self._best_round >= ROUNDS_STUCK
            and sample.elapsed_s - self._best_s >= lasts_s
            and self._best_round > 0
        )

    def _take_in_round(self, now_s: float) -> None:
        """Take in the round that has just ended."""
        if self._round > 1 and self._begins_mib < LESS_FRAC * self._best_mib:
            self._best_mib = self._begins_mib
            self._best_round, self._best_s = self._round, now_s
