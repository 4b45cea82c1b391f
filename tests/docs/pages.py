"""Find the session in a page in Markdown: its commands, and the output that the page has for them.

A page takes part with the comment `<!-- session: demo -->` (a demo runs, and the shell knows it) or
`<!-- session: shell -->` (nothing runs). Its ```console blocks hold `$ COMMAND` lines, each followed by its output; a
line `> ...` right after a command goes on with it. Comments on the lines before a block are options:

* `<!-- not run -->`: it is left out;
* `<!-- run -->`: an ```sh block is run too, without its output;
* `<!-- file: NAME -->`: a block of any language is written into that file;
* `<!-- until: PATTERN -->`: its last command is repeated until what it prints matches the regular expression;
* `<!-- show: PATTERN -->`: of what it prints only lines that match are written into the page, `...` for the others;
* `<!-- number: 10 = PATTERN -->`: the number that the pattern finds in what it prints (its first group) is 10 in the
  page, from here on: in commands and in what they print.

Anywhere in the page `<!-- setup: COMMAND -->` runs a command that readers do not see, with the functions of `setup.sh`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SESSION = re.compile(r"^<!-- session: (\S+) -->$", re.MULTILINE)
FENCE = re.compile(r"^( *)```(\w*)\s*$")
OPTION = re.compile(r"^ *<!-- (not run|run|file|until|show|number)(?:: (.+))? -->$")
SETUP = re.compile(r"^ *<!-- setup: (.+) -->$")
END_OF_FILE = "END_OF_FILE"


class Kind(StrEnum):
    """What a session begins with."""

    DEMO = "demo"
    SHELL = "shell"


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the output that the page has for it; `first`, `last`: where that is in the page (0: its first
    line, `last` excluded). `expected` None: any output."""

    text: str
    first: int
    last: int
    expected: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Block:
    """The commands of one fenced block. `until`: what the last one must print before the session goes on. `show`: which
    lines are written ("": all). `number`: how the page calls a number, and the pattern that finds it ("": there is
    none)."""

    commands: tuple[Command, ...]
    indent: str = ""
    until: str = ""
    show: str = ""
    number: str = ""
    number_pattern: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that is a session."""

    path: Path
    kind: Kind
    lines: tuple[str, ...]
    blocks: tuple[Block, ...]


def read_page(path: Path) -> Page | None:
    """Return the session of a page; None when it is none. Raises ValueError for an unknown kind, or for a block that
    does not begin with a command."""
    text = path.read_text("utf-8")
    found = SESSION.search(text)
    if found is None:
        return None
    lines = tuple(text.splitlines())
    return Page(path, Kind(found.group(1)), lines, tuple(_blocks(path.name, lines)))


def _blocks(name: str, lines: tuple[str, ...]) -> Iterator[Block]:
    at = 0
    options: dict[str, str] = {}
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            option, setup = OPTION.match(lines[at]), SETUP.match(lines[at])
            if setup is not None:
                yield Block((Command(setup.group(1), at + 1, at + 1, None),))
            elif option is not None:
                options[option.group(1)] = option.group(2) or ""
            elif lines[at].strip():
                options = {}
            at += 1
            continue
        indent, language = fence.groups()
        end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), len(lines))
        if language == "console" and "not run" not in options:
            number, _, pattern = options.get("number", "").partition(" = ")
            commands = tuple(_commands(name, lines, at + 1, end, len(indent)))
            yield Block(commands, indent, options.get("until", ""), options.get("show", ""), number, pattern)
        elif "file" in options or (language == "sh" and "run" in options):
            script = "\n".join(line[len(indent) :] for line in lines[at + 1 : end])
            if "file" in options:
                script = f"cat >{options['file']} <<'{END_OF_FILE}'\n{script}\n{END_OF_FILE}"
            yield Block((Command(script, end, end, None),), indent)
        at, options = end + 1, {}


def _commands(name: str, lines: tuple[str, ...], first: int, end: int, indent: int) -> Iterator[Command]:
    if first < end and not lines[first][indent:].startswith("$ "):
        raise ValueError(f"{name}:{first + 1}: a session begins with a command, not {lines[first]!r}")
    at = first
    while at < end:
        text = lines[at][indent + 2 :]
        at += 1
        while at < end and lines[at][indent:].startswith("> "):
            text += "\n" + lines[at][indent + 2 :]
            at += 1
        begin = at
        while at < end and not lines[at][indent:].startswith("$ "):
            at += 1
        yield Command(text, begin, at, tuple(line[indent:] for line in lines[begin:at]))
