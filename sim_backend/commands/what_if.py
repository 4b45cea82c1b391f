"""`trimtab sim what-if`: a span of the recorded history once more, as it was and with other policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from daemons.cli.commands.snapshot_replay import Tell, other_options, progress_option
from daemons.cli.history_options import check_span, history_options, span_options
from daemons.cli.numbers import Whole
from daemons.cli.output import emit, output_option
from daemons.config.controller import ControllerConfig
from daemons.decision.overrides import alteration
from daemons.service.settings_from_config import settings_of
from daemons.store.reading import Reading
from daemons.values.settings import ControllerSettings
from daemons.values.text_format import significant_text, time_text
from shared.base.clock import perf_s
from shared.config.toml import load
from sim_backend.history.figures import FIGURES, measured
from sim_backend.history.log import read_log
from sim_backend.history.loop import settings_for
from sim_backend.history.runs import differences, simulate
from sim_backend.history.values import Log


@click.command("what-if")
@span_options
@history_options
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    help="A controller's configuration for what snapshots do not say; its defaults if not given.",
)
@other_options
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of the times that nodes take.")
@progress_option
@output_option
def what_if(
    reader: Reading,
    from_s: float,
    to_s: float,
    settings_file: Path | None,
    placement: str | None,
    provisioning: str | None,
    values: tuple[str, ...],
    seed: int,
    tell: Tell,
) -> None:
    """Simulate a recorded span with the real controller: once as it was, once with another policy or value.

    What was measured, the simulation of it and the simulation of the change stand side by side. A simulation is a
    model: how far it is from what was measured is told first.
    """
    check_span(from_s, to_s)
    begun_s = perf_s()
    other = alteration(placement, provisioning, values)
    base = settings_of(load(str(settings_file), ControllerConfig)) if settings_file else ControllerSettings()
    tell({"run": "reading", "done": 0, "of": 1, "at_s": from_s})
    log = read_log(reader, from_s, to_s)
    settings_for(log, base, other)  # what cannot work is told before anything is simulated
    tally = measured(reader, log)
    history = {"figures": tally.figures(log), "series": tally.series()}
    baseline = simulate(log, base, alteration(None, None, ()), seed, "baseline", tell)
    changed = simulate(log, base, other, seed, "changed", tell) if other else None
    shown: dict[str, Any] = {
        "from_s": log.from_s,
        "to_s": log.to_s,
        "seed": seed,
        "altered": other.to_json() or None,
        "log": _about(log),
        "measured": history,
        "baseline": baseline.to_json(),
        "changed": None if changed is None else changed.to_json(),
        "difference": differences(history["figures"], baseline.figures),
        "change": None if changed is None else differences(baseline.figures, changed.figures),
        "not_reproduced": dict(log.not_reproduced),
        "wall_s": perf_s() - begun_s,
    }
    emit(shown, lambda: _for_people(shown))


def _about(log: Log) -> dict[str, Any]:
    return {
        "nodes": len(log.nodes),
        "jobs": len(log.jobs),
        "web_apps": len(log.apps),
        "snapshots": log.snapshots,
        "currency": log.prices.currency,
        "priced": bool(log.prices.starts_s),
    }


# --- for people ------------------------------------------------------------------------------------------------------


def _for_people(shown: Mapping[str, Any]) -> RenderableType:
    about, changed = shown["log"], shown["changed"]
    span = f"{time_text(shown['from_s'])} to {time_text(shown['to_s'])}"
    parts: list[RenderableType] = [
        Text(f"{span}: {about['nodes']} nodes, {about['jobs']} jobs, {about['web_apps']} web applications")
    ]
    table = Table("", "measured", "simulated", "off by", *(("changed", "change") if changed else ()))
    for name in FIGURES:
        table.add_row(*_row(name, shown))
    parts.append(table)
    kinds = sorted({kind for side in _sides(shown) for kind in side["actions_by_kind"]})
    actions = Table("actions", "measured", "simulated", *(("changed",) if changed else ()))
    for kind in kinds:
        actions.add_row(kind, *(f"{side['actions_by_kind'].get(kind, 0)}" for side in _sides(shown)))
    parts.append(actions)
    parts += [Text(f"not in the simulation: {name} ({what})") for name, what in shown["not_reproduced"].items()]
    for run in (shown["baseline"], changed):
        parts += [Text(f"refused: {count} x {why}") for why, count in (run["refused"] if run else {}).items()]
    return Group(*parts)


def _sides(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [shown[name]["figures"] for name in ("measured", "baseline", "changed") if shown[name] is not None]


def _row(name: str, shown: Mapping[str, Any]) -> list[str]:
    values = [significant_text(side[name]) for side in _sides(shown)]
    off = _part(shown["difference"][name])
    if shown["change"] is None:
        return [name.replace("_", " "), *values, off]
    return [name.replace("_", " "), values[0], values[1], off, values[2], _part(shown["change"][name])]


def _part(difference: Mapping[str, float | None]) -> str:
    by, frac = difference["by"], difference["frac"]
    if by is None:
        return "-"
    return "0" if by == 0 else f"{frac:+.1%}" if frac is not None else f"{by:+.3g}"
