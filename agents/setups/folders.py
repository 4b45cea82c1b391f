"""Folders and files below a folder of Trimtab's: no path leads out of it, not even through symbolic links.

Everything is opened part by part, each relative to the one before, without following links.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shared.base.deadline import Deadline
from shared.base.errors import PermanentError

CHUNK_BYTES = 1 << 20
FOLDER_MODE = 0o755
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Write = Callable[[int], str]


class WrongDigest(PermanentError):
    """What was fetched is not what the agreement says."""

    code = "wrong-digest"

    def __init__(self, what: str, found: str, wanted: str) -> None:
        super().__init__(f"{what} has the SHA-256 digest {found}, not {wanted}")


def digest_of(fd: int, deadline: Deadline) -> str:
    """Return the SHA-256 digest of an open file, in hexadecimal."""
    digest = hashlib.sha256()
    at = 0
    while chunk := os.pread(fd, CHUNK_BYTES, at):
        deadline.left_s()
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()


@contextmanager
def opened(folder: str, path: str) -> Iterator[int]:
    """Open a regular file below a folder for reading. Raises OSError if there is none, or links are on the way."""
    *parts, name = _steps(path)
    with _descended(os.open(folder, _FOLDER & ~os.O_NOFOLLOW), parts, make=False) as at:
        fd = os.open(name, _READ, dir_fd=at)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "is no regular file")
            yield fd
        finally:
            os.close(fd)


def placed(folder: str, path: str, sha256: str, mode: int, write: Write, deadline: Deadline) -> bool:
    """Have a file with this digest at `path` below `folder`, making both; false when it was there already.

    write: fills the new file, of which it gets the descriptor, and says its digest. The file takes its place when it is
    whole and on the disk. Raises WrongDigest, OSError and what `write` raises; then there is what was there before.
    """
    *parts, name = _steps(path)
    if not os.path.isdir(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.chmod(folder, FOLDER_MODE)  # whatever the mask of this process: others read what is there
    with _descended(os.open(folder, _FOLDER & ~os.O_NOFOLLOW), parts, make=True) as at:
        if _is_there(at, name, sha256, mode, deadline):
            return False
        new = f".new-{hashlib.sha256(name.encode()).hexdigest()[:16]}"  # what a crash has left of it is in the way
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=at)
        fd = os.open(new, _NEW, 0o600, dir_fd=at)
        try:
            found = write(fd)
            if found != sha256:
                raise WrongDigest(path, found, sha256)
            os.fchmod(fd, mode)
            os.fsync(fd)
            os.rename(new, name, src_dir_fd=at, dst_dir_fd=at)
            os.fsync(at)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=at)
            raise
        finally:
            os.close(fd)
    return True


def removed(folder: str, name: str) -> bool:
    """Remove the folder `name` in `folder` with all that is in it; false when there was none. No link is followed."""
    steps = _steps(name)
    try:
        shutil.rmtree(Path(folder, *steps))
    except FileNotFoundError:
        return False
    return True


def _steps(path: str) -> list[str]:
    """Return the parts of a path that leads only downwards."""
    steps = path.split("/")
    if any(step in ("", ".", "..") or "\0" in step for step in steps):
        raise PermanentError(f"{path!r} is no path below a folder")
    return steps


def _is_there(at: int, name: str, sha256: str, mode: int, deadline: Deadline) -> bool:
    try:
        fd = os.open(name, _READ, dir_fd=at)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False  # a link, which is replaced
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EEXIST, f"{name} is something else than a file")
        if found.st_nlink > 1 or digest_of(fd, deadline) != sha256:
            return False
        os.fchmod(fd, mode)
        return True
    finally:
        os.close(fd)


@contextmanager
def _descended(fd: int, parts: list[str], *, make: bool) -> Iterator[int]:
    """Yield the folder that lies below another; closes both."""
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, FOLDER_MODE, dir_fd=fd)
            try:
                below = os.open(part, _FOLDER, dir_fd=fd)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise PermanentError(f"{part} is a link, or no folder: nothing is put there") from error
                raise
            os.close(fd)
            fd = below
            if make:
                os.fchmod(fd, FOLDER_MODE)
        yield fd
    finally:
        os.close(fd)
