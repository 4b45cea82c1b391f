"""Amounts of memory as people write them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.values.memory_size import memory_mib
from shared.base.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512MiB", 512),
        ("32GiB", 32_768),
        (" 1.5 gib ", 1_536),
        ("0.5TiB", 524_288),
        ("1.000000MiB", 1),
        ("999999999TiB", 999_999_999 << 20),
    ],
)
def test_amounts_are_whole_mib(text: str, mib: int) -> None:
    assert memory_mib("memory", text) == mib


@pytest.mark.parametrize(
    "text",
    ["", "32", "32GB", "GiB", "0GiB", "-1GiB", "1.3MiB", "1KiB", "1e3MiB", "nanGiB", "infGiB", "1_0GiB", "\u0661GiB"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidValue, match="32GiB") as problem:
        memory_mib("memory", text)
    assert problem.value.field == "memory"


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    with suppress(InvalidValue):
        assert memory_mib("memory", text) >= 1
