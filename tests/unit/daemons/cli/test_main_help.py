"""The help of every command: what it does, in plain words, and one example that its options allow."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache

import click
import pytest

from daemons.cli.main import main

EXAMPLE = "\b\nExample:\n"
# Words of an earlier language of this program, and roundabout ones.
UNWANTED = re.compile(
    r"\b(told|tells?|telling|whoever|whatever|anew|afresh|mend|in earnest|take[ns]? in hand|who leads|under way|"
    r"worst off|wish(es)?|gives? way|let go|hands off|silent|is to be|are to be|one's word|your word|forget|"
    r"as everywhere|wanted to run|under which)\b"
)


def leaves(command: click.Command, path: str = "trimtab") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its path."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, f"{path} {name}")
    else:
        yield path, command


@cache
def commands() -> dict[str, click.Command]:
    return dict(leaves(main))


def examples(command: click.Command) -> list[str]:
    """The lines of the block that is called `Example:`."""
    text = inspect.cleandoc(command.help or "")
    return [line.strip() for line in text.partition(EXAMPLE)[2].splitlines() if line.strip()]


@pytest.mark.parametrize("path", sorted(commands()))
def test_a_command_has_one_example_that_it_takes(path: str) -> None:
    command = commands()[path]

    assert (command.help or "").count("Example:") == 1
    assert 1 <= len(examples(command)) <= 2
    for line in examples(command):
        assert line.startswith(path)
        words = shlex.split(line.removeprefix(path).partition(" > ")[0])
        parser = command.make_parser(click.Context(command, resilient_parsing=True))
        given, rest, _ = parser.parse_args(list(words))
        assert rest == []
        missing = [each.name for each in command.params if each.required and given.get(each.name or "") is None]
        assert missing == []


def texts(command: click.Command) -> list[str]:
    """The help of a command and of its options."""
    return [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]


@pytest.mark.parametrize("path", sorted(commands()))
def test_help_is_in_plain_words(path: str) -> None:
    command = commands()[path]
    first = inspect.cleandoc(command.help or "").partition("\n\n")[0]

    assert [text for text in texts(command) if UNWANTED.search(text)] == []
    assert first[:1].isupper()
    assert first.endswith(".")
    assert [each for each in re.split(r"(?<=[.])\s", first) if len(each.split()) > 30] == []


def test_unwanted_words_are_found() -> None:
    assert UNWANTED.search("say who leads")
    assert not UNWANTED.search("the leader, untold")
