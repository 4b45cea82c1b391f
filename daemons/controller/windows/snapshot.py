"""What policies see of deadline windows: those that are open, and those that open within a day."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.tenancy import is_nobodys
from daemons.controller.windows.node_rates import Worth, taken_of
from daemons.controller.windows.window import WindowEntry
from daemons.controller.windows.windows import WindowBook
from daemons.models.deadline.service_times import unavoidable
from shared.policy_api.snapshot import Floats, WindowView

ENOUGH = 1e-9
Expected = Callable[[str, str], float]


def window_views(
    book: WindowBook, nodes: Sequence[NodeEntry], now_s: float, expected_s: Expected
) -> tuple[WindowView, ...]:
    """Return a view of each window, in the order of the configuration. expected_s(node type, "deploy" or "remove"): how
    long nodes of a type take to enter or leave service."""
    near = [entry for entry in book.entries.values() if entry.is_near(now_s)]
    shared = sum(entry.is_open(now_s) for entry in near) > 1
    others = held_by_others(book, nodes, now_s) if near else {}
    return tuple(_view(book, entry, nodes, now_s, expected_s, shared, others) for entry in near)


Held = dict[str, tuple[float, float]]
"""By node: CPU in MHz and memory in MiB."""


def held_by_others(book: WindowBook, nodes: Sequence[NodeEntry], now_s: float) -> Held:
    """Return what workloads outside the queues of open windows hold on nodes. All CPU allotted counts, used or not:
    placement gives jobs of queues only what is left."""
    cluster = book.cluster
    mhz: dict[str, float] = defaultdict(float)
    mib: dict[str, float] = defaultdict(float, {node.name: node.unmanaged_mib for node in nodes if node.unmanaged_mib})
    for job in cluster.active.values():
        if not job.over and job.allotments and not book.queued(job, now_s):
            for given in job.allotments:
                mhz[given.node] += given.cpu_mhz
                mib[given.node] += job.job.memory_mib + cluster.vm_overhead_mib
    return {name: (mhz[name], held_mib) for name, held_mib in mib.items()}


def _view(
    book: WindowBook,
    entry: WindowEntry,
    nodes: Sequence[NodeEntry],
    now_s: float,
    expected_s: Expected,
    shared: bool,
    others: Held,
) -> WindowView:
    settings = entry.settings
    worth = worth_now(book, entry, nodes)
    taken = _taken(book, entry, nodes, others)
    is_open = entry.is_open(now_s)
    arrivals, mean_s = entry.arrivals(), service_s(entry, worth)
    begun = np.array(book.begun_mcycles(entry, now_s) if is_open else [], dtype=np.float64)
    phases = entry.phases(book.type_speeds(entry))
    scaled = phases.scaled(mean_s / phases.mean) if phases is not None and mean_s > 0.0 else None
    types = {node.inventory.node_type for node, rate in zip(nodes, worth.rate, strict=True) if rate and node.inventory}
    return WindowView(
        name=settings.name,
        interval_s=entry.interval_s,
        interval=entry.interval_at(now_s) if is_open else 0,
        intervals=entry.intervals,
        opens_s=max(0.0, entry.record.opens_s - now_s),
        jobs=entry.jobs_at(),
        arrivals=arrivals,
        service_s=mean_s,
        slots=worth.slots,
        nodes=_nodes(book, entry, nodes, worth, taken, shared),
        nodes_min=settings.nodes_min,
        nodes_max=settings.nodes_max,
        confidence=settings.confidence,
        penalty=settings.penalty,
        weight=settings.weight,
        rate=worth.rate,
        taken=taken,
        deploy_s=max((expected_s(kind, "deploy") for kind in types), default=0.0),
        remove_s=max((expected_s(kind, "remove") for kind in types), default=0.0),
        analyser=settings.analyser.name,
        phase_rates=np.array(scaled.rates if scaled is not None else (), dtype=np.float64),
        phase_goes=np.array(scaled.goes if scaled is not None else (), dtype=np.float64),
        begun_s=begun / worth.speed_mhz if worth.speed_mhz > 0.0 else np.zeros(0),
        unavoidable=_unavoidable(book, entry, worth.speed_mhz, begun, arrivals, now_s),
    )


def _unavoidable(
    book: WindowBook, entry: WindowEntry, speed_mhz: float, begun: Floats, arrivals: Floats, now_s: float
) -> float:
    """Return the probability that run times alone miss the deadline, on any number of nodes. A window that is not open
    yet counts from its opening. 0 where service times are assumed exponential. speed_mhz: of a job on the reference
    node; begun: the work already done for begun jobs, in Mcycles."""
    times = entry.service_times(begun.tolist(), book.type_speeds(entry)) if speed_mhz > 0.0 else None
    if times is None:
        return 0.0
    left = max(0.0, entry.record.deadline_s - max(now_s, entry.record.opens_s)) * speed_mhz
    lengths = entry.interval_s * speed_mhz
    coming = arrivals[arrivals.shape[0] - min(arrivals.shape[0], round(left / lengths)) :, 0]
    waiting = max(0, entry.jobs_at() - begun.size)
    return unavoidable(times, begun, waiting, left, coming, np.full(coming.size, lengths))


def worth_now(book: WindowBook, entry: WindowEntry, nodes: Sequence[NodeEntry]) -> Worth:
    """Return what each of the nodes is worth to a window: 0 for one that an environment has or is assigned."""
    worth = book.worth(entry, nodes)
    if all(is_nobodys(node) for node in nodes):
        return worth
    return replace(worth, rate=worth.rate * np.array([is_nobodys(node) for node in nodes], dtype=np.float64))


def service_s(entry: WindowEntry, worth: Worth) -> float:
    """Mean service time of a job on a slot of the reference node: as declared where nothing is known."""
    if entry.service_mcycles <= 0.0 or worth.speed_mhz <= 0.0:
        return entry.settings.service_s * entry.record.service_factor
    return entry.service_mcycles / worth.speed_mhz


def _taken(book: WindowBook, entry: WindowEntry, nodes: Sequence[NodeEntry], others: Held) -> Floats:
    """Return float64[n]: the share of each node that others hold."""
    size, per_node = book.size(entry), entry.settings.jobs_per_node
    taken = np.zeros(len(nodes))
    for row, node in enumerate(nodes):
        if node.name in others and node.inventory is not None:
            taken[row] = taken_of(node.inventory, size, per_node, *others[node.name])
    return taken


def _nodes(
    book: WindowBook, entry: WindowEntry, nodes: Sequence[NodeEntry], worth: Worth, taken: Floats, shared: bool
) -> int:
    """Reference nodes in service besides what others hold, who may come to these from others; where several windows
    share them, those that this one was given."""
    serving = np.array([node.schedulable for node in nodes], dtype=np.bool_)
    left = float(worth.rate[serving].sum() - (worth.rate * taken).sum()) if len(nodes) else 0.0
    count = max(0, math.floor(left + ENOUGH))
    given = book.sizes.get(entry.settings.name)
    return min(count, given.nodes) if shared and given is not None else count
