"""Take the pictures of the portal for the documentation: `python -m tests.docs.screenshots`.

A demo runs with jobs, a web application, a drained node and a plan that waits for approval; Debian's Chromium shows its
pages, which are written to docs/images/portal-*.png.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Page, ViewportSize

from tests.browser.chromium import Visitor, chromium
from tests.docs.sessions import DEMO, DOCS, PREPARE
from tests.docs.shell import Shell

IMAGES = DOCS / "images"
WIDTH, HEIGHT, HEIGHT_MAX = 1_100, 800, 1_300
COLOURS = 128
BYTES_MAX = 120 * 1_024
WHAT_IF_MS = 150_000.0
ACCOUNT = "demo"
WEB = """
name = "shop"
memory_mib = 1_024
vcpus = 2
max_mhz = 4_000
min_instances = 1
max_instances = 3

[[flows]]
name = "pages"
mean_s = 0.25
work_mcycles = 50
"""
SCENE = (
    "decide_every 10; job_file render.toml 7200; job_file batch.toml; job_file report.toml 3600",
    "run_jobs render.toml render-1 render-2 render-3; run_jobs batch.toml batch-1 batch-2",
    "run_jobs report.toml report; job_file quick.toml 600; sed -i 's/9600000/40000/; s/9_600_000/40_000/' quick.toml",
    "run_jobs quick.toml quick-1 quick-2",
    f"cat >web.toml <<'END'{WEB}END\ntrimtab web submit web.toml; await 'shop#0 +running' trimtab web show shop",
    "hosts load shop 1000; push_web - shop pages:window_s=20.0,offered=400,served=400,mean_s=0.015",
    "trimtab nodes drain host6 --no-wait --why 'new disk'; await 'quick-2 +completed' trimtab jobs list",
    "sleep 15; push_web - shop pages:window_s=20.0,offered=402,served=402,mean_s=0.015",
)
WAITING = "trimtab nodes drain host1 --no-wait --why 'kernel update'; await 'waiting approval +yes' trimtab plan show"


def main() -> None:
    """Take all pictures. Raises RuntimeError when the scene cannot be set, or a picture is too large."""
    with demo() as shell, chromium() as browser:
        status = json.loads("\n".join(run(shell, "trimtab demo status -o json")))
        url = f"http://localhost:{shell.port}"
        visitor = Visitor(browser, url, viewport=ViewportSize(width=WIDTH, height=HEIGHT))
        visitor.log_in(ACCOUNT, status["password"])
        what_if(visitor.page, url)
        shoot(visitor.page, "what-if", above=".report img, .report svg")
        run(shell, WAITING)
        plan = json.loads("\n".join(run(shell, "trimtab plan show -o json")))
        shoot(visitor.see(f"/decision/{plan['decision']['number']}"), "decision")
        shoot(visitor.see("/"), "now")
        shoot(visitor.see("/nodes/host2"), "node", above="h2:text-is('Use')")
        visitor.leave()


@contextmanager
def demo() -> Iterator[Shell]:
    """Start a demo and set its scene."""
    with Shell() as shell:
        for command in (PREPARE, DEMO, *SCENE):
            run(shell, command)
        yield shell


def run(shell: Shell, command: str) -> list[str]:
    """Return what a command prints. Raises RuntimeError when it fails."""
    status, lines = shell.run(command)
    if status != 0:
        raise RuntimeError("\n".join((command, *lines)))
    return lines


def what_if(page: Page, url: str) -> None:
    """Simulate the past with another policy, until there is a result."""
    page.goto(f"{url}/what-if")
    page.fill("#from", "1h")
    page.select_option("#placement", "edf")
    page.fill("#why", "would earliest deadline first be better?")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector(".report table", timeout=WHAT_IF_MS)


def shoot(page: Page, name: str, above: str = "") -> None:
    """Write the picture of a page, from its top: all of it, or what is above an element, up to a height."""
    page.evaluate(
        """() => Promise.all([...document.images].map((one) => { one.loading = 'eager';
        return one.decode().catch(() => null); }))"""
    )
    box = page.locator(above).first.bounding_box() if above else None
    height = min(HEIGHT_MAX, box["y"] if box else page.evaluate("document.documentElement.scrollHeight"))
    taken = page.screenshot(full_page=True, animations="disabled", clip=FloatRect(x=0, y=0, width=WIDTH, height=height))
    file = IMAGES / f"portal-{name}.png"
    write(taken, file)
    print(f"{file}: {file.stat().st_size:,} bytes")


def write(taken: bytes, file: Path) -> None:
    """Write a picture with few colours. Raises RuntimeError when it is too large."""
    image = Image.open(BytesIO(taken)).convert("RGB").quantize(COLOURS)
    image.save(file, optimize=True)
    if file.stat().st_size > BYTES_MAX:
        raise RuntimeError(f"{file}: {file.stat().st_size:,} bytes (at most {BYTES_MAX:,})")


if __name__ == "__main__":
    main()
