"""The reference of a file as a file of its own: every key in a comment, at its default, with its meaning above it.

A line that begins with `# ` is text; one that begins with `#` alone is what the file may say.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from daemons.cli.reference.files import ConfigFile
from daemons.cli.reference.words import change_of, kind_of, last
from shared.config.reference import Key, Section, toml_value

WIDTH = 118
_COMMENT = re.compile(r"^#(?=\S)", re.MULTILINE)
_KIND = re.compile(r'"(\w+)"')


def example_of(file: ConfigFile) -> str:
    """Return the file with every key in a comment. A key without a default has an example."""
    return "\n".join(_lines(file)) + "\n"


def uncommented(text: str) -> str:
    """Return a file that `example_of` made with every key given."""
    return _COMMENT.sub("", text)


def _lines(file: ConfigFile) -> Iterator[str]:
    yield from _text(f"{file.title}: every key with its default. {file.sections[0].meaning}")
    yield from _text(f"Made by `make reference`. The same as a page: {file.page}")
    yield from _text("Remove the # of what you change, and the # of its table's header if that has one.")
    sections = file.sections
    for section in sections:
        keys = [key for key in section.keys if not _is_split(key, sections)]
        if section.header:
            yield ""
            yield from _text(section.meaning)
            yield _header(section, sections)
        for key in keys:
            yield ""
            change = change_of(file, key)
            yield from _text(key.meaning)
            yield from _text(
                f"{kind_of(key)}{'; required' if key.is_required else ''}{f'; {change}' if change else ''}"
            )
            yield f"#{last(key.name)} = {_value(key)}"


def _header(section: Section, sections: tuple[Section, ...]) -> str:
    """Return the header, commented out if an empty table, here or around it, differs from a missing one."""
    kind = _KIND.search(section.when)
    header = section.header.replace("NAME", kind[1].upper()) if kind else section.header
    around = (other for other in sections if other.name and section.name.startswith(f"{other.name}."))
    return f"#{header}" if section.is_optional or any(other.is_optional for other in around) else header


def _is_split(key: Key, sections: tuple[Section, ...]) -> bool:
    """Return whether a key is a table that other sections describe."""
    return any(section.name.startswith(f"{key.name}.") for section in sections)


def _value(key: Key) -> str:
    return toml_value(key.default) if key.default is not None else key.example


def _text(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )
