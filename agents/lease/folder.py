"""Lease files in a folder that all hosts share: NODE.lease, a JSON object that fills one record of fixed size.

Each is written in place, in one piece, so that a reader never sees half of it. The folder is never created, and holds a
file that the operator has created once: a mount point without its file system has none, and is not shared.

A lease file is opened for each renewal, and stays open until the next one is: an NFS server then gives no reader a
delegation, which would let it read without asking and hold up the next renewal. Readers open each file for each look:
an NFS client asks the server then what is in it (close-to-open; not with the mount option `nocto`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Final

import msgspec

from shared.base.errors import InvalidValue, TransientError
from shared.values.lease import SUFFIX, Lease
from shared.values.scalars import EXACT_MAX
from shared.values.texts import TextForm, fits

MARK: Final = "trimtab-leases"
RECORD_BYTES: Final = 512  # of one sector: disks write it whole
FILES_MAX: Final = 4_096  # looked at in one folder
MODE = 0o644
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# No link is followed, and nothing but a file is waited for: who may write to the folder decides what is in it.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderUnusable(TransientError):
    """The folder of the leases is not there, is not the shared one, or cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a folder, by node: leases, and why others cannot be read."""

    leases: dict[str, Lease] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)


class LeaseFile:
    """The lease of one node in a folder."""

    def __init__(self, folder: str, node: str) -> None:
        self._folder, self._node = folder, node
        self._fd = -1

    def look(self) -> Lease | None:
        """Return the lease that the file holds (None: none that can be read). Raises FolderUnusable."""
        with _opened(self._folder) as folder:
            try:
                return _read(folder, self._node)
            except (InvalidValue, FileNotFoundError):
                return None

    def write(self, lease: Lease) -> None:
        """Write a lease; other hosts see it before this returns. Raises FolderUnusable; others may see it all the
        same."""
        record = encoded(lease)
        with _opened(self._folder) as folder:
            # Opened anew each time: where something else has been mounted, what is open is not what others read.
            fd = os.open(self._node + SUFFIX, os.O_WRONLY | os.O_CREAT | _SAFE, MODE, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.EINVAL, "the lease is not a regular file")
                if os.pwrite(fd, record, 0) != len(record):
                    raise OSError(errno.EIO, "the lease was written in part")
                os.fsync(fd)
            except BaseException:
                os.close(fd)
                raise
            fd, self._fd = self._fd, fd
            if fd >= 0:
                os.close(fd)


def check(folder: str) -> None:
    """Raise FolderUnusable unless the folder is there and is the shared one."""
    with _opened(folder):
        return


def read_all(folder: str) -> Found:
    """Return the leases in a folder. A file that vanishes meanwhile is not there. Raises FolderUnusable."""
    found = Found()
    with _opened(folder) as handle, os.scandir(handle) as entries:
        names = (entry.name for entry in entries if entry.name.endswith(SUFFIX))
        for name in sorted(islice(names, FILES_MAX)):
            node = name.removesuffix(SUFFIX)
            try:
                found.leases[node] = _read(handle, node)
            except FileNotFoundError:
                continue
            except OSError as error:
                found.invalid[node] = error.strerror or str(error)
            except InvalidValue as error:
                found.invalid[node] = str(error)
    return found


def encoded(lease: Lease) -> bytes:
    """Return the record of a lease. Raises InvalidValue when it does not fit into one."""
    text = msgspec.json.encode(asdict(lease))
    if len(text) >= RECORD_BYTES:
        raise InvalidValue("lease", lease.node, f"a name that leaves the lease below {RECORD_BYTES} bytes")
    return text.ljust(RECORD_BYTES - 1) + b"\n"


def decoded(record: bytes, node: str) -> Lease:
    """Return the lease in a record of the file of a node. Raises InvalidValue."""
    try:
        lease = msgspec.json.decode(record, type=Lease)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(node + SUFFIX, bytes(record[:40]), "a lease") from error
    if lease.node != node:
        raise InvalidValue(node + SUFFIX, lease.node, "a lease of this node")
    if not (fits(lease.node, TextForm.WORD) and fits(lease.boot_id, TextForm.WORD)):
        raise InvalidValue(node + SUFFIX, lease.boot_id, "names without spaces")
    if lease.proof_s > EXACT_MAX:
        raise InvalidValue(node + SUFFIX, lease.proof_s, "a smaller proof_s")
    return lease


def _read(folder: int, node: str) -> Lease:
    """Return the lease of a node in an open folder. Raises OSError and InvalidValue."""
    fd = os.open(node + SUFFIX, os.O_RDONLY | _SAFE, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidValue(node + SUFFIX, "something else", "a regular file")
        record = os.pread(fd, RECORD_BYTES + 1, 0)
    finally:
        os.close(fd)
    if not record:
        raise FileNotFoundError(errno.ENOENT, "the first lease is not written yet")
    if len(record) != RECORD_BYTES:
        raise InvalidValue(node + SUFFIX, f"{len(record)} bytes or more", f"{RECORD_BYTES} bytes")
    return decoded(record, node)


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Open the shared folder: what is looked at and written is in the one that has the mark, whatever is mounted there
    meanwhile."""
    try:
        handle = os.open(folder, _FOLDER_FLAGS)
        try:
            _check_mark(folder, handle)
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        raise FolderUnusable(f"{folder}: {error.strerror or error}") from error


def _check_mark(folder: str, handle: int) -> None:
    try:
        os.stat(MARK, dir_fd=handle)
    except FileNotFoundError:
        raise FolderUnusable(
            f"{folder} has no file {MARK}: perhaps the shared storage is not mounted there. If this is the shared "
            f"storage, create the file once: touch {folder}/{MARK}"
        ) from None
