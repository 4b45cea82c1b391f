"""`trimtab status`: the cluster at a glance."""

from __future__ import annotations

import click

from daemons.cli.asking import view
from daemons.cli.connection import Line, bus_options
from daemons.cli.output import emit, output_option
from daemons.cli.render import record


@click.command()
@bus_options
@output_option
def status(line: Line) -> None:
    """Show who leads, nodes and jobs by state, what is under way, and what is wrong."""
    data = view(line, "status")
    emit(data, lambda: record("trimtab", data))
