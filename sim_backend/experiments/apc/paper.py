"""apc.txt, section 5: five experiments with the placement controller."""

from __future__ import annotations

from sim_backend.experiments.apc.equal import rows_three, rows_two, work_three, work_two
from sim_backend.experiments.apc.hypothetical import rows_one, tables_one, work_one
from sim_backend.experiments.apc.mixed import rows_five, work_five
from sim_backend.experiments.apc.plots import draw_five, draw_four, draw_one, draw_three, draw_two
from sim_backend.experiments.apc.random import rows_four, work_four
from sim_backend.experiments.experiment import Experiment, Paper

PAPER = Paper(
    "apc",
    "Managing SLAs of Heterogeneous Workloads Using Dynamic Application Placement",
    {
        "1": Experiment("Hypothetical utility", work_one, rows_one, draw_one, tables_one),
        "2": Experiment("Identical jobs", work_two, rows_two, draw_two),
        "3": Experiment("Three goal factors", work_three, rows_three, draw_three),
        "4": Experiment("Random jobs under APC, EDF and FCFS", work_four, rows_four, draw_four),
        "5": Experiment("Jobs beside a web application", work_five, rows_five, draw_five),
    },
)
