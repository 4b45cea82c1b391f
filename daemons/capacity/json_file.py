"""A JSON file that someone wrote by hand becomes checked values, and every problem in it is told at once.

A `Checker` gathers problems while a reader walks through the file; the reader goes on with what is good. A key that
holds null is as if it were left out.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import read_bytes
from shared.base.read_json import parse_json

FILE_BYTES_MAX = 24 << 20
ECHO_LENGTH_MAX = 60
REQUIRED: Any = object()
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """What a key may hold: in words, a test, what stands for a key that is left out (`REQUIRED`: it may not be), and
    the type that an admitted value is given."""

    words: str
    admits: Callable[[Any], bool]
    default: Any = REQUIRED
    kind: Callable[[Any], Any] = lambda raw: raw


def number(least: float, most: float, default: Any = REQUIRED) -> Field:
    """A finite number within bounds."""

    def admits(raw: Any) -> bool:
        return isinstance(raw, int | float) and not isinstance(raw, bool) and least <= raw <= most

    return Field(f"a number from {least:.15g} to {most:.15g}", admits, default, float)


def whole(least: int, most: int, default: Any = REQUIRED) -> Field:
    """A whole number within bounds; 3.0 is one."""

    def admits(raw: Any) -> bool:
        good = type(raw) is int or (isinstance(raw, float) and raw.is_integer())
        return good and least <= raw <= most

    return Field(f"a whole number from {least} to {most}", admits, default, int)


def text(pattern: str, words: str, default: Any = REQUIRED) -> Field:
    """A string that the regular expression matches in full."""
    return Field(words, lambda raw: isinstance(raw, str) and _matches(pattern, raw), default)


def _matches(pattern: str, raw: str) -> bool:
    """What cannot be printed, such as half of a surrogate pair, is in no name."""
    return raw.isprintable() and re.fullmatch(pattern, raw) is not None


def one_of(values: Iterable[str], default: Any = REQUIRED) -> Field:
    """One of some words."""
    known = tuple(values)
    return Field("one of " + ", ".join(known), lambda raw: isinstance(raw, str) and raw in known, default)


def flag(default: Any = REQUIRED) -> Field:
    """True or false."""
    return Field("true or false", lambda raw: isinstance(raw, bool), default)


def texts(pattern: str, words: str, default: Any = REQUIRED) -> Field:
    """A list of strings, none of them twice, each of which the regular expression matches in full."""

    def admits(raw: Any) -> bool:
        good = isinstance(raw, list) and all(isinstance(item, str) and _matches(pattern, item) for item in raw)
        return good and len(set(raw)) == len(raw)

    return Field(f"a list without repetition, each {words}", admits, default)


def rows(default: Any = REQUIRED) -> Field:
    """A list of objects; `Checker.rows` reads them."""
    return Field("a list of objects", lambda raw: isinstance(raw, list), default)


def table(default: Any = REQUIRED) -> Field:
    """An object; `Checker.row` reads it."""
    return Field("an object", lambda raw: isinstance(raw, dict), default)


class _Object(dict[str, Any]):
    """An object as the parser found it; `repeated`: keys that it has more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs) if len(self) < len(pairs) else {}
        self.repeated = [key for key, count in counts.items() if count > 1]


def parse_file(path: Path) -> Any:
    """What a JSON file holds. Raises `InvalidInput` for one that cannot be read or is no JSON."""
    return parse_json(read_bytes(path, "a JSON file", FILE_BYTES_MAX), str(path), pairs=_Object)


class Checker:
    """Checks the objects of one file and gathers what is wrong."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self._file = file

    def wrong(self, path: str, what: str, expected: str = "") -> None:
        """Note a problem at a place such as `jobs[3].goal_s`."""
        self.problems.append(Problem(f"{self._file}: {path}" if path else self._file, what, expected))

    def done(self) -> None:
        """Raise `InvalidInput` if there are problems."""
        if self.problems:
            raise InvalidInput(*self.problems)

    def row(self, path: str, raw: Any, fields: Mapping[str, Field]) -> Row:
        """The keys of an object that are good; those left out that need not be there hold their defaults."""
        if not isinstance(raw, dict):
            self.wrong(path, f"is {echo(raw)}", "an object")
            return {}
        for key in getattr(raw, "repeated", ()):
            self.wrong(join(path, key), "is there more than once", "every key once")
        for key in raw:
            if key not in fields:
                near = difflib.get_close_matches(key[:ECHO_LENGTH_MAX], fields, 1) or fields
                self.wrong(join(path, key), "no such key", ", ".join(near))
        good: Row = {}
        for key, field in fields.items():
            value = raw.get(key)
            if value is None and field.default is not REQUIRED:
                good[key] = field.default
            elif value is None:
                self.wrong(join(path, key), "is missing", field.words)
            elif field.admits(value):
                good[key] = field.kind(value)
            else:
                self.wrong(join(path, key), f"is {echo(value)}", field.words)
        return good

    def rows(self, path: str, raw: Any, fields: Mapping[str, Field]) -> Iterator[tuple[str, Row]]:
        """The place and the good keys of each object in a list that `rows` admitted."""
        for index, item in enumerate(raw or ()):
            at = f"{path}[{index}]"
            yield at, self.row(at, item, fields)


def join(path: str, key: str) -> str:
    """The place of a key within an object."""
    shown = key if len(key) <= ECHO_LENGTH_MAX else key[:ECHO_LENGTH_MAX] + "..."
    return f"{path}.{shown}" if path else shown


def echo(raw: Any) -> str:
    """A raw value as a message shows it."""
    if isinstance(raw, list | dict):
        return f"a list of {len(raw)}" if isinstance(raw, list) else f"an object of {len(raw)} keys"
    if raw is None or isinstance(raw, bool):
        return json.dumps(raw)
    if isinstance(raw, float) and not math.isfinite(raw):
        return "NaN" if math.isnan(raw) else f"{'-' if raw < 0 else ''}Infinity"
    if isinstance(raw, int) and abs(raw) > 1 << 64:
        return "a larger whole number"
    return repr(raw[:ECHO_LENGTH_MAX] if isinstance(raw, str) else raw)
