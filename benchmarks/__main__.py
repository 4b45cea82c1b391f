"""`python -m benchmarks`: a table of ratios and medians, as JSON too when asked."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.runner import Figure, Measured, benches, figures, measure


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Runs of every case.")
@click.option("--only", default="", help="Only benches whose module name contains this.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, writable=True), help="Also write this file.")
def main(rounds: int, only: str, json_file: str | None) -> None:
    """Measure speeds beside plain baselines: medians, and what they are as multiples of the baseline; then the wire."""
    folder = os.environ.get("TRIMTAB_DATA", "")
    measured: list[Measured] = []
    for bench in benches(Path(folder) if folder else None, only):
        click.echo(f"{bench.name}: {rounds} rounds of {len(bench.cases)} cases", err=True)
        measured += measure(bench, rounds)
    found: list[Figure] = []
    for figure in figures(lambda text: click.echo(text, err=True), only):
        click.echo(
            f"  {figure.what}: {figure.value:,.4g} {figure.unit}", err=True
        )  # a later failure leaves it standing
        found.append(figure)
    for table in ([_table(measured)] if measured else []) + ([_figures(found)] if found else []):
        Console().print(table)
    if json_file:
        everything = [*map(asdict, measured), *map(asdict, found)]
        Path(json_file).write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def _table(measured: list[Measured]) -> Table:
    table = Table("bench", "case", title="medians; ratios to the first case of each bench")
    for heading in ("ratio", "median s", "fastest s", "slowest s"):
        table.add_column(heading, justify="right")
    for each in measured:
        times = (f"{value:.3f}" for value in (each.median_s, each.fastest_s, each.slowest_s))
        table.add_row(each.bench, each.case, f"{each.ratio:.1f}", *times)
    return table


def _figures(found: list[Figure]) -> Table:
    table = Table("bench", "what", title="figures, with what each is to be")
    for heading in ("value", "unit", "to be", "holds"):
        table.add_column(heading, justify="right")
    for each in found:
        bounds = (("at least", each.least), ("at most", each.most))
        wanted = " ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        holds = ("yes" if each.holds else "NO") if wanted else ""
        table.add_row(each.bench, each.what, f"{each.value:,.4g}", each.unit, wanted, holds)
    return table


if __name__ == "__main__":
    main()
