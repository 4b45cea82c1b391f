"""Tests of the forms of texts: the quick look at many words lets nothing through that a look at each does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.values.texts import LABEL_LENGTH_MAX, TextForm, are_words, fits

CHARACTERS = [*map(chr, range(0x300)), "\u2028", "\ufeff", "\ud800", "\udfff", "\uffff", "\U0001f600", "\U0010ffff"]


@pytest.mark.parametrize("around", ["{}", "a{}", "{}a", "a{}b", "a,{},b"])
def test_words_hold_printable_ascii_alone(around: str) -> None:
    taken = {one for one in CHARACTERS if are_words(around.format(one))}

    begins_a_word = around.startswith("{") or ",{" in around
    assert taken == {*map(chr, range(0x21, 0x7F))} - ({"-"} if begins_a_word else set())


@given(st.lists(st.text(st.sampled_from(CHARACTERS), max_size=4), max_size=4))
def test_what_are_words_together_are_words_each(texts: list[str]) -> None:
    if are_words(",".join(texts)):
        assert all(fits(text, TextForm.WORD) for text in texts)


@given(st.lists(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=LABEL_LENGTH_MAX), max_size=9))
def test_words_without_a_leading_dash_are_words(texts: list[str]) -> None:
    texts = [text.replace("-", "_") for text in texts]

    assert are_words(",".join(texts))
