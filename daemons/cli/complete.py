"""Completion of names that a controller knows: asks it, quickly and quietly. Without an answer there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import click

from daemons.cli.connection import Access, ControllerConnection, operator_config
from daemons.cli.render import rows_of
from shared.base.errors import TrimtabError
from shared.protocol.operator_messages import Query

LIMIT_S = 1.0  # somebody has pressed a key
ROWS_MAX = 1000

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
Row = Any


def _completer(what: str, rows: str, name: Callable[[Row], str], subject: str = "") -> Complete:
    """Return a completer that offers the `name` of each row of a view; {} in `subject` stands for the text typed so
    far."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        given = context.params.get(parameter.name or "")
        taken = given if isinstance(given, tuple) else ()
        found = _asked(context, what, subject.format(incomplete))
        names = filter(None, map(name, rows_of(found, rows)))
        return sorted({each for each in names if each.startswith(incomplete) and each not in taken})

    return complete


def _any_of(*completers: Complete) -> Complete:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return sorted({name for one in completers for name in one(context, parameter, incomplete)})

    return complete


def _asked(context: click.Context, what: str, subject: str) -> Any:
    """Return a view; nothing on any error, or after LIMIT_S even if the connection still waits."""
    answers: list[Any] = []
    thread = threading.Thread(target=partial(_ask, context, what, subject, answers), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return next(iter(answers), {})


def _ask(context: click.Context, what: str, subject: str, answers: list[Any]) -> None:
    url, config = context.params.get("url"), context.params.get("config")
    try:
        made = replace(operator_config(url, config, None), timeout_s=LIMIT_S)
        with ControllerConnection(context.find_object(Access) or Access(), made, _unsaid) as line:
            answers.append(line.ask(Query(line.new_id(), what, subject, ROWS_MAX)))
    except (TrimtabError, OSError):
        return  # whoever presses a key has asked nothing yet: the command itself will say it


def _unsaid(_text: str) -> None:
    """Drop the message about a lost connection: it must not disturb the completion of a name."""


def _named(row: Row) -> str:
    return str(row["name"])


def _vm_of(managed: bool, row: Row) -> str:
    return str(row["vm"]) if row["managed"] is managed else ""


nodes = _completer("nodes", "nodes", _named, "{}")
jobs = _completer("jobs", "jobs", _named)
active_jobs = _completer("jobs", "jobs", _named, "not-over")
apps = _completer("web-apps", "apps", _named, "{}")
workloads = _any_of(jobs, apps)
vms = _completer("vms", "vms", partial(_vm_of, True))
other_vms = _completer("vms", "vms", partial(_vm_of, False))
