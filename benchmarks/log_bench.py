"""Reading a log of 18,000 lines: all checks of `read_swf` beside a reader that checks nothing."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from benchmarks.runner import Bench, Case
from daemons.capacity.swf import read_swf

LINES = 18_000


def bench(data_folder: Path | None) -> Bench:
    """The log is made here: its content does not matter, so `data_folder` is not used."""
    del data_folder
    lines = [f"{n:6} {n * 60:8} -1 {n % 5_000:6} {n % 128 + 1:4}" + "  -1" * 13 for n in range(1, LINES + 1)]
    content = gzip.compress("\n".join(lines).encode())

    def plain() -> object:
        return sum(len([float(word) for word in line.split()]) > 0 for line in _lines(content))

    def checked() -> object:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            return len(read_swf(file.name))

    return Bench(f"reading {LINES} lines of a log", (Case("plain", plain), Case("read_swf", checked)))


def _lines(content: bytes) -> list[str]:
    return gzip.decompress(content).decode().splitlines()
