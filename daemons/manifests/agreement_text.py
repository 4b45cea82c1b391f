"""An agreement as its owner would write it: the nested mapping of a TOML file's keys, and the text of such a file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from daemons.manifests.assurance_tables import table_of_terms
from shared.base.errors import InvalidInput, Problem
from shared.values.agreement import WorkloadType

Table = Mapping[str, Any]
RESERVED = "assurance"
FREE = "terms"  # a table of which nothing is known here: all that it holds is said
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_OTHER = {WorkloadType.BATCH.value: WorkloadType.WEB.value, WorkloadType.WEB.value: WorkloadType.BATCH.value}


def table_of(agreement: Table) -> dict[str, Any]:
    """Return the keys of a file, from an agreement as it was understood or as the controller shows it. Its workload is
    the name of its type. The terms of the other side are left out, and so are empty values, which a file omits."""
    other = _OTHER.get(str(agreement.get("workload")), "")
    table = {key: value for key, value in agreement.items() if key not in (other, "type")}
    table["workload"] = agreement.get("type") or agreement.get("workload")
    table |= {key: _said(value) for key, value in table.items() if isinstance(value, Mapping) and key != FREE}
    if isinstance(table.get(RESERVED), Mapping):
        table[RESERVED] = table_of_terms(table[RESERVED])
    return _said(table)


def _said(table: Table) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None and value not in ("", [], (), {})}


def to_toml(table: Table) -> str:
    """Return the text of a TOML file with these keys. Raises `InvalidInput` for a value that TOML cannot express
    (null)."""
    return "\n".join(_lines(table, "")).lstrip("\n") + "\n"


def _lines(table: Table, path: str) -> Iterator[str]:
    """Plain values first: a heading would take those that follow it."""
    headed = {key: value for key, value in table.items() if isinstance(value, Mapping) or _is_list_of_tables(value)}
    for key, value in table.items():
        if key not in headed:
            yield f"{_key(key)} = {_value(value, path + key)}"
    for key, value in headed.items():
        dotted = path + _key(key)
        if isinstance(value, Mapping):
            yield f"\n[{dotted}]"
            yield from _lines(value, dotted + ".")
            continue
        for item in value:
            yield f"\n[[{dotted}]]"
            yield from (f"{_key(name)} = {_value(inner, dotted + '.' + name)}" for name, inner in item.items())


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)  # TOML writes inf and nan as Python does
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item, path) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item, path)}" for key, item in value.items()) + "}"
    raise InvalidInput(Problem(path[:80], "cannot be said in TOML", "text, numbers, true, false, arrays and tables"))
