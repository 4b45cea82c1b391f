"""`trimtab vms`: what runs where, and single VMs by an operator's hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from daemons.cli import complete
from daemons.cli.asking import assess_each, assess_option, limit_option, tell, tell_each, view
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing, rows_of
from shared.protocol.operator_messages import AdoptVm, ConfirmGone, ForgetVm, HandsOn, HoldJob, MoveVm

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
)

_several = click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete.active_jobs)


@click.group(cls=CommandGroup)
def vms() -> None:
    """List VMs, ours and others, and take single ones in hand."""


@vms.command("list")
@click.option("--node", default="", shell_complete=complete.nodes, help="Only those on this node.")
@limit_option
@bus_options
@output_option
def list_vms(line: ControllerConnection, node: str, limit: int) -> None:
    """Show every VM and saved image, ours or not, as the nodes last reported them."""
    data = view(line, "vms", node, limit)
    emit(data, lambda: listing("VMs", [with_workload(row) for row in rows_of(data, "vms")], COLUMNS))


def with_workload(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that names its job, or the web application that it is an instance of."""
    return {**row, "workload": row.get("job") or row.get("app")}


@vms.command()
@click.argument("vm", shell_complete=complete.other_vms)
@click.option("--node", required=True, shell_complete=complete.nodes, help="Where it runs.")
@click.option("--job", required=True, help="The name of the job that it becomes.")
@change_options
@output_option
def adopt(line: ControllerConnection, vm: str, node: str, job: str) -> None:
    """Take over a running VM that is not ours, as a best-effort job of one instance."""
    tell(line, lambda request: AdoptVm(request, node, vm, job), f"VM {vm} on {node} becomes job {job}")


@vms.command()
@click.argument("job", shell_complete=complete.active_jobs)
@bus_options
@output_option
def definition(line: ControllerConnection, job: str) -> None:
    """Print the domain XML of the adopted VM of a job, as its node reported it last, without secrets."""
    data = view(line, "definition", job)
    emit(data, lambda: "".join(data["definition"]))


@vms.command()
@_several
@change_options
@output_option
def forget(line: ControllerConnection, jobs: tuple[str, ...]) -> None:
    """Let go of the VMs of jobs without stopping them; they are counted from then on, never touched."""
    tell_each(line, jobs, ForgetVm, "the VMs of job {} are let go")


@vms.command()
@_several
@assess_option
@change_options
@output_option
def suspend(line: ControllerConnection, jobs: tuple[str, ...], assess: bool) -> None:
    """Save the VMs of jobs to disk and keep them there until `resume`."""
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
    """Let suspended jobs run again, as soon as there is room."""
    if assess:
        assess_each(line, "resume", jobs)
        return
    tell_each(line, jobs, lambda request, job: HoldJob(request, job, False), "job {} may run again")


@vms.command("hands-on")
@click.argument("vms", metavar="VM...", nargs=-1, required=True, shell_complete=complete.vms)
@change_options
@output_option
def hands_on(line: ControllerConnection, vms: tuple[str, ...]) -> None:
    """End the hold on workloads of VMs that somebody moved, stopped, started or paused by other means."""
    tell_each(line, vms, HandsOn, "the workload of VM {} is in hand again")


@vms.command("confirm-gone")
@click.argument("vms", metavar="VM...", nargs=-1, required=True, shell_complete=complete.vms)
@click.option("--yes", is_flag=True, help="Do not ask whether they really run nowhere.")
@change_options
@output_option
def confirm_gone(line: ControllerConnection, vms: tuple[str, ...], yes: bool) -> None:
    """Give your word that VMs that are out of sight run nowhere, so that they may be started anew.

    One that still runs somewhere would then run twice.
    """
    if not yes:
        click.confirm(f"Have you made sure that {', '.join(vms)} cannot be running?", abort=True, err=True)
    tell_each(line, vms, ConfirmGone, "VM {} is taken for gone")


@vms.command()
@click.argument("vm", shell_complete=complete.vms)
@click.argument("node", shell_complete=complete.nodes)
@assess_option
@change_options
@output_option
def migrate(line: ControllerConnection, vm: str, node: str, assess: bool) -> None:
    """Move a running VM (JOB#INDEX) to a node; refused where it does not fit."""
    if assess:
        assess_each(line, "migrate", [vm], node)
        return
    tell(line, lambda request: MoveVm(request, vm, node), f"VM {vm} moves to {node}")
