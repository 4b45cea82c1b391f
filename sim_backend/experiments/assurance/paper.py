"""statistical-assurance.txt, section 6: what may be promised to applications that share servers, and how their requests
are policed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim_backend.experiments.assurance.held_out import rows_held_out, tables_held_out, work_held_out
from sim_backend.experiments.assurance.plots import draw_perturbed, draw_policed, draw_simulated, draw_sizes
from sim_backend.experiments.assurance.policed import work_entitled, work_policed
from sim_backend.experiments.assurance.policed_rows import rows_entitled, rows_policed, tables_policed
from sim_backend.experiments.assurance.printed import rows_printed, work_printed
from sim_backend.experiments.assurance.rows import rows_perturbed, rows_simulated, rows_sizes, tables_sizes
from sim_backend.experiments.assurance.simulated import work_perturbed, work_simulated
from sim_backend.experiments.assurance.sizes import work_sizes
from sim_backend.experiments.experiment import Experiment, Paper


def _no_pictures(results: Sequence[Any], folder: Path) -> list[Path]:
    """Draw nothing: the paper has no figures for this experiment."""
    del results, folder
    return []


PAPER = Paper(
    "assurance",
    "Statistical Service Assurances for Applications in Utility Grid Environments",
    {
        "printed": Experiment("Equations 7 and 8, Table 1", work_printed, rows_printed, _no_pictures),
        "sizes": Experiment("Tables 1 and 2, figures 2 and 3", work_sizes, rows_sizes, draw_sizes, tables_sizes),
        "simulation": Experiment("Figure 4", work_simulated, rows_simulated, draw_simulated),
        "precision": Experiment("Figure 5", work_perturbed, rows_perturbed, draw_perturbed),
        "entitlements": Experiment("Table 3", work_entitled, rows_entitled, _no_pictures),
        "policing": Experiment("Figures 6 to 8", work_policed, rows_policed, draw_policed, tables_policed),
        "held-out": Experiment("Promised and achieved", work_held_out, rows_held_out, _no_pictures, tables_held_out),
    },
)
