"""What a reference of the commands is made of."""

from __future__ import annotations

import click

from daemons.cli.reference.commands import commands, leaves, options, paragraphs, usage


@click.group()
def tool() -> None:
    """Do things."""


@tool.group()
def box() -> None:
    """Boxes."""


@box.command()
@click.argument("file")
@click.option("--deep", help="How deep\n it goes.")
@click.option("--silent", hidden=True, help="Not shown.")
@click.option("--bare")
def fill(file: str, deep: str, silent: str, bare: str) -> None:
    """Fill a box."""


@tool.command(hidden=True)
def secret() -> None:
    """Not shown."""


CONTEXT = click.Context(tool, info_name="tool")


def test_hidden_commands_are_left_out() -> None:
    assert [name for name, _ in commands(tool, CONTEXT)] == ["box"]
    assert list(commands(fill, CONTEXT)) == []


def test_leaves_are_what_does_something() -> None:
    (found,) = leaves(tool, CONTEXT)

    assert found[0] is fill
    assert usage(*found) == ("tool box fill", "[OPTIONS] FILE")


def test_options_have_a_help() -> None:
    assert list(options(fill, click.Context(fill))) == [("--deep TEXT", "How deep it goes.")]


def test_a_marked_paragraph_keeps_its_lines() -> None:
    assert list(paragraphs("One\n  line.\n\n\b\na\n b\n\fnot shown")) == [("One line.", False), ("a\n b", True)]
    assert list(paragraphs(None)) == []
