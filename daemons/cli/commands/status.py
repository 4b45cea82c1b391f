"""`trimtab status`: the cluster at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import RenderableType

from daemons.cli.asking import view
from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.output import emit, output_option
from daemons.cli.render import listing, record, rows_of
from daemons.cli.tables import stacked
from daemons.cli.watching import watch_option


@click.command()
@bus_options
@watch_option
@output_option
def status(line: ControllerConnection) -> None:
    """Show leader, nodes and jobs by state, operations in progress, and alarms.

    \b
    Example:
      trimtab status --watch
    """
    data = view(line, "status")
    emit(data, lambda: _alarms_first(data))


def _alarms_first(data: Mapping[str, Any]) -> RenderableType:
    alarms = rows_of(data, "alarms")
    rest = {name: value for name, value in data.items() if name != "alarms"}
    columns = tuple(dict.fromkeys(key for row in alarms for key in row))
    return stacked(listing("alarms", alarms, columns), record("trimtab", rest))
