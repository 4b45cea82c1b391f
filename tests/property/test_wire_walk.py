"""The walk over a body before it is parsed finds what a naive one finds."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.base.errors import CodecError
from shared.protocol.msgpack import DEPTH_MAX, UNCHECKED_BYTES_MAX, from_bytes

LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=40)
)
PLAIN = st.recursive(
    LEAVES | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner, max_size=20),
    max_leaves=30,
)
FILLER = "x" * 4_000  # with so many of these a body is long enough to be walked over
MANY = [FILLER] * (UNCHECKED_BYTES_MAX // len(FILLER) + 1)


def depth(value: Any) -> int:
    """Containers in containers."""
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


@settings(max_examples=60)
@given(PLAIN)
def test_what_is_whole_is_read_as_it_was_written(value: Any) -> None:
    whole = [MANY, value]
    body = msgpack.packb(whole)
    if depth(whole) <= DEPTH_MAX:
        assert from_bytes(body) == whole


@settings(max_examples=60)
@given(PLAIN, st.integers(1, 40), st.binary(min_size=1, max_size=4))
def test_what_is_cut_off_or_goes_on_is_refused(value: Any, cut: int, more: bytes) -> None:
    body = msgpack.packb([MANY, value])
    for wrong in (body[:-cut], body + more):
        with pytest.raises(CodecError):
            from_bytes(wrong)


def test_the_deepest_body_is_read_and_a_deeper_one_refused() -> None:
    value: Any = MANY
    for _ in range(DEPTH_MAX - 1):
        value = [value]
    assert from_bytes(msgpack.packb(value)) == value
    with pytest.raises(CodecError, match="levels"):
        from_bytes(msgpack.packb([value]))
