"""What a reproduction says: one row for each figure or claim of a paper, and the work from which rows come."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemons.capacity.process_pool import Work

Value = float | str | None
Tables = Mapping[str, Sequence[Mapping[str, Any]]]
"""Titles and lines."""
"""A function of a module and its arguments: what a process of the pool runs."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the paper compared with our value. `holds`: whether the claim is true of our value (None: there is
    nothing to judge); `why`: the criterion, or why the claim does not hold."""

    id: str
    what: str
    paper: Value
    ours: Value
    holds: bool | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--output json`; a number that is not finite is null."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}


def no_tables(results: Sequence[Any]) -> Tables:
    """Return no tables, for experiments whose rows suffice."""
    del results
    return {}


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of a paper.

    work: of so many seeds, what has to be run, in order. rows: from the results in the same order. draw: from them,
    the figures of the paper into a folder; returns the files. tables: more to show than rows. alone: it measures this
    machine, so that nothing else may run beside its work.
    """

    title: str
    work: Callable[[int], Sequence[Work]]
    rows: Callable[[Sequence[Any]], list[Row]]
    draw: Callable[[Sequence[Any], Path], list[Path]]
    tables: Callable[[Sequence[Any]], Tables] = no_tables
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper whose experiments can be played again; keys of `experiments` as on the command line."""

    name: str
    title: str
    experiments: Mapping[str, Experiment]


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def within(
    id: str, what: str, paper: Value, values: Sequence[float], least: float, most: float, digits: int = 4, why: str = ""
) -> Row:
    """Return a row that holds when the value of every seed is from `least` to `most`. Our value is their mean."""
    holds = bool(values) and all(least <= value <= most for value in values)
    spread = f"{min(values):.{digits}g} to {max(values):.{digits}g} in {len(values)} runs" if values else "no run"
    asked = f"asked for {least:g}" if least == most else f"asked for {least:g} to {most:g}"
    if math.isinf(most):
        asked = f"asked for at least {least:g}"
    elif math.isinf(least):
        asked = f"asked for at most {most:g}"
    return Row(
        id,
        what,
        paper,
        float(f"{mean(values):.6g}") if values else None,
        holds,
        "; ".join(filter(None, (spread, asked, why))),
    )
