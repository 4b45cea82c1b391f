"""Lets so many things a minute pass of each who causes them."""

from __future__ import annotations

PERIOD_S = 60.0
NAMES_MAX = 5_000  # of which those are forgotten that are older than a minute


class PerMinute:
    """Lets `most` things of each node, or account, pass a minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, tuple[float, int]] = {}  # by name: since, how many

    def passes(self, name: str, now_s: float) -> bool:
        """Return whether one more is allowed."""
        since_s, count = self._counts.get(name, (now_s, 0))
        if now_s >= since_s + PERIOD_S:
            since_s, count = now_s, 0
        self._counts[name] = since_s, count + 1
        if len(self._counts) > NAMES_MAX:
            self._counts = {one: each for one, each in self._counts.items() if now_s < each[0] + PERIOD_S}
        return count < self._most
