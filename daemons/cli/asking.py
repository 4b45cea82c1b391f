"""What the commands that ask the controller have in common: a view, or an order for each of several names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from daemons.cli.connection import ControllerConnection, NoAnswer, Refused
from daemons.cli.numbers import Whole
from daemons.cli.output import REFUSED, emit, say, say_hints, say_next, wants_json
from daemons.cli.render import record, rows_of
from daemons.codes.code import Kind
from shared.protocol.account_messages import Assess
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import PAGED_QUERIES, CheckRules, Query, Request, SharedRules
from shared.values.jobs import JobPhase, Rules
from shared.values.scalars import check_name

ROWS_MAX = 10_000
PAGE_ROWS = 1_000

RulesOf = Callable[[str], Rules]
LookUp = Callable[[ControllerConnection, Sequence[str]], tuple[Mapping[str, str], list[dict[str, str]]]]


def _name(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if value:
        check_name(parameter.human_readable_name, value)
    return value


name_option = click.option("--name", default="", callback=_name, help="Use this name instead of the one in the file.")
env_option = click.option("--env", "environment", default="", callback=_name, help="Submit to this environment.")
limit_option = click.option(
    "--limit", type=Whole(1, ROWS_MAX), default=1000, show_default=True, help="Show at most this many rows."
)


def view(line: ControllerConnection, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
    """Return a view of the controller, assembled from its pages if it has several. Raises the errors of
    `ControllerConnection.ask`."""
    with line:
        if what in PAGED_QUERIES:
            return _turned(line, what, subject, limit)
        data = line.ask(Query(line.new_id(), what, subject, limit))
    return dict(data) if isinstance(data, dict) else {what: data}


def _turned(line: ControllerConnection, what: str, subject: str, limit: int) -> dict[str, Any]:
    """Ask for one page after the other, with fewer rows if a page is too large for a message. Return each row once, as
    first seen, even if it has moved to a later page meanwhile."""
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


def is_cut(data: Mapping[str, Any], what: str, limit: int) -> bool:
    """Return whether a view that was asked for with this limit has more rows."""
    return bool(limit <= len(data[what]) < data["total"])


def vms_there(line: ControllerConnection, also: Iterable[str] = ()) -> set[str] | None:
    """Return the names of all VMs that nodes report, and of `also`; None if they are too many."""
    data = view(line, "vms", "", ROWS_MAX)
    return None if is_cut(data, "vms", ROWS_MAX) else {row["vm"] for row in rows_of(data, "vms")}.union(also)


def inner(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the table under `name` in a view of one thing; the view itself if it holds no such table."""
    found = data.get(name)
    return found if isinstance(found, dict) else data


def tell(line: ControllerConnection, request: Callable[[str], Request], done: str, following: str = "") -> None:
    """Ask for one thing and print that it was accepted, and the command that is useful next. Raises what
    `ControllerConnection.ask` does."""
    request_id = line.new_id()
    with line:
        data = line.ask(request(request_id))
    values = {"done": True, "request": request_id}
    emit(values | {"data": data} if data is not None else values, lambda: Text(done))
    say_next(following)


def note_of(line: ControllerConnection, request: Request) -> str:
    """Ask for one thing and return what its confirmation says beside that it was accepted. Raises what
    `ControllerConnection.ask` does."""
    (reply,) = line.ask_all([request])
    if not reply.done:
        raise Refused(reply.code, reply.detail)
    return reply.detail


def tell_each(
    line: ControllerConnection,
    names: Sequence[str],
    request: Callable[[str, str], Request],
    done: str,
    look: Callable[[Sequence[str]], Mapping[str, Sequence[str]]] = lambda _names: {},
    looked: str = "",
    following: str = "",
    look_up: LookUp | None = None,
    rules_of: RulesOf | None = None,
) -> None:
    """Ask for the same of each name, `request(id, name)`, and print what became of each; exit status 1 when one was
    refused. `done`: what became of those that were not, with `{}` for the name; `look`: asks, while there is a
    connection, for lines to be printed below each of those, which JSON has under the key `looked`; `following`: the
    command that is useful next, with `{}` for the first name. Of several names: `look_up` finds wrong ones, `rules_of`
    returns the rules that each is to have. If a name is wrong or cannot have its rules, nothing is asked for."""
    unique = list(dict.fromkeys(names))
    with line:
        wrong = look_up(line, unique)[1] if look_up is not None and len(unique) > 1 else []
        if wrong:
            refuse_all(unique, wrong)
            return
        if rules_of is not None and len(unique) > 1:
            wrong = check_rules(line, [(name, rules_of(name)) for name in unique])
            if wrong:
                refuse_all(unique, wrong, "cannot have these rules")
                return
        replies = line.ask_all([request(line.new_id(), name) for name in unique])
        answered = list(zip(unique, replies, strict=True))
        good = [name for name, reply in answered if reply.done]
        below = look(good) if good else {}
    refused = [refusal(name, reply) for name, reply in answered if not reply.done]
    values = {"done": good, "refused": refused} | ({looked: below} if looked else {})
    emit_each(
        values, [text for name in good for text in (done.format(name), *(f"  {row}" for row in below.get(name, ())))]
    )
    report_failures(refused)
    say_next(following.format(*good[:1]) if good else "")


def check_rules(line: ControllerConnection, rules: Iterable[tuple[str, Rules]]) -> list[dict[str, str]]:
    """Ask whether workloads can have these rules, all at once; return a row (`name`, `code`, `detail`) for each that
    cannot. Raises what `ControllerConnection.ask` does."""
    names: dict[Rules, list[str]] = {}
    for name, each in rules:
        names.setdefault(each, []).append(name)
    shared = tuple(SharedRules(each, tuple(those)) for each, those in names.items())
    with line:
        data = line.ask(CheckRules(line.new_id(), shared))
    return [dict(row) for row in rows_of(data, "refused")]


def refuse_all(names: Sequence[str], wrong: Sequence[Mapping[str, str]], why: str = "cannot be used") -> None:
    """Print which of several names are wrong, and end with exit status 1: nothing is asked for."""
    emit_each({"done": [], "refused": wrong}, [])
    if len(names) > 1:
        say(f"nothing was changed: {len(wrong)} of {len(names)} names {why}")
    report_failures(wrong)


# --- names ----------------------------------------------------------------------------------------------------------


def look_up_jobs(line: ControllerConnection, names: Sequence[str]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Look up jobs that are not over: return the names found, and a row (`name`, `code`, `detail`) for each other."""
    return _look_up(line, names)


def look_up_vms(line: ControllerConnection, names: Sequence[str]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Look up adopted VMs, each by the name of its job or its own: return the own names by the names given, and a row
    (`name`, `code`, `detail`) for each name of none."""
    return _look_up(line, names, own_names=True, only_vms=True)


def look_up_releasable(line: ControllerConnection, names: Sequence[str]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Look up what can be released: jobs, also by the own name of an adopted VM. As `look_up_vms`."""
    return _look_up(line, names, own_names=True, released=True)


def _look_up(
    line: ControllerConnection,
    names: Sequence[str],
    own_names: bool = False,
    only_vms: bool = False,
    released: bool = False,
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the own names of adopted VMs ("": a job that is none) by the names given, and the wrong names. `released`:
    a job that is released already is right."""
    with line:
        replies = dict(zip(names, line.ask_all([Query(line.new_id(), "job", name) for name in names]), strict=True))
        unknown = [name for name, reply in replies.items() if own_names and reply.code == "unknown-job"]
        vms = line.ask_all([Query(line.new_id(), "vm", name) for name in unknown])
    # A VM has failover, on or off, exactly if it is an adopted one.
    adopted = {name for name, reply in zip(unknown, vms, strict=True) if reply.done and reply.data["failover"]}
    found: dict[str, str] = {}
    wrong: list[dict[str, str]] = []
    for name, reply in replies.items():
        if name in adopted:
            found[name] = name
            continue
        if not reply.done:
            wrong.append(refusal(name, reply))
            continue
        row = inner(dict(reply.data), "job")
        over = row["finished_at_s"] is not None and not (released and row["phase"] == JobPhase.FORGOTTEN)
        if over:
            detail = f"job {name!r} is {row['phase']} already"
            wrong.append({"name": name, "code": "job-over", "detail": detail})
        elif only_vms and not row["adopted"]:
            wrong.append({"name": name, "code": "not-a-vm", "detail": f"{name!r} is not an adopted VM"})
        else:
            found[name] = next((one["vm"] for one in row["instance_list"]), "") if row["adopted"] else ""
    return found, wrong


# --- what became of names -------------------------------------------------------------------------------------------


def emit_each(values: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Print what became of several names: `values` as JSON, or the lines, if there are any, for people."""
    if lines or wants_json():
        emit(values, lambda: Text("\n".join(lines)))


def report_failures(refused: Sequence[Mapping[str, str]], unfinished: Sequence[Mapping[str, str]] = ()) -> None:
    """Print an error for each row (`name`, `code`, `detail`) and hints, and end with exit status 1 if there is one."""
    for each in (*refused, *unfinished):
        say(f"error: {each['name']}: {each['code']}: {each['detail']}")
    silent = [each["code"] for each in refused if each["code"] == NoAnswer.code]
    say_hints(*(each["code"] for each in refused))
    say_hints(*silent, *(each["code"] for each in unfinished), kind=Kind.ERROR)
    if refused or unfinished:
        click.get_current_context().exit(REFUSED)


def refusal(name: str, reply: Reply) -> dict[str, str]:
    """Return the row of a name that was refused."""
    return {"name": name, "code": reply.code, "detail": reply.detail}


def assess_each(line: ControllerConnection, kind: str, names: Sequence[str], node: str = "") -> None:
    """Print what the policies think of a change to each of the names; nothing changes. Raises what
    `ControllerConnection.ask` does."""
    with line:
        found = [dict(line.ask(Assess(line.new_id(), kind, name, node))) for name in dict.fromkeys(names)]
    emit({"assessments": found}, lambda: Group(*(record(f"{kind} {one['subject']}", one) for one in found)))


assess_option = click.option(
    "--dry-run", "assess", is_flag=True, help="Change nothing; show what the policies expect of the change."
)
