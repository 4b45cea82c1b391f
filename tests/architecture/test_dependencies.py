"""docs/adr/0003 lists every library that setup.cfg requires, with the extras that require it."""

from __future__ import annotations

import re

from packaging.requirements import Requirement

from tests.architecture.sources import ROOT, settings

ROW = re.compile(r"^\| `([a-z0-9-]+)` \| ((?:`[a-z]+`(?:, )?)+) \|", re.MULTILINE)


def required() -> dict[str, set[str]]:
    """Return the extras that require each library; `base` is what every installation has."""
    config = settings()
    lists = {"base": config["options"]["install_requires"], **config["options.extras_require"]}
    found: dict[str, set[str]] = {}
    for extra, text in lists.items():
        for line in text.splitlines():
            if line and not line.startswith("#") and not line.startswith("trimtab["):
                found.setdefault(Requirement(line).name, set()).add(extra)
    return found


def listed(text: str) -> dict[str, set[str]]:
    """Return what the table of a page says of each library."""
    return {name: set(re.findall(r"`([a-z]+)`", extras)) for name, extras in ROW.findall(text)}


def test_rows_are_read() -> None:
    text = "| `pika` | `base` | BSD |\n| `uvicorn` | `portal`, `dev` | BSD |\n"

    assert listed(text) == {"pika": {"base"}, "uvicorn": {"portal", "dev"}}


def test_the_page_has_every_library_and_its_extras() -> None:
    assert listed((ROOT / "docs/adr/0003-dependencies.md").read_text("utf-8")) == required()
