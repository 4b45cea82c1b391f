"""`trimtab explain`: what a code means and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from daemons.cli.output import emit, output_option
from daemons.codes.catalogue import find, names, nearest
from daemons.codes.code import Code, Kind
from shared.base.errors import PermanentError

LABELS = {Kind.REASON: "lifted by"}
LABEL = "what to do"


class UnknownCode(PermanentError):
    """No code has that spelling."""

    code = "unknown-code"


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in names() if name.startswith(incomplete)]


@click.command()
@click.argument("code", shell_complete=_complete)
@output_option
def explain(code: str) -> None:
    """Explain a code: event, alarm, reason, refusal, outcome of an action, error or exit status.

    A code with several meanings prints all of them; alarm:CODE prints that of the alarm alone. Exit status 1 when no
    code has that spelling: the message lists the nearest.

    \b
    Example:
      trimtab explain node-unreachable
    """
    found = find(code)
    if not found:
        close = nearest(code)
        raise UnknownCode(f"there is no code {code[:80]!r}" + (f"; nearest: {', '.join(close)}" if close else ""))
    emit({"code": found[0].code, "meanings": [each.to_json() for each in found]}, lambda: _for_people(found))


def _for_people(found: Sequence[Code]) -> RenderableType:
    return Group(*(part for each in found for part in _parts(each)))


def _parts(code: Code) -> tuple[RenderableType, ...]:
    about = f", {code.about.replace('`', '')}" if code.about and code.kind is not Kind.EVENT else ""
    subject = f"subject: {code.about.replace('`', '')}" if code.kind is Kind.EVENT else ""
    lines = (
        code.meaning,
        subject,
        f"{LABELS.get(code.kind, LABEL)}: {code.action}" if code.action else "",
        f"run: {code.command}" if code.command else "",
        f"documentation: {code.page}" if code.page else "",
    )
    head = Text(f"{code.code} ({code.kind.value}{about})", style="bold")
    return (head, *(Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines if line))
