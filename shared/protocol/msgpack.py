"""Plain data to msgpack bytes and back, bounded: who sends bytes is not trusted.

Plain data: None, booleans, numbers, strings, bytes, lists and string-keyed maps. Extension types, timestamps, repeated
keys, text that is not UTF-8 and anything after the value are refused, and no body makes the parser allocate more than
a few MiB and a small multiple of its own size. (Keys that are bytes may come through: no field has such a name.)
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec

from shared.base.errors import CodecError
from shared.protocol.topology import BODY_BYTES_MAX
from shared.values.scalars import TEXT_LENGTH_MAX

ITEMS_MAX = 65_536  # entries of one array
KEYS_MAX = 1024  # entries of one map
DEPTH_MAX = 16  # containers in containers
VALUES_MAX = 1 << 19  # values in a body, keys included
CONTAINERS_MAX = 1 << 17  # arrays and maps in a body
CLAIM_BYTES_MAX = 8 << 20  # what array heads may make the parser allocate before their items are seen
CLAIMS_FROM_BYTES = isqrt(CLAIM_BYTES_MAX // 8)  # a body up to this size claims no more, see `_claim_bytes`
UNCHECKED_BYTES_MAX = 64 << 10  # a body up to this size cannot grow to more than a few MiB of values
RUN_MIN = 256  # values still to come, from which it is worth while to look for many of one size at once
REASON_LENGTH_MAX = 60  # characters of the parser's own words in an error


class _UnfitError(Exception):
    """The bytes do not form a valid body; the text says what was expected."""


def to_bytes(plain: Any, what: str) -> bytes:
    """Encode one msgpack value that `from_bytes` reads. Raises `CodecError`, beginning with `what`, when `from_bytes`
    would refuse it."""
    try:
        body = msgspec.msgpack.encode(plain)
    except (ValueError, TypeError, OverflowError) as problem:
        raise CodecError(f"{what}: {type(problem).__name__} while packing") from problem
    if len(body) > BODY_BYTES_MAX:
        raise CodecError(f"{what}: {len(body)} bytes, expected at most {BODY_BYTES_MAX}")
    if len(body) > UNCHECKED_BYTES_MAX:
        try:
            _skim(body)  # what is sent can be read
        except _UnfitError as problem:
            raise CodecError(f"{what}: expected {problem}") from problem
    return body


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _UnfitError("every key of a map once")
    return found


def _no_extension(_code: int, _data: bytes) -> Any:
    raise _UnfitError("no extension types")


def from_bytes(body: bytes) -> Any:
    """Parse one msgpack value that fills `body`; `CodecError` for anything else or anything oversized."""
    size = len(body)
    if size > BODY_BYTES_MAX:
        raise CodecError(f"{size} bytes, expected at most {BODY_BYTES_MAX}")
    try:
        if size > UNCHECKED_BYTES_MAX or (size > CLAIMS_FROM_BYTES and _claim_bytes(body) > CLAIM_BYTES_MAX):
            _skim(body)
        return msgpack.unpackb(
            body,
            object_pairs_hook=_unique,
            ext_hook=_no_extension,
            strict_map_key=True,
            max_str_len=4 * TEXT_LENGTH_MAX,
            max_bin_len=size,
            max_ext_len=0,
            max_array_len=min(size, ITEMS_MAX),
            max_map_len=min(size, KEYS_MAX),
        )
    except _UnfitError as problem:
        raise CodecError(f"undecodable body: expected {problem}") from problem
    except (ValueError, TypeError, OverflowError) as problem:
        raise CodecError(f"undecodable body: {str(problem)[:REASON_LENGTH_MAX] or type(problem).__name__}") from problem


def _claim_bytes(body: bytes) -> int:
    """Return the most bytes that can be allocated for arrays of 16 items or more whose items are missing.

    The parser allocates all items of an array at its head, and arrays may be nested 1024 deep.
    """
    heads = min(body.count(b"\xdc") + body.count(b"\xdd"), 1024)
    return heads * 8 * min(len(body), ITEMS_MAX)


# How a value goes on after its first byte: (width of its length, length to add, values per unit of length, where 0
# means that the length counts bytes). What no message contains (ext, 0xc1) is not here.
_HEADS = {
    **dict.fromkeys((*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3), (0, 0, 0)),
    **{0x80 + count: (0, count, 2) for count in range(16)},
    **{0x90 + count: (0, count, 1) for count in range(16)},
    **{0xA0 + length: (0, length, 0) for length in range(32)},
    **{0xC4 + at: (width, 0, 0) for at, width in enumerate((1, 2, 4))},
    **{0xCA + at: (0, size, 0) for at, size in enumerate((4, 8, 1, 2, 4, 8, 1, 2, 4, 8))},
    **{0xD9 + at: (width, 0, 0) for at, width in enumerate((1, 2, 4))},
    **{0xDC + at: (2 + at % 2 * 2, 0, 1 + at // 2) for at in range(4)},
}


# How many bytes a value takes whose first byte says so, and that holds no others; 0 for every other first byte.
_SIZES = bytes(
    1 + length if width == 0 and not per_unit else 0
    for width, length, per_unit in (_HEADS.get(head, (1, 0, 0)) for head in range(256))
)
_OF_SIZE = {size: bytes(head for head in range(256) if _SIZES[head] == size) for size in set(_SIZES) - {0}}


def _run(body: bytes, at: int, left: int) -> int:
    """Return how many of the `left` values from `at` on have the size of the first: a column of numbers is skipped at
    once."""
    size = _SIZES[body[at]]
    heads = body[at : at + size * left : size]
    return len(heads) - len(heads.lstrip(_OF_SIZE[size]))


def _skim(body: bytes) -> None:
    """Walk over `body` without making values; `_UnfitError` for nesting, counts or lengths beyond what is allowed."""
    pending: list[int] = []  # values that are still to come, per level around this one
    left = seen = 1  # of this level; of all levels, also what is still to come
    at = containers = 0
    size, sizes = len(body), _SIZES
    while True:
        while left and at < size and sizes[body[at]]:  # nearly all values are such
            at += sizes[body[at]]
            left -= 1
        if at > size:
            raise _UnfitError("as many items as are claimed")
        if not left:
            if not pending:
                return
            left = pending.pop()
            continue
        head = _HEADS.get(body[at]) if at < size else None
        if head is None:
            raise _UnfitError("only nil, booleans, numbers, strings, bytes, arrays and maps, complete")
        width, length, per_unit = head
        at += 1 + width
        length += int.from_bytes(body[at - width : at])
        left -= 1
        if per_unit:
            containers += 1
            length *= per_unit
            seen += length
            pending.append(left)
            left = length
        else:
            at += length
        if at > size or (per_unit and length > size - at):
            raise _UnfitError("as many items as are claimed")
        if seen > VALUES_MAX or containers > CONTAINERS_MAX or len(pending) > DEPTH_MAX:
            raise _UnfitError(f"at most {VALUES_MAX} values, {CONTAINERS_MAX} containers and {DEPTH_MAX} levels")
        if per_unit and left >= RUN_MIN and at < size and sizes[body[at]]:  # once: to look again and again is quadratic
            run = _run(body, at, left)
            at += sizes[body[at]] * run
            left -= run
