"""`trimtab vms`: all VMs, and orders for single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from daemons.cli import complete
from daemons.cli.asking import (
    assess_each,
    assess_option,
    limit_option,
    look_up_releasable,
    look_up_vms,
    tell,
    tell_each,
    view,
)
from daemons.cli.commands.settings import set_vms
from daemons.cli.commands.vm_adoption import adopt
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing, record, rows_of
from daemons.cli.watching import watch_option
from shared.protocol.operator_messages import ConfirmGone, HoldJob, MoveVm, PowerVm, ReconcileVm, ReleaseVm

COLUMNS = (
    "vm",
    "node",
    "state",
    "busy",
    "managed",
    "workload",
    "memory_mib",
    "vcpus",
    "cpu_mhz",
    "used_mhz",
    "report_age_s",
    "cannot_move",
    "waits_for",
)
SELDOM = ("cannot_move", "waits_for")  # shown where there is such a VM
LEAST = ("report_age_s", "vcpus", "busy", "managed", "used_mhz")

_several = click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete.active_jobs)
_adopted = click.argument("jobs", metavar="NAME...", nargs=-1, required=True, shell_complete=complete.active_jobs)


@click.group(cls=CommandGroup)
def vms() -> None:
    """List VMs; adopt, change, start, migrate, suspend or release them."""


@vms.command("list")
@click.option("--node", default="", shell_complete=complete.nodes, help="Show only VMs on this node.")
@limit_option
@bus_options
@watch_option
@output_option
def list_vms(line: ControllerConnection, node: str, limit: int) -> None:
    """Show all VMs and saved images, managed or not, as the nodes last reported them.

    \b
    Example:
      trimtab vms list --node n1
    """
    data = view(line, "vms", node, limit)
    emit(data, lambda: listing("VMs", brief(rows_of(data, "vms")), COLUMNS, LEAST))


@vms.command("show")
@click.argument("vm", shell_complete=complete.vms)
@bus_options
@watch_option
@output_option
def show_vm(line: ControllerConnection, vm: str) -> None:
    """Show one VM: where it is, where it can be migrated to, and why to no other node.

    \b
    Example:
      trimtab vms show render-1#0
    """
    data = view(line, "vm", vm)
    emit(data, lambda: record(f"VM {vm}", _for_people(data), empty=False))


def _for_people(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a VM with one line for all nodes that lack the same."""
    rows = rows_of(data, "rows")
    found: dict[str, Any] = (
        {key: value for key, value in with_workload(rows[0]).items() if key in COLUMNS} if rows else {}
    )
    if len(rows) > 1:
        found = {"listed_by": [with_workload(row) for row in rows]}
    failover, migration = data.get("failover"), data.get("migration")
    if isinstance(failover, Mapping):
        found["failover"] = _failover_words(failover)
    if not isinstance(migration, Mapping):
        return found
    found["cannot_move"] = migration.get("cannot_move")
    found["can_move_to"] = migration.get("able") or ("no node" if migration.get("unable") else None)
    if not found["cannot_move"]:
        found["cannot_move_to"] = [
            {"node": row["node"], "why": "; ".join(row["why"])} for row in rows_of(migration, "unable")
        ]
    found["needs_of_a_target"] = migration.get("needs")
    found["forecasts"] = [_forecast_words(row) for row in rows_of(migration, "forecasts") if _is_known(row)]
    return found


def _is_known(forecast: Mapping[str, Any]) -> bool:
    return forecast.get("duration_s") is not None or bool(forecast.get("why_not"))


def _forecast_words(forecast: Mapping[str, Any]) -> dict[str, Any]:
    if forecast.get("why_not"):
        return {"node": forecast["node"], "forecast": forecast["why_not"]}
    took, paused = forecast["duration_s"], forecast["downtime_s"]
    return {"node": forecast["node"], "forecast": f"{forecast['method']}, {took:.0f} s, paused for {paused:.2f} s"}


def _failover_words(failover: Mapping[str, Any]) -> str:
    if not failover.get("on"):
        return "off"
    why = failover.get("why_not") or ()
    return "ready" if failover.get("ready") else f"not ready: {'; '.join(why)}"


def brief(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a list of VMs; why VMs cannot move, and what they wait for, only where there is such a VM."""
    found = [with_workload(row) for row in rows]
    for key in SELDOM:
        if not any(row.get(key) for row in found):
            for row in found:
                row.pop(key, None)
    return found


def with_workload(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row that names its job, or the web application of which it is an instance."""
    return {**row, "workload": row.get("job") or row.get("app")}


vms.add_command(adopt)
vms.add_command(set_vms)


@vms.command()
@_adopted
@change_options
@output_option
def start(line: ControllerConnection, jobs: tuple[str, ...]) -> None:
    """Start adopted VMs that are shut off, where their definitions are. From then on, Trimtab keeps them running.

    NAME is the managed name of a VM or its own.

    \b
    Example:
      trimtab vms start legacy1
    """
    tell_each(
        line, jobs, lambda request, job: PowerVm(request, job, True), "VM {} is being started", look_up=look_up_vms
    )


@vms.command()
@_adopted
@change_options
@output_option
def shutdown(line: ControllerConnection, jobs: tuple[str, ...]) -> None:
    """Shut adopted VMs down: the guest is asked, and cut off after the agent's time limit. They stay off.

    NAME is the managed name of a VM or its own.

    \b
    Example:
      trimtab vms shutdown legacy1
    """
    tell_each(
        line, jobs, lambda request, job: PowerVm(request, job, False), "VM {} is being shut down", look_up=look_up_vms
    )


@vms.command()
@click.argument("job", shell_complete=complete.active_jobs)
@bus_options
@output_option
def definition(line: ControllerConnection, job: str) -> None:
    """Print the domain XML of an adopted VM as its node last reported it, without secrets.

    \b
    Example:
      trimtab vms definition legacy1
    """
    data = view(line, "definition", job)
    emit(data, lambda: "".join(data["definition"]))


@vms.command()
@_adopted
@change_options
@output_option
def release(line: ControllerConnection, jobs: tuple[str, ...]) -> None:
    """Stop managing the VMs of jobs without stopping them. They still count as used capacity.

    NAME is the name of a job, or the own name of an adopted VM.

    \b
    Example:
      trimtab vms release legacy1
    """
    tell_each(
        line,
        jobs,
        ReleaseVm,
        "job {} is released; its VMs keep running unmanaged",
        look_up=look_up_releasable,
    )


@vms.command()
@_several
@assess_option
@change_options
@output_option
def suspend(line: ControllerConnection, jobs: tuple[str, ...], assess: bool) -> None:
    """Save the VMs of jobs to disk and hold them until `trimtab vms resume`.

    \b
    Example:
      trimtab vms suspend render-1
    """
    if assess:
        assess_each(line, "suspend", jobs)
        return
    tell_each(line, jobs, lambda request, job: HoldJob(request, job, True), "job {} is held")


@vms.command()
@_several
@assess_option
@change_options
@output_option
def resume(line: ControllerConnection, jobs: tuple[str, ...], assess: bool) -> None:
    """Let suspended jobs run again as soon as there is capacity.

    \b
    Example:
      trimtab vms resume render-1
    """
    if assess:
        assess_each(line, "resume", jobs)
        return
    tell_each(line, jobs, lambda request, job: HoldJob(request, job, False), "job {} is no longer held")


@vms.command("reconcile")
@click.argument("vms", metavar="VM...", nargs=-1, required=True, shell_complete=complete.vms)
@change_options
@output_option
def reconcile_vm(line: ControllerConnection, vms: tuple[str, ...]) -> None:
    """Resume reconciliation of workloads whose VMs were changed outside Trimtab.

    \b
    Example:
      trimtab vms reconcile render-1#0
    """
    tell_each(line, vms, ReconcileVm, "reconciliation of the workload of VM {} is resumed")


@vms.command("confirm-gone")
@click.argument("vms", metavar="VM...", nargs=-1, required=True, shell_complete=complete.vms)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@change_options
@output_option
def confirm_gone(line: ControllerConnection, vms: tuple[str, ...], yes: bool) -> None:
    """Confirm that missing VMs run nowhere, so that they can be started again.

    If a VM still runs somewhere, it then runs twice.

    \b
    Example:
      trimtab vms confirm-gone render-1#0
    """
    if not yes:
        click.confirm(f"Are you sure that {', '.join(vms)} cannot be running?", abort=True, err=True)
    tell_each(line, vms, ConfirmGone, "VM {} is confirmed gone")


@vms.command()
@click.argument("vm", shell_complete=complete.vms)
@click.argument("node", shell_complete=complete.nodes)
@assess_option
@change_options
@output_option
def migrate(line: ControllerConnection, vm: str, node: str, assess: bool) -> None:
    """Migrate a running VM (JOB#INDEX) to a node. Refused if it does not fit there.

    \b
    Example:
      trimtab vms migrate render-1#0 n2
    """
    if assess:
        assess_each(line, "migrate", [vm], node)
        return
    tell(line, lambda request: MoveVm(request, vm, node), f"VM {vm} migrates to {node}")
