"""`trimtab nodes`: which nodes take part, and what is wanted of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import click

from daemons.cli import complete
from daemons.cli.asking import assess_each, assess_option, inner, limit_option, tell_each, view
from daemons.cli.commands.vms import COLUMNS as VM_COLUMNS
from daemons.cli.commands.vms import with_workload
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing, record, rows_of, shown
from shared.base.errors import TransientError
from shared.protocol.operator_messages import AddNode, ConfirmOff, DrainNode, Query, RemoveNode, RepairNode
from shared.values.scalars import check_name

COLUMNS = (
    "name",
    "condition",
    "service",
    "wanted",
    "environment",
    "handover",
    "report_age_s",
    "vms",
    "unmanaged_vms",
    "cpu",
    "cpu_of_others",
    "memory",
    "memory_of_others",
    "actions",
    "labels",
)

DRAIN_LOOK_S = 2.0  # after which the decision that a drain brings has been made
DRAIN_LOOKS = 8  # within that time
NEXT = "it is next"  # the view has no reason yet


def _names(_: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        check_name(parameter.human_readable_name, name)
    return value


_several = click.argument(
    "nodes", metavar="NODE...", nargs=-1, required=True, callback=_names, shell_complete=complete.nodes
)


@click.group(cls=CommandGroup)
def nodes() -> None:
    """List, add, empty and remove nodes."""


@nodes.command("list")
@click.option("--prefix", default="", shell_complete=complete.nodes, help="Only nodes whose names begin like that.")
@limit_option
@bus_options
@output_option
def list_nodes(line: ControllerConnection, prefix: str, limit: int) -> None:
    """Show the nodes: what is known and wanted of them, and what is promised of their capacity."""
    data = view(line, "nodes", prefix, limit)
    emit(data, lambda: listing("nodes", [_brief(row) for row in rows_of(data, "nodes")], COLUMNS))


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with promised / capacity in place of the tables, and what VMs take that are not ours."""
    found = {**row, "cpu": _share(row.get("cpu"), "mhz"), "memory": _share(row.get("memory"), "mib")}
    for name, unit in (("cpu", "mhz"), ("memory", "mib")):
        table = row.get(name)
        others = table.get(f"unmanaged_{unit}") if isinstance(table, Mapping) else None
        found[f"{name}_of_others"] = shown(f"_{unit}", others) if others else ""
    return found


def _share(table: Any, unit: str) -> str:
    if not isinstance(table, Mapping):
        return ""
    return f"{shown('', table.get(f'committed_{unit}'))} / {shown(f'_{unit}', table.get(f'capacity_{unit}'))}"


@nodes.command()
@click.argument("node", shell_complete=complete.nodes)
@bus_options
@output_option
def show(line: ControllerConnection, node: str) -> None:
    """Show all that is known of one node."""
    data = view(line, "node", node)
    emit(data, lambda: record(f"node {node}", _for_people(inner(data, "node")), empty=False))


def _for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """A node with no two keys that read the same (`memory` is what VMs may have of `memory_mib`), and of its VMs what
    `trimtab vms list` shows."""
    found = {"host_memory_mib" if key == "memory_mib" else key: value for key, value in row.items()}
    vms = [with_workload(vm) for vm in rows_of(row, "vm_list")]
    return found | {"vm_list": [{key: vm[key] for key in VM_COLUMNS if key in vm} for vm in vms]}


@nodes.command()
@_several
@change_options
@output_option
def add(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Let nodes take part, as soon as their agents report."""
    tell_each(line, nodes, AddNode, "node {} takes part")


@nodes.command()
@_several
@change_options
@output_option
def remove(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Take empty nodes out; refused while a VM is or may be on them, or an environment has them."""
    tell_each(line, nodes, RemoveNode, "node {} is out")


@nodes.command()
@_several
@assess_option
@change_options
@output_option
def drain(line: ControllerConnection, nodes: tuple[str, ...], assess: bool) -> None:
    """Move everything off nodes, and keep them out of service, up and awake.

    Prints what is still there a moment later, and what each VM waits for; `trimtab nodes show` says it at any time.
    """
    if assess:
        assess_each(line, "drain", nodes)
        return

    order = functools.partial(DrainNode, on=True)
    tell_each(line, nodes, order, "node {} is being emptied", functools.partial(_still_there, line), "still_there")


def _still_there(line: ControllerConnection, nodes: Sequence[str]) -> dict[str, list[str]]:
    """What keeps nodes from being empty, a line for each VM, once it shows what has been decided, or after
    `DRAIN_LOOK_S`."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    try:
        for _ in range(DRAIN_LOOKS):
            line.sleep(DRAIN_LOOK_S / DRAIN_LOOKS)
            views = {node: line.ask(Query(line.new_id(), "node", node)) for node in nodes}
            found = {node: rows_of(view["node"], "drain_blockers") for node, view in views.items()}
            if all(not rows or any(row["why"] != NEXT for row in rows) for rows in found.values()):
                break
    except TransientError:
        found = {}  # the drain was taken in: that is what is to be told
    return {node: [f"{row['vm']}: {row['why']}" for row in rows] for node, rows in found.items()}


@nodes.command()
@_several
@change_options
@output_option
def undrain(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Let nodes come into service again."""
    tell_each(line, nodes, lambda request, name: DrainNode(request, name, False), "node {} takes VMs again")


@nodes.command()
@_several
@change_options
@output_option
def repair(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Let nodes be tried again that failed to come into service, or whose setup failed."""
    tell_each(line, nodes, RepairNode, "node {} is tried again")


@nodes.command("confirm-off")
@_several
@click.option("--yes", is_flag=True, help="Do not ask whether they are really off.")
@change_options
@output_option
def confirm_off(line: ControllerConnection, nodes: tuple[str, ...], yes: bool) -> None:
    """Give your word that silent nodes are off, so that their VMs may be started elsewhere.

    A VM of a node that still runs would then run twice.
    """
    if not yes:
        click.confirm(f"Have you made sure that {', '.join(nodes)} cannot be running?", abort=True, err=True)
    tell_each(line, nodes, ConfirmOff, "node {} is taken for off")
