"""How long nodes take on their way into service and out of it, learnt by power driver and node type."""

from __future__ import annotations

import math
from collections.abc import Iterator

from daemons.values.records.cluster import DurationRecord
from daemons.values.settings import PowerSettings

DEPLOY = "deploy"  # from wanted in service to serving, of a node that was asleep
REMOVE = "remove"  # from not wanted to asleep, or to standby where nodes are never put to sleep
COUNT_MAX = 50  # a time counts for at least one part in so many
ENOUGH = 3  # fewer times than these say little of how they spread
MARGIN = 2.0  # in standard deviations


class Durations:
    """The times measured so far; what was never measured is as configured."""

    def __init__(self, settings: PowerSettings) -> None:
        self._settings = settings
        self._known: dict[str, DurationRecord] = {}

    def __iter__(self) -> Iterator[DurationRecord]:
        return iter(self._known.values())

    def load(self, record: DurationRecord) -> None:
        """Take over what an earlier controller has learnt."""
        self._known[record.name] = record

    def learn(self, node_type: str, what: str, seconds: float) -> DurationRecord:
        """Add one duration (seconds, at least 0); return the record to store."""
        fresh = DurationRecord(self._settings.driver, node_type, what, 1, seconds, 0.0)
        before = self._known.get(fresh.name)
        if before is not None:
            count = min(before.count + 1, COUNT_MAX)
            step = (seconds - before.mean_s) / count
            variance = (1.0 - 1.0 / count) * (before.deviation_s**2 + step * (seconds - before.mean_s))
            fresh = DurationRecord(
                fresh.driver, node_type, what, count, before.mean_s + step, math.sqrt(max(variance, 0.0))
            )
        self._known[fresh.name] = fresh
        return fresh

    def expected_s(self, driver: str, node_type: str, what: str) -> float:
        """Return the duration to plan with, in seconds: the mean plus two standard deviations. While fewer than three
        were measured, it is at least the configured one."""
        configured_s = self._settings.deploy_s if what == DEPLOY else self._settings.remove_s
        known = self._known.get(f"{driver}/{node_type}/{what}")
        if known is None:
            return configured_s
        planned_s = known.mean_s + MARGIN * known.deviation_s
        return planned_s if known.count >= ENOUGH else max(planned_s, configured_s)
