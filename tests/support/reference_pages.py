"""`python -m tests.support.reference_pages DOCS EXAMPLES`: writes the pages of the reference and the reference as
example files again; see `make reference`."""

from __future__ import annotations

import argparse
from pathlib import Path

from agents.service.main import DAEMON as AGENT
from daemons.cli.main import main as trimtab
from daemons.cli.reference.command_pages import daemon_page, pages_of
from daemons.cli.reference.example import example_of
from daemons.cli.reference.files import FILES
from daemons.cli.reference.markdown import page_of
from daemons.portal.auth.account_command import account
from daemons.portal.main import DAEMON as PORTAL
from daemons.service.main import DAEMON as CONTROLLER
from shared.runtime.startup import EXIT_STATUS
from tests.support.metric_tables import with_tables

PAGES = "docs/reference/"
COMMANDS = "cli"
WITHOUT_PAGE = "operator"  # which the index of the commands has
WITHOUT_EXAMPLE = ("load", "operator")  # short enough as they are
SUMMARIES = {
    "trimtab-controller": "Decides which workload runs on which node, and sends orders to the agents.",
    "trimtab-agent": "Reports the VMs of a node to the controller, and carries out its orders on them.",
    "trimtab-portal": "Serves the web pages of the cluster.",
}


def pages() -> dict[str, str]:
    """Return the pages by their paths below docs/reference."""
    found = {file.page.removeprefix(PAGES): page_of(file) for file in FILES.values() if file.name != WITHOUT_PAGE}
    made = pages_of(trimtab, SUMMARIES)
    for daemon, below in ((CONTROLLER, None), (AGENT, None), (PORTAL, account)):
        made[f"{daemon.name}.md"] = daemon_page(daemon.parser(), SUMMARIES[daemon.name], EXIT_STATUS, below)
    return found | {f"{COMMANDS}/{name}": text for name, text in made.items()}


def examples() -> dict[str, str]:
    """Return the example files by their names below examples/reference."""
    return {file.title: example_of(file) for file in FILES.values() if file.name not in WITHOUT_EXAMPLE}


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files below a folder; pages of commands that are gone are removed."""
    for old in (folder / COMMANDS).glob("*.md"):
        old.unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the generated reference again.")
    parser.add_argument("pages", type=Path, help="folder of the pages")
    parser.add_argument("examples", type=Path, help="folder of the example files")
    given = parser.parse_args()
    write(given.pages, pages())
    metrics = given.pages / "metrics.md"
    metrics.write_text(with_tables(metrics.read_text("utf-8")), "utf-8")
    write(given.examples, examples())
