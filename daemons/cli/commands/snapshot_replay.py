"""`trimtab snapshot replay`: recorded decisions computed again, as they were or with other policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.history_options import check_span, history_options, span_options
from daemons.cli.output import REFUSED, emit, output_option, say
from daemons.cli.tables import Fitted, stacked
from daemons.decision import pipeline as deciding
from daemons.decision.overrides import Alteration, alteration, altered
from daemons.decision.packing import DISTRIBUTION
from daemons.decision.replay import Difference, RecordedTables, Side, Totals, differences, recorded_side, replayed_side
from daemons.decision.request_codec import Saved, from_bytes
from daemons.decision.tables.memory import MemoryTables
from daemons.store.reading import Reading
from daemons.values.records.cluster import NO_POLICY, DecisionRecord
from daemons.values.text_format import significant_text, time_text
from shared.base.errors import CodecError, InvalidInput

DECISIONS_MAX = 1_000_000
DONE = ("change", "in-service", "decision")  # parts of a decision that something is done about
SHOWN = 20  # decisions, and differences of each, that are shown to people
Command = Callable[..., None]
Tell = Callable[[dict[str, Any]], None]


def other_options(command: Command) -> Command:
    """Add to a command the options that override recorded settings."""
    for option in (
        click.option(
            "--set",
            "values",
            multiple=True,
            metavar="SECTION.KEY=VALUE",
            help="Use this value instead; repeatable.",
        ),
        click.option("--provisioning", help="Use this provisioning policy instead of the recorded one."),
        click.option("--placement", help="Use this placement policy instead of the recorded one."),
    ):
        command = option(command)
    return command


def progress_option(command: Command) -> Command:
    """Add `--progress` to a command, which receives `tell`, a function for the values of a progress line."""
    return click.option(
        "--progress",
        "tell",
        type=click.Choice(("none", "json")),
        default="none",
        show_default=True,
        callback=lambda _context, _option, value: _tell_json if value == "json" else _tell_nobody,
        help="Print progress on standard error: one JSON object per line.",
    )(command)


def _tell_json(line: dict[str, Any]) -> None:
    say(json.dumps(line, allow_nan=False))


def _tell_nobody(line: dict[str, Any]) -> None:
    del line


@click.command()
@span_options
@history_options
@other_options
@progress_option
@output_option
@click.pass_context
def replay(
    context: click.Context,
    reader: Reading,
    from_s: float,
    to_s: float,
    placement: str | None,
    provisioning: str | None,
    values: tuple[str, ...],
    tell: Tell,
) -> None:
    """Compute every recorded decision of a span again, from the recorded input.

    Without other options each must equal the recorded decision: those that differ are listed, and the exit status is 1.
    With another policy or value the recorded and the new decisions are compared.

    \b
    Example:
      trimtab snapshot replay --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --placement edf
    """
    check_span(from_s, to_s)
    other = alteration(placement, provisioning, values)
    found = compare_all(reader, from_s, to_s, other, tell)
    values_shown = {"from_s": from_s, "to_s": to_s, "altered": other.to_json() or None, **found.to_json()}
    emit(values_shown, lambda: _for_people(found, bool(other)))
    if found.damaged or (found.different and not other):
        context.exit(REFUSED)


@dataclass(slots=True, eq=False)
class ReplayComparison:
    """What came of a replay. missing: numbers of decisions whose snapshots are not kept; damaged: why one cannot be
    computed again, by number; different: by number; rows: the sides of each decision that was replayed."""

    decisions: int = 0
    replayed: int = 0
    equal: int = 0
    missing: list[int] = field(default_factory=list)
    damaged: dict[int, str] = field(default_factory=dict)
    different: dict[int, tuple[Difference, ...]] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)
    rows: list[tuple[int, float, Side, Side]] = field(default_factory=list)
    before: Totals = field(default_factory=Totals)
    after: Totals = field(default_factory=Totals)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "decisions": self.decisions,
            "replayed": self.replayed,
            "equal": self.equal,
            "missing": self.missing,
            "damaged": [{"decision": number, "detail": why} for number, why in self.damaged.items()],
            "different": [
                {"decision": number, "differences": [each.to_json() for each in parts]}
                for number, parts in self.different.items()
            ],
            "programs": sorted(self.programs),
            "recorded_totals": self.before.to_json(),
            "replayed_totals": self.after.to_json(),
            "rows": [
                {"decision": number, "at_s": at_s, "recorded": before.to_json(), "replayed": after.to_json()}
                for number, at_s, before, after in self.rows
            ],
        }


def compare_all(reader: Reading, from_s: float, to_s: float, other: Alteration, tell: Tell) -> ReplayComparison:
    """Compute what policies have decided in a span again, oldest first. Raises `InvalidInput` for an alteration that
    cannot work."""
    found, table_cache = ReplayComparison(), MemoryTables()
    rows = [row for row in reversed(reader.decisions(from_s, to_s, DECISIONS_MAX)) if row.policy not in NO_POLICY]
    found.decisions = len(rows)
    for done, row in enumerate(rows):
        tell({"done": done, "of": len(rows), "decision": row.number, "at_s": row.at_s})
        for record, saved in _kept(reader, row.number, found):
            _compare(found, record, saved, other, table_cache)
    tell({"done": len(rows), "of": len(rows)})
    return found


def _kept(reader: Reading, number: int, found: ReplayComparison) -> Iterator[tuple[DecisionRecord, Saved]]:
    """Yield a decision and its snapshot, if both are intact."""
    body = reader.snapshot(number)
    if body is None:
        found.missing.append(number)
        return
    try:
        record, saved = reader.decision(number), from_bytes(body, f"snapshot {number}")
    except (CodecError, InvalidInput) as error:
        found.damaged[number] = str(error)
        return
    if record is not None:
        yield record, saved


def _compare(
    found: ReplayComparison, record: DecisionRecord, saved: Saved, other: Alteration, table_cache: MemoryTables
) -> None:
    request = altered(saved.request, other) if other else saved.request
    outcome = deciding.run(request, RecordedTables(table_cache, {} if other else saved.header))
    sides = recorded_side(record, saved.request), replayed_side(request, outcome)
    odd = differences(record, saved.header, request, outcome)
    found.replayed += 1
    found.programs.add(str(saved.header.get("program")))
    if [each for each in odd if not other or each.part in DONE]:
        found.different[record.number] = odd
    else:
        found.equal += 1
    found.before.add(sides[0])
    found.after.add(sides[1])
    found.rows.append((record.number, record.at_s, *sides))


# --- for people ------------------------------------------------------------------------------------------------------


def _for_people(found: ReplayComparison, other: bool) -> RenderableType:
    parts: list[RenderableType] = [Text(_summary(found, other))]
    odd = found.programs - {metadata.version(DISTRIBUTION)}
    if odd:
        parts.append(Text(f"note: recorded by version {', '.join(sorted(odd))} of the program: decisions may differ"))
    parts += [Text(f"decision {number}: {why}") for number, why in found.damaged.items()]
    parts.append(_totals(found) if other else _differences(found))
    return stacked(*parts)


def _summary(found: ReplayComparison, other: bool) -> str:
    missing = f"; the input of {len(found.missing)} is no longer kept" if found.missing else ""
    same = "would be the same" if other else "exactly as recorded"
    return f"{found.decisions} decisions, {found.replayed} computed again{missing}: {found.equal} {same}"


def _differences(found: ReplayComparison) -> RenderableType:
    if not found.different:
        return Text("")
    times = {number: at_s for number, at_s, _, _ in found.rows}
    rows = [
        [f"{number}", time_text(times[number]), each.part, each.subject, each.recorded, each.replayed]
        for number, parts in list(found.different.items())[:SHOWN]
        for each in parts[:SHOWN]
    ]
    return Fitted("differences", ("decision", "at", "part", "of", "recorded", "replayed"), rows, ("at", "part"))


def _totals(found: ReplayComparison) -> RenderableType:
    before, after = found.before.to_json(), found.after.to_json()
    names = ("mean_utility", "min_utility", "level", "in_service", "cost")
    rows = [[name.replace("_", " "), significant_text(before[name]), significant_text(after[name])] for name in names]
    rows += [
        [f"{what}: {name}", *(f"{side[what].get(name, 0)}" for side in (before, after))]
        for what in ("changes", "refusals")
        for name in sorted({*before[what], *after[what]})
    ]
    return Fitted("", ("mean of the decisions", "recorded", "replayed"), rows)
