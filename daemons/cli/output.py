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
from itertools import pairwise, takewhile
from typing import Any, TypeVar

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from daemons.cli.interruption import INTERRUPTED, TERMINATED, Terminated, ending_at_once
from daemons.codes.catalogue import hint
from daemons.codes.code import Kind
from shared.base.errors import InvalidInput, InvalidValue, PermanentError, Problem, ProgrammerError, TrimtabError
from shared.base.printable import lines, one_line

REFUSED = 1
BAD_INPUT = 2
SUMMARY_MAX = 200  # characters of a command's summary in a list of commands
_META = "trimtab.output"
_SHOW = "trimtab.show"
_WIDE = 500  # columns where there is no terminal: what is searched or kept in a file is not cut to fit a screen

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(command: _Command) -> _Command:
    """Give a command `--output text|json` (`-o`); it prints through `emit`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="Output format; json prints exactly one object on standard output.",
    )(command)


def _remember(context: click.Context, _: click.Parameter, value: str) -> None:
    context.meta[_META] = value


def wants_json() -> bool:
    """Return whether the current command was asked for JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_META) == "json"


def emit(values: Mapping[str, Any], text: Callable[[], RenderableType]) -> None:
    """Print a command's result: `values` as JSON, or what `text` builds from it for people; that goes elsewhere within
    `redirected`."""
    context = click.get_current_context(silent=True)
    show = context.meta.get(_SHOW) if context is not None else None
    with _standard_output():
        if wants_json():
            click.echo(json.dumps(values, indent=2, allow_nan=False))
        elif show is not None:
            show(text())
        else:
            print_result(text())


def print_result(what: RenderableType) -> None:
    """Print a result for people; elsewhere than on a terminal without blanks at the ends of lines."""
    console = results()
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as captured:
        console.print(what)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


@contextmanager
def redirected(show: Callable[[RenderableType], None]) -> Iterator[None]:
    """Within it, what `emit` would print for people is given to `show`."""
    context = click.get_current_context()
    context.meta[_SHOW] = show
    try:
        yield
    finally:
        del context.meta[_SHOW]


def results() -> Console:
    """Return the console for results for people: as wide as the terminal, or as COLUMNS; elsewhere nothing is cut."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return _Console(width=None if known else _WIDE)


def put(text: str) -> None:
    """Print what is a file of its own, or a line of a stream, as it is; on a terminal cleaned."""
    with _standard_output():
        click.echo(lines(text) if sys.stdout.isatty() else text, nl=False)


def say(text: str) -> None:
    """Print a message for people, on standard error; its further lines are indented."""
    click.echo(lines(text).replace("\n", "\n  "), err=True)


def messages() -> Console:
    """Return the console for progress, and for messages with their own format."""
    return _Console(stderr=True)


class _Console(Console):
    """Names are the users': what looks like markup in them is none, and no character of theirs orders the terminal
    about."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the printed parts, escaped; the control segments with which rich moves the cursor are unchanged."""
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
    """Return whether standard output cannot be written to; if so, its unwritten data is discarded."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        _abandon_output()
        return True
    return False


def _abandon_output() -> None:
    """Discard the buffered output, which could not be written at the end of the process either."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def say_hints(*codes: str, kind: Kind = Kind.REFUSAL) -> None:
    """Print the next step for refusals, on standard error: a line for each that is known of a code."""
    for line in dict.fromkeys(filter(None, (hint(code, kind) for code in codes))):
        say(f"hint: {line}")


def say_next(command: str) -> None:
    """Print the command that is useful next ("": none is), on standard error; a program that reads JSON needs none."""
    if command and not wants_json():
        say(f"next: {command}")


def two_columns(title: str, values: Mapping[str, Any]) -> Table:
    """Return a table of names and values; floats with at most two decimals, None as a dash."""
    table = Table("", "", title=title, show_header=False)
    for name, value in values.items():
        shown = "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else one_line(f"{value}")
        table.add_row(name.replace("_", " "), shown)
    return table


def exit_status(error: TrimtabError) -> int:
    """Return the exit status with which a Trimtab error ends a command."""
    return BAD_INPUT if isinstance(error, InvalidInput | InvalidValue) else REFUSED


class CommandGroup(click.Group):
    """A group whose commands may raise Trimtab's errors: they become a message and an exit status, never a traceback.

    Programming errors pass through: they are for the developers of Trimtab or a plug-in.
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
            if _asked_for_json(error, sys.argv[1:] if args is None else args):
                code = InvalidInput.code if status == BAD_INPUT else PermanentError.code
                what = error.message or error.format_message()  # a missing parameter has no message of its own
                _put_error(code, error.format_message(), [Problem(_place(error), what)])
        except click.Abort:  # the answer to a question was no, or there was none
            say("aborted")
            status = REFUSED
        except OSError as error:  # a help text, which click prints itself
            if error.filename is not None or not _output_fails():
                raise
            say(f"error: {_unwritten(error)}")
            status = BAD_INPUT
        sys.exit(status)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help, each with all of its summary."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(SUMMARY_MAX)) for name, command in found if command and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

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


def _asked_for_json(error: click.ClickException, words: Sequence[str]) -> bool:
    """Return whether a command that click refused was asked for JSON: by the option, or where click did not come as far
    as the options, by the words of the command line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and _META in context.meta:
        return bool(context.meta[_META] == "json")
    options = [*takewhile(lambda word: word != "--", words)]
    apart = any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(options))
    return apart or not {"-ojson", "--output=json"}.isdisjoint(options)


def _place(error: click.ClickException) -> str:
    """Return the option or argument that an error is about, else the command."""
    if isinstance(error, click.NoSuchOption | click.BadOptionUsage):
        return error.option_name
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Option):
        return max(error.param.opts, key=len)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return error.param.human_readable_name
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "trimtab" if context is None else context.command_path


def _report_interruption(context: click.Context, status: int) -> None:
    word = "interrupted" if status == INTERRUPTED else "terminated"
    say(f"error: {word}")
    if context.meta.get(_META) == "json":
        _put_error(word, word)


def _report(context: click.Context, error: TrimtabError) -> None:
    problems = error.problems if isinstance(error, InvalidInput) else ()
    for message in [str(problem) for problem in problems] or [str(error)]:
        say(f"error: {message}")
    if exit_status(error) == REFUSED:
        say_hints(error.code, kind=getattr(error, "kind", Kind.ERROR))
    if context.meta.get(_META) == "json":
        _put_error(error.code, str(error), problems)


def _put_error(code: str, message: str, problems: Iterable[Problem] = ()) -> None:
    stated = [{"where": each.where, "what": each.what, "expected": each.expected} for each in problems]
    click.echo(json.dumps({"error": {"code": code, "message": message, "problems": stated}}))
