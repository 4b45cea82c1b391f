"""`trimtab vms adopt`: one VM, or all that a pattern, a node or `--all` selects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import ROWS_MAX, check_rules, is_cut, refusal, report_failures, view, vms_there
from daemons.cli.connection import ControllerConnection, NoAnswer, change_options
from daemons.cli.output import emit, output_option, say, say_next
from daemons.cli.render import listing, rows_of
from daemons.manifests import rules as rulesfile
from daemons.manifests.vm_terms import AssignedTerms, read_terms
from shared.protocol.operator_messages import AdoptVm
from shared.values.jobs import Rules
from shared.values.scalars import NAME_LENGTH_MAX, check_name
from shared.values.vm_terms import OnShutdown, VmTerms

COLUMNS = ("vm", "node", "state", "job", "result")
COLUMNS_OF_TERMS = ("vm", "node", "state", "job", "importance", "terms", "rules", "table", "result")
LEAST = ("state", "table")
NO_RULES = rulesfile.understood(Rules())
OF_RULES = ("unknown-node", "invalid-value", "fits-no-node", NoAnswer.code)  # codes for which all is refused
CANNOT = "cannot have their rules"
AFTER_SHUTDOWN = {
    OnShutdown.LEAVE_OFF: "left off after its guest's shutdown",
    OnShutdown.RESTART: "restarted after its guest's shutdown",
}
Row = Mapping[str, Any]


@click.command()
@click.argument("vms", metavar="[VM...]", nargs=-1, shell_complete=complete.other_vms)
@click.option("--all", "all_", is_flag=True, help="Adopt every unmanaged VM.")
@click.option("--match", default="", help="Adopt the VMs whose names match this pattern, such as 'db-*'.")
@click.option("--node", default="", shell_complete=complete.nodes, help="Adopt the VMs of this node.")
@click.option("--job", default="", help="Managed name, only with one VM.  [default: its own name]")
@click.option(
    "--terms", "file", type=click.Path(path_type=Path), help="TOML file with terms and rules by pattern of VM names."
)
@click.option("--dry-run", is_flag=True, help="Show which VMs would be adopted, and with which terms; change nothing.")
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
    if file is not None:
        read_terms(file, ())  # what is wrong with the file alone needs no controller
    with line:
        rows = _known(line, node)
        chosen = _chosen([row for row in rows if not row["managed"] or not row["known"]], vms, match)
        if job and len(chosen) != 1:
            raise click.UsageError(f"--job names one VM, and {len(chosen)} are selected.")
        assigned = {} if file is None else read_terms(file, [row["vm"] for row in chosen], vms_there(line))
        names = [job] if job else _job_names(chosen)
        planned = [
            {**row, "job": name, **_settings(assigned.get(row["vm"], AssignedTerms()))}
            for row, name in zip(chosen, names, strict=True)
        ]
        able = planned if dry_run else [row for row in planned if not row["not_adoptable"]]
        ruled = {row["vm"] for row in able if row["vm"] in assigned and assigned[row["vm"]].rules != Rules()}
        several = len(able) > 1 and bool(ruled)
        done, refused = _ask(line, able, assigned, check=dry_run or several, checked=several)
        wrong = _wrong_rules(line, done, refused, assigned, ruled) if several else {}
        if wrong:
            done, refused = [], [*wrong.values(), *(row for row in refused if row["name"] not in wrong)]
            say(f"nothing {'would be' if dry_run else 'was'} changed: {len(wrong)} of {len(able)} VMs {CANNOT}")
        elif several and not dry_run:
            done, refused = _ask(line, able, assigned, check=False, checked=True)
    unable = [
        {"name": row["vm"], "code": "vm-not-adoptable", "detail": row["not_adoptable"]}
        for row in planned
        if row["not_adoptable"] and not dry_run
    ]
    refused = [*unable, *refused]
    words = "would be adopted" if dry_run else "adopted"
    columns = COLUMNS_OF_TERMS if dry_run and file is not None else COLUMNS
    shown = [{**row, "result": words} for row in done]
    values = {"done": [_plain(row) for row in done], "refused": refused, "dry_run": dry_run}
    emit(values, lambda: listing("VMs", shown, columns, LEAST) if shown else Text(f"no VM {words}"))
    report_failures(refused)
    say_next("" if dry_run or not done else f"trimtab jobs show {done[0]['job']}")


def _known(line: ControllerConnection, node: str) -> list[Row]:
    """Return the VMs of a node ("": of all), and print if there are more."""
    data = view(line, "vms", node, ROWS_MAX)
    rows = rows_of(data, "vms")
    if is_cut(data, "vms", ROWS_MAX):
        say(f"only the first {len(rows)} of {data['total']} VMs are considered; choose others with --node")
    return rows


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


def _wrong_rules(
    line: ControllerConnection,
    rows: Sequence[Row],
    refused: Sequence[dict[str, str]],
    assigned: Mapping[str, AssignedTerms],
    ruled: Collection[str],
) -> dict[str, dict[str, str]]:
    """Return, by VM, why VMs cannot have their rules: of the refused ones by themselves, of `rows` all at once. ruled:
    the VMs that have any."""
    found = {row["name"]: row for row in refused if row["name"] in ruled and row["code"] in OF_RULES}
    vm_of = {row["job"]: row["vm"] for row in rows}
    rules = [(job, assigned[vm].rules if vm in ruled else Rules()) for job, vm in vm_of.items()]
    for row in check_rules(line, rules):
        vm = vm_of[row["name"]]
        found.setdefault(vm, {**row, "name": vm})
    return found


def _ask(
    line: ControllerConnection,
    rows: Sequence[Row],
    assigned: Mapping[str, AssignedTerms],
    *,
    check: bool,
    checked: bool,
) -> tuple[list[Row], list[dict[str, str]]]:
    """Ask for the adoption of each, or (`check`) whether it would be accepted; return the rows for which it was, and
    why the others were refused. checked: `check_rules` is asked whether rules hold together."""
    requests = []
    for row in rows:
        own = assigned.get(row["vm"], AssignedTerms())
        requests.append(
            AdoptVm(
                line.new_id(),
                row["node"],
                row["vm"],
                job=row["job"],
                importance=own.importance,
                rules=own.rules,
                terms=own.terms,
                check=check,
                checked=checked,
            )
        )
    answered = list(zip(rows, line.ask_all(requests), strict=True))
    return [row for row, reply in answered if reply.done], [
        refusal(row["vm"], reply) for row, reply in answered if not reply.done
    ]


# --- what would be set ----------------------------------------------------------------------------------------------


def _plain(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in ("vm", "node", "job", "importance", "terms", "rules", "table")}


def _settings(own: AssignedTerms) -> dict[str, Any]:
    """Return what a VM gets, and the table of the file that says it; for people the keys `text` count."""
    terms = {key: value for key, value in asdict(own.terms).items() if key != "running"}
    rules = {key: value for key, value in rulesfile.understood(own.rules).items() if value != NO_RULES[key]}
    where = f"vms[{own.table}]: {own.match}"
    return {
        "importance": own.importance,
        "terms": {**terms, "text": "; ".join(_words(own.terms)) or "the defaults"},
        "rules": rules,
        "table": None if own.table is None else {"index": own.table, "match": own.match, "text": where},
    }


def _words(terms: VmTerms) -> Iterator[str]:
    """Yield the terms that are not the defaults, in words."""
    if terms.automation is not None:
        yield f"automation {terms.automation}"
    if terms.on_shutdown in AFTER_SHUTDOWN:
        yield AFTER_SHUTDOWN[terms.on_shutdown]
    if terms.suspend:
        yield "may be suspended"
    if terms.moves_per_day is not None:
        yield f"at most {terms.moves_per_day} migration{'' if terms.moves_per_day == 1 else 's'} a day"
    if terms.pause_s_per_day is not None:
        yield f"at most {terms.pause_s_per_day:g} s of pauses a day"
    if terms.post_copy:
        yield "may switch to post-copy"
    if terms.failover:
        yield "failover"
