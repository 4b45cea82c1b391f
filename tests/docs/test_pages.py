"""Every session in the documentation prints what its page says."""

from __future__ import annotations

import pytest

from tests.docs.pages import Page
from tests.docs.sessions import DOCS, differences, run_page, session_pages

TUTORIAL = "tutorial.md"
PAGES = {page.path.relative_to(DOCS).as_posix(): page for page in session_pages()}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name, marks=[] if name == TUTORIAL else [pytest.mark.full]) for name, page in PAGES.items()],
)
def test_a_session_prints_what_its_page_says(page: Page) -> None:
    assert differences(page, list(run_page(page))) == []


def test_the_tutorial_is_a_session() -> None:
    assert TUTORIAL in PAGES
