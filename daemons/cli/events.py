"""`trimtab events`: what happens, as it happens."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice

import click

from daemons.cli.connection import Line, bus_options
from daemons.cli.output import output_option, wants_json
from daemons.cli.render import time_text
from shared.messages import Happened


@click.command()
@click.option("--follow", is_flag=True, required=True, help="Go on until interrupted: the bus keeps no past events.")
@click.option("--count", type=click.IntRange(1), help="End after so many events.")
@bus_options
@output_option
def events(line: Line, follow: bool, count: int | None) -> None:
    """Print everything that happens, one event per line, until interrupted.

    With `--output json` one JSON object per line.
    """
    assert follow
    as_json = wants_json()
    try:
        with line:
            for happened in islice(line.follow(), count):
                click.echo(json.dumps(asdict(happened), allow_nan=False) if as_json else _words(happened))
    except KeyboardInterrupt:
        return  # how a follower is ended


def _words(happened: Happened) -> str:
    detail = f"  {happened.detail}" if happened.detail else ""
    return f"{time_text(happened.at_s)}  {happened.what}  {happened.subject}{detail}"
