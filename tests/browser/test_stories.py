"""What people come for: an account, a node that falls silent, a plan, a job, an environment, a what-if; and what they
do not get."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import LIMIT_MS, PHONE, visiting
from tests.browser.plans import approve
from tests.browser.town import CYCLE_S, JANE, PEOPLE_PASSWORD, Town, town
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S

pytestmark = pytest.mark.full

TABS_MAX = 200
WHAT_IF_MS = 150_000.0  # it gives way to everything else


@pytest.fixture(scope="module")
def place(broker: PrivateBroker) -> Iterator[Town]:
    """An estate whose plans wait for one account."""
    expect.set_options(timeout=LIMIT_MS)
    with town(broker) as made:
        for name in ("lee", "max"):
            made.add_account(name, "owner")
        made.add_account("joe", "user")
        yield made


def test_an_account_is_asked_for_and_approved(place: Town, browser: Browser) -> None:
    with visiting(browser, place.url, JANE) as jane, visiting(browser, place.url) as zoe:
        asking = zoe.see("/ask")
        asking.fill("#name", "zoe")
        asking.select_option("#role", "owner")
        asking.fill("#contact", "zoe@example.org")
        asking.fill("#why", "rendering at night")
        asking.fill("#password", PEOPLE_PASSWORD)
        asking.fill("#again", PEOPLE_PASSWORD)
        asking.get_by_role("button", name="Send request").click()
        expect(asking.locator("h1")).to_have_text("Request sent")

        page = jane.see("/accounts")
        expect(page.locator("nav")).to_contain_text("1 to approve")
        page.fill("#approve-zoe", "known to us")
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("row").filter(has_text="zoe@example.org")).to_contain_text("active")

        mine = zoe.log_in("zoe")
        expect(mine.locator(".me")).to_contain_text("owner.zoe")
        expect(mine.locator("nav")).not_to_contain_text("Audit")
        mine.click(".me button")
        zoe.see("/")
        expect(mine).to_have_url(f"{place.url}/login")


def test_a_node_falls_silent_before_ones_eyes(place: Town, browser: Browser) -> None:
    """The page is not loaded again: it follows."""
    with visiting(browser, place.url, JANE) as jane:
        page = jane.see("/")
        page.evaluate("() => { window.sameLoad = true; }")
        expect(page.locator("#s-in-service")).to_contain_text("3 in service")

        place.lab.agents["n3"].kill()

        expect(page.locator("#s-unknown")).to_contain_text("1 unknown")
        expect(page.locator(".alarms")).to_contain_text("n3")
        jane.shoot("unreachable-node")
        place.lab.agents["n3"].start()
        expect(page.locator("#s-in-service")).to_contain_text("3 in service")
        assert page.evaluate("() => window.sameLoad")


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until that has the focus."""
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached on {page.url}")


def test_a_node_is_drained_by_keyboard_alone(place: Town, browser: Browser) -> None:
    """From logging in to what is folded; the mouse is not touched."""
    with visiting(browser, place.url) as jane:
        page = jane.see("/login")
        page.keyboard.type(JANE)  # the first field has the focus
        tab_to(page, "#password")
        page.keyboard.type(PEOPLE_PASSWORD)
        page.keyboard.press("Enter")
        expect(page.locator(".me")).to_contain_text(JANE)
        tab_to(page, ".skip")
        page.keyboard.press("Enter")
        assert page.evaluate("() => document.activeElement.id") == "main"

        jane.see("/nodes/n2")
        tab_to(page, "#drain-why")
        page.keyboard.type("its fan is loud")
        tab_to(page, "button[aria-describedby=drain-means]")
        page.keyboard.press("Enter")
        expect(page.locator(".said")).to_be_visible()
        tab_to(page, "details:has(#remove-typed) > summary")
        page.keyboard.press("Enter")
        expect(page.locator("#remove-typed")).to_be_visible()
        jane.see("/nodes/n2")
        tab_to(page, "button[aria-describedby=undrain-means]")
        page.keyboard.press("Space")
        expect(page.locator("#drain-why")).to_be_visible()


def test_three_mistakes_get_three_messages_and_the_job_then_runs_once_its_plan_is_approved(
    place: Town, browser: Browser
) -> None:
    """On a phone; the plan is followed without loading its page again."""
    work = 60_000.0
    with visiting(browser, place.url, JANE, viewport=PHONE) as jane:
        jane.forgiven.add(422)
        page = jane.see("/workloads/submit")
        page.get_by_label("Name", exact=True).fill("a job")
        page.get_by_label("Number of VMs").fill("many")
        page.get_by_label("Stage 1: work per VM, Mcycles").fill(f"{work:g}")
        page.get_by_label("Stage 1: maximum CPU, MHz").fill("-1")
        page.get_by_role("button", name="Submit").first.click()
        expect(page.locator(".problems")).to_contain_text("Correct these 3 problems:")
        expect(page.locator(".field.wrong")).to_have_count(3)
        expect(page.locator(".field.wrong .bad")).to_have_count(3)
        jane.shoot("three-mistakes")

        page.locator(".problems a").first.click()  # goes to the first field
        page.get_by_label("Name", exact=True).fill("film")
        page.get_by_label("Number of VMs").fill("1")
        page.get_by_label("Stage 1: maximum CPU, MHz").fill("1000")
        page.locator("summary", has_text="Template").click()
        page.get_by_label("VM template").fill(f"fake:work={work:g};max=1000;instances=1")
        page.get_by_role("button", name="Submit").first.click()
        expect(page).to_have_url(f"{place.url}/workloads/jobs/film")

        place.wait_for(lambda: place.waiting() is not None, LIMIT_S, "a plan that waits")
        page = approve(jane, "room enough")
        page.evaluate("() => { window.sameLoad = true; }")
        expect(page.locator(".step.done")).not_to_have_count(0)
        jane.shoot("plan-has-run")
        assert page.evaluate("() => window.sameLoad")
        page = jane.see("/workloads/jobs/film")
        expect(page.locator("#live")).to_contain_text("running")
        place.wait_for(lambda: "room enough" in jane.see("/audit").inner_text("main"), LIMIT_S, "the audit")


def test_an_environment_by_form_and_by_pasted_agreement(place: Town, browser: Browser) -> None:
    """Its owner makes it and lets it serve; its user may then submit to it, and sees no more of the cluster."""
    with visiting(browser, place.url, "lee") as lee, visiting(browser, place.url, "joe") as joe:
        lee.forgiven.add(422)
        page = lee.see("/new-environment")
        page.fill("#f-name", "dusk")
        page.select_option("#f-workload", "batch")
        page.fill("#f-lower", "one")
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page.locator("#f-lower-wrong")).to_be_visible()
        page.fill("#f-lower", "1")
        page.fill("#f-users", "joe")
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page).to_have_url(f"{place.url}/environments/dusk")
        page.get_by_role("button", name="Activate").click()
        page.evaluate("() => { window.sameLoad = true; }")
        expect(page.locator("#live")).to_contain_text("running")
        assert page.evaluate("() => window.sameLoad")

        page = lee.see("/new-environment")
        page.fill("#text", 'name = "pasted"\nowner = "lee"\nworkload = "batch"\nlower = 1\n')
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page).to_have_url(f"{place.url}/environments/pasted")
        place.as_provider("env", "destroy", "pasted", "--yes", "--wait", "30")  # its node is another's in what follows

        expect(joe.see("/environments").locator("#live")).to_contain_text("dusk")
        assert [joe.status_of(path) for path in ("/nodes", "/decision", "/environments/dusk")] == [404] * 3
        page = joe.see("/workloads/submit")
        page.get_by_label("Name", exact=True).fill("mine")
        page.get_by_label("Environment").select_option("dusk")
        page.get_by_label("Stage 1: work per VM, Mcycles").fill("1000")
        page.get_by_label("Stage 1: maximum CPU, MHz").fill("1000")
        page.get_by_role("button", name="Submit").first.click()
        expect(page).to_have_url(f"{place.url}/workloads/jobs/mine")


def test_an_owner_is_refused_anothers_environment(place: Town, browser: Browser) -> None:
    """By page, by request, and by a form that was tampered with, with an own word and with another's."""
    with visiting(browser, place.url, "lee") as lee, visiting(browser, place.url, "max") as other:
        agreement = place.agreement(name="private", owner="lee", workload="batch", lower=1)
        place.as_provider("env", "create", agreement)
        lee.see("/environments/private")
        stolen = lee.word()

        page = other.see("/environments/private", 404)
        expect(page.locator("main")).not_to_contain_text("batch")
        assert other.status_of("/environments/private") == 404
        assert "private" not in other.see("/environments").inner_text("main")
        other.see("/account")
        own = other.word()
        assert other.post("/environments/private/destroy", csrf=own, typed="private") in (403, 404, 409)
        assert other.post("/environments/private/destroy", csrf=stolen, typed="private") == 403
        assert other.post("/environments/private/resize", csrf="", lower="2") == 403

        other.forgiven |= {403, 404, 409}
        for word in (own, stolen):
            page = other.see("/new-environment")
            page.evaluate(
                """(word) => { const form = document.querySelector('main form');
                form.action = '/environments/private/deactivate'; form.noValidate = true;
                form.querySelector('[name=csrf]').value = word; }""",
                word,
            )
            with page.expect_navigation():
                page.get_by_role("button", name="Create", exact=True).click()
            assert page.locator("h1").inner_text() != "Environment private"
        assert place.environment("private")["wanted"] == "created"


def test_a_what_if_runs_to_its_comparison(place: Town, browser: Browser) -> None:
    """In the background; its page follows it and shows what is different at the end."""
    place.wait_for(lambda: place.look("plan", "history")["decisions"], 2 * CYCLE_S, "a decision to compute again")
    with visiting(browser, place.url, JANE) as jane:
        page = jane.see("/what-if")
        page.fill("#from", "1h")
        page.select_option("#placement", "first-fit")
        page.fill("#why", "would less have done")
        page.get_by_role("button", name="Run").click()
        expect(page).to_have_url(re.compile(r"/what-if/\w+"))
        page.evaluate("() => { window.sameLoad = true; }")
        expect(page.locator("#run .badge").first).to_have_text(re.compile("done|failed"), timeout=WHAT_IF_MS)
        assert page.locator("#run .badge").first.inner_text() == "done", page.inner_text("main")
        assert page.evaluate("() => window.sameLoad")
        expect(page.locator(".report table")).not_to_have_count(0)
        jane.shoot("what-if")
        for picture in page.locator(".report img").all():
            assert picture.evaluate("(one) => one.complete && one.naturalWidth > 0")
