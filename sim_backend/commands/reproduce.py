"""`trimtab sim reproduce PAPER|all`: the experiments of a paper, or of all, its figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.progress import Progress

from daemons.cli.numbers import Whole
from daemons.cli.output import CommandGroup, emit, messages, output_option
from daemons.cli.tables import Fitted, stacked, table
from daemons.report.draw import can_draw
from shared.base.errors import InvalidInput, Problem
from shared.base.write_file import make_folder
from sim_backend.experiments import catalogue
from sim_backend.experiments.catalogue import PAPERS, Reproduction
from sim_backend.experiments.experiment import Paper

SEEDS_MAX = 1_000
SEEDS = 5
HELP = """Repeat the experiments of a paper: {title}.

\b
Example:
  trimtab sim reproduce {name} --seeds 1
"""
EVERY = """Repeat the experiments of every paper. A paper whose data are missing is skipped, with the reason.

\b
Example:
  trimtab sim reproduce all --seeds 1
"""


_seeds_option = click.option(
    "--seeds", type=Whole(1, SEEDS_MAX), default=SEEDS, show_default=True, help="Number of runs, with seeds 0, 1, ..."
)
_plots_option = click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Draw the figures into this folder.",
)


class PaperGroup(CommandGroup):
    """One command for each paper of the catalogue, imported when needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all papers, sorted."""
        return sorted({*super().list_commands(ctx), *PAPERS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a paper, None if there is none."""
        return command_of(catalogue.paper(cmd_name)) if cmd_name in PAPERS else super().get_command(ctx, cmd_name)


@click.group(cls=PaperGroup)
def reproduce() -> None:
    """Repeat the experiments of a paper and compare its figures with those measured here."""


@reproduce.command("all", help=EVERY)
@_seeds_option
@_plots_option
@output_option
def every_paper(seeds: int, plots: Path | None) -> None:
    """Run `trimtab sim reproduce all`."""
    check_plots(plots)
    papers = [catalogue.paper(name) for name in PAPERS]
    outcome = _with_progress(
        lambda tell: catalogue.reproduce_all(papers, seeds, plots, None, tell), "reproducing all papers"
    )
    emit(outcome.to_json(), lambda: _for_people("All papers", outcome))


def command_of(paper: Paper) -> click.Command:
    """Return the command `trimtab sim reproduce NAME` for one paper."""

    @click.command(paper.name, help=HELP.format(title=paper.title, name=paper.name))
    @click.option(
        "--experiment",
        "chosen",
        type=click.Choice(tuple(paper.experiments)),
        multiple=True,
        help="Run only this experiment; repeatable.",
    )
    @_seeds_option
    @_plots_option
    @output_option
    def command(chosen: tuple[str, ...], seeds: int, plots: Path | None) -> None:
        check_plots(plots)
        experiments = [key for key in paper.experiments if not chosen or key in chosen]
        outcome = _with_progress(
            lambda tell: catalogue.reproduce(paper, experiments, seeds, plots, None, tell), f"reproducing {paper.name}"
        )
        emit(outcome.to_json(), lambda: _for_people(paper.title, outcome))

    return command


def check_plots(plots: Path | None) -> None:
    """Raise `InvalidInput` when pictures are asked for that cannot be drawn or kept."""
    if plots is None:
        return
    if not can_draw():
        raise InvalidInput(Problem("--plots", "matplotlib is not installed", "pip install 'trimtab[plots]'"))
    make_folder("--plots", plots)


def _with_progress(play: Callable[[Callable[[int, int], None]], Reproduction], title: str) -> Reproduction:
    console = messages()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=None)
        return play(lambda done, total: progress.update(task, completed=done, total=total))


def _for_people(title: str, outcome: Reproduction) -> RenderableType:
    shown: list[RenderableType] = [_table(name, lines) for name, lines in outcome.tables.items()]
    rows = []
    for row in outcome.rows:
        holds = "-" if row.holds is None else "yes" if row.holds else "NO"
        rows.append([row.id, row.what, _shown(row.paper), _shown(row.ours), holds, row.why])
    shown.append(Fitted(title, ("id", "what", "paper", "ours", "holds", "why"), rows, ("why",)))
    judged = [row for row in outcome.rows if row.holds is not None]
    shown.append(f"{sum(bool(row.holds) for row in judged)} of {len(judged)} claims hold; {outcome.wall_s:.1f} s")
    shown += [f"drawn: {path}" for path in outcome.pictures]
    return stacked(*shown)


def _table(title: str, lines: Sequence[Mapping[str, Any]]) -> RenderableType:
    columns = list(lines[0]) if lines else []
    rows = [[_shown(line[column]) for column in columns] for line in lines]
    return table(title, [column.replace("_", " ") for column in columns], rows)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
