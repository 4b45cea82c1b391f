"""`trimtab web`: submit, change, watch and remove web applications."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from daemons.cli.asking import env_option, inner, limit_option, name_option, tell_each, view
from daemons.cli.connection import Line, bus_options
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing, record, rows_of, shown
from daemons.cli.webfile import goal_text, read_web, understood
from shared.messages import RemoveWeb, SubmitWeb
from shared.webapp import WebApp

COLUMNS = (
    "name",
    "running",
    "min_instances",
    "max_instances",
    "nodes",
    "cpu_mhz",
    "used_mhz",
    "utility",
    "measured_age_s",
    "profile",
)

FLOW_COLUMNS = ("name", "goal", "work_mcycles", "t_min_s", "model")
SEAT_COLUMNS = ("vm", "phase", "node", "state", "wanted_node", "cpu_mhz", "used_mhz", "failures", "back_off_until_s")


@click.group(cls=CommandGroup)
def web() -> None:
    """Submit, watch and remove web applications."""


@web.command("list")
@limit_option
@bus_options
@output_option
def list_apps(line: Line, limit: int) -> None:
    """Show the web applications: how many instances run, where, with how much CPU, and how content they are."""
    data = view(line, "web-apps", "", limit)
    emit(data, lambda: listing("web applications", rows_of(data, "apps"), COLUMNS))


@web.command()
@click.argument("app")
@bus_options
@output_option
def show(line: Line, app: str) -> None:
    """Show all that is known of one web application: its goals, what was measured, and its instances."""
    data = view(line, "web-app", app)
    emit(data, lambda: _for_people(app, inner(data, "app")))


def _for_people(name: str, app: dict[str, Any]) -> RenderableType:
    flows = [_flow_for_people(flow) for flow in rows_of(app, "flows")]
    plain = {key: value for key, value in app.items() if key not in ("spec", "flows", "seats")}
    return Group(
        record(f"web application {name}", plain),
        listing("flows", flows, tuple(flows[0]) if flows else ()),
        listing("instances", rows_of(app, "seats"), SEAT_COLUMNS),
    )


def _flow_for_people(flow: Mapping[str, Any]) -> dict[str, Any]:
    """Goal beside what was measured; rates as words, since they are per second."""
    measured = flow.get("measured") or {}
    share = f"{100 * flow['percentile']:g} % within " if flow.get("percentile") else ""
    goal_s = flow.get("mean_goal_s") or flow.get("percentile_goal_s")
    throughput = flow.get("throughput_goal_per_s")
    return {
        "name": flow.get("name"),
        "goal": f"{throughput:g}/s" if throughput else f"{share}{shown('goal_s', goal_s)}",
        "measured_s": measured.get("percentile_s") if share else measured.get("mean_s"),
        "utility": flow.get("utility"),
        "offered": shown("offered_per_s", measured.get("offered_per_s")),
        "served": shown("served_per_s", measured.get("served_per_s")),
        "rejected": shown("rejected_per_s", measured.get("rejected_per_s")),
        "queued": measured.get("queued"),
        "work_mcycles": flow.get("work_mcycles"),
        "profile": flow.get("profile"),
    }


@web.command()
@click.argument("file", type=click.Path(path_type=Path))
@name_option
@env_option
@click.option("--dry-run", is_flag=True, help="Only show the application as it is understood; nothing is sent.")
@bus_options
@output_option
def submit(line: Line, file: Path, name: str, environment: str, dry_run: bool) -> None:
    """Submit the web application that a TOML file describes (examples/web.toml), or change the one of that name."""
    app = read_web(file, name, environment)
    request = line.new_id()
    if not dry_run:
        with line:
            line.ask(SubmitWeb(request, app))
    values = {"done": not dry_run, "request": "" if dry_run else request, "app": understood(app)}
    emit(values, lambda: _understood(app) if dry_run else Text(_accepted(app)))


def _understood(app: WebApp) -> RenderableType:
    values = understood(app)
    values["flows"] = [{name: flow[name] for name in FLOW_COLUMNS} for flow in values["flows"]]
    return record(f"web application {app.name} as understood", values)


def _accepted(app: WebApp) -> str:
    goals = (f"{flow.name}: {goal_text(flow)}" for flow in app.flows)
    where = f" to environment {app.environment}" if app.environment else ""
    return "\n".join((f"web application {app.name} is submitted{where}", *goals))


@web.command()
@click.argument("apps", metavar="APP...", nargs=-1, required=True)
@bus_options
@output_option
def remove(line: Line, apps: tuple[str, ...]) -> None:
    """Stop every instance of web applications and forget them."""
    tell_each(line, apps, RemoveWeb, "web application {} is removed")
