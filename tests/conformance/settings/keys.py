"""Every key that a file may have, found by walking the dataclass that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from shared.base.type_hints import field_hints


def keys_of(cls: type[Any], prefix: str = "") -> Iterator[str]:
    """Yield dotted names of the keys of a file; `*` stands for a name of one's own, `[]` for an item of an array of
    tables. A table whose keys are free is one key."""
    hints = field_hints(cls, annotated=True)
    for field in fields(cls):
        yield from _keys_below(hints[field.name], prefix + field.name.removesuffix("_"))


def _keys_below(hint: Any, name: str) -> Iterator[str]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        for part in (part for part in get_args(hint) if part is not NoneType):
            yield from _keys_below(part, name)
    elif isinstance(hint, type) and is_dataclass(hint):
        yield from keys_of(hint, f"{name}.")
    elif get_origin(hint) is tuple and (inner := _table(get_args(hint)[0])):
        yield from keys_of(inner, f"{name}[].")
    elif get_origin(hint) is Mapping and (inner := _table(get_args(hint)[1])):
        yield from keys_of(inner, f"{name}.*.")
    else:
        yield name


def _table(hint: Any) -> type[Any] | None:
    return hint if isinstance(hint, type) and is_dataclass(hint) else None
