"""The reference of a file as a page of the documentation, and what all such pages have in common."""

from __future__ import annotations

import os.path
import re
import textwrap
from collections.abc import Iterable, Iterator

from daemons.cli.reference.files import ConfigFile
from daemons.cli.reference.words import NONE, REQUIRED, change_of, default_of, kind_of, last
from shared.config.reference import Key, Section

GENERATED = "<!-- Made by `make reference` from the source: change the texts there. -->"
WIDTH = 140
_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([*<>\[\]])")


def page_of(file: ConfigFile) -> str:
    """Return the page of a file, as it lies in docs/reference."""
    return "\n".join(_lines(file)) + "\n"


def tables_of(file: ConfigFile, level: int = 2) -> Iterator[str]:
    """Yield the tables of a file, each under a heading of that level."""
    for section in file.sections:
        if not (section.header or section.keys):
            continue
        yield f"{'#' * level} {_title(section)}"
        yield ""
        if section.header:
            yield from paragraph(_meaning(section))
            yield ""
        if section.keys:
            yield from table(_head(file), (_row(file, key) for key in section.keys))
            yield ""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table of Markdown."""
    titles = tuple(head)
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(cell(part) for part in row)} |"


def cell(text: str) -> str:
    """Return text as a cell of a table takes it."""
    return " ".join(text.split()).replace("|", "\\|")


def escaped(text: str) -> str:
    """Return plain text as Markdown takes it; what is in backticks is code."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """Return text as code in a line."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def paragraph(text: str) -> list[str]:
    """Return text in lines of at most `WIDTH` characters."""
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _lines(file: ConfigFile) -> Iterator[str]:
    yield f"# {file.title}"
    yield ""
    yield GENERATED
    yield ""
    yield from paragraph(_purpose(file))
    yield ""
    yield "```sh"
    yield f"{file.check:<40} # {'print' if file.unit else 'show what is understood, or'} every problem of the file"
    yield f"{'trimtab config reference ' + file.name:<40} # print this reference"
    yield "```"
    yield ""
    yield from paragraph(_reading(file))
    yield ""
    yield from tables_of(file)
    if file.rules:
        yield "## Rules between keys"
        yield ""
        yield from (f"* {rule}" for rule in file.rules)
        yield ""
    yield "## See also"
    yield ""
    yield from _links(file)


def _purpose(file: ConfigFile) -> str:
    place = f" The file is {code(file.place)}." if file.place else ""
    return f"{file.sections[0].meaning}{place} This page lists every key."


def _reading(file: ConfigFile) -> str:
    headers = [section.header for section in file.sections]
    parts = ["Keys end in their unit, such as `_s` for seconds."]
    if any("NAME" in header for header in headers):
        parts.append("`NAME` in the name of a table stands for a name of your choice.")
    if any(header.startswith("[[") for header in headers):
        parts.append("A table in double brackets may be repeated.")
    if file.unit:
        parts.append(
            f"`reload`: `systemctl reload {file.unit}` (SIGHUP) is enough after a change; `restart`: the daemon needs a"
            f" restart, `systemctl restart {file.unit}`."
        )
    return " ".join(parts)


def _title(section: Section) -> str:
    beside = f" with {code(section.when)}" if section.when else ""
    return (code(section.header) if section.header else "Top level") + beside


def _meaning(section: Section) -> str:
    return section.meaning + (" This table may be left out." if section.is_optional and section.header else "")


def _head(file: ConfigFile) -> tuple[str, ...]:
    return ("Key", "Type", "Default", *(("Change",) if file.unit else ()), "Meaning")


def _row(file: ConfigFile, key: Key) -> tuple[str, ...]:
    default = default_of(key)
    change = change_of(file, key)
    return (
        code(last(key.name)),
        escaped(kind_of(key)),
        default if default in (REQUIRED, NONE) else code(default),
        *((change,) if change else ()),
        key.meaning,
    )


def _links(file: ConfigFile) -> Iterator[str]:
    made = () if file.name == "load" else (f"examples/reference/{file.title}",)
    for target in (file.guide, *file.examples, *made):
        yield f"* [{target.removeprefix('docs/')}]({os.path.relpath(target, os.path.dirname(file.page))})"
