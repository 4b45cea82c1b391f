"""Columns: whatever is folded comes back, and a column passes exactly when each of its values does, its
texts cleaned."""

from __future__ import annotations

import math
from typing import Any

import msgpack  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from shared.base.errors import CodecError
from shared.protocol.codec import decode, encode
from shared.protocol.columns import folded, unfolded
from shared.protocol.messages import Reply
from shared.protocol.msgpack import UNCHECKED_BYTES_MAX, from_bytes
from shared.values.scalars import INT_MAX, INT_MIN, TEXT_LENGTH_MAX
from shared.values.texts import TextForm, cleaned

NAMES = st.sampled_from(["a", "b", "c", "d"])
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e9, 1e9) | st.text("aé", max_size=3)
RECORDS = st.dictionaries(NAMES, SCALARS | st.dictionaries(NAMES, SCALARS, max_size=2), max_size=4)
LARGEST = "x" * TEXT_LENGTH_MAX
FILLER = ["x" * 4_000] * (UNCHECKED_BYTES_MAX // 4_000 + 1)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.integers(1, 30))
def test_what_is_folded_comes_back(some: list[dict[str, Any]], times: int) -> None:
    data = {"at_s": 1.0, "rows": some * times, "others": [some[0]] * times}
    assert unfolded(folded(data)) == data


KINDS: tuple[st.SearchStrategy[Any], ...] = (
    st.one_of(st.none(), st.booleans(), st.floats()),
    st.one_of(st.none(), st.booleans(), st.integers(INT_MIN - 1, INT_MAX + 1)),
    st.one_of(st.none(), st.sampled_from(["", "é", "\ud800", LARGEST, LARGEST + "x", "😀" * TEXT_LENGTH_MAX])),
    st.one_of(st.integers(), st.floats(), st.text(), st.just(b""), st.just({})),
)


def passes(value: Any) -> bool:
    """Whether a value may be sent, as its description says."""
    if isinstance(value, str):
        return len(value) <= TEXT_LENGTH_MAX
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, bytes) and (not isinstance(value, int) or INT_MIN <= value <= INT_MAX)


@given(st.one_of(*(st.lists(kind, max_size=40) for kind in KINDS)))
def test_a_column_passes_when_each_of_its_values_does(column: list[Any]) -> None:
    try:
        body = encode(Reply("one", True, data=column))
    except (CodecError, UnicodeEncodeError):
        assert not all(map(passes, column))
        return
    assert all(map(passes, column))
    sent = [cleaned(value, TextForm.PROSE) if isinstance(value, str) else value for value in column]
    assert decode(body) == Reply("one", True, data=sent)


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 7, -7, 200, -200, 70_000, 2**40, 0.5, "", "abcdefgh", "abcdefghi", [], {"a": 1}]
)
RUNS = st.lists(st.tuples(VALUES, st.integers(1, 400)), min_size=1, max_size=6)


@given(RUNS, st.integers(1, 30))
def test_long_arrays_are_walked_over_as_short_ones_are(runs: list[tuple[Any, int]], cut: int) -> None:
    whole = [FILLER, [value for value, times in runs for _ in range(times)]]
    body = msgpack.packb(whole)
    assert from_bytes(body) == whole
    for wrong in (body[:-cut], body + b"\xc0" * cut):
        try:
            from_bytes(wrong)
        except CodecError:
            continue
        raise AssertionError("it is not whole")
