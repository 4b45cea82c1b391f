"""A mapping that a user wrote becomes frozen values, or every problem in it is told at once.

`read` works for any frozen dataclass whose fields are bool, int, float, str, a string enum, `tuple[X, ...]`,
`Mapping[str, X]`, another such dataclass (a section), or `Any` (free). `Range` and `Form` in `Annotated` say what is
allowed, `X | None` that a key may be left out for None, a class's `RULES` how its keys relate. Keys that are left out
take the defaults of the dataclass. A field `class_` is the key `class`.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from shared.base.errors import InvalidInput, Problem
from shared.base.type_hints import field_hints

T = TypeVar("T")

ECHO_LENGTH_MAX = 60
PROBLEMS_MAX = 100  # after which no more are looked for


@dataclass(frozen=True, slots=True)
class Range:
    """What a number may be, both ends included; its unit is in the key's name."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"from {self.least:.15g} to {self.most:.15g}"

    def admits(self, value: Any) -> bool:
        """Whether a number lies in the range."""
        return bool(self.least <= value <= self.most)


@dataclass(frozen=True, slots=True)
class Form:
    """What a string may be: a regular expression for all of it, the same in words, and whether it is never shown."""

    pattern: str
    words: str
    secret: bool = False

    def __str__(self) -> str:
        return self.words

    def admits(self, value: Any) -> bool:
        """Whether a string has the form."""
        return re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True, slots=True)
class Above:
    """The number under `key` must be above the one under `other` (dotted keys)."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected of `key`, "" where that is so or one of the two is not known to be good."""
        known = self.key in values and self.other in values
        if not known or values[self.key] > values[self.other]:
            return ""
        return f"more than {self.other} = {values[self.other]:g}"


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The number under `key` must not be below the one under `other` (dotted keys)."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected of `key`, "" where that is so or one of the two is not known to be good."""
        known = self.key in values and self.other in values
        if not known or values[self.key] >= values[self.other]:
            return ""
        return f"at least {self.other} = {values[self.other]:g}"


@dataclass(frozen=True, slots=True)
class NamedIn:
    """The string under `key`, unless empty, must be a name in the table `other` (dotted keys)."""

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected of `key`, "" where that is so or one of the two is not known to be good."""
        known = self.key in values and self.other in values
        if not known or not values[self.key] or values[self.key] in values[self.other]:
            return ""
        return f"a table [{self.other}.{values[self.key]}]"


@dataclass(frozen=True, slots=True)
class IsAddress:
    """The string under `key`, unless empty, must be an IP address."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected of `key`, "" where that is so or it is not known to be good."""
        try:
            ipaddress.ip_address(values.get(self.key) or "::")
        except ValueError:
            return "an IP address, or nothing"
        return ""


Rule = Above | AtLeast | NamedIn | IsAddress


@dataclass(frozen=True, slots=True)
class Key:
    """One key that a file may have: its dotted name, what it may hold in words, its default (None: required)."""

    name: str
    holds: str
    default: Any


def read(table: Mapping[str, Any], cls: type[T], name: str, lines: Mapping[str, int]) -> T:
    """The configuration in a nested mapping, however it was written; `lines`: where its dotted keys are, as far as is
    known. Raises `InvalidInput`."""
    reader = _Reader(name, cls, lines)
    config = None
    with suppress(_Enough):
        config = reader.section("", table, cls)
        reader.check(getattr(cls, "RULES", ()))
    if reader.problems:
        raise InvalidInput(*reader.problems)
    made: T = config  # type: ignore[assignment]  # there are no problems
    return made


def keys(cls: type[Any], prefix: str = "") -> Iterator[Key]:
    """Every key that a file for `cls` may have, in the order of the dataclass; `*` stands for a name of one's own."""
    hints = field_hints(cls, annotated=True)
    for field in fields(cls):
        hint, name = hints[field.name], prefix + _key(field.name)
        if _is_section(hint):
            yield from keys(hint, name + ".")
        elif get_origin(hint) is Mapping and _is_section(get_args(hint)[1]):
            yield from keys(get_args(hint)[1], name + ".*.")
        else:
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            yield Key(name, _words(hint), None if default is MISSING else default)


def _key(field: str) -> str:
    return field.removesuffix("_")


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _split(hint: Any) -> tuple[Any, Range | Form | None]:
    """A type, without `| None` (a key is left out for that), and the first range or form that it is annotated with."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is not Annotated:
        return hint, None
    bare, *notes = get_args(hint)
    return bare, next((note for note in notes if isinstance(note, Range | Form)), None)


def _words(hint: Any) -> str:
    """What a key of this type may hold."""
    bare, limit = _split(hint)
    if get_origin(bare) is tuple:
        return f"an array, each {_words(get_args(bare)[0])}"
    if get_origin(bare) is Mapping or _is_section(bare):
        return "a table"
    if isinstance(bare, type) and issubclass(bare, Enum):
        return "one of " + ", ".join(str(member.value) for member in bare)
    if isinstance(limit, Form):
        return str(limit)
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}.get(bare, "anything")
    return f"{plain} {limit}" if limit else plain


def _echo(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"a{'n array' if isinstance(value, list) else ' table'} of {len(value)}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > 1 << 64:
        return "a larger whole number"
    return repr(value[:ECHO_LENGTH_MAX] if isinstance(value, str) else value)[: ECHO_LENGTH_MAX + 2]


class _Enough(Exception):
    """There are as many problems as are told."""


class _Reader:
    """Builds the values of one file and gathers what is wrong with them."""

    def __init__(self, file: str, cls: type[Any], lines: Mapping[str, int]) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._lines = lines
        self._known = [key.name for key in keys(cls)]
        self._good: dict[str, Any] = {}

    def check(self, rules: tuple[Rule, ...]) -> None:
        """Hold the good values against the rules between them."""
        for rule in rules:
            if expected := rule.broken(self._good):
                self._wrong(rule.key, f"is {_echo(self._good[rule.key])}", expected)

    def section(self, path: str, table: Any, cls: type[Any]) -> Any:
        """The section under the dotted `path`; None where it has problems."""
        if not isinstance(table, dict):
            self._wrong(path, "is not a table", "a table")  # not shown: it may be a secret at the wrong place
            return None
        before = len(self.problems)
        hints = field_hints(cls, annotated=True)
        own = {_key(field.name): field for field in fields(cls)}
        for key in table:
            if key not in own:
                self._wrong(_join(path, key), "no such key", self._nearest(key, path, list(own)))
        values: dict[str, Any] = {}
        for key, field in own.items():
            dotted, name = _join(path, key), field.name
            if key in table:
                values[name] = self._value(dotted, table[key], hints[name])
            elif _is_section(hints[name]):
                values[name] = self.section(dotted, {}, hints[name])
            elif field.default is not MISSING or field.default_factory is not MISSING:
                made = field.default if field.default_factory is MISSING else field.default_factory()
                self._good[dotted] = values[name] = made
            else:
                self._wrong(dotted, "is missing", _words(hints[name]))
        return cls(**values) if len(self.problems) == before else None

    def _value(self, path: str, raw: Any, hint: Any) -> Any:
        """A value of the annotated type; where it is wrong a problem is noted and the result means nothing."""
        bare, limit = _split(hint)
        before = len(self.problems)
        value: Any = None
        if _is_section(bare):
            return self.section(path, raw, bare)
        if get_origin(bare) is tuple and isinstance(raw, list):
            inner = get_args(bare)[0]
            value = tuple([self._value(f"{path}[{index}]", item, inner) for index, item in enumerate(raw)])
        elif get_origin(bare) is Mapping and isinstance(raw, dict):
            inner = get_args(bare)[1]
            value = {key: self._value(_join(path, key), item, inner) for key, item in raw.items()}
        elif bare is Any:
            value = raw
        elif _fits(raw, bare) and (limit is None or limit.admits(raw)):
            value = float(raw) if bare is float else bare(raw)
        else:
            shown = "is not valid" if isinstance(limit, Form) and limit.secret else f"is {_echo(raw)}"
            self._wrong(path, shown, _words(hint))
        if len(self.problems) == before:
            self._good[path] = value
        return value

    def _wrong(self, path: str, what: str, expected: str) -> None:
        shown = path if len(path) <= 2 * ECHO_LENGTH_MAX else path[: 2 * ECHO_LENGTH_MAX] + "..."
        line = self._lines.get(path) or self._lines.get(re.sub(r"\[\d+\]$", "", path))
        where = f"{self._file}:{line}" if line else self._file
        self.problems.append(Problem(f"{where}: {shown}", what, expected))
        if len(self.problems) == PROBLEMS_MAX:
            self.problems.append(Problem(self._file, "has more problems than are told", "these put right first"))
            raise _Enough

    def _nearest(self, key: str, path: str, own: list[str]) -> str:
        """The valid key that was probably meant: a sibling, else one anywhere in the file, else all siblings."""
        if near := difflib.get_close_matches(key[:ECHO_LENGTH_MAX], own, 1):
            return _join(path, near[0])
        elsewhere = {name.rpartition(".")[2]: name for name in self._known}
        if near := difflib.get_close_matches(key[:ECHO_LENGTH_MAX], elsewhere, 1, 0.8):
            return elsewhere[near[0]]
        return "one of " + ", ".join(own)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fits(raw: Any, bare: Any) -> bool:
    """Whether a TOML value is of a scalar type without conversion; a whole number is a number too."""
    if bare is float:
        return not isinstance(raw, bool) and isinstance(raw, int | float) and _finite(raw)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return isinstance(raw, str) and raw in {member.value for member in bare}
    return type(raw) is bare


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
