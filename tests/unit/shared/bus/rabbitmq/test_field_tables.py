"""Header tables of AMQP that nobody well-meaning sends."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import data, spec  # type: ignore[import-untyped]

import shared.bus.rabbitmq.bus  # noqa: F401 - puts them there
from shared.bus.rabbitmq.field_tables import (
    DEPTH_MAX,
    TABLE_BYTES_MAX,
    VALUES_MAX,
    TooLong,
    read_short_string,
    read_table,
)
from shared.bus.rabbitmq.parts import unhandled

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
PLAIN = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | TEXTS | st.binary(max_size=20)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))


def _size(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def _with(value: bytes) -> bytes:
    """A table of one name, `h`, and an `end` after it."""
    return _size(b"\x01h" + value + b"\x03end" + b"t\x01")


def nested(kind: bytes, levels: int) -> bytes:
    """Tables within tables, or arrays within arrays."""
    value = b"V"
    for _ in range(levels):
        value = kind + _size((b"\x01a" if kind == b"F" else b"") + value)
    return value


def test_pika_reads_with_them() -> None:
    assert (data.decode_table, data.decode_short_string) == (read_table, read_short_string)
    pieces = spec.BasicProperties(headers={"x": [1, {"y": "ü"}]}, reply_to="here", user_id="user.tom").encode()
    found = spec.BasicProperties().decode(b"".join(pieces))
    assert (found.headers, found.reply_to, found.user_id) == ({"x": [1, {"y": "ü"}]}, "here", "user.tom")


@given(table=st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_pika_writes_is_read_as_it_was(table: dict[str, Any]) -> None:
    pieces: list[bytes] = []
    data.encode_table(pieces, table)
    encoded = b"before" + b"".join(pieces) + b"after"
    found, end = read_table(encoded, 6)
    assert found == table
    assert encoded[end:] == b"after"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b"T" + struct.pack(">Q", 2**64 - 1), 2**64 - 1),
        (b"T" + struct.pack(">Q", 2**63), 2**63),
        (b"D\xff" + struct.pack(">i", 1), None),
        (b"S" + _size(b"\xff\xfe"), "\ufffd\ufffd"),
        (b"x" + _size(b"\xff"), b"\xff"),
        (b"f\x7f\xc0\x00\x01", pytest.approx(float("nan"), nan_ok=True)),
        (b"s\xff\xff", -1),
    ],
)
def test_what_has_no_counterpart_keeps_nothing_from_being_read(value: bytes, read: Any) -> None:
    assert read_table(_with(value), 0)[0] == {"h": read, "end": True}


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_what_is_nested_too_deep_is_left_out(kind: bytes) -> None:
    found, _ = read_table(_with(nested(kind, 1_000)), 0)
    assert found["end"] is True
    value, depth = found["h"], 1
    while value:
        value, depth = value["a"] if kind == b"F" else value[0], depth + 1
    assert depth == DEPTH_MAX


@pytest.mark.parametrize(
    "body",
    [b"\x01aV" * (VALUES_MAX + 1), b"\x01aA" + _size(b"V" * VALUES_MAX), b"\x01ax" + _size(bytes(TABLE_BYTES_MAX))],
    ids=["values", "values of an array", "bytes"],
)
def test_what_takes_long_to_read_is_not_read_and_nobody_is_handed_it(body: bytes) -> None:
    found, end = read_table(_size(body) + b"after", 0)
    assert type(found) is TooLong
    assert (end, dict(found)) == (4 + len(body), {})
    assert unhandled(found) == f"{len(body)} bytes of headers are too many"


def test_as_much_as_may_be_is_read() -> None:
    found, _ = read_table(_size(b"".join(b"\x03%03dV" % number for number in range(VALUES_MAX))), 0)
    assert len(found) == VALUES_MAX
    assert unhandled(found) == ""


@pytest.mark.parametrize("rest", [b"?", b"", b"S\xff\xff\xff\xff", b"F\x00\x00\x00\x09\x01", b"I\x00", b"D\x00"])
def test_what_has_no_form_ends_the_table(rest: bytes) -> None:
    body = b"\x01a" + b"t\x01" + b"\x01h" + rest
    assert read_table(_size(body) + b"after", 0) == ({"a": True}, 4 + len(body))


@given(body=st.binary(max_size=60))
def test_any_bytes_are_read(body: bytes) -> None:
    assert read_table(_size(body), 0)[1] == 4 + len(body)
    assert read_table(_with(b"F" + _size(body)), 0)[0]["end"] is True


def test_a_text_that_is_not_utf_8_is_a_text() -> None:
    assert read_short_string(b"..\x03a\xffb.", 2) == ("a\ufffdb", 6)
