"""What is peculiar to a JSON file that someone wrote by hand: how it is parsed; `shared.config.records` reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import read_bytes
from shared.base.read_json import parse_json
from shared.config.records import ECHO_LENGTH_MAX, PROBLEMS_MAX

FILE_BYTES_MAX = 24 << 20


class _Repeating(dict[str, Any]):
    """An object that has keys more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]


def parse_file(path: Path) -> Any:
    """Parse a JSON file. Raises `InvalidInput` for one that cannot be read, is not JSON, or has keys twice."""
    repeating: list[_Repeating] = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        repeating.append(_Repeating(pairs))
        return repeating[-1]

    raw = parse_json(read_bytes(path, "a JSON file", FILE_BYTES_MAX), str(path), pairs=made)
    if repeating:
        found = islice(_repeated(raw), PROBLEMS_MAX)
        raise InvalidInput(*(Problem(f"{path}: {key}", "is there more than once", "every key once") for key in found))
    return raw


def _repeated(raw: Any) -> Iterator[str]:
    """Yield the place of each repeated key. A parsed file may be nested more deeply than the call stack allows."""
    left = [("", raw)]
    while left:
        path, inner = left.pop()
        if isinstance(inner, _Repeating):
            yield from (_join(path, key) for key in inner.repeated)
        if isinstance(inner, dict):
            left += [(_join(path, key), item) for key, item in reversed(inner.items())]
        elif isinstance(inner, list):
            left += [(f"{path}[{index}]", item) for index, item in reversed([*enumerate(inner)])]


def _join(path: str, key: str) -> str:
    shown = key if len(key) <= ECHO_LENGTH_MAX else key[:ECHO_LENGTH_MAX] + "..."
    return f"{path}.{shown}" if path else shown
