"""`trimtab nodes`: the nodes of the cluster, and orders for them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import click

from daemons.cli import complete
from daemons.cli.asking import (
    assess_each,
    assess_option,
    emit_each,
    inner,
    limit_option,
    refusal,
    report_failures,
    tell_each,
    view,
)
from daemons.cli.commands.fence_status import fence_status
from daemons.cli.commands.vm_fit import fit
from daemons.cli.commands.vms import COLUMNS as VM_COLUMNS
from daemons.cli.commands.vms import brief
from daemons.cli.connection import ControllerConnection, Refused, bus_options, change_options
from daemons.cli.output import CommandGroup, emit, output_option, say_next
from daemons.cli.render import listing, record, rows_of, shown
from daemons.cli.waiting import Look, NotYet, wait_for_all, wait_option
from daemons.cli.watching import watch_option
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
LEAST = (
    "labels",
    "memory_of_others",
    "cpu_of_others",
    "handover",
    "wanted",
    "unmanaged_vms",
    "actions",
    "report_age_s",
    "environment",
)

SHOWN = 3  # VMs that a line of progress names
DRAIN_LOOK_S = 2.0  # after which the decision that a drain brings has been made
DRAIN_LOOKS = 8  # within that time
GOES_ON = (
    "stopped waiting; the drain continues until `trimtab nodes undrain`; `trimtab nodes show` prints how far it is"
)
VALUES_SHOWN = 6  # of a kind of features
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
    """List, add, drain and remove nodes."""


@nodes.command("list")
@click.option(
    "--prefix", default="", shell_complete=complete.nodes, help="Show only nodes whose names start with this."
)
@limit_option
@bus_options
@watch_option
@output_option
def list_nodes(line: ControllerConnection, prefix: str, limit: int) -> None:
    """Show the nodes: health, scheduling state, VMs, and committed against total capacity.

    \b
    Example:
      trimtab nodes list --prefix rack1-
    """
    data = view(line, "nodes", prefix, limit)
    emit(data, lambda: listing("nodes", [_brief(row) for row in rows_of(data, "nodes")], COLUMNS, LEAST))


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with committed / capacity in place of the tables, and the usage of unmanaged VMs."""
    found = {**row, "cpu": _share(row.get("cpu"), "mhz"), "memory": _share(row.get("memory"), "mib")}
    for name, unit in (("cpu", "mhz"), ("memory", "mib")):
        table = row.get(name)
        others = table.get(f"unmanaged_{unit}") if isinstance(table, Mapping) else None
        found[f"{name}_of_others"] = shown(f"_{unit}", others) if others else ""
    return found


def _share(table: Any, unit: str) -> str:
    if not isinstance(table, Mapping):
        return ""
    return f"{shown('', table.get(f'committed_{unit}'))}/{shown(f'_{unit}', table.get(f'capacity_{unit}'))}"


@nodes.command()
@click.argument("node", shell_complete=complete.nodes)
@bus_options
@watch_option
@output_option
def show(line: ControllerConnection, node: str) -> None:
    """Show one node: state, capacity, VMs, and what keeps it from being empty.

    \b
    Example:
      trimtab nodes show n1
    """
    data = view(line, "node", node)
    emit(data, lambda: record(f"node {node}", _for_people(inner(data, "node")), empty=False))


def _for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node without two keys that read the same (`memory` is the part of `memory_mib` available to VMs), and
    for its VMs the columns of `trimtab vms list`."""
    found = {"host_memory_mib" if key == "memory_mib" else key: value for key, value in row.items()}
    vms = brief(rows_of(row, "vm_list"))
    found["migration_has"] = _features(row.get("migration_has"))
    return found | {"vm_list": [{key: vm[key] for key in VM_COLUMNS if key in vm} for vm in vms]}


def _features(has: Any) -> list[str] | None:
    """Return the features of a node: of kinds with many values, how many there are."""
    if not isinstance(has, list):
        return None
    found: dict[str, list[str]] = {}
    for text in has:
        kind, _, value = text.partition("=")
        found.setdefault(kind, []).extend([text] if value else [])
    few = [text for texts in found.values() for text in texts if len(texts) <= VALUES_SHOWN]
    return [*few, *(f"{kind}: {len(texts)} values" for kind, texts in found.items() if len(texts) > VALUES_SHOWN)]


@nodes.command()
@_several
@change_options
@output_option
def add(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Add nodes to the cluster. They take VMs once their agents report.

    \b
    Example:
      trimtab nodes add n1 n2
    """
    tell_each(line, nodes, AddNode, "node {} is added")


@nodes.command()
@_several
@change_options
@output_option
def remove(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Remove empty nodes. Refused while a VM is or may be on them, or an environment has them.

    \b
    Example:
      trimtab nodes remove n1
    """
    tell_each(line, nodes, RemoveNode, "node {} is removed")


@nodes.command()
@_several
@assess_option
@wait_option("the nodes are empty, for at most --timeout seconds")
@change_options
@output_option
def drain(line: ControllerConnection, nodes: tuple[str, ...], assess: bool, wait: bool) -> None:
    """Evacuate nodes and keep them out of service, up and awake, until `undrain`.

    Without --wait it prints which VMs are still there a moment later, and what each waits for; `trimtab nodes show`
    prints that at any time. Ctrl-C ends the wait, not the drain. Exit status 1 when a node is not drained.

    \b
    Example:
      trimtab nodes drain n1 --why "kernel update"
    """
    if assess:
        assess_each(line, "drain", nodes)
    elif wait:
        _drain_and_wait(line, list(dict.fromkeys(nodes)))
    else:
        order = functools.partial(DrainNode, on=True)
        look = functools.partial(_still_there, line)
        tell_each(line, nodes, order, "node {} is draining", look, "still_there", "trimtab nodes show {}")


def _still_there(line: ControllerConnection, nodes: Sequence[str]) -> dict[str, list[str]]:
    """Return the VMs that still block a drain, one line each, once the view shows a decision on them, or after
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
        found = {}  # the drain was accepted: that is the result
    return {node: [_blocker(row) for row in rows] for node, rows in found.items()}


def _blocker(row: Mapping[str, Any]) -> str:
    return f"{row['vm']}: {row['why']}"


def _drain_and_wait(line: ControllerConnection, nodes: Sequence[str]) -> None:
    """Drain nodes, show how many VMs are left on each, and print which are drained; exit status 1 unless all are."""
    with line:
        replies = line.ask_all([DrainNode(line.new_id(), node, True) for node in nodes])
        answered = list(zip(nodes, replies, strict=True))
        looks = {f"node {node}": functools.partial(_look, line, node) for node, reply in answered if reply.done}
        found = wait_for_all(line, looks, line.limit_s, GOES_ON)
    ended = {name.removeprefix("node "): each for name, each in found.items()}
    done = [node for node, each in ended.items() if each.done]
    refused = [refusal(node, reply) for node, reply in answered if not reply.done]
    left = [
        {"name": node, "code": NotYet.code, "detail": f"node {node} {each.ended or each.text}"}
        for node, each in ended.items()
        if not each.done
    ]
    emit_each({"done": done, "refused": refused, "unfinished": left}, [f"node {node} is drained" for node in done])
    report_failures(refused, left)
    say_next(f"trimtab nodes undrain {' '.join(done)}")


def _look(line: ControllerConnection, node: str) -> Look:
    """Return the progress of a drain."""
    try:
        row = inner(line.ask(Query(line.new_id(), "node", node)), "node")
    except Refused as error:
        if error.code != "unknown-node":
            raise
        return Look("", ended="was removed")
    if not row["held"]:
        return Look("", ended="was undrained: another request asked for that")
    blockers = rows_of(row, "drain_blockers")
    busy = len(row["action_list"])
    if not blockers and not busy:
        return Look("", done=True)
    named = [_blocker(each) for each in blockers[:SHOWN]]
    more = [f"and {len(blockers) - SHOWN} more"] if len(blockers) > SHOWN else []
    count = f"{len(blockers)} VM{'' if len(blockers) == 1 else 's'} left" if blockers else f"{busy} actions in progress"
    unknown = ["the node does not report"] if row["condition"] == "unknown" else []
    return Look("; ".join((f"has {count}", *unknown, *named, *more)))


@nodes.command()
@_several
@change_options
@output_option
def undrain(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Return drained nodes to service.

    \b
    Example:
      trimtab nodes undrain n1
    """
    tell_each(line, nodes, lambda request, name: DrainNode(request, name, False), "node {} is back in service")


@nodes.command()
@_several
@change_options
@output_option
def repair(line: ControllerConnection, nodes: tuple[str, ...]) -> None:
    """Retry nodes that failed to come into service, or whose setup failed.

    \b
    Example:
      trimtab nodes repair n1
    """
    tell_each(line, nodes, RepairNode, "node {} will be retried")


@nodes.command("confirm-off")
@_several
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@change_options
@output_option
def confirm_off(line: ControllerConnection, nodes: tuple[str, ...], yes: bool) -> None:
    """Confirm that unreachable nodes are off, so that their VMs start elsewhere.

    If a node still runs, its VMs then run twice.

    \b
    Example:
      trimtab nodes confirm-off n1
    """
    if not yes:
        click.confirm(f"Are you sure that {', '.join(nodes)} cannot be running?", abort=True, err=True)
    tell_each(line, nodes, ConfirmOff, "node {} is confirmed off")


nodes.add_command(fence_status)
nodes.add_command(fit)
