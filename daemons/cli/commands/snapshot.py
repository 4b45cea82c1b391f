"""`trimtab snapshot`: the input of a decision, kept in a file, and the decision computed from it again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.asking import limit_option
from daemons.cli.commands.snapshot_replay import replay
from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.output import CommandGroup, emit, output_option, say
from daemons.cli.render import record
from daemons.controller.views.decisions import decision_view
from daemons.decision import pipeline as deciding
from daemons.decision.pipeline import DecideOutcome, DecideRequest
from daemons.decision.request_codec import BYTES_MAX, from_bytes, from_parts, header_bytes
from daemons.decision.tables.memory import MemoryTables
from daemons.models.outlook import outlook_of
from daemons.values.records.cluster import DecisionRecord
from daemons.values.settings import PolicyChoice
from shared.base.clock import SystemClock
from shared.base.read_file import read_bytes
from shared.base.write_file import check_writable, write_file
from shared.policy_api.decision import Plan
from shared.ports.plugins import find_policy
from shared.protocol.operator_messages import Query

DISTRIBUTION = "trimtab"


@click.group(cls=CommandGroup)
def snapshot() -> None:
    """Save the input of a decision, and decide on it again."""


snapshot.add_command(replay)


@snapshot.command()
@click.argument("file", type=click.Path(path_type=Path))
@bus_options
@output_option
def save(line: ControllerConnection, file: Path) -> None:
    """Write the input of a decision made now into the new FILE: nodes, workloads, policies, parameters, states.

    \b
    Example:
      trimtab snapshot save now.snapshot
    """
    check_writable(str(file), file, new=True)
    with line:
        first = dict(line.ask(Query(line.new_id(), "snapshot")))
        parts = [*first["parts"], *_more(line, first)]
    program = metadata.version(DISTRIBUTION)
    header = {"program": program, "term": first["term"], "at_s": first["at_s"]}
    body = header_bytes(header) + from_parts(iter(parts))
    write_file(str(file), file, body, new=True)
    values = {"file": str(file), "bytes": len(body), **header}
    emit(values, lambda: Text(f"{file}: {len(body):,} bytes"))


def _more(line: ControllerConnection, first: dict[str, Any]) -> Iterator[str]:
    """Yield the parts on the pages after the first."""
    for number in range(1, first["pages"]):
        yield from line.ask(Query(line.new_id(), "snapshot", f"{first['id']}.{number}"))["parts"]


@snapshot.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--policy", help="Use this placement policy, with its defaults, instead of the saved one.")
@limit_option
@output_option
def decide(file: Path, policy: str | None, limit: int) -> None:
    """Compute the decision on the input in FILE, as the controller would; change nothing.

    \b
    Example:
      trimtab snapshot decide now.snapshot --policy edf
    """
    saved = from_bytes(read_bytes(file, "a file of `trimtab snapshot save`", BYTES_MAX), str(file))
    program = metadata.version(DISTRIBUTION)
    if saved.header.get("program") != program:
        by = saved.header.get("program")
        say(f"note: saved by version {by} of the program, this is {program}: decisions may differ")
    request = saved.request
    if policy is not None:
        request = replace(request, placement=PolicyChoice(policy), placement_state=None)
    find_policy("placement", request.placement.name).check_params(request.placement.params)
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    outcome = deciding.run(request, MemoryTables())
    values = _values(request, outcome, limit)
    values |= {"saved": dict(saved.header), "wall_s": clock.monotonic_s() - begun_s}
    emit(values, lambda: _for_people(values))


def _values(request: DecideRequest, outcome: DecideOutcome, limit: int) -> dict[str, Any]:
    """Return the answer of a dry run without its steps, which depend on more than a decision sees."""
    placed = outcome.placement
    changes, refusals = tuple(placed.changes), tuple(placed.refusals)
    name, now_s = request.placement.name, request.snapshot.now_s
    decided = DecisionRecord(
        0,
        now_s,
        0,
        policy=name,
        changes=changes,
        refusals=refusals,
        dropped=(),
        held=(),
        plan=Plan(()),
        slowed=tuple(placed.slowed),
    )
    shown = decision_view(decided, limit)
    outlook = placed.outlook or outlook_of(request.snapshot, changes)
    figures = zip(outlook.now, outlook.predicted, outlook.best, strict=True)
    told = [dict(zip(("now", "predicted", "best"), row, strict=True)) for row in figures]
    rows = zip(outlook.names, outlook.aims(), told, strict=True)
    return {
        "decision": {key: shown[key] for key in ("policy", "decided_at_s", "counts", "changes", "refusals", "slowed")},
        "skipped": outcome.skipped,
        "failed": {**outcome.lacking, **outcome.failed},
        "in_service": None if outcome.provisioning is None else list(outcome.provisioning.in_service),
        "evaluations": placed.evaluations,
        "predicted_utility": placed.predicted_utility,
        "level": _bounded(outlook.level),
        "utilities": [
            {"name": each, **{key: _bounded(value) if aims else None for key, value in of.items()}}
            for each, aims, of in rows
        ][:limit],
    }


def _bounded(value: float | None) -> float | None:
    """Return the value if JSON can hold it, else None: without any CPU for jobs there is no lower bound."""
    return value if value is not None and math.isfinite(value) else None


def _for_people(values: dict[str, Any]) -> RenderableType:
    about = {key: value for key, value in values.items() if key != "decision"}
    return record("decision", {**about, **values["decision"]})
