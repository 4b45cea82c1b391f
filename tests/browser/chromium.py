"""Somebody who uses the portal in Chromium, and everything that a browser finds wrong with a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, ViewportSize, sync_playwright

from tests.architecture.sources import ROOT
from tests.browser.town import PEOPLE_PASSWORD, file_of
from tests.integration.debian import need_programs

OUT = ROOT / "out" / "browser"
DESKTOP: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
LIMIT_MS = 60_000.0  # of anything that a page is to do: a loaded machine is slow
FLAGS = (
    "--no-sandbox",  # the tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium without a window, with a new empty profile."""
    need_programs(("chromium",), ("chromium", "fonts-dejavu-core"))
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        launched = playwright.chromium.launch(executable_path=path, args=list(FLAGS), headless=True)
        try:
            yield launched
        finally:
            launched.close()


class Visitor:
    """A browser of somebody's own. `faults`: what its console, the content security policy or a request to another host
    has shown to be wrong since it began. `forgiven`: statuses of answers that a test provokes."""

    def __init__(self, browser: Browser, url: str, scheme: str = "light", **options: Any) -> None:
        self.url, self.faults = url, list[str]()
        self.forgiven: set[int] = set()
        self._context = browser.new_context(
            base_url=url,
            ignore_https_errors=True,
            viewport=options.pop("viewport", DESKTOP),
            color_scheme="dark" if scheme == "dark" else "light",
            **options,
        )
        self._context.set_default_timeout(LIMIT_MS)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(f"{self.page.url}: {error}"))
        self.page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        of_a_status = any(f"status of {status}" in message.text for status in self.forgiven)
        if not of_a_status:
            self.faults.append(f"{self.page.url}: {message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != urlsplit(self.url).netloc:
            self.faults.append(f"{self.page.url}: asks another host: {request.url}")

    def see(self, path: str, status: int = 200) -> Page:
        """Go to a page, which must answer like that."""
        if status != 200:
            self.forgiven.add(status)
        answer: Response | None = self.page.goto(path)
        assert answer is not None
        assert answer.status == status, f"{path}: {answer.status}: {self.page.inner_text('main')[:500]}"
        return self.page

    def log_in(self, name: str, password: str = PEOPLE_PASSWORD) -> Page:
        """By the form."""
        page = self.see("/login")
        page.fill("#name", name)
        page.fill("#password", password)
        page.click("main button")
        page.wait_for_selector(".me form")
        return page

    def status_of(self, path: str) -> int:
        """What a request with this browser's cookies is answered, beside the page."""
        return self._context.request.get(path).status

    def post(self, path: str, **fields: str | float | bool) -> int:
        """What a form that another program sends with this browser's cookies is answered."""
        sent = self._context.request.post(path, form=fields, headers={"origin": self.url}, max_redirects=0)
        return sent.status

    def word(self) -> str:
        """The hidden word of the forms of the page that is open."""
        return self.page.locator('input[name="csrf"]').first.input_value()

    def shoot(self, name: str) -> Path:
        """Keep a picture of the whole page, with the pictures that are fetched only when they come into sight."""
        self.page.evaluate(
            """() => Promise.all([...document.images].map((one) => { one.loading = 'eager';
            return one.decode().catch(() => null); }))"""
        )
        file = file_of(OUT, f"{name}.png")
        self.page.screenshot(path=file, full_page=True, animations="disabled")
        return file

    def leave(self) -> None:
        """Close the browser; everything that was wrong comes out now."""
        self._context.close()
        assert self.faults == [], "\n".join(self.faults)


@contextmanager
def visiting(browser: Browser, url: str, name: str = "", **options: Any) -> Iterator[Visitor]:
    """A visitor, logged in as `name` if one is given. AssertionError at the end for what was wrong meanwhile."""
    made = Visitor(browser, url, **options)
    try:
        if name:
            made.log_in(name)
        yield made
    except BaseException:
        if os.environ.get("CI") != "true" and not made.page.is_closed():
            made.shoot("failed")
        made.faults.clear()  # the first thing that went wrong is the one to tell
        raise
    finally:
        made.leave()
