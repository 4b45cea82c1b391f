"""How every command prints, fails and exits.

Exit status: 0 done, 1 refused or infeasible, 2 wrong usage or unreadable input, 130 interrupted (SIGINT), 143
terminated (SIGTERM). With `--output json` standard output holds exactly one JSON object, also when the command fails
({"error": ...}); progress and messages go to standard error. All that is printed goes through here and is cleaned.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from daemons.cli.interruption import INTERRUPTED, TERMINATED, Terminated, ending_at_once
from shared.base.errors import InvalidInput, InvalidValue, Problem, ProgrammerError, TrimtabError
from shared.base.printable import lines, one_line

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
    with _standard_output():
        if wants_json():
            click.echo(json.dumps(values, indent=2, allow_nan=False))
        else:
            _Console(width=None if sys.stdout.isatty() else _WIDE).print(text())


def put(text: str) -> None:
    """Print what is a file of its own, or a line of a stream, as it is; on a terminal cleaned."""
    with _standard_output():
        click.echo(lines(text) if sys.stdout.isatty() else text, nl=False)


def say(text: str) -> None:
    """Print a message for people, on standard error; its further lines are indented."""
    click.echo(lines(text).replace("\n", "\n  "), err=True)


def messages() -> Console:
    """Where progress and messages with a form of their own go."""
    return _Console(stderr=True)


class _Console(Console):
    """Names are the users': what looks like markup in them is none, and no character of theirs orders the terminal
    about."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The parts that are printed; those of rich's own that steer the cursor stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(lines(segment.text), segment.style)


@contextmanager
def _standard_output() -> Iterator[None]:
    """Turn a failed write into InvalidInput; that nobody reads any more (EPIPE) goes through, click ends quietly."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _abandon_output()
        raise InvalidInput(_unwritten(error)) from error


def _unwritten(error: OSError) -> Problem:
    return Problem("standard output", error.strerror or str(error), "somewhere that can be written to")


def _output_fails() -> bool:
    """Whether standard output cannot be written to; what could not be is given up then."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        _abandon_output()
        return True
    return False


def _abandon_output() -> None:
    """What is still buffered cannot be written when the process ends, either."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def two_columns(title: str, values: Mapping[str, Any]) -> Table:
    """A table of names and values; floats with at most two decimals, None as a dash."""
    table = Table("", "", title=title, show_header=False)
    for name, value in values.items():
        shown = "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else one_line(f"{value}")
        table.add_row(name.replace("_", " "), shown)
    return table


def exit_status(error: TrimtabError) -> int:
    """The exit status that an error of ours ends a command with."""
    return BAD_INPUT if isinstance(error, InvalidInput | InvalidValue) else REFUSED


class CommandGroup(click.Group):
    """A group whose commands may raise our errors: they become a message and an exit status, never a traceback.

    Errors of the programmer go through: they are for whoever mends Trimtab or a plug-in.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run as a program. What the outputs' encoding lacks is escaped."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(shown)
            click.echo(lines(shown.getvalue()), nl=False, err=True)
            status = error.exit_code
        except click.Abort:  # the answer to a question was no, or there was none
            say("aborted")
            status = REFUSED
        except OSError as error:  # a help text, which click prints itself
            if error.filename is not None or not _output_fails():
                raise
            say(f"error: {_unwritten(error)}")
            status = BAD_INPUT
        sys.exit(status)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        if ctx.parent is not None:
            return self._invoke(ctx)
        with ending_at_once(partial(_report_interruption, ctx)):
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ProgrammerError:
            raise
        except TrimtabError as error:
            _report(ctx, error)
            ctx.exit(exit_status(error))
        except (KeyboardInterrupt, Terminated) as error:
            status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else TERMINATED
            _report_interruption(ctx, status)
            ctx.exit(status)
        except click.Abort as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                _report_interruption(ctx, INTERRUPTED)
                ctx.exit(INTERRUPTED)
            say("aborted")  # the answer to a question was no, or there was none
            if ctx.meta.get(_META) == "json":
                _put_error("aborted", "aborted")
            ctx.exit(REFUSED)


def _report_interruption(context: click.Context, status: int) -> None:
    word = "interrupted" if status == INTERRUPTED else "terminated"
    say(f"error: {word}")
    if context.meta.get(_META) == "json":
        _put_error(word, word)


def _report(context: click.Context, error: TrimtabError) -> None:
    problems = error.problems if isinstance(error, InvalidInput) else ()
    for message in [str(problem) for problem in problems] or [str(error)]:
        say(f"error: {message}")
    if context.meta.get(_META) == "json":
        _put_error(error.code, str(error), problems)


def _put_error(code: str, message: str, problems: Iterable[Problem] = ()) -> None:
    stated = [{"where": each.where, "what": each.what, "expected": each.expected} for each in problems]
    click.echo(json.dumps({"error": {"code": code, "message": message, "problems": stated}}))
