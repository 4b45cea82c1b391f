"""What the types of fields are: records, rows, sequences, enums and what may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec


def is_enum(hint: Any) -> bool:
    """Return whether the type is an enum."""
    return isinstance(hint, type) and issubclass(hint, Enum)


def is_sequence(hint: Any) -> bool:
    """Return whether the type is `tuple[X, ...]`, `tuple[X, Y]` or `Sequence[X]`."""
    return get_origin(hint) in (tuple, Sequence)


def is_optional(hint: Any) -> bool:
    """Return whether the type is `X | None`."""
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint) and len(get_args(hint)) == 2


def is_record(hint: Any) -> bool:
    """Return whether the type is a dataclass."""
    return isinstance(hint, type) and is_dataclass(hint)


def is_row(hint: Any) -> bool:
    """Return whether the type is a `msgspec.Struct`."""
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def inside(hint: Any) -> Any:
    """X of `X | None`."""
    return next(part for part in get_args(hint) if part is not NoneType)


def row_hints(hint: Any) -> Mapping[str, Any]:
    """Return the types of a row's fields, in order, with their annotations."""
    hints = _hints(hint, annotated=True)
    return {name: hints[name] for name in hint.__struct_fields__}


def field_hints(hint: Any, annotated: bool = False) -> Mapping[str, Any]:
    """Return the types of a record's fields, in order; with their annotations if `annotated`."""
    hints = _hints(hint, annotated)
    return {field.name: hints[field.name] for field in fields(hint)}


@cache
def _hints(hint: Any, annotated: bool) -> Mapping[str, Any]:
    """Return the type hints. Each is compiled from its text, which takes longer than reading a file with them."""
    return get_type_hints(hint, include_extras=annotated)


def bare(hint: Any) -> Any:
    """X of `Annotated[X, ...]`, any other type as it is."""
    return hint.__origin__ if get_origin(hint) is Annotated else hint


def is_homogeneous(hint: Any) -> bool:
    """Return whether the type is `tuple[X, ...]` or `Sequence[X]`."""
    return get_origin(hint) is Sequence or get_args(hint)[-1] is Ellipsis
