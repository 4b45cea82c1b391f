"""Rows and their records: what both have by the same name is copied in one place, whichever way."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

R = TypeVar("R")


_NAMES: dict[Any, tuple[str, ...]] = {}  # of the fields of each kind of record


def names_of(kind: Any) -> tuple[str, ...]:
    """Return the names of a record's fields."""
    found = _NAMES.get(kind)
    if found is None:
        found = _NAMES[kind] = tuple(each.name for each in fields(kind))
    return found


def record_of(kind: type[R], row: object, **other: Any) -> R:
    """Return the record of a row: each field is the row's of that name, but for `other`. Raises AttributeError for a
    field that neither has. O(fields)."""
    return kind(**{name: other[name] if name in other else getattr(row, name) for name in names_of(kind)})


def kept_in(record: object, *but: str) -> dict[str, Any]:
    """Return what a row takes over from its record: every field by its name, without those of `but`."""
    return {name: getattr(record, name) for name in names_of(type(record)) if name not in but}
