"""`trimtab web`: submit, change, list and remove web applications."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import env_option, inner, limit_option, name_option, tell_each, view
from daemons.cli.commands.settings import set_web
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.output import CommandGroup, emit, output_option, say_next
from daemons.cli.render import failures, listing, record, rows_of, shown
from daemons.cli.tables import stacked
from daemons.cli.watching import watch_option
from daemons.manifests.web_app import goal_text, read_web, understood
from shared.protocol.operator_messages import RemoveWeb, SubmitWeb
from shared.values.web_app import WebApp

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
LEAST = ("profile", "measured_age_s", "min_instances", "max_instances", "used_mhz")
LEAST_OF_FLOWS = ("profile", "work_mcycles", "queued")
LEAST_OF_REPLICAS = (
    "back_off_until_s",
    "failures",
    "used_mhz",
    "wanted_node",
    "rotation",
    "cpu_mhz",
    "address",
)

FLOW_COLUMNS = ("name", "goal", "work_mcycles", "t_min_s", "model")
REPLICA_COLUMNS = (
    "vm",
    "phase",
    "node",
    "state",
    "address",
    "rotation",
    "health",
    "wanted_node",
    "cpu_mhz",
    "used_mhz",
    "failures",
    "back_off_until_s",
)
HIDDEN = frozenset({"spec", "flows", "seats", "traffic", "limits"})  # shown in words of their own


@click.group(cls=CommandGroup)
def web() -> None:
    """Submit, list and remove web applications."""


@web.command("list")
@limit_option
@bus_options
@watch_option
@output_option
def list_apps(line: ControllerConnection, limit: int) -> None:
    """Show the web applications: instances, nodes, CPU and utility.

    \b
    Example:
      trimtab web list
    """
    data = view(line, "web-apps", "", limit)
    emit(data, lambda: listing("web applications", rows_of(data, "apps"), COLUMNS, LEAST))


@web.command()
@click.argument("app", shell_complete=complete.apps)
@bus_options
@watch_option
@output_option
def show(line: ControllerConnection, app: str) -> None:
    """Show one web application: goals, measurements and instances.

    \b
    Example:
      trimtab web show shop
    """
    data = view(line, "web-app", app)
    emit(data, lambda: _for_people(app, inner(data, "app")))


def _for_people(name: str, app: dict[str, Any]) -> RenderableType:
    flows = [_flow_for_people(flow) for flow in rows_of(app, "flows")]
    plain = {key: value for key, value in app.items() if key not in HIDDEN}
    plain |= {"requests": _traffic(app.get("traffic")), "let_in": _let_in(app.get("limits"))}
    replicas = [{**replica, "health": _health(replica.get("health"))} for replica in rows_of(app, "seats")]
    return stacked(
        record(f"web application {name}", plain),
        listing("flows", flows, tuple(flows[0]) if flows else (), LEAST_OF_FLOWS),
        listing("instances", replicas, REPLICA_COLUMNS, LEAST_OF_REPLICAS),
        *failures(replicas),
    )


def _traffic(traffic: Mapping[str, Any] | None) -> str:
    """Return the last measurement of all requests, in words."""
    if traffic is None:
        return "not measured"
    rates = (f"{shown(f'{what}_per_s', traffic[f'{what}_per_s'])} {what}" for what in ("offered", "served", "rejected"))
    return ", ".join((*rates, f"{traffic['queued']} queued", f"mean {shown('mean_s', traffic['mean_s'])}"))


def _let_in(limits: Mapping[str, Any] | None) -> str:
    """Return the limits of the load balancer, in words."""
    if limits is None:
        return "as the balancer is configured"
    each, queue = (limits[key] or "the balancer's default" for key in ("instance_max", "queue_max"))
    return f"each instance {each}, queue {queue} for at most {shown('queue_limit_s', limits['queue_limit_s'])}"


def _health(health: Mapping[str, Any] | None) -> str:
    if health is None:
        return ""
    if not health["healthy"]:
        return f"unhealthy: {health['detail']}"
    return "healthy" if health["probes"] else "not known yet"


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
@click.option("--dry-run", is_flag=True, help="Show the application as Trimtab reads it; send nothing.")
@change_options
@output_option
def submit(line: ControllerConnection, file: Path, name: str, environment: str, dry_run: bool) -> None:
    """Submit the web application that a TOML file describes (examples/web.toml), or change the one of that name.

    \b
    Example:
      trimtab web submit web.toml
    """
    app = read_web(file, name, environment)
    request = line.new_id()
    if not dry_run:
        with line:
            line.ask(SubmitWeb(request, app))
    values = {"done": not dry_run, "request": "" if dry_run else request, "app": understood(app)}
    emit(values, lambda: _understood(app) if dry_run else Text(_accepted(app)))
    say_next("" if dry_run else f"trimtab web show {app.name}")


def _understood(app: WebApp) -> RenderableType:
    values = understood(app)
    values["flows"] = [{name: flow[name] for name in FLOW_COLUMNS} for flow in values["flows"]]
    return record(f"web application {app.name} as Trimtab reads it", values)


def _accepted(app: WebApp) -> str:
    goals = (f"{flow.name}: {goal_text(flow)}" for flow in app.flows)
    where = f" to environment {app.environment}" if app.environment else ""
    return "\n".join((f"web application {app.name} is submitted{where}", *goals))


@web.command()
@click.argument("apps", metavar="APP...", nargs=-1, required=True, shell_complete=complete.apps)
@change_options
@output_option
def remove(line: ControllerConnection, apps: tuple[str, ...]) -> None:
    """Stop all instances of web applications and remove them.

    \b
    Example:
      trimtab web remove shop
    """
    tell_each(line, apps, RemoveWeb, "web application {} is removed")


web.add_command(set_web)
