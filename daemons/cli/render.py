"""Views of the controller for people: numbers with their units, rows as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from daemons.cli.tables import stacked, table
from daemons.values.text_format import (
    DASH,
    duration_text,
    is_known,
    memory_text,
    number_text,
    percent_text,
    significant_text,
    time_text,
)
from shared.base.printable import one_line
from shared.values.utc import EPOCH_S

LINE_MAX = 100  # characters of a value beyond which what it holds becomes a table of its own
FAILURES_MAX = 10  # VMs of one workload whose failures are told
_UNITS = (("_mhz", "MHz"), ("_mcycles", "Mcycles"))
_NAMED = ("_at_s", "_s", "_frac", "_pct", "_mib", *(suffix for suffix, _ in _UNITS))


PORTS = ("port", "listen")  # numbers that are names
WAITS = "waits_for"


def shown(key: str, value: Any) -> str:
    """Return one value in words; the end of its key gives the unit. A table with a `text` is shown as that text, a wait
    reason as its `words`."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        if key == WAITS and value.get("words"):
            return shown("words", value["words"])
        if value.get("text"):
            return shown("text", value["text"])
        return ", ".join(f"{_title(name)} {shown(name, part)}" for name, part in value.items()) or "-"
    if isinstance(value, Iterable):
        return ", ".join(shown(key, part) for part in value) or "-"
    return _number(key, value)


def _number(key: str, value: float) -> str:
    if not is_known(value):
        return DASH
    if key.endswith("_per_s"):
        return f"{significant_text(value)}/s"
    if key.endswith("_s"):
        return time_text(value) if value > EPOCH_S else duration_text(value)
    if key.endswith("_frac"):
        return percent_text(value)
    if key.endswith("_pct"):
        return percent_text(value / 100)
    if key.endswith("_mib"):
        return memory_text(value)
    if key in PORTS:
        return f"{value}"
    return number_text(value) + next((f" {unit}" for suffix, unit in _UNITS if key.endswith(suffix)), "")


def listing(
    title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], least: Sequence[str] = ()
) -> RenderableType:
    """Return a table of the given keys, limited to those that some row has. least: keys of the columns to drop first if
    there is no room for all, the least important first."""
    present = [name for name in columns if any(name in row for row in rows)]
    heads = [_title(name) for name in present]
    cells = [[shown(name, row.get(name)) for name in present] for row in rows]
    return table(title, heads, cells, [_title(name) for name in least])


def record(title: str, values: Mapping[str, Any], empty: bool = True) -> RenderableType:
    """Return one thing: its plain values as a table of two columns, nested values as separate tables below. Unless
    `empty`, unknown and missing values are left out."""
    plain = Table(title=title, show_header=False, box=None, title_justify="left", min_width=min(len(title), LINE_MAX))
    plain.add_column(no_wrap=True)
    plain.add_column(max_width=LINE_MAX)  # where there is no terminal, lines are as long as they like
    below: list[RenderableType] = []
    for name, value in values.items():
        if not empty and (value is None or value == "" or value == [] or value == {}):
            continue
        if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            below.append(listing(_title(name), value, list(dict.fromkeys(key for row in value for key in row))))
            continue
        text = shown(name, value)
        if isinstance(value, Mapping) and len(text) > LINE_MAX:
            below.append(record(_title(name), value, empty))
        else:
            plain.add_row(_title(name), Text(text))
    return stacked(plain, *below) if plain.row_count or not below else stacked(Text(title), *below)


def failures(rows: Iterable[Mapping[str, Any]]) -> list[RenderableType]:
    """Return the last failures of VMs, one line each, the newest first."""
    told = [(row["last_failure"]["at_s"], row["vm"], row["last_failure"]) for row in rows if row.get("last_failure")]
    told.sort(key=lambda one: (-one[0], one[1]))
    lines = [f"{vm} failed at {time_text(at_s)}: {failure['text']}" for at_s, vm, failure in told[:FAILURES_MAX]]
    more = [f"and {len(told) - FAILURES_MAX} others"] if len(told) > FAILURES_MAX else []
    return [Text(line) for line in (*lines, *more)]


def rows_of(data: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the rows of a view that is a list, or holds one under `name`."""
    found = data.get(name, ()) if isinstance(data, Mapping) else data
    return [row for row in found or () if isinstance(row, Mapping)]


def _title(key: str) -> str:
    """Return a key in words, without the unit that its values show."""
    suffix = next((suffix for suffix in _NAMED if key.endswith(suffix)), "")
    return key.removesuffix(suffix).replace("_", " ")
