"""`trimtab sim what-if`: a span of the recorded history once more, as it was and with other policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.commands.snapshot_replay import Tell, other_options, progress_option
from daemons.cli.history_options import check_span, history_options, span_options
from daemons.cli.numbers import Whole
from daemons.cli.output import emit, output_option
from daemons.cli.tables import Fitted, stacked
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
    help="Configuration of a controller, for values that snapshots do not have.  [default: its defaults]",
)
@other_options
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of the durations of node operations.")
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
    """Simulate a recorded span with the real controller: as it was, and with another policy or value.

    The measured figures, their simulation and the simulation of the change are compared. The difference between the
    first two shows how accurate the simulation is.

    \b
    Example:
      trimtab sim what-if --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --placement edf
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
    heads = ("figure", "measured", "simulated", "off by", *(("changed", "change") if changed else ()))
    parts.append(Fitted("", heads, [_row(name, shown) for name in FIGURES], (), heads[1:]))
    kinds = sorted({kind for side in _sides(shown) for kind in side["actions_by_kind"]})
    heads = ("actions", "measured", "simulated", *(("changed",) if changed else ()))
    rows = [[kind, *(f"{side['actions_by_kind'].get(kind, 0)}" for side in _sides(shown))] for kind in kinds]
    parts.append(Fitted("", heads, rows, (), heads[1:]))
    parts += [Text(f"not in the simulation: {name} ({what})") for name, what in shown["not_reproduced"].items()]
    for run in (shown["baseline"], changed):
        parts += [Text(f"refused: {count} x {why}") for why, count in (run["refused"] if run else {}).items()]
    return stacked(*parts)


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
