"""A feed of day-ahead prices as a market publishes them, with its failures: it cannot be read, stops, or goes back in
time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from shared.base.errors import InvalidValue
from shared.ports.effects import PricesRead

DAY_S = 86_400.0
PUBLISHED_S = 13 * 3_600.0  # by so late in the day the prices of the next day are known


@dataclass(frozen=True, slots=True)
class FeedFault:
    """Failure of the feed from `from_s` until `to_s`. "stopped": the prices stay as at `from_s`. "silent": the feed
    cannot be read. "back": the feed shows the prices from `back_s` earlier."""

    kind: str
    from_s: float
    to_s: float
    back_s: float = DAY_S

    def __post_init__(self) -> None:
        if self.kind not in ("stopped", "silent", "back"):
            raise InvalidValue("kind", self.kind, "stopped, silent or back")


class FakePrices:
    """Asked with the time it says what the feed does: true prices of today, and of tomorrow from `PUBLISHED_S` on.

    starts_s: the begin of each period, rising; until_s: the end of the last; days are those of UTC. `past_days`: so
    many days before today are in it too. The first fault that holds counts.
    """

    def __init__(
        self,
        starts_s: Sequence[float],
        per_kwh: Sequence[float],
        until_s: float,
        faults: Sequence[FeedFault] = (),
        past_days: int = 0,
    ) -> None:
        self.starts_s, self.per_kwh, self.until_s = tuple(starts_s), tuple(per_kwh), until_s
        self.faults, self.past_days = tuple(faults), past_days
        self._said: dict[float, PricesRead] = {}

    def __call__(self, now_s: float) -> PricesRead:
        """Return the reading at `now_s`; the same object until new prices are published."""
        fault = next((fault for fault in self.faults if fault.from_s <= now_s < fault.to_s), None)
        if fault is None:
            return self._published(now_s)
        if fault.kind == "silent":
            return PricesRead(error="the feed cannot be read")
        return self._published(fault.from_s if fault.kind == "stopped" else now_s - fault.back_s)

    def _published(self, at_s: float) -> PricesRead:
        days = at_s // DAY_S
        end_s = min(self.until_s, DAY_S * (days + (2 if at_s - DAY_S * days >= PUBLISHED_S else 1)))
        if end_s not in self._said:
            first = bisect_left(self.starts_s, DAY_S * (days - self.past_days))
            last = bisect_left(self.starts_s, end_s)
            self._said[end_s] = PricesRead(self.starts_s[first:last], self.per_kwh[first:last], end_s)
        return self._said[end_s]
