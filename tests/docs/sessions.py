"""Run the sessions of documentation pages: `python -m tests.docs.sessions [--write] [PAGE ...]`.

Without a page all that take part are run (`tests/docs/pages.py` says which). What a command prints is compared with the
page (`tests/docs/matching.py`); with `--write` the page is given what was printed where that differs.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.base.clock import SystemClock
from tests.docs.matching import matches, rewritten, trimmed
from tests.docs.pages import Block, Command, Kind, Page, read_page
from tests.docs.shell import Shell
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PREPARE = f"cp -r {ROOT}/examples . && . {Path(__file__).with_name('setup.sh')}"
DEMO = "trimtab demo >/dev/null && . ~/.local/state/trimtab/demo/env"
UNTIL_S = 90.0
LOOK_S = 1.0
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command of a page has printed. `problem`: why the session cannot go on as the page says ("": it can)."""

    block: Block
    command: Command
    printed: tuple[str, ...]
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it is what the page says."""
        if self.problem:
            return False
        return self.command.expected is None or matches(self.command.expected, self.printed)


def session_pages(docs: Path = DOCS) -> list[Page]:
    """Return the pages below a folder that take part, by path."""
    return [page for path in sorted(docs.rglob("*.md")) if (page := read_page(path)) is not None]


def run_page(page: Page) -> Iterator[Ran]:
    """Run a page's commands, in order, in a shell of their own, in a folder with a copy of the examples."""
    with Shell() as shell:
        for command in (PREPARE, *((DEMO,) if page.kind is Kind.DEMO else ())):
            status, printed = shell.run(command)
            if status != 0:
                raise RuntimeError("\n".join(printed))
        numbers: dict[str, str] = {}
        for block in page.blocks:
            for command in block.commands:
                yield _run(shell, block, command, numbers)


def renumbered(text: str, numbers: Mapping[str, str]) -> str:
    """Return a text with some numbers in the place of others."""
    for number, to in numbers.items():
        text = re.sub(rf"(?<![\w.,:-]){re.escape(number)}(?![\w:-]|[.,]\d)", to, text)
    return text


def _run(shell: Shell, block: Block, command: Command, numbers: dict[str, str]) -> Ran:
    """Run a command. `numbers`: how the page calls numbers of this session; one that is printed is added."""
    until_s = _CLOCK.monotonic_s() + UNTIL_S
    waits = block.until and command is block.commands[-1]
    while True:
        status, lines = shell.run(renumbered(command.text, {page: ours for ours, page in numbers.items()}))
        if block.number and (found := re.search(block.number_pattern, "\n".join(lines))):
            numbers[found.group(1)] = block.number
        printed = [renumbered(line, numbers) for line in lines]
        if not waits or re.search(block.until, "\n".join(printed)):
            break
        if _CLOCK.monotonic_s() >= until_s:
            return Ran(block, command, trimmed(printed), f"it has not printed {block.until!r} within {UNTIL_S:g} s")
        _CLOCK.sleep(LOOK_S)
    problem = f"it ended with status {status}" if command.expected is None and status != 0 else ""
    return Ran(block, command, trimmed(printed), problem)


def differences(page: Page, ran: Sequence[Ran]) -> list[str]:
    """Return a text for each command that has not printed what the page says."""
    return [_difference(page, each) for each in ran if not each.is_right]


def _difference(page: Page, ran: Ran) -> str:
    head = f"{page.path.name}:{ran.command.first}: $ {ran.command.text}"
    expected = trimmed(ran.command.expected or ())
    lines = difflib.unified_diff(expected, ran.printed, "the page", "printed", lineterm="", n=50)
    return "\n".join((head, *((ran.problem,) if ran.problem else ()), *lines))


def written(page: Page, ran: Sequence[Ran]) -> str:
    """Return the text of a page with what its commands have printed."""
    lines = list(page.lines)
    for each in reversed(ran):
        expected = each.command.expected
        if expected is not None and not each.problem:
            new = rewritten(expected, each.printed, each.block.show)
            lines[each.command.first : each.command.last] = [(each.block.indent + line).rstrip() for line in new]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status 1 when a page differs, or could not be run as it says."""
    parser = argparse.ArgumentParser(description="Run the sessions of documentation pages.")
    parser.add_argument("--write", action="store_true", help="write what was printed into the pages")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    given = parser.parse_args(arguments)
    status = 0
    for page in [read_page(path) for path in given.pages] if given.pages else session_pages():
        if page is None:
            parser.error("a page has no comment `<!-- session: demo -->`")
        begun_s = _CLOCK.monotonic_s()
        ran = list(run_page(page))
        wrong = differences(page, ran)
        if given.write:
            page.path.write_text(written(page, ran), "utf-8")
            wrong = [_difference(page, each) for each in ran if each.problem]
        print(f"{page.path}: {len(ran)} commands, {_CLOCK.monotonic_s() - begun_s:.0f} s, {len(wrong)} wrong")
        print("".join(f"{each}\n\n" for each in wrong), end="")
        status = status or int(bool(wrong))
    return status


if __name__ == "__main__":
    sys.exit(main())
