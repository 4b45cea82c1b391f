"""How files of users are read: regular files alone, and never more of them than is said.

A device, a pipe, a socket and a folder are refused without waiting for them; what is packed with gzip counts as it is
when unpacked. Everything that is wrong becomes `InvalidInput`, which names the file and, where there is one, the line.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from shared.base.errors import InvalidInput, Problem

LINE_BYTES_MAX = 1 << 16
LINES_MAX = 1_000_000
_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def opened(path: Path, expected: str, unpack: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for reading from its start; with `unpack`, the unpacked data of a packed file. Raises `InvalidInput`
    with the `expected` form, also for errors while it is read."""
    try:
        with _regular(path, expected) as file:
            packed = unpack and file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
            if packed:
                with io.BufferedReader(gzip.GzipFile(fileobj=file)) as unpacked:
                    yield unpacked
            else:
                yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidInput(Problem(str(path), f"broken gzip data: {error}", expected)) from error
    except OSError as error:
        raise InvalidInput(Problem(str(path), error.strerror or str(error), expected)) from error


def _regular(path: Path, expected: str) -> IO[bytes]:
    """Open a regular file. A pipe does not block: the type is checked before reading."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:  # a null byte
        raise InvalidInput(Problem(repr(str(path)), str(error), expected)) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        what = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
        raise InvalidInput(Problem(str(path), what, expected))
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, expected: str, bytes_max: int) -> bytes:
    """Read a whole file. Raises `InvalidInput`."""
    with opened(path, expected) as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise InvalidInput(Problem(str(path), "too large", f"at most {bytes_max} bytes"))
    return content


def read_lines(
    path: Path,
    expected: str,
    bytes_max: int,
    *,
    lines_max: int = LINES_MAX,
    encoding: str = "utf-8",
) -> Iterator[str]:
    """Yield the lines of a text, plain or gzip, with their line ends and without a byte order mark. Raises
    `InvalidInput` for a line of more than LINE_BYTES_MAX bytes, for too many lines, and for text that is not in the
    encoding."""
    size = 0
    with opened(path, expected, unpack=True) as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            size += len(line)
            if number > lines_max:
                raise InvalidInput(Problem(str(path), "too many lines", f"at most {lines_max:,}"))
            if len(line) > LINE_BYTES_MAX:
                raise InvalidInput(Problem(f"{path}:{number}", "too long a line", f"at most {LINE_BYTES_MAX:,} bytes"))
            if size > bytes_max:
                raise InvalidInput(Problem(str(path), "too large", f"at most {bytes_max} bytes unpacked"))
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                raise InvalidInput(Problem(f"{path}:{number}", "not UTF-8", expected)) from error
            yield text.removeprefix("\ufeff") if number == 1 else text
