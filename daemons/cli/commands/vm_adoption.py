"""`trimtab vms adopt`: one VM, or all that a pattern, a node or `--all` selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import refusal, report_failures, view
from daemons.cli.connection import ControllerConnection, change_options
from daemons.cli.output import emit, output_option, say_next
from daemons.cli.render import listing, rows_of
from daemons.manifests.vm_terms import AssignedTerms, read_terms
from shared.protocol.operator_messages import AdoptVm
from shared.values.scalars import NAME_LENGTH_MAX, check_name

ROWS_MAX = 10_000
COLUMNS = ("vm", "node", "state", "job", "result")
Row = Mapping[str, Any]


@click.command()
@click.argument("vms", metavar="[VM...]", nargs=-1, shell_complete=complete.other_vms)
@click.option("--all", "all_", is_flag=True, help="Adopt every unmanaged VM.")
@click.option("--match", default="", help="Adopt the VMs whose names match this pattern, such as 'db-*'.")
@click.option("--node", default="", shell_complete=complete.nodes, help="Adopt the VMs of this node.")
@click.option("--job", default="", help="Name under which the only VM is managed.  [default: its own name]")
@click.option(
    "--terms", "file", type=click.Path(path_type=Path), help="TOML file with terms and rules by pattern of VM names."
)
@click.option("--dry-run", is_flag=True, help="Show which VMs would be adopted; change nothing.")
@change_options
@output_option
def adopt(
    line: ControllerConnection,
    vms: tuple[str, ...],
    all_: bool,
    match: str,
    node: str,
    job: str,
    file: Path | None,
    dry_run: bool,
) -> None:
    """Adopt VMs that run or are shut off. Nothing of them changes but Trimtab's metadata.

    \b
    Example:
      trimtab vms adopt --match 'db-*' --terms vms.toml --dry-run
      trimtab vms adopt --all
    """
    if not (vms or all_ or match or node):
        raise click.UsageError("Name VMs, or give --all, --match or --node.")
    if all_ and (vms or match):
        raise click.UsageError("--all takes neither names nor --match.")
    found = [row for row in rows_of(view(line, "vms", node, ROWS_MAX), "vms") if not row["managed"] or not row["known"]]
    chosen = _chosen(found, vms, match)
    if job and len(chosen) != 1:
        raise click.UsageError(f"--job names one VM, and {len(chosen)} are selected.")
    assigned = {} if file is None else read_terms(file, [row["vm"] for row in chosen])
    named = {(row["vm"], row["node"]): job or name for row, name in zip(chosen, _job_names(chosen), strict=True)}
    able = [row for row in chosen if not row["not_adoptable"]]
    unable = [
        {"name": row["vm"], "code": "vm-not-adoptable", "detail": row["not_adoptable"]}
        for row in chosen
        if row["not_adoptable"]
    ]
    if dry_run:
        done, refused = able, unable
    else:
        done, refused = _ask(line, able, named, assigned)
        refused = [*unable, *refused]
    words = "would be adopted" if dry_run else "adopted"
    rows = [{**row, "job": named[row["vm"], row["node"]], "result": words} for row in done]
    values = {"done": [_plain(row) for row in rows], "refused": refused, "dry_run": dry_run}
    emit(values, lambda: listing("VMs", rows, COLUMNS, ("state",)) if rows else Text(f"no VM {words}"))
    report_failures(refused)
    say_next("" if dry_run or not rows else f"trimtab jobs show {rows[0]['job']}")


def _chosen(found: Sequence[Row], vms: Sequence[str], match: str) -> list[Row]:
    """Return the rows that names and pattern select. Raises UsageError for a name or pattern that selects none."""
    there = {row["vm"] for row in found}
    unknown = [vm for vm in vms if vm not in there]
    if unknown:
        raise click.UsageError(f"There is no unmanaged VM {', '.join(map(repr, unknown))}: see trimtab vms list.")
    if match and not any(fnmatchcase(vm, match) for vm in there):
        raise click.UsageError(f"--match {match!r} matches none of {len(there)} unmanaged VMs: see trimtab vms list.")
    if not (vms or match):
        return list(found)
    return [row for row in found if row["vm"] in vms or (match and fnmatchcase(row["vm"], match))]


def _job_names(rows: Sequence[Row]) -> list[str]:
    """Return a valid name for each VM, its own where that is one; no two are the same."""
    taken: set[str] = set()
    names = []
    for row in rows:
        base = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in row["vm"]).lstrip("-")
        base = (base or "vm")[: NAME_LENGTH_MAX - 6]
        name = next(
            each for number in range(len(rows) + 1) if (each := base + f"-{number}" * (number > 0)) not in taken
        )
        check_name("job", name)
        taken.add(name)
        names.append(name)
    return names


def _ask(
    line: ControllerConnection,
    rows: Sequence[Row],
    named: Mapping[tuple[str, str], str],
    assigned: Mapping[str, AssignedTerms],
) -> tuple[list[Row], list[dict[str, str]]]:
    """Ask for the adoption of each; return the rows that were adopted, and why the others were not."""
    if not rows:
        return [], []
    with line:
        requests = []
        for row in rows:
            own = assigned.get(row["vm"], AssignedTerms())
            place = (row["vm"], row["node"])
            requests.append(
                AdoptVm(line.new_id(), row["node"], row["vm"], named[place], own.importance, own.rules, own.terms)
            )
        replies = line.ask_all(requests)
    answered = list(zip(rows, replies, strict=True))
    return [row for row, reply in answered if reply.done], [
        refusal(row["vm"], reply) for row, reply in answered if not reply.done
    ]


def _plain(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in ("vm", "node", "job")}
