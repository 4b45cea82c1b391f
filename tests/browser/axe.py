"""axe-core, which finds what keeps people with assistive technology from using a page."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.browser.chromium import OUT
from tests.integration.debian import go_without, locked, need_programs

VERSION = "4.14.1"  # MPL-2.0; used by tests alone, and not part of what is given away
FILE = OUT / f"axe-core-{VERSION}.min.js"
GRAVE = ("serious", "critical")
FETCH_S = 120.0


def script() -> str:
    """The text of axe-core, fetched once from npm."""
    with locked("axe-core"):
        if not FILE.exists():
            need_programs(("npm",), ("npm",))
            OUT.mkdir(parents=True, exist_ok=True)
            _fetch(OUT / "fetched")
    return FILE.read_text(encoding="utf-8")


def _fetch(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    command = ["npm", "pack", f"axe-core@{VERSION}", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)
    if done.returncode:
        shutil.rmtree(folder)
        go_without(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    with tarfile.open(folder / f"axe-core-{VERSION}.tgz") as packed:
        inside = packed.extractfile("package/axe.min.js")
        assert inside is not None
        FILE.write_bytes(inside.read())
    shutil.rmtree(folder)


def grave_faults(page: Page) -> list[str]:
    """What axe-core finds serious or critical on a page as it is now."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(script() + "; 1")
    found: dict[str, Any] = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{page.url}: {fault['impact']} {fault['id']}: {fault['help']}: {_where(fault)}"
        for fault in found["violations"]
        if fault["impact"] in GRAVE
    ]


def _where(fault: dict[str, Any]) -> str:
    nodes = fault["nodes"]
    first = "; ".join(f"{node['html'][:200]} ({node['failureSummary'][:200]})" for node in nodes[:3])
    return f"{len(nodes)} elements: {first}"
