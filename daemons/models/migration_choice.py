"""Which way a VM is migrated: the one that costs its guest least among those that end within the limit.

In this order: pre-copy, pre-copy over several connections, auto-converge, post-copy. Pre-copy costs the guest nothing
but its last moment; auto-converge takes CPU time from it; a node or link that fails during post-copy takes the guest
with it, so that it is tried last and only where it is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from daemons.models.migration_time import SETUP_S, Link, MigrationDemand, MigrationForecast, forecast
from shared.values.migration_terms import (
    BANDWIDTH_MIB_PER_S_MAX,
    DOWNTIME_MS_MAX,
    STREAMS_MAX,
    MigrationMethod,
    MigrationTerms,
)


class MethodVerdict(StrEnum):
    """What was found of a method."""

    CHOSEN = "chosen"
    NOT_NEEDED = "not-needed"  # a cheaper one ends in time
    NOT_CONVERGING = "will-not-converge"  # the guest changes memory faster than it is sent
    TOO_SLOW = "too-slow"  # it would end, but after the limit
    NOT_ALLOWED = "not-allowed"


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """What a migration may take: `duration_s` in all (`inf`: no limit), `source_s` until the guest runs at its target,
    which in post-copy is not the end, `downtime_s` of standing still. `setup_s`: time that passes before anything is
    sent. `safety`: a forecast counts as this much longer, at least 1."""

    duration_s: float = 300.0
    downtime_s: float = 0.3
    setup_s: float = SETUP_S
    safety: float = 1.0
    source_s: float = math.inf


@dataclass(frozen=True, slots=True)
class MethodReason:
    """Why a method was chosen or not, with its forecast."""

    verdict: MethodVerdict
    forecast: MigrationForecast


@dataclass(frozen=True, slots=True)
class MigrationChoice:
    """The way to migrate a VM (`forecast` None: there is none, so it is refused), and what was found of each method, in
    the order of their costs. `post_copy`: it is allowed. `guessed`: the dirty rate is unknown."""

    forecast: MigrationForecast | None
    reasons: tuple[MethodReason, ...]
    post_copy: bool = False
    guessed: bool = False

    @property
    def refusal(self) -> str:
        """The code of the refusal, "" where there is a way: `will-not-converge`, or `too-slow` where an allowed method
        would end, but too late."""
        if self.forecast is not None:
            return ""
        slow = any(reason.verdict is MethodVerdict.TOO_SLOW for reason in self.reasons)
        return (MethodVerdict.TOO_SLOW if slow else MethodVerdict.NOT_CONVERGING).value

    def terms(self, limits: MigrationLimits, mib_per_s: float = 0.0) -> MigrationTerms:
        """Return the terms for the agent. `mib_per_s`: its share of the link (below 1: no limit).

        With an unknown dirty rate, and for an operator who insists where there is no way, it begins with auto-converge.
        One that turns out not to converge switches to post-copy where that is allowed and it has one connection.
        """
        chosen = self.forecast
        guess = chosen is None or (self.guessed and chosen.method is MigrationMethod.PRE_COPY)
        streams = 1 if chosen is None else min(chosen.streams, STREAMS_MAX)
        downtime_ms = max(1, round(1e3 * min(limits.downtime_s, 1e6))) if limits.downtime_s > 0.0 else 0
        limited = 1.0 <= mib_per_s < math.inf
        return MigrationTerms(
            MigrationMethod.AUTO_CONVERGE if guess or chosen is None else chosen.method,
            streams,
            bandwidth_mib_per_s=math.floor(min(mib_per_s, BANDWIDTH_MIB_PER_S_MAX)) if limited else 0,
            downtime_ms=min(DOWNTIME_MS_MAX, downtime_ms),
            limit_s=limits.duration_s if 0.0 < limits.duration_s < math.inf else 0.0,
            post_copy=self.post_copy and streams == 1,
        )


def choose(
    demand: MigrationDemand,
    link: Link,
    limits: MigrationLimits,
    post_copy_allowed: bool = False,
    factor: float = 1.0,
    downtime_factor: float = 1.0,
) -> MigrationChoice:
    """Return the cheapest way that ends within the limits, or the refusal.

    `factor`, `downtime_factor`: what forecast durations and downtimes are multiplied with, as learned
    (`daemons.models.migration_history`). An unknown dirty rate counts as 0; the terms then ask for auto-converge, which
    costs nothing where it is not needed. O(rounds).
    """
    reasons: list[MethodReason] = []
    chosen: MigrationForecast | None = None
    for method, streams in _ways(link):
        found = forecast(demand, link, method, streams, limits.downtime_s, limits.setup_s)
        found = scaled(found, factor, downtime_factor)
        verdict = _verdict(found, limits)
        if method is MigrationMethod.POST_COPY and not post_copy_allowed:
            verdict = MethodVerdict.NOT_ALLOWED
        elif chosen is not None:
            verdict = MethodVerdict.NOT_NEEDED
        elif verdict is MethodVerdict.CHOSEN:
            chosen = found
        reasons.append(MethodReason(verdict, found))
    return MigrationChoice(chosen, tuple(reasons), post_copy_allowed, guessed=not demand.is_known)


def scaled(found: MigrationForecast, factor: float, downtime_factor: float = 1.0) -> MigrationForecast:
    """Return a forecast with its duration and its downtime multiplied. A factor that is not finite or not above 0
    counts as 1; so does that of the downtime for post-copy, whose downtime is never measured."""
    if not found.converges:
        return found
    factor = _factor(factor)
    downtime_factor = 1.0 if found.method is MigrationMethod.POST_COPY else _factor(downtime_factor)
    downtime_s = found.downtime_s * downtime_factor
    return replace(
        found,
        duration_s=found.duration_s * factor,
        downtime_s=downtime_s,
        lost_s=downtime_s + max(0.0, found.lost_s - found.downtime_s) * factor,
    )


def _factor(value: float) -> float:
    return value if 0.0 < value < math.inf else 1.0


def _ways(link: Link) -> Iterator[tuple[MigrationMethod, int]]:
    """Several connections count only where they carry more than one."""
    most = max(1, link.streams)
    yield MigrationMethod.PRE_COPY, 1
    faster = link.rate_mib_per_s(most) > link.rate_mib_per_s(1)
    if faster:
        yield MigrationMethod.PRE_COPY, most
    yield MigrationMethod.AUTO_CONVERGE, most if faster else 1
    yield MigrationMethod.POST_COPY, 1


def _verdict(found: MigrationForecast, limits: MigrationLimits) -> MethodVerdict:
    if not found.converges:
        return MethodVerdict.NOT_CONVERGING
    safety = max(1.0, limits.safety)
    if found.duration_s * safety > limits.duration_s or found.source_s * safety > limits.source_s:
        return MethodVerdict.TOO_SLOW
    return MethodVerdict.CHOSEN
