"""Forms for what is otherwise written as a TOML file: the same keys, the same checks, the same words. Pure.

A field's name is its dotted key in the file. What is typed becomes what the file would hold, and each problem that the
reader of files finds goes beside the field with its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shared.base.errors import InvalidInput, Problem
from shared.config import records

T = TypeVar("T")

FORM = "form"  # where problems of a form are said to be
_INDEXED = re.compile(r"(\w+)\[(\d+)\]")
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_PARTING = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. key: dotted, as in the file; kind: "text", "number", "list" (names with commas between),
    "lines" (one each line), "box", or "environment" (chosen from those that there are)."""

    key: str
    label: str
    kind: str = "text"
    help: str = ""
    required: bool = False
    default: str = ""


@dataclass(frozen=True, slots=True)
class Fieldset:
    """Fields under one heading. folded: they are seldom needed."""

    title: str
    fields: tuple[Field, ...]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with a form: by the key of the field, and what belongs to none of them."""

    beside: Mapping[str, list[str]]
    above: list[str]

    @property
    def count(self) -> int:
        """How many things."""
        return sum(map(len, self.beside.values())) + len(self.above)


NOTHING = Wrong({}, [])


def fields_of(groups: Sequence[Fieldset]) -> tuple[Field, ...]:
    """Return every field of a form."""
    return tuple(field for group in groups for field in group.fields)


def given(groups: Sequence[Fieldset], posted: Mapping[str, str] | None) -> dict[str, str]:
    """Return the values of the fields: as posted, or their defaults."""
    fields = fields_of(groups)
    if posted is None:
        return {field.key: field.default for field in fields}
    return {field.key: posted.get(field.key, "").strip() for field in fields}


def table_of(groups: Sequence[Fieldset], values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the table of the file, without empty values. Also return the field that each of its keys comes from: empty
    rows of tables move the others up."""
    table: dict[str, Any] = {}
    origin: dict[str, str] = {}
    rows = _rows(groups, values)
    for field in fields_of(groups):
        text = values.get(field.key, "")
        if not text:
            continue
        key = _moved(field.key, rows)
        origin[key] = field.key
        _put(table, key.split("."), _value(field, text))
    origin |= {_moved(field.key, rows): field.key for field in fields_of(groups) if _row_of(field.key) in rows}
    return table, origin


def _rows(groups: Sequence[Fieldset], values: Mapping[str, str]) -> dict[str, str]:
    """Return the rows of tables that have a value, with their new places."""
    filled = dict.fromkeys(_row_of(field.key) for field in fields_of(groups) if values.get(field.key))
    counts: dict[str, int] = {}
    found = {}
    for row in filled:
        if not row:
            continue
        name = row.partition("[")[0]
        found[row] = f"{name}[{counts.get(name, 0)}]"
        counts[name] = counts.get(name, 0) + 1
    return found


def _row_of(key: str) -> str:
    head = key.partition(".")[0]
    return head if _INDEXED.fullmatch(head) else ""


def _moved(key: str, rows: Mapping[str, str]) -> str:
    row = _row_of(key)
    return key.replace(row, rows[row], 1) if row in rows else key


def _value(field: Field, text: str) -> Any:
    """Return the value for the file; a text in place of a number stays text, so the reader reports the expected
    form."""
    if field.kind == "number":
        return _number(text)
    if field.kind == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    if field.kind == "lines":
        return [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    return True if field.kind == "box" else text


def _number(text: str) -> Any:
    plain = text.replace("_", "")
    if _WHOLE.fullmatch(plain):
        return int(plain)
    try:
        return float(plain)
    except ValueError:
        return text


def _put(table: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for parent in parents:
        row = _INDEXED.fullmatch(parent)
        if row is None:
            table = table.setdefault(parent, {})
            continue
        rows = table.setdefault(row[1], [])
        while len(rows) <= int(row[2]):
            rows.append({})
        table = rows[int(row[2])]
    table[last] = value


def read(groups: Sequence[Fieldset], values: Mapping[str, str], cls: type[T]) -> T:
    """Read the fields as the file would be read. Raises `InvalidInput`; `beside` sorts its problems."""
    return records.read(table_of(groups, values)[0], cls, FORM, {})


def beside(groups: Sequence[Fieldset], values: Mapping[str, str], error: InvalidInput) -> Wrong:
    """Return the problems of a form by field."""
    origin = table_of(groups, values)[1]
    known = [field.key for field in fields_of(groups)]
    found: dict[str, list[str]] = {}
    above = []
    for problem in error.problems:
        key = problem.where.removeprefix(f"{FORM}: ")
        field = _field_of(key, origin, known)
        if field:
            found.setdefault(field, []).append(f"{key} {in_words(problem)}")
        else:
            above.append(f"{key} {in_words(problem)}")
    return Wrong(found, above)


def _field_of(key: str, origin: Mapping[str, str], known: Sequence[str]) -> str:
    """Return the field of a key, of an item of its list, or the first of a table that is missing as a whole."""
    plain = re.sub(r"\[\d+\]$", "", key)
    for name in (key, plain):
        if name in origin:
            return origin[name]
        if name in known:
            return name
    return next((name for name in known if name.startswith((f"{plain}[0].", f"{plain}."))), "")


def in_words(problem: Problem) -> str:
    """Return a problem without its place."""
    return problem.what + (f" (expected {problem.expected})" if problem.expected else "")


def parts_of(text: str) -> list[str]:
    """Return the files in a text: lines of `---` separate them."""
    return [part for part in _PARTING.split(text.replace("\r\n", "\n")) if part.strip()]
