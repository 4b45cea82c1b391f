"""What web applications lose by a node that is taken from them: utility, hour by hour, by their models of response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daemons.models.web_utility import AppUtility, app_utilities
from shared.policy_api.snapshot import Floats, FlowColumns, WebColumns
from shared.values.scalars import not_negative, positive

_GRID = 65  # levels tried at a time
_ROUNDS = 6  # each narrows the level down to one step of the grid before


def hourly_losses(
    web: WebColumns, flows: FlowColumns, vcpu_mhz: float, rates_per_s: Floats, total_mhz: float, node_mhz: float
) -> Floats:
    """Return float64[h]: the utility lost with a node of `node_mhz` when the applications have `total_mhz`, for the
    arrivals of each flow in each of h hours, float64[h, flows]. Raises `InvalidValue` for figures that are missing or
    wrong."""
    losses = np.zeros(len(rates_per_s))
    for hour, rates in enumerate(rates_per_s):
        loads = np.bincount(flows.app, rates * flows.work_mcycles, len(web.names)).astype(np.float64)[flows.app]
        apps = app_utilities(web, replace(flows, rate_per_s=rates, load_mhz=loads), vcpu_mhz)
        losses[hour] = utility_lost(apps, total_mhz, node_mhz)
    return losses


def utility_lost(apps: Sequence[AppUtility], total_mhz: float, node_mhz: float) -> float:
    """Return the drop in the sum of utilities when the applications share `total_mhz` less a node's `node_mhz` (above
    0; at most all of it), each time with the smallest utility as large as possible. Raises `InvalidValue`."""
    not_negative("total_mhz", total_mhz)
    positive("node_mhz", node_mhz)
    left_mhz = max(0.0, total_mhz - node_mhz)
    if not apps or sum(float(app.mhz(app.best)) for app in apps) <= left_mhz:
        return 0.0
    return max(0.0, _utilities(apps, total_mhz) - _utilities(apps, left_mhz))


def _utilities(apps: Sequence[AppUtility], mhz: float) -> float:
    """Return the sum of utilities at the highest common level that this CPU allows; an application with a lower maximum
    stays there."""
    bests = [app.best for app in apps]
    low = min(float(app.utility(0.0)) for app in apps)
    high = max(bests)
    if sum(float(app.mhz(best)) for app, best in zip(apps, bests, strict=True)) <= mhz:
        return sum(bests)
    for _ in range(_ROUNDS):
        levels = np.linspace(low, high, _GRID)
        wanted = sum(
            (app.mhz(np.minimum(levels, best)) for app, best in zip(apps, bests, strict=True)), np.zeros(_GRID)
        )
        place = int(np.searchsorted(wanted, mhz, side="right"))
        low, high = float(levels[max(0, place - 1)]), float(levels[min(place, _GRID - 1)])
    return sum(min(low, best) for best in bests)
