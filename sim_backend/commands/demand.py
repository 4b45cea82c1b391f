"""`trimtab sim demand`: how many instances a web service needs, from how many requests were counted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from daemons.capacity.coordination.file import SECONDS_MAX
from daemons.capacity.request_counts import MINUTE_S, MINUTES_MAX, Steps, by_hour, by_minute, read_requests
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import emit, output_option, put, wants_json
from daemons.models.adjustment import adjusted
from shared.base.errors import InvalidInput, Problem

PEAK_MAX = 65_536


def _time(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a time in ISO 8601") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@click.command()
@click.argument("requests", metavar="REQUESTS.csv", type=click.Path(path_type=Path))
@click.option("--peak", type=Whole(1, PEAK_MAX), default=64, show_default=True, help="Instances at the peak.")
@click.option(
    "--step",
    type=click.Choice(("hour", "minute")),
    default="hour",
    show_default=True,
    help="Mean of each hour, or autoscaling every 20 s.",
)
@click.option("--start", callback=_time, metavar="TIME", help="Time that counts as 0 s.  [default: the first row]")
@click.option("--window", "window_s", type=Number(MINUTE_S, SECONDS_MAX), metavar="S", help="Length in seconds.")
@output_option
def demand(requests: Path, peak: int, step: str, start: datetime | None, window_s: float | None) -> None:
    """Convert request counts into a series of instances for `trimtab env advise` and `trimtab sim coordinate`.

    \b
    Example:
      trimtab sim demand requests.csv --peak 20 > demand.csv
    """
    if window_s is not None and window_s > MINUTE_S * MINUTES_MAX:
        raise InvalidInput(Problem("--window", f"is {window_s:g}", f"at most {MINUTES_MAX} minutes"))
    counts = read_requests(requests, start, window_s)
    steps = by_hour(counts, peak) if step == "hour" else by_minute(counts, peak, adjusted)
    if wants_json():
        emit({"rows": [{"t_s": at_s, "vms": vms} for at_s, vms in steps]}, str)
    else:
        put(csv_of(steps))


def csv_of(steps: Steps) -> str:
    """Return the text of the file."""
    return "t_s,vms\n" + "".join(f"{at_s:.15g},{vms}\n" for at_s, vms in steps)
