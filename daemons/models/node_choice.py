"""Which nodes are in service: those that must stay, then those wanted already, then the cheapest for the work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.policy_api.snapshot import Bools, Floats, Ints, Snapshot, WindowView

ENOUGH = 1e-9  # of a reference node: sums of rates are rounded
LOAD_STEPS = 10.0  # loads that differ by less than a tenth are alike
DIGITS = 9


def available(snapshot: Snapshot) -> Bools:
    """Return bool[n]: may be in service. A name that occurs twice stands for its first row."""
    names = snapshot.nodes.names
    once = np.ones(len(names), dtype=np.bool_)
    if len(set(names)) < len(names):
        first = {name: row for row, name in reversed(list(enumerate(names)))}
        once = np.array([first[name] == row for row, name in enumerate(names)], dtype=np.bool_)
    return once if snapshot.power is None else once & snapshot.power.available


def wanted(snapshot: Snapshot) -> Bools:
    """Return bool[n]: in service by the last decision; without power data, the schedulable nodes."""
    return snapshot.nodes.schedulable if snapshot.power is None else snapshot.power.wanted


def staying(snapshot: Snapshot) -> Bools:
    """Return bool[n]: available, and never to leave service."""
    usable = available(snapshot)
    return usable & False if snapshot.power is None else usable & snapshot.power.must_stay


def rates(rate: Floats) -> Floats:
    """Return the rates as usable numbers: 0 for any that is not finite or below 0."""
    return np.where(np.isfinite(rate) & (rate > 0.0), rate, 0.0)


def held(window: WindowView) -> Floats:
    """Return float64[n]: reference nodes on each node that are held by workloads of no window."""
    return rates(window.rate) * np.clip(np.nan_to_num(window.taken), 0.0, 1.0)


def lost(held_by_others: float, all_there: float) -> float:
    """Return how many of the existing reference nodes others take from a window, wherever they run now: they may be
    moved to its nodes. One is always left."""
    return min(held_by_others, max(all_there - 1.0, 0.0))


def unit_costs(snapshot: Snapshot, worth: Floats) -> Floats:
    """Return float64[n]: watts at full load per unit of work; a node that is not in service also costs until it
    serves."""
    watts, extra = np.ones(len(worth)), np.zeros(len(worth))
    if snapshot.power is not None:
        watts = np.nan_to_num(snapshot.power.peak_w, nan=1e12, posinf=1e12)
        waits_s = np.nan_to_num(snapshot.power.deploy_s, nan=1e12, posinf=1e12)
        extra = np.where(wanted(snapshot), 0.0, waits_s / max(snapshot.cycle_s, 1.0))
    costs = watts * (1.0 + extra) / np.maximum(worth, 1e-12)
    scale = 10.0 ** np.floor(np.log10(np.maximum(costs, 1e-300)))
    return np.asarray(np.round(costs / scale, DIGITS) * scale, dtype=np.float64)


def ordered(snapshot: Snapshot, worth: Floats, first: Bools) -> Ints:
    """Return the rows of the nodes in the order in which they are taken; `first` before all others, then those that
    must stay."""
    nodes = snapshot.nodes
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = np.nan_to_num(1.0 - nodes.free_cpu_mhz / nodes.cpu_mhz, nan=0.0, posinf=0.0, neginf=0.0)
    load = np.round(np.clip(busy, 0.0, 1.0) * LOAD_STEPS)
    order = np.lexsort((-load, unit_costs(snapshot, worth), ~wanted(snapshot), ~staying(snapshot), ~first))
    return np.asarray(order, dtype=np.int64)


def for_windows(snapshot: Snapshot, sizes: Sequence[int]) -> tuple[Bools, bool]:
    """Return bool[n]: the nodes that must stay and those that give every window of the snapshot its number of reference
    nodes; and whether they do. A node may serve several windows, each with a share of it. Capacity held by others is
    added."""
    usable = available(snapshot)
    chosen = staying(snapshot)
    left = usable.astype(np.float64)
    eligible = [rates(window.rate) * usable for window in snapshot.windows]
    enough, counted = True, np.zeros(len(usable), dtype=np.bool_)
    for index in sorted(range(len(sizes)), key=lambda index: (int((eligible[index] > 0.0).sum()), index)):
        need, rate = float(sizes[index]), eligible[index]
        if need <= ENOUGH:
            continue
        order = ordered(snapshot, rate, chosen & (left > 0.0))
        order = order[rate[order] * left[order] > 0.0]
        gives = np.cumsum(rate[order] * left[order])
        by_others = held(snapshot.windows[index])
        need += lost(float(by_others[~counted].sum()), float(gives[-1]) if order.size else 0.0)
        counted |= by_others > 0.0
        if not order.size or gives[-1] < need - ENOUGH:
            enough = False
        count = min(int(np.searchsorted(gives, need - ENOUGH)) + 1, order.size)
        taken = order[:count]
        chosen[taken] = True
        over = max(float(gives[count - 1]) - need, 0.0) if count else 0.0
        left[taken] = 0.0
        if count:
            left[taken[-1]] = over / float(rate[taken[-1]])
    return chosen, enough


def others(snapshot: Snapshot, chosen: Bools) -> Ints:
    """Return the rows of the available nodes that are not chosen, in the order in which they are added for other
    work."""
    power = np.where(np.isfinite(snapshot.nodes.cpu_mhz), snapshot.nodes.cpu_mhz, 0.0)
    order = ordered(snapshot, power, np.zeros(len(power), dtype=np.bool_))
    return order[(available(snapshot) & ~chosen)[order]]


def names(snapshot: Snapshot, chosen: Bools) -> tuple[str, ...]:
    """Return the names of the chosen nodes, in row order."""
    return tuple(snapshot.nodes.names[row] for row in np.flatnonzero(chosen).tolist())
