"""phoenixcloud.txt, section 6: a batch and a web environment that share nodes, beside dedicated clusters and leases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim_backend.experiments.coordination.demand import draw_demand, rows_demand, work_demand
from sim_backend.experiments.coordination.rows import rows_bounded, rows_lent, tables_bounded
from sim_backend.experiments.coordination.runs import work_bounded, work_lent, work_studied
from sim_backend.experiments.coordination.serving import draw_results, rows_serving, work_serving
from sim_backend.experiments.coordination.studies import draw_studied, rows_studied, tables_studied
from sim_backend.experiments.experiment import Experiment, Paper


def _no_pictures(results: Sequence[Any], folder: Path) -> list[Path]:
    """Draw nothing: the paper has no figures for this experiment."""
    del results, folder
    return []


PAPER = Paper(
    "phoenixcloud",
    "PhoenixCloud: Provisioning Resources for Heterogeneous Cloud Workloads",
    {
        "fixed-bounds": Experiment("Tables 1 and 2", work_bounded, rows_bounded, _no_pictures, tables_bounded),
        "lower-bound": Experiment("Tables 3 and 4", work_lent, rows_lent, _no_pictures),
        "serving": Experiment("Figures 8-1 and 8-2", work_serving, rows_serving, draw_results),
        "demand": Experiment("Figure 9", work_demand, rows_demand, draw_demand),
        "parameters": Experiment("Figures 12 to 16", work_studied, rows_studied, draw_studied, tables_studied),
    },
)
