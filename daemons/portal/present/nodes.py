"""What the pages say of nodes beyond the rows of the views: their state, how full they are, the grid of all. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from daemons.portal.present.formatting import percent
from daemons.portal.present.pagination import name_key

Row = Mapping[str, Any]

# A node is in one of these; each has a colour, a shape and a word.
STATES = {
    "in-service": "in service",
    "draining": "draining",
    "waking": "waking",
    "standby": "in standby",
    "off": "off",
    "failed": "failed",
    "unknown": "unknown",
}
BARS = 10  # heights of a cell's bar


def node_url(name: str) -> str:
    """Return the page of a node."""
    return f"/nodes/{quote(name, safe='')}"


def state_of(row: Row) -> str:
    """Return one word for node health and scheduling state: the most serious obstacle comes first."""
    if row["condition"] == "unknown":
        return "unknown"
    if row["service"] == "failed" or row["handover"] == "failed":
        return "failed"
    if row["condition"] == "off" and row["service"] in ("in-service", "draining"):
        return "off"
    return str(row["service"])


def states(rows: Iterable[Row]) -> dict[str, int]:
    """Return the number of nodes in each state."""
    counts = Counter(state_of(row) for row in rows)
    return {state: counts[state] for state in STATES}


def cpu_frac(row: Row) -> float | None:
    """Return the part of its CPU that is used, 0 to 1; None: unknown."""
    return _part(row["cpu"]["used_mhz"], row["cpu"]["capacity_mhz"])


def memory_frac(row: Row) -> float | None:
    """Return the part of its memory that VMs hold or may hold; None: unknown."""
    cap, free = row["memory"]["capacity_mib"], row["memory"]["free_mib"]
    return None if cap is None or free is None else _part(cap - free, cap)


def _part(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else min(max(value / whole, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Use:
    """How busy the nodes that are up are together, each 0 to 1; None: not known."""

    cpu_frac: float | None
    memory_frac: float | None
    iowait_frac: float | None


def use_of(rows: Iterable[Row]) -> Use:
    """Return the use of all nodes that are up: CPU and memory of the capacity of those that reported them, mean I/O
    wait."""
    up = [row for row in rows if row["condition"] == "up"]
    cpu = [row["cpu"] for row in up if row["cpu"]["used_mhz"] is not None]
    memory = [row["memory"] for row in up if row["memory"]["free_mib"] is not None]
    waits = [row["iowait_frac"] for row in up if row["iowait_frac"] is not None]
    room_mib = sum(one["capacity_mib"] for one in memory)
    return Use(
        _part(sum(one["used_mhz"] for one in cpu), sum(one["capacity_mhz"] for one in cpu)),
        _part(room_mib - sum(one["free_mib"] for one in memory), room_mib),
        sum(waits) / len(waits) if waits else None,
    )


def by_name(rows: Sequence[Row]) -> list[Row]:
    """Return the rows in the order of their names, n9 before n10."""
    return sorted(rows, key=lambda row: name_key(row["name"]))


def grid(rows: Sequence[Row]) -> Markup:
    """Return a small link for each node: its state as class, CPU as height of its bar, all of it in words as the
    title."""
    return Markup("".join(_cell(row) for row in by_name(rows)))


def _cell(row: Row) -> str:
    name, state, cpu = row["name"], state_of(row), cpu_frac(row)
    bar = "" if cpu is None else f" u{round(BARS * cpu)}"
    words = f'href="{node_url(name)}" title="{escape(in_words(row))}"'
    return f'<a id="g-{escape(name)}" class="cell {escape(state)}{bar}" {words}></a>'


def in_words(row: Row) -> str:
    """Describe a node in one line."""
    parts = [f"{row['name']}: {STATES.get(state_of(row), state_of(row))}"]
    for what, value in (("CPU", cpu_frac(row)), ("memory", memory_frac(row)), ("I/O wait", row["iowait_frac"])):
        if value is not None:
            parts.append(f"{what} {percent(value)}")
    return ", ".join(parts)
