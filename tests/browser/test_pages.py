"""Every page in a browser: pictures for desktop and phone, light and dark; nothing grave by axe-core, nothing that a
keyboard does not reach, nothing wider than a phone, nothing in the console, nothing from another host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.axe import grave_faults
from tests.browser.chromium import DESKTOP, PHONE, Visitor, visiting
from tests.browser.keyboard import faults_of_tab
from tests.browser.town import JANE, Town, slug, town
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S

pytestmark = pytest.mark.full

OWNER, USER = "kim", "joe"
ENVIRONMENT, JOB, LATE, APP = "night", "render", "later", "shop"
FLOW = '[[flows]]\nname = "pages"\nmean_s = 0.5\nwork_mcycles = 10\n'
OF_THE_PROVIDER = (
    "/",
    "/decision",
    "/decision/{decision}",
    "/decision/{waiting}",
    "/nodes",
    "/nodes/n1",
    "/workloads",
    f"/workloads/jobs/{JOB}",
    f"/workloads/jobs/{LATE}",
    "/workloads/web",
    f"/workloads/web/{APP}",
    "/workloads/submit",
    "/workloads/submit-web",
    "/vms",
    f"/vms/one?vm={JOB}%230&node={{node}}",
    f"/by-hand?kind=migrate&subject={JOB}%230",
    "/by-hand?kind=drain&subject=n1",
    "/fit",
    "/environments",
    f"/environments/{ENVIRONMENT}",
    "/new-environment",
    "/forecast",
    "/what-if",
    "/reports?from=1h",
    "/notifications",
    "/audit",
    "/accounts",
    "/account",
    "/account/second-factor",
)
OF_AN_OWNER = ("/", "/workloads", "/environments", f"/environments/{ENVIRONMENT}", "/new-environment", "/workloads/web")
OF_A_USER = ("/", "/workloads", "/environments", "/workloads/submit", "/account")
OF_NOBODY = ("/login", "/ask")


@pytest.fixture(scope="module")
def furnished(broker: PrivateBroker) -> Iterator[tuple[Town, dict[str, object]]]:
    """An estate with something on every page, and what the addresses of the pages need."""
    with town(broker) as made:
        yield made, furnish(made)


def furnish(made: Town) -> dict[str, object]:
    """One of everything: accounts, a job that runs, an application, an environment, a decision that waits."""
    made.add_account(OWNER, "owner")
    made.add_account(USER, "user")
    made.as_provider("jobs", "submit", str(made.job_file(JOB, 3_000.0)))
    made.approve()
    homes = made.running(f"{JOB}#0")
    app = Path(made.app_file(APP, metrics_url="http://127.0.0.1:9/"))
    app.write_text(app.read_text() + FLOW)
    made.lab.fake.load(APP, 500.0)
    made.as_provider("web", "submit", str(app))
    made.approve()
    made.running(f"{APP}#0")
    agreement = made.agreement(name=ENVIRONMENT, owner=OWNER, workload="batch", lower=1, users=[USER])
    made.as_provider("env", "create", agreement)
    made.as_provider("env", "activate", ENVIRONMENT)
    made.as_provider("jobs", "submit", str(made.job_file(LATE, 3_000.0)))
    made.wait_for(lambda: made.waiting() is not None, LIMIT_S, "a plan that waits")
    return {"decision": 1, "waiting": made.waiting(), "node": homes[f"{JOB}#0"]}


def too_wide(visitor: Visitor) -> list[str]:
    """What makes the page scroll sideways: what goes beyond the window outside of boxes that scroll by themselves."""
    wide: list[str] = visitor.page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] :
        [...document.body.querySelectorAll('*')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1
          && !one.closest('.scroll, .wide')).map((one) => one.outerHTML.slice(0, 160)).concat('the page')"""
    )
    return [f"{visitor.page.url}: wider than {visitor.page.viewport_size}: {each}" for each in wide[:5]]


def inspect(visitor: Visitor, who: str, path: str, status: int = 200) -> list[str]:
    """Open a page once and look at it in four ways: what is wrong with it."""
    page = visitor.see(path, status)
    faults: list[str] = []
    for shape, size in (("desktop", DESKTOP), ("phone", PHONE)):
        page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            visitor.shoot(f"{who}-{slug(path)}-{shape}-{scheme}")
            if (shape == "phone") == (scheme == "dark"):
                faults += grave_faults(page)
        faults += too_wide(visitor)
    page.set_viewport_size(DESKTOP)
    return faults + faults_of_tab(page)


@pytest.mark.parametrize(
    ("who", "paths"),
    [(JANE, OF_THE_PROVIDER), (OWNER, OF_AN_OWNER), (USER, OF_A_USER), ("", OF_NOBODY)],
    ids=["provider", "owner", "user", "nobody"],
)
def test_every_page(
    furnished: tuple[Town, dict[str, object]], browser: Browser, who: str, paths: tuple[str, ...]
) -> None:
    """Of one who is logged in, and of nobody."""
    made, known = furnished
    with visiting(browser, made.url, who) as visitor:
        faults = [fault for path in paths for fault in inspect(visitor, who or "nobody", path.format(**known))]
        if who:
            faults += inspect(visitor, who, "/no-such-page", 404)
    assert faults == [], "\n".join(faults)
