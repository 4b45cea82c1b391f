"""`trimtab nodes fit`: where one more VM would go, and what would have to move for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.numbers import MemorySize, Number, Whole
from daemons.cli.output import REFUSED, emit, output_option
from daemons.cli.render import listing, rows_of
from daemons.cli.tables import stacked
from daemons.cli.term_options import changed_rules, rules_option
from daemons.planning.make_room import MOVES_MAX
from daemons.values.text_format import memory_text, number_text
from shared.protocol.operator_messages import CheckVmFit
from shared.values.jobs import Rules
from shared.values.new_vm import COPIES_MAX, VCPUS_MAX, NewVm

NAMED = 5  # nodes that a line names
MOVES = ("vm", "from", "to", "memory_mib")
WHY_NOT = ("node", "why_not")


@click.command("fit")
@click.option("--vcpus", type=Whole(1, VCPUS_MAX), required=True, help="CPUs of the VM.")
@click.option("--memory", "memory_mib", type=MemorySize(), required=True, help="Memory, such as 32GiB or 512MiB.")
@click.option(
    "--cpu-mhz", type=Number(0.0, 1e9), default=0.0, help="CPU in MHz that must be free. Without it, CPU is shared."
)
@click.option(
    "--count", type=Whole(1, COPIES_MAX), default=1, show_default=True, help="How many such VMs; each may go elsewhere."
)
@click.option("--label", "labels", multiple=True, metavar="L", help="Label that its node must have; repeat for more.")
@rules_option
@bus_options
@output_option
def fit(
    line: ControllerConnection,
    vcpus: int,
    memory_mib: int,
    cpu_mhz: float,
    count: int,
    labels: tuple[str, ...],
    rules_file: Path | None,
) -> None:
    """Show where a new VM would fit, and which VMs would have to move; change nothing.

    Exit status 1 when it fits nowhere, not even after 3 migrations from one node.

    \b
    Example:
      trimtab nodes fit --vcpus 8 --memory 32GiB
      trimtab nodes fit --vcpus 2 --memory 4GiB --count 10 --label ssd
    """
    vm = NewVm(vcpus, memory_mib, cpu_mhz, labels, changed_rules(rules_file) or Rules())
    with line:
        data = dict(line.ask(CheckVmFit(line.new_id(), vm, count)))
    emit(data, lambda: _for_people(data))
    if len(rows_of(data, "placements")) < count:
        click.get_current_context().exit(REFUSED)


# --- for people -----------------------------------------------------------------------------------------------------


def _for_people(data: Mapping[str, Any]) -> RenderableType:
    placements, count = rows_of(data, "placements"), data["count"]
    parts: list[RenderableType] = [Text(_answer(data, placements))]
    moves = [_move(move) for fit in placements for move in rows_of(fit, "moves")]
    if moves:
        parts.append(listing("live migrations first, in this order", moves, MOVES))
    if any(fit.get("limited") for fit in placements):
        parts.append(Text("the search reached a limit: fewer migrations may be enough"))
    if len(placements) < count:
        parts += _why_not(data)
    parts += [Text(text) for text in _notes(data, placements)]
    return stacked(*parts)


def _answer(data: Mapping[str, Any], placements: Sequence[Mapping[str, Any]]) -> str:
    vcpus, count = data["vcpus"], data["count"]
    what = f"{vcpus} CPU{'' if vcpus == 1 else 's'} and {memory_text(data['memory_mib'])}"
    if count > 1:
        nodes = Counter(fit["node"] for fit in placements)
        where = ", ".join(f"{node} ({number})" for node, number in nodes.most_common(NAMED))
        more = f" and {len(nodes) - NAMED} more nodes" if len(nodes) > NAMED else ""
        found = f"{len(placements)} of {count} VMs with {what} fit"
        return f"{found}: {where}{more}" if placements else found
    if not placements:
        return f"a VM with {what} fits on no node"
    (first,) = placements
    moved = len(rows_of(first, "moves"))
    after = f" after {moved} migration{'s' if moved > 1 else ''}" if moved else ""
    free = f"{memory_text(first['free_memory_mib'])} and {number_text(first['free_cpu_mhz'], 0)} MHz stay free"
    return f"a VM with {what} fits on {first['node']}{after}; {free}"


def _move(move: Mapping[str, Any]) -> dict[str, Any]:
    return {"vm": move["vm"], "from": move["node"], "to": move["to_node"], "memory_mib": move["memory_mib"]}


def _why_not(data: Mapping[str, Any]) -> list[RenderableType]:
    """Return why nodes cannot hold the first of the VMs, as the cluster is now."""
    rows = [{"node": row["node"], "why_not": row["text"]} for row in rows_of(data, "misfits")]
    if not rows:
        return []
    hidden = data["totals"]["misfits"] - len(rows)
    table = listing("nodes without room", rows, WHY_NOT)
    return [table, Text(f"and {hidden} more nodes")] if hidden else [table]


def _notes(data: Mapping[str, Any], placements: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    others = [row["node"] for row in rows_of(data, "fits")[1:]]  # the first is the placement
    if others and data["count"] == 1:
        left = data["totals"]["fits"] - 1 - NAMED
        found.append(f"also fits on {', '.join(others[:NAMED])}" + (f" and {left} more" if left > 0 else ""))
    further = data["totals"]["with_moves"]
    if data["count"] > 1 and len(placements) < data["count"] and further:
        found.append(f"after migrations, one VM fits on {further} more node{'s' if further > 1 else ''}")
    many = data["how_many"]
    found.append(f"{'at least ' if many >= COPIES_MAX else ''}{many} such VMs fit without migrations")
    if data["limited"]:
        found.append(f"more may fit: the search tries at most {MOVES_MAX} migrations from a node")
    if data["unknown"]:
        found.append(f"the rules name workloads that do not exist: {', '.join(data['unknown'])}")
    return found
