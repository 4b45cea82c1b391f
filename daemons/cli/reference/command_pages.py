"""The reference of the commands as pages of the documentation: one for each command that `trimtab --help` lists, one
for each daemon, and their index."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import click

from daemons.cli.connection import bus_options
from daemons.cli.output import output_option
from daemons.cli.reference.commands import EXIT_STATUS, commands, leaves, options, paragraphs, usage
from daemons.cli.reference.files import FILES
from daemons.cli.reference.markdown import GENERATED, code, escaped, paragraph, table, tables_of

PROGRAM = "trimtab"
INDEX = "README.md"
HELP_WIDTH = 100


@click.command()
@bus_options
@output_option
def _shared(**_: object) -> None:
    """Have the options that many commands share."""


def pages_of(program: click.Command, daemons: Mapping[str, str]) -> dict[str, str]:
    """Return the pages by file name. daemons: name and summary of those that have pages beside these."""
    context = click.Context(program, info_name=PROGRAM)
    found = {INDEX: _text(_index(program, context, daemons))}
    for name, command in commands(program, context):
        below = click.Context(command, parent=context, info_name=name)
        found[f"{name}.md"] = _text(_page(command, below))
    return found


def daemon_page(
    parser: argparse.ArgumentParser, summary: str, statuses: Mapping[int, str], below: click.Command | None = None
) -> str:
    """Return the page of a daemon. below: a group of commands that the same program has. Raises KeyError for a
    program that is no daemon with a file."""
    return _text(_daemon(parser, summary, statuses, below))


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines).strip("\n") + "\n"


def _page(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from (f"# {context.command_path}", "", GENERATED, "")
    yield from _help(command.help)
    found = list(leaves(command, context))
    if len(found) == 1 and found[0][0] is command:
        yield from _command(command, context, 2, with_help=False)
    else:
        for leaf, below in found:
            yield from (f"## {below.command_path}", "")
            yield from _command(leaf, below, 3)
    yield from ("## Exit status", "")
    yield from table(("Status", "Meaning"), EXIT_STATUS)


def _command(command: click.Command, context: click.Context, level: int, *, with_help: bool = True) -> Iterator[str]:
    if with_help:
        yield from _help(command.help)
    yield from ("```sh", " ".join(usage(command, context)).rstrip(), "```", "")
    shared = set(_shared_options())
    own = [record for record in options(command, context) if record not in shared]
    if own:
        yield from table(("Option", "Meaning"), ((code(names), escaped(what)) for names, what in own))
        yield ""
    if len(own) < len(list(options(command, context))):
        yield from ("It also takes the [common options](README.md#common-options).", "")
    if command.epilog:
        yield from (f"{'#' * level} Example", "")
        yield from _help(command.epilog)


def _help(text: str | None) -> Iterator[str]:
    for found, is_kept in paragraphs(text):
        yield from (("```text", found, "```") if is_kept else paragraph(escaped(found)))
        yield ""


def _shared_options() -> Iterator[tuple[str, str]]:
    yield from options(_shared, click.Context(_shared))


def _index(program: click.Command, context: click.Context, daemons: Mapping[str, str]) -> Iterator[str]:
    yield from ("# Commands", "", GENERATED, "")
    yield from _help(program.help)
    yield from ("```sh", f"{PROGRAM} COMMAND --help", "```", "")
    rows = (
        (f"[{PROGRAM} {name}]({name}.md)", escaped(command.get_short_help_str(200)))
        for name, command in commands(program, context)
    )
    yield from table(("Command", "Purpose"), rows)
    yield from ("", "## Daemons", "")
    yield from table(("Program", "Purpose"), ((f"[{name}]({name}.md)", what) for name, what in daemons.items()))
    yield from ("", "## Common options", "", "Commands that ask the controller take these options.", "")
    yield from table(("Option", "Meaning"), ((code(names), escaped(what)) for names, what in _shared_options()))
    yield from ("", "## Exit status", "")
    yield from table(("Status", "Meaning"), EXIT_STATUS)
    operator = FILES["operator"]
    yield from ("", f"## {operator.title}", "")
    yield from paragraph(
        f"{operator.sections[0].meaning} The file is {code(operator.place)}, or `/etc/trimtab/operator.toml` if that is"
        " missing. Options and environment variables go before the file."
    )
    yield ""
    yield from tables_of(operator, 3)


def _daemon(
    parser: argparse.ArgumentParser, summary: str, statuses: Mapping[int, str], below: click.Command | None
) -> Iterator[str]:
    parser.formatter_class = partial(argparse.HelpFormatter, width=HELP_WIDTH)  # else as wide as the terminal
    yield from (f"# {parser.prog}", "", GENERATED, "")
    file = {file.unit: file for file in FILES.values()}[parser.prog]
    yield from paragraph(
        f"{summary} Its configuration is [{file.title}](../{file.page.rpartition('/')[2]}), {code(file.place)}."
    )
    yield from ("", "```text", parser.format_help().rstrip(), "```", "")
    if below is not None:
        context = click.Context(below, info_name=below.name, parent=click.Context(below, info_name=parser.prog))
        for leaf, inside in leaves(below, context):
            yield from (f"## {inside.command_path}", "")
            yield from _command(leaf, inside, 3)
    yield from ("## Signals", "")
    signals = (
        ("SIGTERM, SIGINT", "Finish what is being written, and end with exit status 0."),
        ("SIGHUP", "Read the configuration again. Keys that are marked with `reload` take effect."),
    )
    yield from table(("Signal", "Effect"), signals)
    yield from ("", "## Exit status", "")
    yield from table(("Status", "Meaning"), ((str(status), what) for status, what in statuses.items()))
