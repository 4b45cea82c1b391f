"""`python -m daemons.cli.manual FOLDER`: manual pages of the `trimtab` command and of the files that Trimtab reads,
made from their help and their reference, and completion for shells. For those who build a package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from daemons.cli.main import main
from daemons.cli.output import put
from daemons.cli.reference.commands import EXIT_STATUS, commands, leaves, options, paragraphs, usage
from daemons.cli.reference.manpage import file_pages
from daemons.cli.reference.roff import PROGRAM, escaped, head
from shared.base.write_file import write_file

COMPLETION_VARIABLE = "_TRIMTAB_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


def pages(program: click.Command, version: str) -> dict[str, str]:
    """Return the manual pages by file name: one for the program and one for each command that `trimtab --help`
    lists."""
    context = click.Context(program, info_name=PROGRAM)
    found = {f"{PROGRAM}.1": "\n".join(_program_page(program, context, version)) + "\n"}
    for name, command in commands(program, context):
        below = click.Context(command, parent=context, info_name=name)
        found[f"{PROGRAM}-{name}.1"] = "\n".join(_command_page(command, below, version)) + "\n"
    return found


def completion(program: click.Command, shell: str) -> str:
    """Return the script with which `shell` completes the words of the program. Raises KeyError for a shell that is not
    in `SHELLS`."""
    kind = get_completion_class(shell)
    if kind is None:
        raise KeyError(shell)
    return kind(program, {}, PROGRAM, COMPLETION_VARIABLE).source()


def _foot(also: str) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for status, what in EXIT_STATUS:
        yield from (".TP", f".B {status}", escaped(what))
    yield ".SH SEE ALSO"
    yield also
    yield ".PP"
    yield escaped("More is in /usr/share/doc/trimtab/docs.")


def _program_page(program: click.Command, context: click.Context, version: str) -> Iterator[str]:
    yield from head(PROGRAM, 1, version, (program.help or "").splitlines()[0])
    yield ".SH SYNOPSIS"
    yield from _usage(program, context)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(program)
    yield ".SH OPTIONS"
    yield from _options(program, context)
    yield ".SH COMMANDS"
    for name, command in commands(program, context):
        yield from (".TP", f".BR {escaped(f'{PROGRAM}-{name}')} (1)", escaped(command.get_short_help_str(200)))
    yield from _foot(".BR trimtab\\-agent (8),\n.BR trimtab\\-controller (8),\n.BR trimtab\\-operator.toml (5)")


def _command_page(command: click.Command, context: click.Context, version: str) -> Iterator[str]:
    yield from head(f"{PROGRAM}-{context.info_name}", 1, version, command.get_short_help_str(200))
    found = list(leaves(command, context))
    yield ".SH SYNOPSIS"
    for at, (leaf, below) in enumerate(found):
        if at:
            yield ".br"
        yield from _usage(leaf, below)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command)
    if len(found) == 1 and found[0][0] is command:
        yield ".SH OPTIONS"
        yield from _options(command, context)
    else:
        yield ".SH COMMANDS"
        for leaf, below in found:
            yield f'.SS "{escaped(below.command_path)}"'
            yield from _paragraphs(leaf)
            yield from _options(leaf, below)
    yield from _foot(f".BR {PROGRAM} (1)")


def _usage(command: click.Command, context: click.Context) -> Iterator[str]:
    words, rest = usage(command, context)
    yield from (f".B {escaped(words)}", escaped(rest))


def _paragraphs(command: click.Command) -> Iterator[str]:
    """Yield the help of a command and its examples; preformatted paragraphs keep their lines."""
    for number, (text, is_kept) in enumerate((*paragraphs(command.help), *paragraphs(command.epilog))):
        if number:
            yield ".PP"
        yield from ((".nf", escaped(text), ".fi") if is_kept else (escaped(text),))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for names, what in options(command, context):
        yield from (".TP", f".B {escaped(names)}", escaped(what))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--completion", "shell", type=click.Choice(SHELLS), help="Print what this shell completes words by.")
def write(folder: Path | None, shell: str | None) -> None:
    """Write the manual pages into man1 and man5 of FOLDER."""
    if shell is not None:
        put(completion(main, shell) + "\n")
    if folder is not None:
        version = metadata.version(PROGRAM)
        for name, text in (pages(main, version) | file_pages(version)).items():
            place = folder / f"man{name[-1]}" / name
            place.parent.mkdir(exist_ok=True)
            write_file(str(folder), place, text)


if __name__ == "__main__":
    write()
