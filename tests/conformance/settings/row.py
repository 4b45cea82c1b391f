"""What a row of the table is, and how the text of a file is made from it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from shared.config import toml

T = TypeVar("T")

NAME = "night"  # stands for `*`
OMITTED = object()  # the key is left out


@dataclass(frozen=True, slots=True)
class Given:
    """A file's text, and an empty folder."""

    text: str
    folder: Path

    def read(self, cls: type[T]) -> T:
        """Read the text as a file of a kind."""
        return toml.parse(self.text, cls)

    def file(self, name: str = "file.toml") -> Path:
        """Write the text to a file in the folder."""
        path = self.folder / name
        path.write_text(self.text, "utf-8")
        return path

    def loopback(self) -> str:
        """Return an address that no other observation listens on: observations run beside one another."""
        number = int(self.folder.name)
        return f"127.{1 + os.getpid() % 250}.{number // 250}.{1 + number % 250}"


Harness = Callable[[Given], object]


@dataclass(frozen=True, slots=True)
class Row:
    """`key` with two values, beside other keys. `harness` gives what is observed of a file's text: of one text always
    the same, of the two texts something else. `waits`: it is real time that shows it, so that it is better looked at
    beside others."""

    key: str
    one: Any
    other: Any
    harness: Harness
    beside: Mapping[str, Any] = field(default_factory=dict)
    waits: bool = False

    def texts(self) -> tuple[str, str]:
        """The file with each of the two values."""
        return self._text(self.one), self._text(self.other)

    def _text(self, value: Any) -> str:
        table: dict[str, Any] = {}
        for key, each in (dict(self.beside) | {self.key: value}).items():
            if each is not OMITTED:
                _put(table, key.replace("*", NAME), each)
        return "".join(f"{key} = {_toml(each)}\n" for key, each in table.items())


def shown_by(
    harness: Harness,
    values: Mapping[str, tuple[Any, Any]],
    beside: Mapping[str, Any] | None = None,
    *,
    waits: bool = False,
) -> Iterator[Row]:
    """Rows of keys that one harness shows."""
    for key, (one, other) in values.items():
        yield Row(key, one, other, harness, beside or {}, waits)


def shown_together(
    harness: Harness, values: Mapping[str, tuple[Any, Any]], beside: Mapping[str, Any] | None = None
) -> Iterator[Row]:
    """The same with the first value of every other key beside: all rows begin with one text."""
    return shown_by(harness, values, {**(beside or {})} | {key: one for key, (one, _) in values.items()})


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    """Put a value at a dotted key; `[]` is the first item of an array."""
    first, _, rest = key.partition(".")
    if not rest:
        table[first] = value
    elif first.endswith("[]"):
        _put(table.setdefault(first[:-2], [{}])[0], rest, value)
    else:
        _put(table.setdefault(first, {}), rest, value)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)
