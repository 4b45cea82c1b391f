"""`trimtab notifications`: messages to people and programs, those that failed, and tests of channels."""

from __future__ import annotations

from typing import Any

import click
from rich.console import RenderableType

from daemons.cli.asking import limit_option, tell_each, view
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.output import REFUSED, CommandGroup, emit, output_option, say
from daemons.cli.render import listing, rows_of
from daemons.cli.tables import stacked
from daemons.cli.watching import watch_option
from daemons.values.records.notifications import NoticeState, trial_id
from shared.protocol.operator_messages import DropNotification, Query, RetryNotification, TryChannel

COLUMNS = ("id", "at_s", "channel", "what", "subject", "detail", "state", "tries", "next_at_s", "error")
LEAST = ("next_at_s", "tries", "detail", "at_s")
CHANNEL_LEAST = ("kind", "arrived_at_s")
CHANNEL_COLUMNS = ("name", "kind", "waiting", "dead", "dropped", "arrived_at_s", "error")
ROWS_MAX = 10_000
LOOK_S = 0.5
WAIT_S = 60.0  # a test that has not ended by then waits for a channel that is busy


@click.group(cls=CommandGroup)
def notifications() -> None:
    """Show notifications; retry or drop them; test channels."""


@notifications.command("list")
@click.option("--dead", is_flag=True, help="Show only notifications that were given up.")
@limit_option
@bus_options
@watch_option
@output_option
def list_notifications(line: ControllerConnection, dead: bool, limit: int) -> None:
    """Show the channels and their notifications: all that wait or were given up, and the last of the others.

    \b
    Example:
      trimtab notifications list --dead
    """
    data = view(line, "notifications", NoticeState.DEAD.value if dead else "", limit)
    emit(data, lambda: _tables(data))


def _tables(data: dict[str, Any]) -> RenderableType:
    channels = listing("channels", rows_of(data, "channels"), CHANNEL_COLUMNS, CHANNEL_LEAST)
    return stacked(channels, listing("notifications", rows_of(data, "notifications"), COLUMNS, LEAST))


_ids = click.argument("ids", metavar="ID...", nargs=-1)


@notifications.command()
@_ids
@click.option("--all", "every", is_flag=True, help="Every notification that was given up.")
@change_options
@output_option
def retry(line: ControllerConnection, ids: tuple[str, ...], every: bool) -> None:
    """Send notifications again now, with all attempts left.

    \b
    Example:
      trimtab notifications retry --all
    """
    tell_each(line, _wanted(line, ids, every), RetryNotification, "{} will be sent again")


@notifications.command()
@_ids
@click.option("--all", "every", is_flag=True, help="Every notification that was given up.")
@change_options
@output_option
def drop(line: ControllerConnection, ids: tuple[str, ...], every: bool) -> None:
    """Drop notifications: send them no more, and list them as given up no more.

    \b
    Example:
      trimtab notifications drop --all
    """
    tell_each(line, _wanted(line, ids, every), DropNotification, "{} is dropped")


def _wanted(line: ControllerConnection, ids: tuple[str, ...], every: bool) -> list[str]:
    """Return the given names, or one name for each message that was given up."""
    if bool(ids) == every:
        raise click.UsageError("name notifications, or give --all")
    if ids:
        return list(ids)
    rows = rows_of(view(line, "notifications", NoticeState.DEAD.value, ROWS_MAX), "notifications")
    return list(dict.fromkeys(str(row["message"]) for row in rows))


@notifications.command()
@click.argument("channel")
@change_options
@output_option
def test(line: ControllerConnection, channel: str) -> None:
    """Send one message over a channel and print whether it arrived. Exit status 1 when it did not.

    \b
    Example:
      trimtab notifications test pager
    """
    request = line.new_id()
    with line:
        line.ask(TryChannel(request, channel))
        row = _fate(line, trial_id(request))
    done = row.get("state") == NoticeState.SENT.value
    error = str(row.get("error") or "") or ("" if done else f"not sent within {WAIT_S:g} s; it still waits")
    emit({"done": done, "channel": channel, "error": error}, lambda: _words(channel, done, error))
    if not done:
        say(f"error: {error}")
        click.get_current_context().exit(REFUSED)


def _words(channel: str, done: bool, error: str) -> str:
    if not done:
        return f"the message over {channel} did not arrive"
    return f"the message over {channel} arrived" + (f"; {error}" if error else "")


def _fate(line: ControllerConnection, message: str) -> dict[str, Any]:
    """Return the row of a message once it no longer waits, or after `WAIT_S`."""
    until_s = line.now_s + WAIT_S
    while True:
        data = line.ask(Query(line.new_id(), "notifications", "", ROWS_MAX))
        row = next((row for row in rows_of(data, "notifications") if row.get("message") == message), {})
        if row.get("state") != NoticeState.WAITING.value or line.now_s >= until_s:
            return dict(row)
        line.sleep(LOOK_S)
