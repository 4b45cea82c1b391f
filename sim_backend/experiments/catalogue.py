"""Which papers can be played again. A new one is a module with a `PAPER` and a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from shared.clock import perf_s
from sim_backend.experiments.claims import Paper, Row
from sim_backend.experiments.pool import run_all

PAPERS = {
    "apc": "sim_backend.experiments.apc",
    "provisioning": "sim_backend.experiments.provisioning",
    "phoenixcloud": "sim_backend.experiments.phoenixcloud",
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
    """The paper of that name; KeyError when there is none."""
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
    """Play the chosen experiments with seeds 0 to `seeds` - 1 on all processors. `plots`: a folder for the pictures
    (needs matplotlib; OSError when it cannot be written). `tell`: pieces of work done, and how many there are."""
    begun_s = perf_s()
    experiments = [what.experiments[key] for key in chosen]
    work = [experiment.work(seeds) for experiment in experiments]
    total = sum(map(len, work))
    results = run_all(
        [piece for pieces in work for piece in pieces],
        workers,
        None if tell is None else lambda done: tell(done, total),
    )
    rows: list[Row] = []
    tables: dict[str, Any] = {}
    pictures: list[Path] = []
    for experiment, pieces in zip(experiments, work, strict=True):
        own, results = results[: len(pieces)], results[len(pieces) :]
        rows += experiment.rows(own)
        tables |= experiment.tables(own)
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
            pictures += experiment.draw(own, plots)
    return Reproduction(what.name, tuple(rows), tables, tuple(pictures), perf_s() - begun_s)
