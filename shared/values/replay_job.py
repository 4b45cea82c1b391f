"""A job of a log that is replayed: when it came, how long it ran, on how many processors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """A job of a replay: it needs `nodes` whole nodes for `run_s` seconds. `line` is where the log states it."""

    number: int
    submit_s: float
    run_s: float
    nodes: int
    line: int
