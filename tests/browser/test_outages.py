"""What pages say while something is away, and that they recover by themselves; a plan that takes two."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import LIMIT_MS, visiting
from tests.browser.plans import approve, open_plan
from tests.browser.town import JANE, JUNE, Town, town
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def place(broker: PrivateBroker) -> Iterator[Town]:
    """An estate whose plans wait for two accounts, and whose portal does not find the controller's store."""
    expect.set_options(timeout=LIMIT_MS)
    with town(broker, approvals=2, with_history=False) as made:
        yield made


def test_the_store_is_not_there_and_then_it_is(place: Town, browser: Browser) -> None:
    """Pages of the past say so, those of now go on."""
    place.history.unlink(missing_ok=True)
    with visiting(browser, place.url, JANE) as jane:
        page = jane.see("/reports?from=1h", 503)
        expect(page.locator("main")).to_contain_text("The store is unavailable")
        jane.shoot("store-away")
        expect(jane.see("/").locator("#s-in-service")).to_contain_text("3 in service")
        expect(jane.see("/nodes/n1").locator("h1")).to_have_text("Node n1")

        place.link_history()

        page = jane.see("/reports?from=1h")
        expect(page.locator(".report")).not_to_be_empty()


def test_a_plan_takes_two_browsers(place: Town, browser: Browser) -> None:
    """One alone cannot; with the word of the second it is carried out, and followed."""
    place.as_provider("jobs", "submit", str(place.job_file("duo", 600.0)))
    place.wait_for(lambda: place.waiting() is not None, LIMIT_S, "a plan that waits")
    with visiting(browser, place.url, JANE) as jane, visiting(browser, place.url, JUNE) as june:
        approve(jane, "room enough")
        page = open_plan(jane)  # one with the same steps may have taken its place by now: what was said holds
        expect(page.locator("main")).to_contain_text("1 approval is missing")
        expect(page.get_by_role("button", name="Approve")).to_be_disabled()

        other = open_plan(june)
        expect(other.locator(".waiting")).to_contain_text("operator.jane")
        expect(other.locator(".waiting")).to_contain_text("room enough")
        other = approve(june, "agreed")

        expect(other.locator(".step.done")).not_to_have_count(0)
        place.running("duo#0")
        june.shoot("two-approved")


def test_the_broker_goes_and_comes_back(place: Town, browser: Browser) -> None:
    """The page that is open says so, with the age of what it shows, refuses what is asked for, and recovers."""
    with visiting(browser, place.url, JANE) as jane:
        page = jane.see("/")
        expect(page.locator("#s-in-service")).to_contain_text("3 in service")
        page.evaluate("() => { window.sameLoad = true; }")

        place.kill_broker()
        expect(page.locator(".banner")).to_contain_text("Controller unreachable")
        expect(page.locator("#live .age.late").first).to_be_visible()
        expect(page.locator("#live")).to_contain_text("3 in service")
        jane.shoot("broker-away")
        jane.forgiven.add(503)
        other = jane.page.context.new_page()
        other.goto("/nodes")
        expect(other.locator(".banner")).to_contain_text("Controller unreachable")
        other.close()

        place.broker.start()
        place.wait_for(lambda: page.locator(".banner").count() == 0, 2 * LIMIT_S, "the end of the banner")
        place.wait_for(lambda: page.locator("#live .age.late").count() == 0, LIMIT_S, "newer data")
        assert page.evaluate("() => window.sameLoad")


def test_the_portals_own_store_is_locked(place: Town, browser: Browser) -> None:
    """Nobody logs in meanwhile, and is told why; who was logged in stays so."""
    with visiting(browser, place.url, JANE) as jane, visiting(browser, place.url) as june:
        jane.forgiven.add(503)
        june.forgiven.add(503)
        page = june.see("/login")
        page.fill("#name", JUNE)
        page.fill("#password", "correct horse staple")
        with closing(sqlite3.connect(place.lab.folder / "portal.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            page.click("main button")
            expect(page.locator("main")).to_contain_text("The store is unavailable")
            expect(jane.see("/").locator("#s-in-service")).to_contain_text("3 in service")
            holder.execute("ROLLBACK")
        june.log_in(JUNE)
