"""That nobody answers, since when, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outage:
    """Nobody answers since `since_s`; `why` in words."""

    since_s: float
    why: str
