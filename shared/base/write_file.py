"""File writing for commands. A new file is written beside the old one, synced to disk, then renamed: readers see the
whole new file or the old one.

A failure to write is reported in words, with the option that named the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from shared.base.errors import InvalidInput, Problem

FILE_MODE = 0o666  # less what the umask takes
PROBE = b"\0" * 4096
_numbers = count()


def write_file(option: str, path: Path, content: str | bytes, *, new: bool = False, mode: int | None = None) -> None:
    """Write a file, text as UTF-8, in place of the old one; `new`: only if none exists. An existing file keeps its
    mode, unless `mode` is given; a link keeps its target; something that is not a file (a terminal, a pipe) is written
    to directly. Raises InvalidInput naming the option `option`."""
    body = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with _in_words(option, path):
        if not new and path.exists() and not path.is_file():
            _write_to(path, body)
            return
        target = path if new else Path(os.path.realpath(path))
        beside = _written_beside(target, body, mode)
        try:
            if new:
                os.link(beside, target)
                beside.unlink()
            else:
                beside.replace(target)
        except BaseException:
            _remove(beside)
            raise
        _sync_folder(target.parent)


def _write_to(path: Path, body: bytes) -> None:
    """Write to a device; a pipe without a reader does not block."""
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as device:
        device.write(body)


def check_writable(option: str, path: Path, *, new: bool = False) -> None:
    """Find out before the work whether `write_file` would succeed now, as far as can be known. Raises what it does."""
    with _in_words(option, path):
        try:
            path.lstat()  # also says when a name is too long
        except FileNotFoundError:
            pass
        else:
            if new:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if path.exists() and not path.is_file():
                return
        _remove(_written_beside(Path(os.path.realpath(path)), PROBE, None))


def make_folder(option: str, folder: Path) -> None:
    """Create a folder with its parents, if it is missing, and check that files can be written to it. Raises
    InvalidInput naming the option `option`."""
    with _in_words(option, folder, "a folder that can be written to"):
        folder.mkdir(parents=True, exist_ok=True)
        _remove(_written_beside(folder / "x", PROBE, None))


@contextmanager
def _in_words(option: str, path: Path, expected: str = "a file that can be written") -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise InvalidInput(Problem(option, f"{path} is there already", "the name of a new file")) from error
    except (OSError, ValueError) as error:  # a null byte in a path is a ValueError
        what = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(Problem(option, f"{path}: {what}", expected)) from error


def _written_beside(target: Path, body: bytes, mode: int | None) -> Path:
    """Create a new file with `body` in the folder of `target`, synced to disk."""
    beside = target.with_name(f".trimtab-{os.getpid()}-{next(_numbers)}.new")
    beside.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(beside, flags, FILE_MODE if mode is None else mode), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            elif target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        _remove(beside)
        raise
    return beside


def _remove(beside: Path) -> None:
    with contextlib.suppress(OSError):
        beside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
