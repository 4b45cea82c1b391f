"""Documentation, help and pages use the field's words: docs/adr/0037 says which they do not use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from daemons.cli.main import main
from tests.docs.terms import banned_words
from tests.docs.words import pages
from tests.support.paths import ROOT

TEMPLATES = sorted(path for folder in ("portal", "report") for path in (ROOT / "daemons" / folder).rglob("*.html"))
NAMES_THEM = ("glossary.md", "0037-standard-terms.md")  # for those who search for an older word


def _commands(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, f"{words} {name}")


@pytest.mark.parametrize("text", ["Whoever asks is told.", "It is\nunder way", "node-silent", "It mends by itself."])
def test_a_banned_word_is_found(text: str) -> None:
    assert [*banned_words(text)]


def test_other_words_are_not() -> None:
    assert [*banned_words("The understanding toll of an amended plan; tellurium.")] == []


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_has_none(path: Path) -> None:
    found = [] if path.name in NAMES_THEM else [*banned_words(re.sub(r"\]\([^)]*\)", "]", path.read_text("utf-8")))]
    assert found == []


@pytest.mark.parametrize("path", [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *TEMPLATES])
def test_a_file_for_people_has_none(path: Path) -> None:
    assert [*banned_words(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(("words", "command"), [*_commands(main, "trimtab")], ids=lambda each: str(each))
def test_the_help_of_a_command_has_none(words: str, command: click.Command) -> None:
    texts = [command.help or "", command.epilog or "", *(getattr(each, "help", "") or "" for each in command.params)]
    assert [*banned_words("\n".join(texts))] == [], words
