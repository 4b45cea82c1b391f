"""Plans that wait, approved on the page."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.browser.chromium import Visitor

TRIES = 5


def open_plan(visitor: Visitor) -> Page:
    """Go to the decision that waits, by the list of decisions, which follows until one does."""
    page = visitor.see("/decision")
    page.click("#waits")
    page.wait_for_selector("h1")
    return page


def approve(visitor: Visitor, why: str) -> Page:
    """Approve what waits; when another decision has taken its place meanwhile, that one. The page of the decision."""
    visitor.forgiven.add(409)
    for _ in range(TRIES):
        page = open_plan(visitor)
        if not page.locator("#approve-why").count():
            continue
        page.fill("#approve-why", why)
        with page.expect_navigation():
            page.get_by_role("button", name="Approve").click()
        if page.locator(".said").count():
            return page
    raise AssertionError(f"no plan could be approved: {visitor.page.inner_text('main')[:2000]}")
