"""d-factor.txt, sections 4 to 6: its printed figures, its scheduling on many sets, and a real measurement here."""

from __future__ import annotations

from sim_backend.experiments.dilation.figures import rows_figures, tables_figures, work_figures
from sim_backend.experiments.dilation.measured import work_measured
from sim_backend.experiments.dilation.measured_rows import rows_measured, tables_measured
from sim_backend.experiments.dilation.plots import draw_figures, draw_measured, draw_scheduling
from sim_backend.experiments.dilation.scheduling import rows_scheduling, tables_scheduling, work_scheduling
from sim_backend.experiments.experiment import Experiment, Paper

PAPER = Paper(
    "dfactor",
    "D-Factor: A Quantitative Model of Application Slow-Down in Multi-Resource Shared Systems",
    {
        "figures": Experiment("Figures 4 to 8, Table 3", work_figures, rows_figures, draw_figures, tables_figures),
        "scheduling": Experiment(
            "Twelve jobs on four machines", work_scheduling, rows_scheduling, draw_scheduling, tables_scheduling
        ),
        "measured": Experiment(
            "Real processes on one core", work_measured, rows_measured, draw_measured, tables_measured, alone=True
        ),
    },
)
