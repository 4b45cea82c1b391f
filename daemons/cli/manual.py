"""`python -m daemons.cli.manual FOLDER`: manual pages of the `trimtab` command, made of the help that it has, and
completion for shells. For whoever builds a package."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from daemons.cli.main import main
from daemons.cli.output import put
from shared.base.write_file import write_file

PROGRAM = "trimtab"
COMPLETION_VARIABLE = "_TRIMTAB_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
EXIT_STATUS = (
    ("0", "Done."),
    ("1", "Refused, or infeasible."),
    ("2", "Wrong usage, or input that cannot be read."),
)


def pages(program: click.Command, version: str) -> dict[str, str]:
    """The manual pages by file name: one of the program, one of each command that `trimtab --help` lists."""
    context = click.Context(program, info_name=PROGRAM)
    found = {f"{PROGRAM}.1": "\n".join(_program_page(program, context, version)) + "\n"}
    for name, command in _commands(program, context):
        below = click.Context(command, parent=context, info_name=name)
        found[f"{PROGRAM}-{name}.1"] = "\n".join(_command_page(command, below, version)) + "\n"
    return found


def completion(program: click.Command, shell: str) -> str:
    """What `shell` is to read in order to complete the words of the program. Raises KeyError for another shell than
    those in `SHELLS`."""
    kind = get_completion_class(shell)
    if kind is None:
        raise KeyError(shell)
    return kind(program, {}, PROGRAM, COMPLETION_VARIABLE).source()


def escaped(text: str) -> str:
    """Text as roff takes it: nothing in it is a request, and dashes stay those that are typed."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", plain, flags=re.MULTILINE)


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """What a group has, by name; nothing for a command that is none."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield name, found


def _head(title: str, version: str, short: str) -> Iterator[str]:
    yield f'.TH "{escaped(title.upper())}" 1 "" "{PROGRAM} {version}" "Trimtab"'
    yield ".SH NAME"
    yield f"{escaped(title)} \\- {escaped(short.rstrip('.'))}"


def _foot(also: str) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for status, what in EXIT_STATUS:
        yield from (".TP", f".B {status}", escaped(what))
    yield ".SH SEE ALSO"
    yield also
    yield ".PP"
    yield escaped("More is in /usr/share/doc/trimtab/docs.")


def _program_page(program: click.Command, context: click.Context, version: str) -> Iterator[str]:
    yield from _head(PROGRAM, version, (program.help or "").splitlines()[0])
    yield ".SH SYNOPSIS"
    yield from _usage(program, context)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(program)
    yield ".SH OPTIONS"
    yield from _options(program, context)
    yield ".SH COMMANDS"
    for name, command in _commands(program, context):
        yield from (".TP", f".BR {escaped(f'{PROGRAM}-{name}')} (1)", escaped(command.get_short_help_str(200)))
    yield from _foot(".BR trimtab\\-agent (8),\n.BR trimtab\\-controller (8)")


def _command_page(command: click.Command, context: click.Context, version: str) -> Iterator[str]:
    yield from _head(f"{PROGRAM}-{context.info_name}", version, command.get_short_help_str(200))
    leaves = list(_leaves(command, context))
    yield ".SH SYNOPSIS"
    for at, (leaf, below) in enumerate(leaves):
        if at:
            yield ".br"
        yield from _usage(leaf, below)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command)
    if len(leaves) == 1 and leaves[0][0] is command:
        yield ".SH OPTIONS"
        yield from _options(command, context)
    else:
        yield ".SH COMMANDS"
        for leaf, below in leaves:
            yield f'.SS "{escaped(below.command_path)}"'
            yield from _paragraphs(leaf)
            yield from _options(leaf, below)
    yield from _foot(f".BR {PROGRAM} (1)")


def _leaves(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command of a group that does something, in its context."""
    if not isinstance(command, click.Group):
        yield command, context
    for name, below in _commands(command, context):
        yield from _leaves(below, click.Context(below, parent=context, info_name=name))


def _usage(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f".B {escaped(context.command_path)}"
    yield escaped(" ".join(command.collect_usage_pieces(context)))


def _paragraphs(command: click.Command) -> Iterator[str]:
    """The help of a command; a paragraph that is marked with \\b keeps its lines."""
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield from (".nf", escaped(paragraph.removeprefix("\b").lstrip("\n")), ".fi")
        else:
            yield escaped(" ".join(paragraph.split()))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        names, what = record or ("", "")
        if what and not names.endswith("--help"):
            yield from (".TP", f".B {escaped(names)}", escaped(" ".join(what.split())))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--completion", "shell", type=click.Choice(SHELLS), help="Print what this shell completes words by.")
def write(folder: Path | None, shell: str | None) -> None:
    """Write the manual pages of trimtab into FOLDER."""
    if shell is not None:
        put(completion(main, shell) + "\n")
    if folder is not None:
        for name, text in pages(main, metadata.version(PROGRAM)).items():
            write_file(str(folder), folder / name, text)


if __name__ == "__main__":
    write()
