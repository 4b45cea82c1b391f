"""`trimtab env`: create, activate, resize, destroy and show environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.asking import inner, limit_option, note_of, view
from daemons.cli.connection import TIMEOUT_MAX_S, ControllerConnection, Refused, bus_options, change_options
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import emit, output_option, put, say_next, wants_json
from daemons.cli.plugged import PluggedGroup
from daemons.cli.render import listing, record, rows_of, shown
from daemons.cli.tables import stacked
from daemons.cli.waiting import Look, NotYet, wait_for_all
from daemons.cli.watching import watch_option
from daemons.manifests.agreement import read_agreement, understood
from daemons.manifests.agreement_text import table_of, to_toml
from daemons.manifests.agreement_xml import to_xml
from daemons.manifests.type_rules import type_rows
from shared.base.errors import InvalidInput, Problem
from shared.ports import plugins
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    Query,
    Request,
    ResizeEnvironment,
)
from shared.values.agreement import UNITS_MAX, EnvironmentState
from shared.values.scalars import check_name

COLUMNS = (
    "name",
    "owner",
    "workload",
    "type",
    "model",
    "state",
    "wanted",
    "granularity",
    "lower",
    "upper",
    "size",
    "owned",
    "idle",
    "partner",
    "jobs",
    "instances",
    "detail",
)
LEAST = (
    "granularity",
    "type",
    "model",
    "partner",
    "idle",
    "owned",
    "owner",
    "wanted",
    "instances",
)
UNDEFINED = "none"


def _name(_: click.Context, parameter: click.Parameter, value: str) -> str:
    check_name(parameter.human_readable_name, value)
    return value


_named = click.argument("name", callback=_name)
_wait = click.option(
    "--wait",
    "wait_s",
    type=Number(0.1, TIMEOUT_MAX_S),
    metavar="S",
    help="Wait until that state is reached, at most this many seconds.  [default: do not wait]",
)


class EnvGroup(PluggedGroup):
    """The commands here, and those that other packages add."""

    entry_points = plugins.ENV_COMMANDS


@click.group(cls=EnvGroup)
def env() -> None:
    """Create, activate, resize and destroy environments."""


@env.command("list")
@limit_option
@bus_options
@watch_option
@output_option
def list_environments(line: ControllerConnection, limit: int) -> None:
    """Show the environments: state, units and workloads of each.

    \b
    Example:
      trimtab env list
    """
    data = view(line, "environments", "", limit)
    emit(data, lambda: listing("environments", [_row(row) for row in rows_of(data, "environments")], COLUMNS, LEAST))


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for people: an undefined bound is named, and a requested state is shown only until it is reached."""
    values = dict(row)
    if "upper" in values and values["upper"] is None:
        values["upper"] = UNDEFINED
    if values.get("wanted") == values.get("state"):
        values.pop("wanted", None)
    return values


@env.command()
@output_option
def types() -> None:
    """Show the installed types of environment and the terms that each accepts.

    \b
    Example:
      trimtab env types
    """
    rows = type_rows()
    emit({"types": rows}, lambda: stacked(*(_type_for_people(row) for row in rows)))


def _type_for_people(row: Mapping[str, Any]) -> RenderableType:
    values = {key: value for key, value in row.items() if key not in ("name", "terms", "scheduling")}
    if "scheduling" in row:
        values["scheduler"] = row["scheduling"]["policy"]
    head = record(f"type {row['name']}", values)
    terms = [{"key": f"terms.{key}", "meaning": meaning} for key, meaning in row.get("terms", {}).items()]
    return stacked(head, listing("terms", terms, ("key", "meaning"))) if terms else head


@env.command()
@_named
@bus_options
@watch_option
@output_option
def show(line: ControllerConnection, name: str) -> None:
    """Show one environment: specification, nodes, workloads and state.

    \b
    Example:
      trimtab env show night
    """
    data = view(line, "environment", name)
    emit(data, lambda: _for_people(name, inner(data, "environment")))


def _for_people(name: str, values: dict[str, Any]) -> RenderableType:
    plain = {key: value for key, value in _row(values).items() if key not in ("agreement", "nodes")}
    terms = values.get("agreement")
    agreement = _row(terms) if isinstance(terms, Mapping) else {}
    agreement.pop({"batch": "web", "web": "batch"}.get(f"{agreement.get('workload')}", ""), None)  # not used
    return stacked(
        record(f"environment {name}", plain),
        record("specification", agreement),
        listing("nodes", rows_of(values, "nodes"), ("name", "handover", "environment", "given")),
    )


@env.command()
@_named
@click.option(
    "--format",
    "kind",
    type=click.Choice(("toml", "xml")),
    default="toml",
    show_default=True,
    help="Format of the file.",
)
@bus_options
@output_option
def export(line: ControllerConnection, name: str, kind: str) -> None:
    """Print the specification of an environment as a file for `trimtab env create`.

    \b
    Example:
      trimtab env export night > night.toml
    """
    terms = inner(view(line, "environment", name), "environment").get("agreement")
    table = table_of(terms if isinstance(terms, Mapping) else {})
    text = to_xml(table) if kind == "xml" else to_toml(table)
    if wants_json():
        emit({"name": name, "format": kind, "agreement": table, "text": text}, lambda: text)
    else:
        put(text)  # as it is: nothing is folded to the width of a screen


@env.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show the specification as Trimtab reads it; send nothing.")
@change_options
@output_option
def create(line: ControllerConnection, file: Path, dry_run: bool) -> None:
    """Create the environment that FILE specifies: TOML (examples/env-batch.toml), or XML (.xml).

    \b
    Example:
      trimtab env create env-batch.toml
    """
    agreement = read_agreement(file)
    request, note = line.new_id(), ""
    if not dry_run:
        with line:
            note = note_of(line, CreateEnvironment(request, agreement))
    values = {
        "done": not dry_run,
        "request": "" if dry_run else request,
        "agreement": understood(agreement),
        "note": note,
    }
    title = f"specification of environment {agreement.name}"
    done = _noted(f"environment {agreement.name} is created", note)
    emit(values, lambda: record(title, understood(agreement)) if dry_run else done)
    say_next("" if dry_run else f"trimtab env activate {agreement.name}")


@env.command()
@_named
@_wait
@change_options
@output_option
def activate(line: ControllerConnection, name: str, wait_s: float | None) -> None:
    """Allocate the guaranteed units of an environment and let it serve.

    \b
    Example:
      trimtab env activate night --wait 300
    """
    _carry_out(line, lambda request: ActivateEnvironment(request, name), name, EnvironmentState.RUNNING, wait_s)


@env.command()
@_named
@_wait
@change_options
@output_option
def deactivate(line: ControllerConnection, name: str, wait_s: float | None) -> None:
    """Suspend the jobs of an environment, stop its web instances and return its units.

    Its workloads wait until it is activated again.

    \b
    Example:
      trimtab env deactivate night
    """
    _carry_out(line, lambda request: DeactivateEnvironment(request, name), name, EnvironmentState.DEACTIVATED, wait_s)


@env.command()
@_named
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_wait
@change_options
@output_option
def destroy(line: ControllerConnection, name: str, yes: bool, wait_s: float | None) -> None:
    """End an environment with all its jobs and web applications, and return its units.

    \b
    Example:
      trimtab env destroy night
    """
    if not yes:
        click.confirm(f"End environment {name} with all its jobs and web applications?", abort=True, err=True)
    _carry_out(line, lambda request: DestroyEnvironment(request, name), name, EnvironmentState.DESTROYED, wait_s)


def _upper(_: click.Context, __: click.Parameter, value: str | None) -> str | int | None:
    if value is None or value == UNDEFINED:
        return value
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:9]) <= UNITS_MAX:
        raise click.BadParameter(f"{value!r} is neither {UNDEFINED} nor a whole number from 1 to {UNITS_MAX}")
    return int(value)


@env.command()
@_named
@click.option("--lower", type=Whole(0, UNITS_MAX), help="Guaranteed units.")
@click.option(
    "--upper",
    callback=_upper,
    metavar=f"N|{UNDEFINED}",
    help="Maximum units; none: undefined.",
)
@change_options
@output_option
def resize(line: ControllerConnection, name: str, lower: int | None, upper: str | int | None) -> None:
    """Change the guaranteed and maximum units of an environment; an option that is left out keeps its bound.

    \b
    Example:
      trimtab env resize night --lower 4 --upper 8
    """
    if lower is None and upper is None:
        raise InvalidInput(Problem("--lower", "is missing, and so is --upper", "at least one of the two"))
    request = line.new_id()
    with line:
        if lower is None or upper is None:
            now = inner(line.ask(Query(line.new_id(), "environment", name)), "environment")
            lower, upper = now["lower"] if lower is None else lower, now["upper"] if upper is None else upper
        most = None if upper == UNDEFINED or upper is None else int(upper)
        note = note_of(line, ResizeEnvironment(request, name, int(lower), most))
    values = {"done": True, "request": request, "lower": lower, "upper": most, "note": note}
    emit(values, lambda: _noted(f"environment {name} has the bounds {lower} and {most or UNDEFINED}", note))


@env.command()
@_named
@click.argument("partner", callback=_name)
@click.option("--withdraw", is_flag=True, help="Withdraw the consent; the two separate after the notice.")
@change_options
@output_option
def consent(line: ControllerConnection, name: str, partner: str, withdraw: bool) -> None:
    """Allow an environment to share its units with PARTNER. Both owners must consent.

    \b
    Example:
      trimtab env consent night front
    """
    request = line.new_id()
    with line:
        note = note_of(line, ConsentEnvironment(request, name, partner, not withdraw))
    said = "no longer consents" if withdraw else "consents"
    done = f"environment {name} {said} to be coordinated with {partner}"
    emit({"done": True, "request": request, "note": note}, lambda: _noted(done, note))


# --- asking ---------------------------------------------------------------------------------------------------------


def _noted(done: str, note: str) -> Text:
    return Text(f"{done}\n{note}" if note else done)


def _carry_out(
    line: ControllerConnection,
    request: Callable[[str], Request],
    name: str,
    target: EnvironmentState,
    wait_s: float | None,
) -> None:
    """Ask for a step of its life and, with a limit, wait until it is taken."""
    request_id = line.new_id()
    with line:
        note = note_of(line, request(request_id))
        row = None if wait_s is None else _wait_for(line, name, target, wait_s)
    values = {"done": True, "request": request_id, "note": note}
    taken = f"environment {name} {'is' if row else 'will be'} {target.value}"
    emit(values if row is None else values | {"environment": row}, lambda: _noted(taken, note))


def _wait_for(line: ControllerConnection, name: str, target: EnvironmentState, wait_s: float) -> dict[str, Any]:
    """Wait for the environment to reach that state and return it; NotYet after `wait_s`, or if another state is
    requested."""
    row: dict[str, Any] = {}

    def look() -> Look:
        row.update(_look(line, name, target))
        state, wanted, detail = row["state"], row["wanted"], row["detail"]
        ended = f"is {state} and will be {wanted}: another request asked for that" if wanted != target else ""
        text = f"is {state}, requested {target}" + (f": {detail}" if detail else "")
        return Look(text if state != target else "", state == target, "" if state == target else ended)

    subject = f"environment {name}"
    goes_on = f"stopped waiting; the request continues: trimtab env show {name}"
    found = wait_for_all(line, {subject: look}, wait_s, goes_on)[subject]
    if found.ended:
        raise NotYet(f"{subject} {found.ended}")
    if not found.done:
        raise NotYet(f"{subject} is {row.get('state', 'unknown')} after {shown('wait_s', wait_s)}, not yet {target}")
    return row


def _look(line: ControllerConnection, name: str, target: EnvironmentState) -> dict[str, Any]:
    """Return the controller's view of an environment; an unknown one counts as destroyed if that is the target."""
    try:
        found = inner(line.ask(Query(line.new_id(), "environment", name)), "environment")
    except Refused as error:
        if error.code != "unknown-environment" or target is not EnvironmentState.DESTROYED:
            raise
        return {"name": name, "state": target.value, "wanted": target.value, "detail": ""}
    return found
