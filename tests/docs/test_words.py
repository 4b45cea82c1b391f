"""The documentation stays short: words of prose in all, and of each how-to."""

from __future__ import annotations

import pytest

from tests.docs.words import APART, DOCS, HOW_TO_MAX, PROSE_MAX, counts, prose_words


def test_code_comments_and_targets_are_no_prose() -> None:
    text = "# Title\n\nTwo words [and link](some/where.md) 42 -\n\n```sh\nmuch code\n```\n"
    text += "<!-- not\nseen -->\n| a | cell |\n"

    assert prose_words(text) == 7


def test_prose_in_all() -> None:
    found = counts()

    assert sum(found.values()) - sum(found[kind] for kind in APART) <= PROSE_MAX


@pytest.mark.parametrize("path", sorted((DOCS / "how-to").glob("*.md")), ids=lambda path: path.stem)
def test_a_how_to_is_short(path: object) -> None:
    assert prose_words((DOCS / "how-to" / str(path)).read_text("utf-8")) <= HOW_TO_MAX
