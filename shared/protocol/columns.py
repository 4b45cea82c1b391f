"""Lists of records as columns, and back: what is the same in every record is said once, and values of one kind lie
together, which is most of the work of writing, checking and reading them.

A table is `{"names": [...], "columns": [...]}`: a column has a value for each record, or is a table again where every
record has a record there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from shared.base.errors import CodecError

IN_COLUMNS = "in_columns"  # where `folded` puts its tables, by the key that each had
RECORDS_MIN = 16  # shorter lists stay as they are
LEVELS = 2  # records in records


def folded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same data with its long lists of records as tables, if all records of a list have the same keys."""
    tables = {key: _table(value, LEVELS) for key, value in data.items() if _may_fold(value)}
    found = {key: table for key, table in tables.items() if table is not None}
    if not found:
        return dict(data)
    return {key: value for key, value in data.items() if key not in found} | {IN_COLUMNS: found}


def unfolded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Reverse `folded`. Raises `CodecError` for invalid tables."""
    if IN_COLUMNS not in data:
        return dict(data)
    made = {key: value for key, value in data.items() if key != IN_COLUMNS}
    try:
        return made | {key: _records(table) for key, table in data[IN_COLUMNS].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise CodecError(f"columns of another length or form than expected: {problem}") from problem


def _may_fold(value: Any) -> bool:
    return type(value) is list and len(value) >= RECORDS_MIN and type(value[0]) is dict


def _table(records: Sequence[Any], levels: int) -> dict[str, Any] | None:
    """None for what is no table."""
    names = tuple(records[0])
    if set(map(type, records)) != {dict} or not names or set(map(len, records)) != {len(names)}:
        return None
    try:
        columns = [list(map(itemgetter(name), records)) for name in names]
    except KeyError:
        return None
    return {"names": list(names), "columns": [_column(column, levels - 1) for column in columns]}


def _column(values: list[Any], levels: int) -> Any:
    table = _table(values, levels) if levels and type(values[0]) is dict else None
    return values if table is None else table


def _records(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    names, columns = table["names"], table["columns"]
    if len(names) != len(columns):
        raise ValueError(f"{len(columns)} columns for {len(names)} names")
    values: Iterable[Any] = [column if type(column) is list else _records(column) for column in columns]
    return [dict(zip(names, record, strict=True)) for record in zip(*values, strict=True)]
