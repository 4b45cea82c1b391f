"""Raw bodies: each bound holds by itself, and what is below all of them passes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from shared.base.errors import CodecError
from shared.protocol.msgpack import (
    CLAIM_BYTES_MAX,
    CLAIMS_FROM_BYTES,
    CONTAINERS_MAX,
    DEPTH_MAX,
    ITEMS_MAX,
    KEYS_MAX,
    VALUES_MAX,
    from_bytes,
    to_bytes,
)
from shared.protocol.topology import BODY_BYTES_MAX

FILLER = ["z" * 4096] * 20  # makes a body large enough to be walked over before it is parsed


def nested(levels: int) -> Any:
    inner: Any = []
    for _ in range(levels - 1):
        inner = [inner]
    return inner


def in_rows(items: int, item: Any) -> list[Any]:
    """So many items in arrays that are not too long themselves."""
    return [[item] * min(ITEMS_MAX, items - at) for at in range(0, items, ITEMS_MAX)]


LARGEST = {
    "items": [None] * ITEMS_MAX,
    "keys": {str(key): None for key in range(KEYS_MAX)},
    "text": "\U0001f600" * 4096,
    "levels": [*FILLER, nested(DEPTH_MAX - 1)],
    "containers": in_rows(CONTAINERS_MAX - 3, []),
    "values": in_rows(VALUES_MAX - 9, None),
    "body": ["z" * 4093] * 1023,
}
TOO_LARGE = {
    "items": ([None] * (ITEMS_MAX + 1), "exceeds max_array_len"),
    "keys": ({str(key): None for key in range(KEYS_MAX + 1)}, "exceeds max_map_len"),
    "text": ("\U0001f600" * 4097, "exceeds max_str_len"),
    "levels": ([*FILLER, nested(DEPTH_MAX)], "16 levels"),
    "containers": (in_rows(CONTAINERS_MAX - 2, []), "131072 containers"),
    "values": (in_rows(VALUES_MAX - 8, None), "524288 values"),
    "body": (["z" * 4093] * 1024, "bytes, expected at most"),
}


@pytest.mark.parametrize("plain", LARGEST.values(), ids=LARGEST.keys())
def test_the_largest_of_each_kind_passes(plain: Any) -> None:
    assert from_bytes(to_bytes(plain, "x")) == plain


@pytest.mark.parametrize(("plain", "told"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_one_more_of_each_kind_is_refused(plain: Any, told: str) -> None:
    with pytest.raises(CodecError, match=told):
        from_bytes(msgpack.packb(plain))


@pytest.mark.parametrize("kind", ["levels", "containers", "values", "body"])
def test_what_would_not_be_read_is_not_written(kind: str) -> None:
    plain, told = TOO_LARGE[kind]
    with pytest.raises(CodecError, match=f"^thing: .*{told}"):
        to_bytes(plain, "thing")


@pytest.mark.parametrize(
    "plain",
    [
        msgpack.Timestamp(1, 2),
        msgpack.ExtType(5, b""),
        msgpack.ExtType(5, b"abcd"),
        {1: 2},
        {None: 2},
        [{"a": [msgpack.Timestamp(0)]}],
    ],
)
@pytest.mark.parametrize("filler", [[], FILLER])
def test_only_plain_data_passes(plain: Any, filler: list[Any]) -> None:
    with pytest.raises(CodecError, match="undecodable body"):
        from_bytes(msgpack.packb([plain, *filler]))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
@pytest.mark.parametrize("filler", [[], FILLER])
def test_bytes_pass_whole(size: int, filler: list[Any]) -> None:
    assert from_bytes(to_bytes([b"x" * size, *filler], "x")) == [b"x" * size, *filler]


@pytest.mark.parametrize("size", [CLAIMS_FROM_BYTES, CLAIMS_FROM_BYTES + 1, 8_000])
def test_arrays_of_items_that_are_not_there_are_refused(size: int) -> None:
    body = (b"\xdc" + min(size, 65_535).to_bytes(2, "big")) * (size // 3)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="undecodable body"):
            from_bytes(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < CLAIM_BYTES_MAX + (1 << 20)


@pytest.mark.parametrize("cut", [1, 1000, 70_000])
def test_an_incomplete_large_body_is_refused_before_it_is_parsed(cut: int) -> None:
    with pytest.raises(CodecError, match=r"as many items as are claimed|complete"):
        from_bytes(msgpack.packb(FILLER)[:-cut])


def test_every_form_that_msgpack_gives_a_number_or_text_is_walked_over() -> None:
    numbers = [
        0,
        1,
        127,
        128,
        255,
        256,
        65_535,
        65_536,
        1 << 32,
        (1 << 63) - 1,
        -1,
        -32,
        -33,
        -129,
        -32_769,
        -(1 << 40),
    ]
    texts = ["", "a" * 31, "a" * 32, "a" * 255, "a" * 256, "ä" * 4096]
    rows = [[None] * 15, [None] * 16, [True] * 300, {str(n): n for n in range(15)}, {str(n): n for n in range(16)}]
    plain = [numbers, texts, rows, 1.5, False, FILLER]
    assert from_bytes(to_bytes(plain, "x")) == plain
    assert to_bytes(plain, "x") == msgpack.packb(plain)
    wide = [b"\xdd\x00\x00\x00\x01", b"\xdf\x00\x00\x00\x01", b"\xdb\x00\x00\x00\x01a", b"\xca\x3f\x80\x00\x00"]
    assert from_bytes(b"".join([b"\x92", *wide, msgpack.packb(FILLER)])) == [[{"a": 1.0}], FILLER]


def test_bodies_at_the_limit_are_counted_in_bytes() -> None:
    with pytest.raises(CodecError, match=f"{BODY_BYTES_MAX + 1} bytes, expected at most {BODY_BYTES_MAX}"):
        from_bytes(bytes(BODY_BYTES_MAX + 1))
