"""What a reference of the commands is made of: the commands of a program, their help and their options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

EXIT_STATUS = (
    ("0", "Done."),
    ("1", "Refused, or infeasible."),
    ("2", "Wrong usage, or input that cannot be read."),
    ("130", "Interrupted (SIGINT)."),
    ("143", "Terminated (SIGTERM)."),
)
_KEPT = "\b"  # what click marks a paragraph with that keeps its lines


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield what a group has, by name; nothing for a command that is none."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield name, found


def leaves(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command of a group that does something, in its context."""
    if not isinstance(command, click.Group):
        yield command, context
    for name, below in commands(command, context):
        yield from leaves(below, click.Context(below, parent=context, info_name=name))


def usage(command: click.Command, context: click.Context) -> tuple[str, str]:
    """Return the words of a command, and what may follow them."""
    return context.command_path, " ".join(command.collect_usage_pieces(context))


def paragraphs(text: str | None) -> Iterator[tuple[str, bool]]:
    """Yield the paragraphs of a help text, and whether each keeps its lines; else it is one line."""
    for paragraph in inspect.cleandoc(text or "").partition("\f")[0].split("\n\n"):
        if paragraph.startswith(_KEPT):
            yield paragraph.removeprefix(_KEPT).strip("\n"), True
        elif paragraph:
            yield " ".join(paragraph.split()), False


def options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the options of a command, as they are typed, with their help; not `--help`."""
    for parameter in command.get_params(context):
        names, what = parameter.get_help_record(context) or ("", "")
        if what and not names.endswith("--help"):
            yield names, " ".join(what.split())
