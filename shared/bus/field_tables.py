"""How header tables and short strings of AMQP are read: what other accounts choose never ends who receives it.

The broker hands on what a sender has put into the headers, the addresses and the keys of a message. pika's own reader
raises in the thread of the connection for a time beyond the calendar, for tables within tables beyond Python's stack
and for kinds that it does not know, and returns bytes for a text that is not UTF-8. The message stays in its queue, so
that every later connection would meet it again. `shared.bus.rabbitmq` puts these readers in the place of pika's.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

DEPTH_MAX = 8  # of tables and arrays; what is deeper is left out

# Kinds of one size, as RabbitMQ writes them; a time is its seconds since 1970.
_FIXED = {kind.encode(): struct.Struct(f">{code}") for kind, code in zip("tbBsUuIilLfdT", "?bBhhHiIqqfdQ", strict=True)}
_DECIMAL_BYTES = 5
_SIZE = struct.Struct(">I")


class _Unreadable(Exception):
    """The rest of a table or array has no form."""


def read_short_string(encoded: bytes, offset: int) -> tuple[str, int]:
    """Read a text of at most 255 bytes; what is not UTF-8 becomes U+FFFD. The text, and where the next field begins."""
    begin = offset + 1
    end = begin + encoded[offset]
    return encoded[begin:end].decode("utf-8", "replace"), end


def read_table(encoded: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """Read a table as far as it has a form, and where the next field begins. O(its bytes)."""
    end = offset + _SIZE.size + _SIZE.unpack_from(encoded, offset)[0]
    return _table(encoded, offset + _SIZE.size, min(end, len(encoded)), 1), end


def _table(encoded: bytes, at: int, end: int, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with suppress(_Unreadable):  # what was read before it counts
        while at < end:
            key, at = read_short_string(encoded, at)
            found[key], at = _value(encoded, at, end, depth)
    return found


def _array(encoded: bytes, at: int, end: int, depth: int) -> list[Any]:
    found: list[Any] = []
    with suppress(_Unreadable):
        while at < end:
            value, at = _value(encoded, at, end, depth)
            found.append(value)
    return found


def _value(encoded: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    """A value, None for one without a counterpart here, and where the next begins."""
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
        return read(encoded, begin, after, depth + 1) if depth < DEPTH_MAX else None, after
    raise _Unreadable


def _within(at: int, end: int) -> int:
    if at > end:
        raise _Unreadable
    return at
