"""Read a TOML file into frozen values, or report every problem in it at once: `load` and `parse`.

A dataclass defines the keys of a file, as `shared.config.records` reads it.
"""

from __future__ import annotations

import codecs
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import TypeVar

from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import read_bytes
from shared.config.records import ECHO_LENGTH_MAX, read

T = TypeVar("T")

FILE_BYTES_MAX = 1 << 20
KEY_PARTS_MAX = 32
# The parser takes time by the square of a key's parts, minutes for a text of some hundred kB. Linear: words are taken
# whole, from their beginnings.
_PART = r"""(?:(?<![\w-])[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{KEY_PARTS_MAX}}}")


def load(path: str | Path, cls: type[T]) -> T:
    """Return the configuration in a TOML file. Raises `InvalidInput` with one `Problem` for each error."""
    content = read_bytes(Path(path), "a TOML file", FILE_BYTES_MAX)
    if content.startswith(codecs.BOM_UTF8):
        raise InvalidInput(Problem(f"{path}:1", "begins with a byte order mark", "TOML in UTF-8 without one"))
    try:
        return parse(content.decode(), cls, str(path))
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise InvalidInput(Problem(f"{path}:{line}", "not UTF-8", "text in UTF-8")) from problem


def parse(text: str, cls: type[T], name: str = "configuration") -> T:
    """Return the configuration in TOML `text`; `name` is the place named in problems. Raises `InvalidInput`."""
    if _LONG_KEY.search(text) is not None:
        raise InvalidInput(Problem(name, "a key has too many parts", f"at most {KEY_PARTS_MAX} with dots between"))
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        place = re.search(r" \(at line (\d+), column (\d+)\)$", str(problem))
        where = f"{name}:{place[1]}:{place[2]}" if place else name
        what = str(problem)[: place.start()] if place else str(problem)
        raise InvalidInput(Problem(where, what[:ECHO_LENGTH_MAX], "TOML")) from problem
    except ValueError as problem:  # a number of thousands of digits
        raise InvalidInput(Problem(name, str(problem)[:ECHO_LENGTH_MAX], "TOML")) from problem
    except RecursionError as problem:
        raise InvalidInput(Problem(name, "nested too deeply", "TOML")) from problem
    return read(table, cls, name, _lines(text))


_HEADER = re.compile(r"\s*\[\s*([\w.\-\"' ]+?)\s*\]\s*(#.*)?")
_ARRAY = re.compile(r"\s*\[\[\s*([\w.\-\"' ]+?)\s*\]\]\s*(#.*)?")
_ENTRY = re.compile(r"\s*([\w.\-\"' ]+?)\s*=")


def _lines(text: str) -> dict[str, int]:
    """Return the line of each dotted key, found by its form (a key inside a multi-line string may be mistaken for
    one)."""
    found: dict[str, int] = {}
    section = ""
    tables: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            found.setdefault(_bare(header[1]), number)
            section = _bare(header[1]) + "."
        elif array := _ARRAY.fullmatch(line):
            name = _bare(array[1])
            section = f"{name}[{tables[name]}]."
            tables[name] += 1
            found.setdefault(section[:-1], number)
        elif entry := _ENTRY.match(line):
            found.setdefault(section + _bare(entry[1]), number)
    return found


def _bare(dotted: str) -> str:
    return re.sub(r"[\s\"']", "", dotted)
