"""A cache of tables in memory that computes at once what it lacks: for simulations."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from daemons.decision.tables.making import Spec, Table, made, name_of, size_bytes

BYTES_MAX = 1 << 30


class Remembered:
    """Tables by name, the least recently used ones dropped where they take more than `bytes_max`."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._tables: OrderedDict[str, tuple[Table, int]] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> Table | None:
        """Return the table, None if it is not cached."""
        if name not in self._tables:
            return None
        self._tables.move_to_end(name)
        return self._tables[name][0]

    def put(self, name: str, table: Table) -> None:
        """Remember a table, unless it alone is too large."""
        size = size_bytes(table)
        if name in self._tables or size > self.bytes_max:
            return
        self._tables[name] = (table, size)
        self._bytes += size
        while self._bytes > self.bytes_max:
            _, (_, dropped) = self._tables.popitem(last=False)
            self._bytes -= dropped

    def __len__(self) -> int:
        return len(self._tables)


class MemoryTables:
    """Computes a table when it is first asked for, and remembers it. `built` counts how often it had to compute."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._remembered = Remembered(bytes_max)
        self.built = 0

    def __call__(self, spec: Any, /) -> Any:
        """Return the table; None for a spec that has no table."""
        if not isinstance(spec, Spec):
            return None
        name = name_of(spec)
        table = self._remembered.get(name)
        if table is None:
            table = self._made(spec)
            self._remembered.put(name, table)
        return table

    def _made(self, spec: Spec) -> Table:
        self.built += 1
        return made(spec)
