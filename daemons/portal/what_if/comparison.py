"""The result of a what-if, for a page: figures side by side, and charts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemons.report.charts import Cell, Chart, Series, Style, Table

Found = Mapping[str, Any]

# The figures of a simulated span: key, words, whether more is better (None: neither).
FIGURES: tuple[tuple[str, str], ...] = (
    ("mean_utility", "mean utility"),
    ("min_utility", "lowest utility"),
    ("jobs", "jobs"),
    ("jobs_completed", "jobs completed"),
    ("goals", "jobs with a goal"),
    ("goals_met", "goals met"),
    ("mean_job_utility", "mean utility of completed jobs"),
    ("mean_turnaround_s", "mean turnaround (s)"),
    ("node_hours", "node-hours in service"),
    ("kwh", "energy (kWh)"),
    ("cost", "cost"),
    ("node_starts", "node starts"),
    ("decisions", "decisions"),
    ("actions", "actions"),
)
TOTALS = (
    ("mean_utility", "mean utility, predicted"),
    ("min_utility", "lowest utility, predicted"),
    ("level", "common utility of jobs"),
    ("in_service", "nodes in service"),
    ("cost", "cost, predicted"),
)
OVER_TIME = (
    ("mean_utility", "at_s", "Mean utility", "utility"),
    ("min_utility", "at_s", "Lowest utility", "utility"),
    ("nodes_in_service", "cost_at_s", "Nodes in service", "nodes"),
    ("kw", "cost_at_s", "Power", "kW"),
    ("cost_per_hour", "cost_at_s", "Cost per hour", "currency per hour"),
)
LOWEST_SHOWN = -2.0  # lower values are drawn here: a longer axis would make the rest unreadable
DIFFERENCES_MAX = 200


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a page shows: sentences, tables and charts."""

    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...]


def difference_text(before: Any, after: Any) -> str:
    """Return how much a figure exceeds another: "+12.5 %", or in its own unit if a percentage is not possible."""
    if not _is_number(before) or not _is_number(after):
        return "-"
    by = after - before
    if by == 0:
        return "0"
    return f"{100.0 * by / abs(before):+.1f} %" if before else f"{by:+.3g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> Cell:
    return value if _is_number(value) or isinstance(value, str) else None


# --- the span simulated -----------------------------------------------------------------------------------------------


def of_simulation(found: Found) -> Comparison:
    """Compare the result of `trimtab sim what-if`: measured, simulated as it was, simulated with the change."""
    sides = {"measured": found["measured"], "simulated": found["baseline"]}
    if found.get("changed"):
        sides["changed"] = found["changed"]
    names = tuple(sides)
    tables = (_figures(sides), _actions(sides), *_refused(sides))
    about = found.get("log", {})
    notes = [
        f"{about.get('nodes', 0)} nodes, {about.get('jobs', 0)} jobs, {about.get('web_apps', 0)} web applications."
    ]
    if "changed" in names:
        notes.append(
            "A simulation is a model. Compare the change with the simulation, and the simulation with the measurements."
        )
    notes += [f"Not in the simulation: {name} ({what})." for name, what in found.get("not_reproduced", {}).items()]
    return Comparison(tuple(notes), tables, tuple(_over_time(sides)))


def _figures(sides: Mapping[str, Found]) -> Table:
    heads = ["figure", "measured", "simulated", "error"] + (["changed", "change"] if "changed" in sides else [])
    rows = []
    for key, words in FIGURES:
        values = [side["figures"].get(key) for side in sides.values()]
        row: list[Cell] = [words, _cell(values[0]), _cell(values[1]), difference_text(values[0], values[1])]
        if len(values) > 2:
            row += [_cell(values[2]), difference_text(values[1], values[2])]
        rows.append(tuple(row))
    return Table("figures", "Comparison", tuple(heads), tuple(rows))


def _actions(sides: Mapping[str, Found]) -> Table:
    counts = [side["figures"].get("actions_by_kind", {}) for side in sides.values()]
    kinds = sorted({kind for each in counts for kind in each})
    rows = tuple((kind, *(_cell(each.get(kind, 0)) for each in counts)) for kind in kinds)
    return Table("actions", "Actions by kind", ("kind", *sides), rows)


def _refused(sides: Mapping[str, Found]) -> list[Table]:
    rows = [(name, why, _cell(count)) for name, side in sides.items() for why, count in side.get("refused", {}).items()]
    return (
        [Table("refused", "Requests that the simulated controller refused", ("run", "reason", "count"), tuple(rows))]
        if rows
        else []
    )


def _over_time(sides: Mapping[str, Found]) -> list[Chart]:
    charts = []
    for key, times, title, unit in OVER_TIME:
        pairs = {name: _pairs(side["series"], times, key) for name, side in sides.items()}
        series = tuple(Series(name, *each, Style.STEP) for name, each in pairs.items())
        charts.append(Chart(key.replace("_", "-"), title, unit, series=series))
    return [*charts, _completed(sides)]


def _pairs(series: Found, times: str, key: str) -> tuple[list[float], list[float | None]]:
    """Return the times and values of a series; nothing for one that is missing."""
    values = _shown(key, series.get(key, ()))
    return list(series.get(times, ()))[: len(values)], values


def _completed(sides: Mapping[str, Found]) -> Chart:
    series = []
    for name, side in sides.items():
        ends = list(side["series"].get("completed_at_s", ()))
        series.append(Series(name, ends, [float(count) for count in range(1, len(ends) + 1)], style=Style.STEP))
    return Chart("completed", "Jobs completed so far", "jobs", series=tuple(series))


def _shown(key: str, values: Sequence[float | None]) -> list[float | None]:
    if "utility" not in key:
        return list(values)
    return [None if value is None else max(value, LOWEST_SHOWN) for value in values]


# --- each decision computed again -------------------------------------------------------------------------------------


def of_replay(found: Found) -> Comparison:
    """Compare the result of `trimtab snapshot replay`: the recorded decisions with the recomputed ones."""
    altered = bool(found.get("altered"))
    same = "the same" if altered else "exactly as recorded"
    notes = [
        f"{found['decisions']} decisions, {found['replayed']} computed again: {found['equal']} {same},"
        f" {len(found['different'])} different."
    ]
    if found["missing"]:
        notes.append(f"{len(found['missing'])} decisions have no stored snapshot.")
    notes += [f"Decision {each['decision']}: {each['detail']}." for each in found["damaged"][:20]]
    rows = found["rows"]
    charts = (_sides_chart("mean_utility", "Mean utility, predicted", "utility", rows),
              _sides_chart("in_service", "Nodes in service", "nodes", rows))  # fmt: skip
    return Comparison(tuple(notes), (_totals(found), *_different(found)), charts)


def _totals(found: Found) -> Table:
    before, after = found["recorded_totals"], found["replayed_totals"]
    rows: list[tuple[Cell, ...]] = [
        (words, _cell(before.get(key)), _cell(after.get(key)), difference_text(before.get(key), after.get(key)))
        for key, words in TOTALS
    ]
    for what in ("changes", "refusals"):
        old, new = before.get(what, {}), after.get(what, {})
        for name in sorted({*old, *new}):
            was, now = old.get(name, 0), new.get(name, 0)
            rows.append((f"{what}: {name}", was, now, difference_text(was, now)))
    return Table(
        "totals", "Means and counts of the decisions", ("figure", "recorded", "replayed", "difference"), tuple(rows)
    )


def _different(found: Found) -> list[Table]:
    rows = [
        (each["decision"], one["part"], one["subject"], one["recorded"], one["replayed"])
        for each in found["different"]
        for one in each["differences"]
    ]
    if not rows:
        return []
    note = f"Showing {DIFFERENCES_MAX} of {len(rows):,}." if len(rows) > DIFFERENCES_MAX else ""
    columns = ("decision", "part", "subject", "recorded", "replayed")
    return [Table("different", "Differences", columns, tuple(rows[:DIFFERENCES_MAX]), note)]


def _sides_chart(key: str, title: str, unit: str, rows: Sequence[Found]) -> Chart:
    known = [row for row in rows if any(row[side].get(key) is not None for side in ("recorded", "replayed"))]
    times = [row["at_s"] for row in known]  # decisions between cycles predict nothing: no gap is meant
    series = tuple(
        Series(name, times, _shown(key, [row[side].get(key) for row in known]), style=Style.STEP)
        for name, side in (("recorded", "recorded"), ("replayed", "replayed"))
    )
    return Chart(f"replay-{key.replace('_', '-')}", title, unit, series=series)
