"""Which models with which parameters `trimtab env advise` plays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from daemons.capacity.advise.values import Load
from daemons.capacity.coordination.values import DEDICATED, FB, FLB_NUB, ON_DEMAND, Setting
from shared.values.actions import ActionKind
from shared.values.agreement import BatchTerms, OnReclaim
from shared.values.operation_costs import COSTS

SIZES = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)  # of both peaks together
LOWER = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)
REQUEST_RATIOS = (1.0, 1.2, 1.6)  # U
RELEASE_RATIOS = (0.1, 0.2, 0.4)  # V
ELASTIC_FACTORS = (0.1, 0.3, 0.5, 0.7)  # G
MEMORY_MIB = 4_320.0  # of a job on a node, as in the experiments of apc.txt


def settings(load: Load, leases_s: Sequence[float]) -> list[Setting]:
    """Return all settings, each once. Parameters without effect on a load are not varied: the terms of a batch side
    without jobs, or preemption by a web side that needs nothing."""
    made = [Setting(DEDICATED, load.nodes, load.web_peak, horizon_s=load.horizon_s)]
    for lease_s in leases_s:
        made += [
            Setting(ON_DEMAND, 0, 0, horizon_s=load.horizon_s, lease_s=lease_s),
            *_fixed(load, lease_s),
            *_lent(load, lease_s),
        ]
    return list(dict.fromkeys(made))


def _fixed(load: Load, lease_s: float) -> Iterator[Setting]:
    """FB: from what the largest job and the web side's peak need to both peaks."""
    both = load.nodes + load.web_peak
    least = max(load.largest, load.web_peak, 1)
    sizes = sorted({least, *(size for size in (round(part * both) for part in SIZES) if size >= least)})
    ways = (OnReclaim.SUSPEND, OnReclaim.KILL) if load.jobs and load.web_peak else (OnReclaim.SUSPEND,)
    for size, way in product(sizes, ways):
        yield _shared(FB, load, size, lease_s, BatchTerms(on_reclaim=way))


def _lent(load: Load, lease_s: float) -> Iterator[Setting]:
    """FLB-NUB."""
    both = load.nodes + load.web_peak
    terms = [BatchTerms()]
    if load.jobs:
        terms = [BatchTerms(*each) for each in product(REQUEST_RATIOS, RELEASE_RATIOS, ELASTIC_FACTORS)]
    for part, each in product(LOWER, terms):
        yield _shared(FLB_NUB, load, max(1, round(part * both)), lease_s, each)


def _shared(model: str, load: Load, size: int, lease_s: float, terms: BatchTerms) -> Setting:
    """Split `size` nodes into lower bounds of both sides, in the proportion of their peaks: only their sum counts."""
    both = load.nodes + load.web_peak
    web = round(size * load.web_peak / both) if both else 0
    costs = COSTS["paper"]
    return Setting(
        model,
        size - web,
        web,
        horizon_s=load.horizon_s,
        lease_s=lease_s,
        terms=terms,
        suspend_s=costs.duration_s(ActionKind.SUSPEND, MEMORY_MIB),
        resume_s=costs.duration_s(ActionKind.RESUME, MEMORY_MIB),
    )
