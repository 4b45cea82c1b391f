"""The commands of docs/how-to, as they stand there: those of blocks for the shell, and those within the text."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "how-to"
SHELL_LIMIT_S = 10.0
_FENCE = re.compile(r"( *)```(\w*)")
_HEADING = re.compile(r"#+ (.+)")
_SESSION = re.compile(r"^<!-- session: ", re.MULTILINE)
_PROMPT = re.compile(r"[$#] (?=\S)")
_SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page: as long as the shell takes it for one, a loop with all its lines. `section`: the heading
    that is nearest above it."""

    page: str
    section: str
    text: str


def commands(page: str) -> list[Command]:
    """Read the commands of a page's blocks of `sh` and `console`, in their order. In a page that is a session
    (tests/docs), blocks of `console` are for that."""
    found: list[Command] = []
    whole = (FOLDER / page).read_text("utf-8")
    for section, kind, lines in _blocks(whole):
        if kind == "sh":
            found += [Command(page, section, text) for text in split(lines)]
        elif kind == "console" and not _SESSION.search(whole):
            found += [Command(page, section, text) for text in prompted(lines)]
    return found


def span(page: str, begins: str) -> str:
    """Read the one command within a page's text that begins so. Raises ValueError unless there is exactly one."""
    text = (FOLDER / page).read_text("utf-8")
    found: list[str] = sorted({code for code in _SPAN.findall(_without_blocks(text)) if code.startswith(begins)})
    if len(found) != 1:
        raise ValueError(f"{page}: {len(found)} commands in the text begin with {begins!r} (expected one): {found}")
    return found[0]


def block(page: str, section: str, kind: str) -> str:
    """Read the first block of a kind in a section. Raises StopIteration where there is none."""
    blocks = _blocks((FOLDER / page).read_text("utf-8"))
    return "\n".join(next(lines for of, has, lines in blocks if (of, has) == (section, kind))) + "\n"


def split(lines: Sequence[str]) -> Iterator[str]:
    """Yield the commands of a script. Raises ValueError where the last one has no end."""
    taken: list[str] = []
    for line in lines:
        if not taken and (not line.strip() or line.lstrip().startswith("#")):
            continue
        taken.append(line)
        if not line.endswith("\\") and _is_whole("\n".join(taken)):
            yield "\n".join(taken)
            taken = []
    if taken:
        raise ValueError(f"not a whole command: {taken}")


def prompted(lines: Sequence[str]) -> Iterator[str]:
    """Yield what follows the prompts `$` and `#`, without what is printed."""
    goes_on, taken = False, ""
    for line in lines:
        prompt = _PROMPT.match(line)
        if not (goes_on or prompt):
            continue
        taken = f"{taken}\n{line}" if goes_on else line[prompt.end() :] if prompt else ""
        goes_on = line.endswith("\\")
        if not goes_on:
            yield taken


def _is_whole(text: str) -> bool:
    done = subprocess.run(
        ["bash", "-n"], input=text, capture_output=True, text=True, timeout=SHELL_LIMIT_S, check=False
    )
    return done.returncode == 0 and "warning" not in done.stderr


def _blocks(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """The heading above each block, its kind and its lines, without the indentation that a list gives them."""
    section, indent, kind, lines = "", "", None, list[str]()
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if kind is not None and fence:
            yield section, kind, lines
            kind = None
        elif fence:
            (indent, kind), lines = fence.groups(), []
        elif kind is not None:
            lines.append(line.removeprefix(indent))
        elif heading := _HEADING.match(line):
            section = heading.group(1)


def _without_blocks(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
