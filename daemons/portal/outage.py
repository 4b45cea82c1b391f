"""An outage: no controller answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outage:
    """No controller answers since `since_s` (UTC epoch seconds); `why` in words."""

    since_s: float
    why: str
