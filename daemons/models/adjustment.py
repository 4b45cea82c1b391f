"""The autoscaling of a web application: by the CPU utilisation of its instances (phoenixcloud.txt section 6.4), within
the limits that a model of its response time supports (apc.txt section 3.3)."""

from __future__ import annotations

import math

import numpy as np

from daemons.models.web_utility import AppUtility
from shared.values.agreement import WebTerms
from shared.values.jobs import INSTANCES_MAX

IDLE_FRAC = 0.01  # of its CPU that a guest uses while nobody asks anything of it
GAIN = 1e-3  # by so much another instance must raise the utility to be worth it
_BLUR = 1e-9  # what roundings may do to a mean


def adjusted(instances: int, utilisation: float, terms: WebTerms, least: int = 1, most: int = INSTANCES_MAX) -> int:
    """Return the change in the number of instances: +1, -1 or 0 (phoenixcloud.txt section 6.4).

    utilisation: mean part of their CPU (0..1) that all `instances` have used over `terms.over_s`; without an instance,
    above 0 if there are requests. NaN means no data and returns 0. The number never gets below `least` nor above
    `most`. The last instance is removed only if `least` is 0 and it serves no requests.
    """
    if math.isnan(utilisation):
        return 0
    if instances > most or instances < least:
        return -1 if instances > most else 1
    if utilisation > terms.add_above * (1.0 + _BLUR):
        return 1 if instances < most else 0
    if instances <= least:
        return 0
    if instances == 1:
        return -1 if utilisation <= IDLE_FRAC else 0
    below = terms.remove_below * (instances - 1) / instances
    return -1 if utilisation < below * (1.0 - _BLUR) else 0


def bounds(
    model: AppUtility, each_mhz: float, chosen: int, least: int, most: int, gain: float = GAIN
) -> tuple[int, int]:
    """Return the range for autoscaling instances of `each_mhz` after a policy has chosen `chosen`: from the fewest that
    meet the goal to the largest number at which each instance raises the utility by more than `gain`. Both ends are
    within `least` and `most`, and `chosen` is between them. If the goal cannot be met, the lower end is the chosen
    number."""
    chosen = min(max(chosen, least), most)
    first = max(least, 1)
    counts = np.arange(first, max(first, most) + 1, dtype=np.float64)
    utilities = model.utility(counts * each_mhz)
    if not np.isfinite(utilities).all():
        return least, most
    met = (utilities >= 0.0).nonzero()[0]
    worth = (np.diff(utilities) > gain).nonzero()[0]
    fewest = first + int(met[0]) if len(met) else chosen
    highest = first + int(worth[-1]) + 1 if len(worth) else first
    return min(fewest, chosen), min(max(highest, chosen), most)
