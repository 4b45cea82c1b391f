"""Small clusters with deadline windows, for tests of provisioning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shared.policy_api.snapshot import PowerColumns, PriceView, Snapshot, WindowView
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

INTERVALS = 8


def window(name: str = "night", count: int = 4, **changes: Any) -> WindowView:
    """Open, at its third decision point, two jobs each interval for four intervals; every node is worth one."""
    arrivals = np.zeros((INTERVALS, 1))
    arrivals[:4] = 2.0
    made = WindowView(
        name,
        interval_s=900.0,
        interval=2,
        intervals=INTERVALS,
        opens_s=0.0,
        jobs=3,
        arrivals=arrivals,
        service_s=600.0,
        slots=1,
        nodes=1,
        nodes_min=1,
        nodes_max=4,
        confidence=0.99,
        penalty=0.0,
        weight=1.0,
        rate=np.ones(count),
        taken=np.zeros(count),
    )
    made = replace(made, **changes)
    return made if "taken" in changes else replace(made, taken=np.zeros(len(made.rate)))


def power(nodes: int = 4, **changes: Any) -> PowerColumns:
    """All available, on, alike and wanted."""
    yes, no = np.ones(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_)
    watts = np.full(nodes, 200.0)
    made = PowerColumns(
        yes,
        yes.copy(),
        no,
        on=yes.copy(),
        deploy_s=np.zeros(nodes),
        remove_s=np.zeros(nodes),
        idle_w=watts / 2,
        peak_w=watts,
        off_w=watts / 40,
        types=("",) * nodes,
    )
    arrays: dict[str, Any] = {name: value if name == "types" else np.array(value) for name, value in changes.items()}
    return replace(made, **arrays)


def prices(*per_kwh: float) -> PriceView:
    """By interval of 900 s."""
    return PriceView(900.0, np.array(per_kwh), np.zeros(len(per_kwh)), len(per_kwh), "EUR")


def cluster(
    *windows: WindowView,
    nodes: int = 4,
    jobs: Sequence[WorkRow] = (),
    powers: PowerColumns | None = None,
    price: PriceView | None = None,
) -> Snapshot:
    """Nodes n0, n1, .. of 4 x 1,000 MHz; power as `power` says unless given."""
    seen = snapshot([NodeRow(f"n{row}") for row in range(nodes)], list(jobs))
    return replace(seen, power=power(nodes) if powers is None else powers, windows=windows, prices=price)
