"""Which papers can be played again. A new one is a module with a `PAPER` and a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from daemons.capacity.process_pool import run_all
from shared.base.clock import perf_s
from shared.base.errors import InvalidInput
from sim_backend.experiments.experiment import Experiment, Paper, Row

PAPERS = {
    "apc": "sim_backend.experiments.apc.paper",
    "provisioning": "sim_backend.experiments.provisioning.paper",
    "phoenixcloud": "sim_backend.experiments.coordination.paper",
    "dfactor": "sim_backend.experiments.dilation.paper",
    "assurance": "sim_backend.experiments.assurance.paper",
}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came out: rows in the order of the experiments, tables, the pictures drawn, and the time it took."""

    paper: str
    rows: tuple[Row, ...]
    tables: dict[str, Any]
    pictures: tuple[Path, ...]
    wall_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--output json`."""
        return {
            "paper": self.paper,
            "rows": [row.to_json() for row in self.rows],
            "tables": self.tables,
            "pictures": [str(path) for path in self.pictures],
            "wall_s": self.wall_s,
        }


def paper(name: str) -> Paper:
    """Return the paper of that name. Raises KeyError when there is none."""
    found: Paper = import_module(PAPERS[name]).PAPER
    return found


def reproduce(
    what: Paper,
    chosen: Sequence[str],
    seeds: int,
    plots: Path | None = None,
    workers: int | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Reproduction:
    """Run the chosen experiments with seeds 0 to `seeds` - 1 on all processors. `plots`: a folder for the figures
    (needs matplotlib; OSError if it cannot be written). `tell` is called with the number of finished tasks and their
    total."""
    begun_s = perf_s()
    experiments = [what.experiments[key] for key in chosen]
    results = _results(experiments, seeds, workers, tell)
    rows: list[Row] = []
    tables: dict[str, Any] = {}
    pictures: list[Path] = []
    for experiment, own in zip(experiments, results, strict=True):
        rows += experiment.rows(own)
        tables |= experiment.tables(own)
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
            pictures += experiment.draw(own, plots)
    return Reproduction(what.name, tuple(rows), tables, tuple(pictures), perf_s() - begun_s)


def reproduce_all(
    papers: Sequence[Paper],
    seeds: int,
    plots: Path | None = None,
    workers: int | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Reproduction:
    """Play several papers, see `reproduce`: the ids of rows and the titles of tables begin with the paper's name and a
    colon, pictures are in a folder of its name. Of a paper whose data are not there one row says so."""
    begun_s = perf_s()
    rows: list[Row] = []
    tables: dict[str, Any] = {}
    pictures: list[Path] = []
    for what in papers:
        try:
            own = reproduce(what, tuple(what.experiments), seeds, plots and plots / what.name, workers, tell)
        except InvalidInput as problem:
            rows.append(Row(f"{what.name}:", what.title, None, None, None, str(problem)))
            continue
        rows += [replace(row, id=f"{what.name}:{row.id}") for row in own.rows]
        tables |= {f"{what.name}: {title}": lines for title, lines in own.tables.items()}
        pictures += own.pictures
    return Reproduction("all", tuple(rows), tables, tuple(pictures), perf_s() - begun_s)


def _results(
    experiments: Sequence[Experiment], seeds: int, workers: int | None, tell: Callable[[int, int], None] | None
) -> list[list[Any]]:
    """Return the results of each experiment's work. Experiments that measure this machine run after all others, one
    piece at a time."""
    work = [list(experiment.work(seeds)) for experiment in experiments]
    total = sum(map(len, work))
    found: list[list[Any]] = [[] for _ in experiments]
    before = 0
    for alone in (False, True):
        chosen = [at for at, experiment in enumerate(experiments) if experiment.alone is alone]
        pieces = [piece for at in chosen for piece in work[at]]
        told = None if tell is None else partial(_told, tell, before, total)
        results = run_all(pieces, 1 if alone else workers, told)
        before += len(pieces)
        for at in chosen:
            found[at], results = results[: len(work[at])], results[len(work[at]) :]
    return found


def _told(tell: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    tell(before + done, total)
