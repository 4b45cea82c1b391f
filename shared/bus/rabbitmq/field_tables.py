"""How header tables and short strings of AMQP are read: what other accounts choose never ends who receives it.

The broker hands on what a sender has put into the headers, the addresses and the keys of a message. pika's own reader
raises in the thread of the connection for a time beyond the calendar, for tables within tables beyond Python's stack
and for kinds that it does not know, and returns bytes for a text that is not UTF-8. The message stays in its queue, so
that every later connection would meet it again. Nor is there a limit on how much a table may hold but the frame's, and
reading all of one that long takes the thread of the connection longer than a hundred messages do.
`shared.bus.rabbitmq.bus` puts these readers in the place of pika's.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

DEPTH_MAX = 8  # of tables and arrays; what is deeper is left out
TABLE_BYTES_MAX = 8 << 10  # of one that is read; what the broker and daemons of ours write is far shorter
VALUES_MAX = 256  # in one table, those of tables and arrays in it too

# Kinds of one size, as RabbitMQ writes them; a time is its seconds since 1970.
_FIXED = {kind.encode(): struct.Struct(f">{code}") for kind, code in zip("tbBsUuIilLfdT", "?bBhhHiIqqfdQ", strict=True)}
_DECIMAL_BYTES = 5
_SIZE = struct.Struct(">I")


class _Unreadable(Exception):
    """The rest of a table or array has no form."""


class TooLong(dict[str, Any]):
    """Takes the place of a table of `size_bytes` that nobody reads."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.size_bytes = size_bytes

    def __bool__(self) -> bool:
        return True


class _Room:
    """How many more values are read."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = VALUES_MAX

    def take(self) -> None:
        """Take one more. Raises `_Unreadable` if the limit is reached."""
        self.left -= 1
        if self.left < 0:
            raise _Unreadable


def read_short_string(encoded: bytes, offset: int) -> tuple[str, int]:
    """Read a text of at most 255 bytes; what is not UTF-8 becomes U+FFFD. The text, and where the next field begins."""
    begin = offset + 1
    end = begin + encoded[offset]
    return encoded[begin:end].decode("utf-8", "replace"), end


def read_table(encoded: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """Read a table as far as it has a form, `TooLong` for one of too many bytes or values, and where the next field
    begins."""
    size_bytes = _SIZE.unpack_from(encoded, offset)[0]
    begin = offset + _SIZE.size
    end = begin + size_bytes
    if size_bytes > TABLE_BYTES_MAX:
        return TooLong(size_bytes), end
    room = _Room()
    found = _table(encoded, begin, min(end, len(encoded)), 1, room)
    return (found if room.left >= 0 else TooLong(size_bytes)), end


def _table(encoded: bytes, at: int, end: int, depth: int, room: _Room) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with suppress(_Unreadable):  # what was read before it counts
        while at < end:
            key, at = read_short_string(encoded, at)
            found[key], at = _value(encoded, at, end, depth, room)
    return found


def _array(encoded: bytes, at: int, end: int, depth: int, room: _Room) -> list[Any]:
    found: list[Any] = []
    with suppress(_Unreadable):
        while at < end:
            value, at = _value(encoded, at, end, depth, room)
            found.append(value)
    return found


def _value(encoded: bytes, at: int, end: int, depth: int, room: _Room) -> tuple[Any, int]:
    """Return a value, None for one without a Python counterpart, and the position of the next."""
    room.take()
    kind, at = encoded[at : at + 1], at + 1
    if kind == b"V":
        return None, at
    if kind == b"D":
        return None, _within(at + _DECIMAL_BYTES, end)
    if kind in _FIXED:
        after = _within(at + _FIXED[kind].size, end)
        return _FIXED[kind].unpack_from(encoded, at)[0], after
    begin = _within(at + _SIZE.size, end)
    after = _within(begin + _SIZE.unpack_from(encoded, at)[0], end)
    if kind == b"S":
        return encoded[begin:after].decode("utf-8", "replace"), after
    if kind == b"x":
        return encoded[begin:after], after
    if kind in (b"F", b"A"):
        read = _table if kind == b"F" else _array
        return read(encoded, begin, after, depth + 1, room) if depth < DEPTH_MAX else None, after
    raise _Unreadable


def _within(at: int, end: int) -> int:
    if at > end:
        raise _Unreadable
    return at
