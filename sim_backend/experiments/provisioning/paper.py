"""batch-provisioning.txt, chapter 5: five heuristics for the number of servers, and what they cost."""

from __future__ import annotations

from sim_backend.experiments.experiment import Experiment, Paper
from sim_backend.experiments.provisioning.costs import rows_policies, tables_policies
from sim_backend.experiments.provisioning.plots import draw_arrivals, draw_capacities, draw_policies, draw_scale
from sim_backend.experiments.provisioning.rows import (
    rows_arrivals,
    rows_capacities,
    rows_scale,
    tables_arrivals,
    tables_capacities,
    tables_scale,
)
from sim_backend.experiments.provisioning.runs import work_arrivals, work_capacities, work_policies, work_scale

PAPER = Paper(
    "provisioning",
    "Autonomic Resource Management for a Cluster that Executes Batch Jobs",
    {
        "arrivals": Experiment("Arrivals", work_arrivals, rows_arrivals, draw_arrivals, tables_arrivals),
        "capacity": Experiment(
            "What servers finish", work_capacities, rows_capacities, draw_capacities, tables_capacities
        ),
        "policies": Experiment("Five cost functions", work_policies, rows_policies, draw_policies, tables_policies),
        "scale": Experiment("Larger clusters", work_scale, rows_scale, draw_scale, tables_scale),
    },
)
