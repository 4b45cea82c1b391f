"""How every command prints, fails and exits.

Exit status: 0 done, 1 refused or infeasible, 2 wrong usage or unreadable input. With `--output json` standard output
holds exactly one JSON object, also when the command fails ({"error": ...}); progress and messages go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from rich.console import Console, RenderableType
from rich.table import Table

from shared.errors import InvalidInput, InvalidValue, ProgrammerError, TrimtabError

REFUSED = 1
BAD_INPUT = 2
_META = "trimtab.output"
_WIDE = 500  # columns where there is no terminal: what is searched or kept in a file is not cut to fit a screen

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(command: _Command) -> _Command:
    """Give a command `--output text|json`; it prints through `emit`."""
    return click.option(
        "--output",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="For people, or exactly one JSON object on standard output.",
    )(command)


def _remember(context: click.Context, _: click.Parameter, value: str) -> None:
    context.meta[_META] = value


def wants_json() -> bool:
    """Whether the command under way was asked for JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_META) == "json"


def emit(values: Mapping[str, Any], text: Callable[[], RenderableType]) -> None:
    """Print a command's result: `values` as JSON, or what `text` builds from it for people."""
    if wants_json():
        click.echo(json.dumps(values, indent=2, allow_nan=False))
    else:
        # names are the users': what looks like markup in them is none
        Console(width=None if sys.stdout.isatty() else _WIDE, markup=False, emoji=False).print(text())


def messages() -> Console:
    """Where progress and messages for people go."""
    return Console(stderr=True)


def two_columns(title: str, values: Mapping[str, Any]) -> Table:
    """A table of names and values; floats with at most two decimals, None as a dash."""
    table = Table("", "", title=title, show_header=False)
    for name, value in values.items():
        shown = "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value}"
        table.add_row(name.replace("_", " "), shown)
    return table


def exit_status(error: TrimtabError) -> int:
    """The exit status that an error of ours ends a command with."""
    return BAD_INPUT if isinstance(error, InvalidInput | InvalidValue) else REFUSED


class CommandGroup(click.Group):
    """A group whose commands may raise our errors: they become a message and an exit status, never a traceback.

    Errors of the programmer go through: they are for whoever mends Trimtab or a plug-in.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except ProgrammerError:
            raise
        except TrimtabError as error:
            _report(ctx, error)
            ctx.exit(exit_status(error))


def _report(context: click.Context, error: TrimtabError) -> None:
    problems = error.problems if isinstance(error, InvalidInput) else ()
    for message in [str(problem) for problem in problems] or [str(error)]:
        click.echo(f"error: {message}", err=True)
    if context.meta.get(_META) == "json":
        stated = [{"where": each.where, "what": each.what, "expected": each.expected} for each in problems]
        click.echo(json.dumps({"error": {"code": error.code, "message": str(error), "problems": stated}}))
