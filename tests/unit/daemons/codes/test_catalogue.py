"""The source of all codes: nothing twice, sentences that fit into a cell, commands that exist, near spellings."""

from __future__ import annotations

import re
from collections import Counter

import click
import pytest

from daemons.cli.main import main
from daemons.codes.catalogue import ALL, find, hint, names, nearest
from daemons.codes.code import Code, Kind

WORDS_MAX = 25
TRIMTAB = re.compile(r"`(trimtab [^`]*)`")
PLACEHOLDER = re.compile(r"[A-Z]+$")


def test_a_kind_has_a_code_once() -> None:
    """But a verdict's code may be an outcome, a reason or a use of the surplus."""
    counted = Counter((each.kind, each.code, each.about if each.kind is Kind.VERDICT else "") for each in ALL)

    assert [key for key, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("code", ALL, ids=lambda code: f"{code.kind}:{code.code}")
def test_texts_are_sentences_that_fit_into_a_cell(code: Code) -> None:
    texts = [text for text in (code.meaning, code.action) if text]

    assert code.meaning
    assert [text for text in texts if not text.endswith(".") or not text[:1].isupper()] == []
    assert [text for text in texts if len(text.split()) > WORDS_MAX] == []


def commands_of(code: Code) -> list[str]:
    """The commands of ours that it names."""
    named = [found for text in (code.meaning, code.action) for found in TRIMTAB.findall(text)]
    return [*named, *([code.command] if code.command.startswith("trimtab ") else [])]


def wrong(command: str) -> str:
    """What of a command is neither a command, an option nor a placeholder ("": nothing)."""
    found: click.Command = main
    for word in command.split()[1:]:
        below = found.get_command(click.Context(found), word) if isinstance(found, click.Group) else None
        if below is not None:
            found = below
        elif word.startswith("-"):
            if not any(word in each.opts for each in found.params):
                return word
        elif isinstance(found, click.Group) or not (PLACEHOLDER.match(word) or word.startswith("/")):
            return word
    return "" if not isinstance(found, click.Group) or command == "trimtab --version" else command


def test_commands_exist() -> None:
    found = {command: wrong(command) for code in ALL for command in commands_of(code)}

    assert len(found) > 30
    del found["trimtab demo start"]  # added by an entry point that need not be installed
    assert {command: what for command, what in found.items() if what} == {}


def test_a_command_that_does_not_exist_is_found() -> None:
    assert wrong("trimtab nodes fly NODE") == "fly"
    assert wrong("trimtab nodes") == "trimtab nodes"
    assert wrong("trimtab nodes list --nose") == "--nose"
    assert wrong("trimtab nodes show node") == "node"


def test_a_code_of_several_kinds_is_found_with_all() -> None:
    assert [each.kind for each in find("node-off")] == [Kind.EVENT, Kind.ALARM]
    assert [each.kind for each in find("alarm:node-off")] == [Kind.ALARM]
    assert find("alarm:leading") == ()
    assert find("no-such-code") == ()


def test_near_spellings_are_offered() -> None:
    assert nearest("node-unreachabel")[0] == "node-unreachable"
    assert nearest("clock") == ("clock-good", "clock-skewed")
    assert nearest("xyzzy") == ()
    assert nearest("") == ()
    assert list(names()) == sorted({each.code for each in ALL})


def test_a_hint_has_the_next_command() -> None:
    assert hint("unknown-node", Kind.REFUSAL) == "Look up its name. Run: trimtab nodes list"
    assert hint("busy", Kind.REFUSAL) == "Try again in a few seconds."
    assert hint("infeasible", Kind.ERROR) == ""
    assert hint("no-such-code", Kind.REFUSAL) == ""


def test_every_refusal_has_a_hint() -> None:
    assert [each.code for each in ALL if each.kind is Kind.REFUSAL and not hint(each.code, Kind.REFUSAL)] == []
