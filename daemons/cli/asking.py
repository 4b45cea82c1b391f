"""What the commands that ask the controller have in common: a view, or an order for each of several names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from daemons.cli.connection import ControllerConnection, Refused
from daemons.cli.numbers import Whole
from daemons.cli.output import REFUSED, emit, say, wants_json
from daemons.cli.render import record
from shared.protocol.account_messages import Assess
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import PAGED_QUERIES, Query, Request
from shared.values.scalars import check_name

ROWS_MAX = 10_000
PAGE_ROWS = 1_000


def _name(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if value:
        check_name(parameter.human_readable_name, value)
    return value


name_option = click.option("--name", default="", callback=_name, help="Another name than the one in the file.")
env_option = click.option(
    "--env", "environment", default="", callback=_name, help="The environment that it is submitted to."
)
limit_option = click.option(
    "--limit", type=Whole(1, ROWS_MAX), default=1000, show_default=True, help="Most rows to show."
)


def view(line: ControllerConnection, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
    """A view of the controller, put together from its pages where it has some. Raises what `ControllerConnection.ask`
    does."""
    with line:
        if what in PAGED_QUERIES:
            return _turned(line, what, subject, limit)
        data = line.ask(Query(line.new_id(), what, subject, limit))
    return dict(data) if isinstance(data, dict) else {what: data}


def _turned(line: ControllerConnection, what: str, subject: str, limit: int) -> dict[str, Any]:
    """Ask for one page after the other; for shorter ones, where rows are so long that no message takes a page. What has
    moved on to a later page meanwhile is told once, as it was seen first."""
    first: dict[str, Any] = {}
    rows: dict[object, dict[str, Any]] = {}
    page_rows, after = PAGE_ROWS, ""
    while len(rows) < limit:
        try:
            data = dict(line.ask(Query(line.new_id(), what, subject, min(page_rows, limit - len(rows)), after=after)))
        except Refused as refused:
            if refused.code != "too-large" or page_rows == 1:
                raise
            page_rows = max(1, page_rows // 4)
            continue
        first = first or data
        for row in data[what]:
            rows.setdefault((row.get("node"), row.get("vm")) if what == "vms" else row["name"], row)
        after = data.get("next", "")  # a controller of an earlier version has no pages
        if not after:
            break
    return {key: value for key, value in first.items() if key != "next"} | {what: list(rows.values())}


def inner(data: dict[str, Any], name: str) -> dict[str, Any]:
    """What a view of one thing holds under `name`; the view itself when it holds no such table."""
    found = data.get(name)
    return found if isinstance(found, dict) else data


def tell(line: ControllerConnection, request: Callable[[str], Request], done: str) -> None:
    """Ask for one thing and print that it was accepted. Raises what `ControllerConnection.ask` does."""
    request_id = line.new_id()
    with line:
        data = line.ask(request(request_id))
    values = {"done": True, "request": request_id}
    emit(values | {"data": data} if data is not None else values, lambda: Text(done))


def tell_each(
    line: ControllerConnection,
    names: Sequence[str],
    request: Callable[[str, str], Request],
    done: str,
    look: Callable[[Sequence[str]], Mapping[str, Sequence[str]]] = lambda _names: {},
    looked: str = "",
) -> None:
    """Ask for the same of each name, `request(id, name)`, and print what became of each; exit status 1 when one was
    refused. `done`: what became of those that were not, with `{}` for the name; `look`: asks, while there is a
    connection, for lines to be told below each of those, which JSON has under the key `looked`."""
    unique = list(dict.fromkeys(names))
    with line:
        replies = line.ask_all([request(line.new_id(), name) for name in unique])
        answered = list(zip(unique, replies, strict=True))
        good = [name for name, reply in answered if reply.done]
        below = look(good) if good else {}
    refused = [_refusal(name, reply) for name, reply in answered if not reply.done]
    if good or wants_json():
        values = {"done": good, "refused": refused} | ({looked: below} if looked else {})
        text = [told for name in good for told in (done.format(name), *(f"  {row}" for row in below.get(name, ())))]
        emit(values, lambda: Text("\n".join(text)))
    for each in refused:
        say(f"error: {each['name']}: {each['code']}: {each['detail']}")
    if refused:
        click.get_current_context().exit(REFUSED)


def assess_each(line: ControllerConnection, kind: str, names: Sequence[str], node: str = "") -> None:
    """Print what the policies think of a change to each of the names; nothing changes. Raises what
    `ControllerConnection.ask` does."""
    with line:
        found = [dict(line.ask(Assess(line.new_id(), kind, name, node))) for name in dict.fromkeys(names)]
    emit({"assessments": found}, lambda: Group(*(record(f"{kind} {one['subject']}", one) for one in found)))


assess_option = click.option("--assess", is_flag=True, help="Change nothing: only say what the policies think of it.")


def _refusal(name: str, reply: Reply) -> dict[str, str]:
    return {"name": name, "code": reply.code, "detail": reply.detail}
