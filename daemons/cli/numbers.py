"""The types of options that are numbers: what is not finite, out of range or oddly written is refused by name."""

from __future__ import annotations

import math
from typing import Any

import click

from daemons.values.memory_size import memory_mib
from shared.base.errors import InvalidValue

WHOLE_MAX = (1 << 63) - 1
SHOWN_LENGTH_MAX = 40

SEEDS_MAX = 100_000


class Number(click.FloatRange):
    """A finite number from `least` to `most`, or `above` the least; in plain ASCII digits, without `_`."""

    def __init__(self, least: float, most: float, *, above: bool = False) -> None:
        super().__init__(least, most, min_open=above)
        self._words = f"a number {f'above {least:.12g} and up' if above else f'from {least:.12g}'} to {most:.12g}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; BadParameter for anything else (click's own type accepts NaN)."""
        try:
            number = float(_plain(value))
        except ValueError:
            number = math.nan
        low = number > self.min if self.min_open else number >= self.min  # type: ignore[operator]  # it has a least
        if not (low and number <= self.max):  # type: ignore[operator]
            self.fail(f"{_shown(value)}: expected {self._words}", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number from `least` to `most`; in plain ASCII digits, without `_`."""

    def __init__(self, least: int, most: int = WHOLE_MAX) -> None:
        super().__init__(least, most)
        self._words = f"a whole number, {least} or above" if most == WHOLE_MAX else f"a whole number, {least} to {most}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; BadParameter for anything else."""
        try:
            number = int(_plain(value))
        except ValueError:
            self.fail(f"{_shown(value)}: expected {self._words}", param, ctx)
        if not self.min <= number <= self.max:  # type: ignore[operator]  # it has both
            self.fail(f"{_shown(value)}: expected {self._words}", param, ctx)
        return number

    def _describe_range(self) -> str:
        return f"x>={self.min}" if self.max == WHOLE_MAX else super()._describe_range()


class MemorySize(click.ParamType[int]):
    """An amount of memory such as `32GiB` or `512MiB`; its value is in MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the MiB; BadParameter for anything else."""
        if isinstance(value, int):
            return value
        try:
            return memory_mib("", str(value))
        except InvalidValue as problem:
            self.fail(f"{_shown(value)}: expected {problem.expected}", param, ctx)


def plain_number(text: str) -> float:
    """Return the number in the text of an option; NaN for anything else, including text with `_` or non-ASCII
    digits."""
    try:
        return float(_plain(text))
    except ValueError:
        return math.nan


def _plain(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and "_" not in value):
        raise ValueError(value)
    return value


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= SHOWN_LENGTH_MAX else text[:SHOWN_LENGTH_MAX] + "...")


def seed_range(text: str) -> range:
    """Return the seeds from A to B, both included, of `A-B` or `A`."""
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    if not all(number.isascii() and number.isdigit() and len(number) <= 12 for number in (first, last)):
        raise click.BadParameter(f"{text!r}: expected A-B, two whole numbers, 0 or above")
    seeds = range(int(first), int(last) + 1)
    if not 0 < len(seeds) <= SEEDS_MAX:
        raise click.BadParameter(f"{text!r}: expected 1 to {SEEDS_MAX} seeds, the lower first")
    return seeds
