"""`trimtab status`: the cluster at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Group, RenderableType

from daemons.cli.asking import view
from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.output import emit, output_option
from daemons.cli.render import listing, record, rows_of


@click.command()
@bus_options
@output_option
def status(line: ControllerConnection) -> None:
    """Show who leads, nodes and jobs by state, what is under way, and what is wrong."""
    data = view(line, "status")
    emit(data, lambda: _alarms_first(data))


def _alarms_first(data: Mapping[str, Any]) -> RenderableType:
    alarms = rows_of(data, "alarms")
    rest = {name: value for name, value in data.items() if name != "alarms"}
    columns = tuple(dict.fromkeys(key for row in alarms for key in row))
    return Group(listing("alarms", alarms, columns), record("trimtab", rest))
