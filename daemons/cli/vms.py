"""`trimtab vms`: what runs where, and single VMs by an operator's hand."""

from __future__ import annotations

import click

from daemons.cli.asking import limit_option, tell, tell_each, view
from daemons.cli.connection import Line, bus_options
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing, rows_of
from shared.messages import AdoptVm, ForgetVm, HoldJob, MoveVm

COLUMNS = (
    "vm",
    "node",
    "state",
    "busy",
    "managed",
    "job",
    "memory_mib",
    "vcpus",
    "cpu_mhz",
    "used_mhz",
    "report_age_s",
)

_several = click.argument("jobs", metavar="JOB...", nargs=-1, required=True)


@click.group(cls=CommandGroup)
def vms() -> None:
    """List VMs, ours and others, and take single ones in hand."""


@vms.command("list")
@click.option("--node", default="", help="Only those on this node.")
@limit_option
@bus_options
@output_option
def list_vms(line: Line, node: str, limit: int) -> None:
    """Show every VM and saved image, ours or not, as the nodes last reported them."""
    data = view(line, "vms", node, limit)
    emit(data, lambda: listing("VMs", rows_of(data, "vms"), COLUMNS))


@vms.command()
@click.argument("vm")
@click.option("--node", required=True, help="Where it runs.")
@click.option("--job", required=True, help="The name of the job that it becomes.")
@bus_options
@output_option
def adopt(line: Line, vm: str, node: str, job: str) -> None:
    """Take over a running VM that is not ours, as a best-effort job of one instance."""
    tell(line, lambda request: AdoptVm(request, node, vm, job), f"VM {vm} on {node} becomes job {job}")


@vms.command()
@_several
@bus_options
@output_option
def forget(line: Line, jobs: tuple[str, ...]) -> None:
    """Let go of the VMs of jobs without stopping them; they are counted from then on, never touched."""
    tell_each(line, jobs, ForgetVm, "the VMs of job {} are let go")


@vms.command()
@_several
@bus_options
@output_option
def suspend(line: Line, jobs: tuple[str, ...]) -> None:
    """Save the VMs of jobs to disk and keep them there until `resume`."""
    tell_each(line, jobs, lambda request, job: HoldJob(request, job, True), "job {} is held")


@vms.command()
@_several
@bus_options
@output_option
def resume(line: Line, jobs: tuple[str, ...]) -> None:
    """Let suspended jobs run again, as soon as there is room."""
    tell_each(line, jobs, lambda request, job: HoldJob(request, job, False), "job {} may run again")


@vms.command()
@click.argument("vm")
@click.argument("node")
@bus_options
@output_option
def migrate(line: Line, vm: str, node: str) -> None:
    """Move a running VM (JOB#INDEX) to a node; refused where it does not fit."""
    tell(line, lambda request: MoveVm(request, vm, node), f"VM {vm} moves to {node}")
