"""The reference of a file as plain text, for a terminal, and as one JSON object."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from daemons.cli.reference.files import ConfigFile
from daemons.cli.reference.words import NONE, REQUIRED, change_of, default_of, kind_of, shown
from shared.config.reference import Key

WIDTH = 100
INDENT = " " * 8


def text_of(file: ConfigFile) -> str:
    """Return the reference of a file as text; every key has its full name."""
    return "\n".join(_lines(file)).strip("\n") + "\n"


def object_of(file: ConfigFile) -> dict[str, Any]:
    """Return the reference of a file as plain data: its tables with their keys, and rules between keys."""
    return {
        "file": file.name,
        "place": file.place,
        "check": file.check,
        "tables": [
            {
                "name": section.name,
                "when": section.when,
                "meaning": section.meaning,
                "optional": section.is_optional,
                "keys": [_object(file, key) for key in section.keys],
            }
            for section in file.sections
        ],
        "rules": list(file.rules),
    }


def _object(file: ConfigFile, key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "type": key.type,
        "values": key.values,
        "unit": key.unit,
        "required": key.is_required,
        "default": key.default,
        "example": key.example,
        "change": change_of(file, key),
        "meaning": key.meaning,
    }


def _lines(file: ConfigFile) -> Iterator[str]:
    yield f"{file.title}: {file.place}" if file.place else file.title
    yield f"Check it with: {file.check}"
    for section in file.sections:
        beside = f", {section.when}" if section.when else ""
        yield ""
        if section.header:
            yield f"{section.header}{beside}"
        yield from textwrap.wrap(section.meaning, WIDTH)
        for key in section.keys:
            yield ""
            yield f"    {_assigned(key)}"
            change = change_of(file, key)
            yield from _wrapped(kind_of(key) + (f"; needs a {change}" if change else ""))
            yield from _wrapped(key.meaning)
    if file.rules:
        yield from ("", "Rules between keys")
        for rule in file.rules:
            yield from textwrap.wrap(rule, WIDTH, initial_indent="    * ", subsequent_indent="      ")


def _assigned(key: Key) -> str:
    default = default_of(key)
    return f"{shown(key.name)} ({default})" if default in (REQUIRED, NONE) else f"{shown(key.name)} = {default}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)
