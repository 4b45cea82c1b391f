"""An agent's journal on disk: what was appended is there after a crash, or the agent did not act on it.

The file is a line of text and then frames, one per append: a mark, the body's length and CRC-32, and the body, which
is a sequence of records, each with its length and the name of its class. A frame is written whole or, after a crash,
is the last and torn one and dropped. A frame that is damaged before others is an error that nobody papers over.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.core.journal import RECORDS, JournalRecord, JournalState
from shared.base.errors import CodecError, InvalidInput, Problem, StoreUnavailable
from shared.protocol.codec import pack, unpack

HEADING = b"trimtab journal 1\n"
MARK = b"\xf5TTJ"
FRAME = struct.Struct(">4sII")  # mark, bytes of the body, CRC-32 of the body
PART = struct.Struct(">IB")  # bytes of the record, bytes of its class's name
COMPACT_BYTES = 1 << 20
FRAME_BYTES_MAX = 1 << 30
MODE = 0o600

_CLASSES: dict[bytes, type[JournalRecord]] = {cls.__name__.encode(): cls for cls in RECORDS}


class DiskJournal:
    """Implements `shared.ports.agent.Journal`; belongs to one process at a time.

    Compacts itself into a new file once it has grown by `compact_bytes` since it was last compact, in however many
    lives of the process, at an append or at opening. Opening raises StoreUnavailable when another process holds it or
    the disk does not work, InvalidInput when it is damaged.
    `dropped_bytes`: what a crash left of an append that was never complete.
    """

    def __init__(self, path: str | Path, compact_bytes: int = COMPACT_BYTES) -> None:
        self.path = Path(path)
        self.dropped_bytes = 0
        self.compactions = 0
        self._compact_bytes = compact_bytes
        self._broken = ""
        self._lock_fd = -1
        self._fd = -1
        try:
            self._lock_fd = _lock(self.path)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
            self._size, first = self._mend()
            self._compact_at = first + compact_bytes  # a compacted journal begins with one frame that says it all
            if self._size > self._compact_at:
                self._compact()
        except OSError as error:
            self.close()
            raise StoreUnavailable(f"the journal {self.path} cannot be opened: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    @property
    def size_bytes(self) -> int:
        """How long its file is."""
        return self._size

    def append(self, record: Any) -> None:
        """Make a record durable before returning; see `append_all`."""
        self.append_all((record,))

    def append_all(self, records: Sequence[Any]) -> None:
        """Make records durable together, all or none, before returning. Raises StoreUnavailable when the disk is full
        or does not work; what was not written then is not there."""
        if not records:
            return
        if self._broken:
            raise StoreUnavailable(self._broken)
        frame = _frame(records)
        try:
            _write_at(self._fd, frame, self._size)
            os.fdatasync(self._fd)
        except OSError as error:
            self._take_back(error)
        self._size += len(frame)
        if self._size > self._compact_at:
            self._compact()

    def records(self) -> tuple[Any, ...]:
        """Records that say what all those appended say, oldest first."""
        return self._state().compact() if self._size > len(HEADING) else ()

    def close(self) -> None:
        """Give the journal up; another process may open it then."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1
        self._broken = self._broken or "the journal is closed"

    def _take_back(self, error: OSError) -> None:
        """Remove what was written of an append that failed. If even that fails, no later append can be trusted."""
        text = f"the journal {self.path} cannot be written: {error.strerror}; make room on its disk"
        try:
            os.ftruncate(self._fd, self._size)
            os.fdatasync(self._fd)
        except OSError as second:
            self._broken = f"{text} ({second.strerror} while repairing it)"
        raise StoreUnavailable(text) from error

    def _mend(self) -> tuple[int, int]:
        """Begin a new file, or check this one and cut off what a crash has torn; returns its size, and where its first
        frame ends."""
        whole = _read_whole(self._fd)
        if len(whole) < len(HEADING) and HEADING.startswith(whole):
            _write_at(self._fd, HEADING, 0)
            os.fsync(self._fd)
            _sync_folder(self.path)
            return len(HEADING), len(HEADING)
        if not whole.startswith(HEADING):
            raise InvalidInput(Problem(str(self.path), "is no journal of this version", repr(HEADING.decode())))
        first = size = len(HEADING)
        for body, end in _frames(whole, size, self.path):
            _check(body, size, self.path)
            first, size = end if first == len(HEADING) else first, end
        if size < len(whole):
            self.dropped_bytes = len(whole) - size
            os.ftruncate(self._fd, size)
            os.fsync(self._fd)
        return size, first

    def _state(self) -> JournalState:
        whole = _read_whole(self._fd)
        frames = _frames(whole[: self._size], len(HEADING), self.path)
        return JournalState(record for body, _ in frames for record in _records(body))

    def _compact(self) -> None:
        """Write an equivalent shorter journal beside this one and put it in its place. A disk that is too full for
        that leaves this one as it is, to be tried again later."""
        fresh = self.path.with_name(self.path.name + ".new")
        content = HEADING + _frame(self._state().compact())
        fd = -1
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
            _write_at(fd, content, 0)
            os.fsync(fd)
            os.rename(fresh, self.path)
        except OSError:
            if fd >= 0:
                os.close(fd)
            with suppress(OSError):
                fresh.unlink()
            self._compact_at = self._size + self._compact_bytes
            return
        os.close(self._fd)
        self._fd, self._size = fd, len(content)
        self._compact_at = self._size + self._compact_bytes
        self.compactions += 1
        try:
            _sync_folder(self.path)
        except OSError as error:
            # Which of the two files a crash would leave is not known: nothing more may be built on either.
            self._broken = f"the journal {self.path} cannot be kept: {error.strerror}"


def _frame(records: Sequence[Any]) -> bytes:
    body = b"".join(_part(record) for record in records)
    return FRAME.pack(MARK, len(body), zlib.crc32(body)) + body


def _part(record: Any) -> bytes:
    cls = type(record)
    name = cls.__name__.encode()
    packed = pack(record, cls)
    return PART.pack(len(packed), len(name)) + name + packed


def _records(body: bytes) -> Iterator[JournalRecord]:
    """Yield the records of a frame. Raises CodecError for a record that this version does not know."""
    at = 0
    while at < len(body):
        length, name_length = PART.unpack_from(body, at)
        at += PART.size
        name = body[at : at + name_length]
        at += name_length
        cls = _CLASSES.get(name)
        if cls is None:
            raise CodecError(f"no record is called {name!r}")
        yield unpack(body[at : at + length], cls)
        at += length


def _frames(whole: bytes, at: int, path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the bodies of the frames from `at` on, each with its end position, up to a torn last frame."""
    while at < len(whole):
        body = _body(whole, at)
        if body is None:
            if _any_frame(whole, at + 1):
                raise InvalidInput(_damaged(path, at, "bytes are not what was written"))
            return
        at += FRAME.size + len(body)
        yield body, at


def _body(whole: bytes, at: int) -> bytes | None:
    """Return the body of the frame at `at`; None if no complete, intact frame is there."""
    if len(whole) - at < FRAME.size:
        return None
    mark, length, crc = FRAME.unpack_from(whole, at)
    body = whole[at + FRAME.size : at + FRAME.size + length]
    sound = mark == MARK and 0 < length <= FRAME_BYTES_MAX and len(body) == length and zlib.crc32(body) == crc
    return body if sound else None


def _any_frame(whole: bytes, at: int) -> bool:
    """Return whether an intact frame begins anywhere from `at` on."""
    while (at := whole.find(MARK, at)) >= 0:
        if _body(whole, at) is not None:
            return True
        at += 1
    return False


def _check(body: bytes, at: int, path: Path) -> None:
    """Raise InvalidInput unless every record of a frame can be read."""
    try:
        for _ in _records(body):
            pass
    except CodecError as error:
        raise InvalidInput(_damaged(path, at, f"holds what this version does not understand: {error}")) from error


def _damaged(path: Path, at: int, what: str) -> Problem:
    advice = (
        "a sound journal: check the disk, restore the file or the version that wrote it, or move it away; without it"
        " the agent starts without memory, VMs keep running, and results of actions in progress come from"
        " observation"
    )
    return Problem(f"{path}, byte {at}", what, advice)


def _lock(path: Path) -> int:
    """Hold the journal for this process. The lock is a file of its own: the journal's is replaced at times."""
    fd = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StoreUnavailable(f"another process holds the journal {path}") from None
    return fd


def _write_at(fd: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(fd, view, at)
        at += written
        view = view[written:]


def _read_whole(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts = []
    at = 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _sync_folder(path: Path) -> None:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
