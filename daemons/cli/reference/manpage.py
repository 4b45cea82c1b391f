"""The reference of a file as a manual page of section 5."""

from __future__ import annotations

from collections.abc import Iterator

from daemons.cli.reference.files import FILES, ConfigFile
from daemons.cli.reference.roff import escaped, head
from daemons.cli.reference.words import change_of, default_of, kind_of, last

NUMBER = 5


def file_pages(version: str) -> dict[str, str]:
    """Return the manual pages of all files by file name."""
    return {f"{file.manual}.{NUMBER}": manual_of(file, version) for file in FILES.values()}


def manual_of(file: ConfigFile, version: str) -> str:
    """Return the manual page of a file."""
    return "\n".join(_lines(file, version)) + "\n"


def _lines(file: ConfigFile, version: str) -> Iterator[str]:
    first = file.sections[0]
    yield from head(file.manual, NUMBER, version, _plain(first.meaning.partition(". ")[0]))
    yield ".SH DESCRIPTION"
    yield escaped(_plain(first.meaning))
    if file.place:
        yield f"The file is {escaped(file.place)}."
    yield from (".PP", f".B {escaped(file.check)}", ".br", "shows every problem of the file.")
    if file.unit:
        yield ".PP"
        yield "After a change of a key that is marked with reload, SIGHUP is enough. All others need a restart."
    yield ".SH KEYS"
    for section in file.sections:
        if section.header:
            beside = f", {section.when}" if section.when else ""
            yield f'.SS "{escaped((section.header + beside).replace(chr(34), chr(39)))}"'
            yield escaped(_plain(section.meaning))
        for key in section.keys:
            change = change_of(file, key)
            yield from (".TP", f".B {escaped(last(key.name))}", escaped(_plain(key.meaning)), ".br")
            yield escaped(f"{kind_of(key)}. Default: {default_of(key)}.{f' {change.capitalize()}.' if change else ''}")
    if file.rules:
        yield ".SH RULES BETWEEN KEYS"
        for rule in file.rules:
            yield from (".IP \\(bu 2", escaped(_plain(rule)))
    yield ".SH SEE ALSO"
    yield f".BR {escaped(file.unit)} (8)" if file.unit else ".BR trimtab (1)"


def _plain(text: str) -> str:
    return text.replace("`", "")
