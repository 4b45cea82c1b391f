"""Read a user's mapping into frozen values, or report every problem in it at once.

`read` works for any frozen dataclass whose fields are bool, int, float, str, a string enum, `tuple[X, ...]`,
`Mapping[str, X]`, another such dataclass (a section), that or a string, or `Any` (free). `Range`, `Form`, `OneOf` and
`Items` in `Annotated` limit the values. `X | None` allows a key to be left out for None. The `RULES` of a class relate
its keys. A function that receives the valid values checks all other conditions. Keys that are left out take the
defaults of the dataclass. A field `class_` is the key `class`. In a list, an item of a class that is `SHOWN_BY` a key
is identified by the value of that key.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin

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
        """Return whether a number lies in the range."""
        return bool(self.least <= value <= self.most)


@dataclass(frozen=True, slots=True)
class Form:
    """What a string may be: a regular expression for all of it, the same in words, whether it is never shown, and
    whether all of it can be printed (half of a surrogate pair cannot)."""

    pattern: str
    words: str
    secret: bool = False
    printable: bool = False

    def __str__(self) -> str:
        return self.words

    def admits(self, value: Any) -> bool:
        """Return whether a string has the form."""
        return re.fullmatch(self.pattern, value) is not None and (value.isprintable() or not self.printable)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A string is one of some words."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return "one of " + ", ".join(self.words)

    def admits(self, value: Any) -> bool:
        """Return whether a string is one of the allowed words."""
        return value in self.words


@dataclass(frozen=True, slots=True)
class Items:
    """How many items an array may have, both ends included, and whether none may be there twice."""

    least: int = 0
    most: int | None = None
    distinct: bool = False

    def __str__(self) -> str:
        return f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"

    def admits(self, count: int) -> bool:
        """Return whether an array may have this number of items."""
        return self.least <= count and (self.most is None or count <= self.most)


Limit = Range | Form | OneOf | Items


@dataclass(frozen=True, slots=True)
class Notation:
    """How files of a kind call what they hold, and what they write for what. is_json: null is a key that is left out,
    3.0 is a whole number."""

    table: str
    array: str
    is_json: bool = False

    def echo(self, value: Any) -> str:
        """Return a raw value as a message shows it."""
        if isinstance(value, list | dict):
            return f"{self.array if isinstance(value, list) else self.table} of {len(value)}"
        if value is None or isinstance(value, bool) or (isinstance(value, float) and self.is_json):
            return json.dumps(value)
        if isinstance(value, int) and abs(value) > 1 << 64:
            return "a larger whole number"
        return repr(value[:ECHO_LENGTH_MAX] if isinstance(value, str) else value)[: ECHO_LENGTH_MAX + 2]


TOML = Notation("a table", "an array")
JSON = Notation("an object", "a list", is_json=True)


@dataclass(frozen=True, slots=True)
class Above:
    """`key` is greater than `other`.

    Both are dotted keys of numbers.
    """

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the violated requirement on `key`; "" if it is met, or if either value is not known to be valid."""
        known = self.key in values and self.other in values
        if not known or values[self.key] > values[self.other]:
            return ""
        return f"more than {self.other} = {values[self.other]:g}"


@dataclass(frozen=True, slots=True)
class AtLeast:
    """`key` is at least `other`.

    Both are dotted keys of numbers.
    """

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the violated requirement on `key`; "" if it is met, or if either value is not known to be valid."""
        known = self.key in values and self.other in values
        if not known or values[self.key] >= values[self.other]:
            return ""
        return f"at least {self.other} = {values[self.other]:g}"


@dataclass(frozen=True, slots=True)
class NamedIn:
    """`key`, unless empty, is a name in the table `other`.

    Both are dotted keys.
    """

    key: str
    other: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the violated requirement on `key`; "" if it is met, or if either value is not known to be valid."""
        known = self.key in values and self.other in values
        if not known or not values[self.key] or values[self.key] in values[self.other]:
            return ""
        return f"a table [{self.other}.{values[self.key]}]"


@dataclass(frozen=True, slots=True)
class IsAddress:
    """`key`, unless empty, is an IP address."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the violated requirement on `key`; "" if it is met, or if the value is not known to be valid."""
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


class Findings(Protocol):
    """What is known of a file by those who check how its parts fit together."""

    def is_good(self, path: str) -> bool:
        """Return whether the value under a dotted path was read and is valid, or was left out and is optional."""

    def wrong(self, path: str, what: str, expected: str) -> None:
        """Note a problem at a dotted path."""


def read(
    table: Any,
    cls: type[T],
    name: str,
    lines: Mapping[str, int] | None = None,
    notation: Notation = TOML,
    check: Callable[[T, Findings], None] | None = None,
) -> T:
    """Return the configuration in a nested mapping of any notation. Raises `InvalidInput` with every problem.

    lines: the lines of its dotted keys, as far as known. check: looks for further problems; in place of an invalid
    value it receives the default, or an empty value (NaN for a number, None for an enum).
    """
    reader = _Reader(name, cls, lines or {}, notation)
    config = None
    with suppress(_Enough):
        config = reader.section("", table, cls)
        reader.check(getattr(cls, "RULES", ()))
        if check is not None:
            check(config, reader)
    reader.done()
    made: T = config  # type: ignore[assignment]  # there are no problems
    return made


def keys(cls: type[Any], prefix: str = "") -> Iterator[Key]:
    """Yield every key that a file for `cls` may have, in the order of the dataclass; `*` stands for a user-defined
    name."""
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


def _split(hint: Any, raw: Any = None) -> tuple[Any, Limit | None]:
    """Return a type without `| None` (such a key may be left out), and the first limit in its annotation. Of a section
    and another type, choose the one that matches the raw value."""
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        hint = next((part for part in parts if _is_section(part) == isinstance(raw, dict)), parts[0])
    if get_origin(hint) is not Annotated:
        return hint, None
    bare, *notes = get_args(hint)
    return bare, next((note for note in notes if isinstance(note, Limit)), None)


def _may_be_none(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def _words(hint: Any, notation: Notation = TOML) -> str:
    """Describe the values that a key of this type may hold."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_words(part, notation) for part in get_args(hint) if part is not NoneType)
    bare, limit = _split(hint)
    if get_origin(bare) is tuple:
        many = f" of {limit}" if isinstance(limit, Items) and (limit.least or limit.most) else ""
        once = " without repetition" if isinstance(limit, Items) and limit.distinct else ""
        return f"{notation.array}{many}{once}, each {_words(get_args(bare)[0], notation)}"
    if get_origin(bare) is Mapping or _is_section(bare):
        return notation.table
    if isinstance(bare, type) and issubclass(bare, Enum):
        return "one of " + ", ".join(str(member.value) for member in bare)
    if isinstance(limit, Form | OneOf):
        return str(limit)
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}.get(bare, "anything")
    return f"{plain} {limit}" if limit else plain


def _filler(hint: Any) -> Any:
    """Return the placeholder for an invalid value: if possible, one that is never valid."""
    if _may_be_none(hint):
        return None
    bare, _ = _split(hint)
    if _is_section(bare):
        hints = field_hints(bare, annotated=True)
        return bare(**{field.name: _default(field, hints[field.name]) for field in fields(bare)})
    if get_origin(bare) in _EMPTY:
        return _EMPTY[get_origin(bare)]
    return _EMPTY.get(bare)


_EMPTY: Mapping[Any, Any] = {tuple: (), Mapping: {}, bool: False, int: 0, float: math.nan, str: ""}


def _default(field: Field[Any], hint: Any) -> Any:
    """Return the placeholder for a key that is not valid."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return _filler(hint) if field.default is MISSING else field.default


_ITEM = re.compile(r"(([^\[]+)\[\d+\])")


class _Enough(Exception):
    """The limit on reported problems is reached."""


class _Bad:
    """Stands for a value that is not good."""


_BAD = _Bad()


class _Reader:
    """Builds the values of one file and gathers what is wrong with them."""

    def __init__(self, file: str, cls: type[Any], lines: Mapping[str, int], notation: Notation) -> None:
        self._file = file
        self._lines = lines
        self._notation = notation
        self._known = [key.name for key in keys(cls)]
        self._good: dict[str, Any] = {}
        self._shown_by: dict[str, str] = {}
        self._found: list[tuple[str, str, str]] = []

    def is_good(self, path: str) -> bool:
        """Return whether the value under a dotted path was read and is valid, or was left out and is optional."""
        return path in self._good

    def check(self, rules: tuple[Rule, ...]) -> None:
        """Hold the good values against the rules between them."""
        for rule in rules:
            if expected := rule.broken(self._good):
                self.wrong(rule.key, f"is {self._notation.echo(self._good[rule.key])}", expected)

    def done(self) -> None:
        """Raise `InvalidInput` if there are problems."""
        problems = [Problem(self._where(path), what, expected) for path, what, expected in self._found]
        if len(problems) == PROBLEMS_MAX:
            problems.append(Problem(self._file, "has more problems than are listed", "these put right first"))
        if problems:
            raise InvalidInput(*problems)

    def section(self, path: str, table: Any, cls: type[Any]) -> Any:
        """Return the section under the dotted `path`; if it has problems, with placeholders for the invalid values."""
        if not isinstance(table, dict):
            # nothing that may be a secret at the wrong place is shown
            shown = f"is {self._notation.echo(table)}" if self._notation.is_json else f"is not {self._notation.table}"
            self.wrong(path, shown, self._notation.table)
            return _filler(cls)
        hints = field_hints(cls, annotated=True)
        own = {_key(field.name): field for field in fields(cls)}
        for key in table:
            if key not in own:
                self.wrong(_join(path, key), "no such key", self._nearest(key, path, list(own)))
        values: dict[str, Any] = {}
        for key, field in own.items():
            dotted, hint = _join(path, key), hints[field.name]
            found: Any = _BAD
            if key in table and not (table[key] is None and self._notation.is_json):
                found = self._value(dotted, table[key], hint)
            elif _is_section(hint):
                found = self.section(dotted, {}, hint)
            elif field.default is not MISSING or field.default_factory is not MISSING:
                self._good[dotted] = found = _default(field, hint)
            else:
                self.wrong(dotted, "is missing", _words(hint, self._notation))
            values[field.name] = _default(field, hint) if found is _BAD else found
        return cls(**values)

    def _value(self, path: str, raw: Any, hint: Any) -> Any:
        """Return a value of the annotated type. For an invalid value, note a problem and return the result of
        `section`, a mapping of the valid items, or `_BAD`."""
        bare, limit = _split(hint, raw)
        before = len(self._found)
        value: Any = _BAD
        if _is_section(bare):
            return self.section(path, raw, bare)
        if raw is None and self._notation.is_json and _may_be_none(hint):
            value = None
        elif get_origin(bare) is tuple and isinstance(raw, list):
            value = self._items(path, raw, hint)
        elif get_origin(bare) is Mapping and isinstance(raw, dict):
            inner = get_args(bare)[1]
            found = {key: self._value(_join(path, key), item, inner) for key, item in raw.items()}
            value = {key: item for key, item in found.items() if item is not _BAD}
        elif bare is Any:
            value = raw
        elif self._fits(raw, bare) and (limit is None or limit.admits(raw)):
            value = bare(raw)
        else:
            shown = "is not valid" if isinstance(limit, Form) and limit.secret else f"is {self._notation.echo(raw)}"
            self.wrong(path, shown, _words(hint, self._notation))
        if len(self._found) == before:
            self._good[path] = value
        return value

    def _items(self, path: str, raw: list[Any], hint: Any) -> Any:
        """Return the values of an array, including sections that have problems."""
        bare, limit = _split(hint)
        inner = get_args(bare)[0]
        if isinstance(limit, Items) and not limit.admits(len(raw)):
            self.wrong(path, f"is {self._notation.echo(raw)}", _words(hint, self._notation))
            return _BAD
        if shown_by := getattr(inner, "SHOWN_BY", ""):
            self._shown_by[path] = shown_by
        found = tuple([self._value(f"{path}[{index}]", item, inner) for index, item in enumerate(raw)])
        if any(item is _BAD for item in found):
            return _BAD
        if isinstance(limit, Items) and limit.distinct:
            for item, count in Counter(found).items():
                if count > 1:
                    self.wrong(path, f"has {self._notation.echo(item)} {count} times", "none of them twice")
        return found

    def _fits(self, raw: Any, bare: Any) -> bool:
        """Return whether a raw value is of a scalar type without conversion; a whole number is also a number."""
        if bare is int and isinstance(raw, float):
            return self._notation.is_json and raw.is_integer()
        return _fits(raw, bare)

    def wrong(self, path: str, what: str, expected: str) -> None:
        """Note a problem at a dotted path. Raises `_Enough` after some."""
        self._found.append((path, what, expected))
        if len(self._found) == PROBLEMS_MAX:
            raise _Enough

    def _where(self, path: str) -> str:
        """Return the location for a message: the file, its line and the key."""
        line = self._lines.get(path) or self._lines.get(re.sub(r"\[\d+\]$", "", path))
        where = f"{self._file}:{line}" if line else self._file
        if (item := _ITEM.match(path)) and item[2] in self._shown_by:
            label = self._good.get(f"{item[1]}.{self._shown_by[item[2]]}")
            path = path if label is None else f"{item[1]} ({label}){path[item.end() :]}"
        shown = path if len(path) <= 2 * ECHO_LENGTH_MAX else path[: 2 * ECHO_LENGTH_MAX] + "..."
        return f"{where}: {shown}" if shown else where

    def _nearest(self, key: str, path: str, own: list[str]) -> str:
        """Return the valid key that was probably meant: a sibling, else one anywhere in the file, else all siblings."""
        if near := difflib.get_close_matches(key[:ECHO_LENGTH_MAX], own, 1):
            return _join(path, near[0])
        elsewhere = {name.rpartition(".")[2]: name for name in self._known}
        if near := difflib.get_close_matches(key[:ECHO_LENGTH_MAX], elsewhere, 1, 0.8):
            return elsewhere[near[0]]
        return "one of " + ", ".join(own)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fits(raw: Any, bare: Any) -> bool:
    """Return whether a raw value is of a scalar type without conversion; a whole number is also a number."""
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
