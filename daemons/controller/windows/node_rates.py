"""What nodes are worth to a deadline window: how many of its jobs each executes at a time, and how fast.

The reference node, the "server" of batch-provisioning.txt, is the median of those that can hold a job.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from daemons.controller.state.nodes import NodeEntry
from daemons.models.arrivals import Floats
from shared.values.jobs import Job
from shared.values.nodes import Node

LIKE_FRAC = 0.1


@dataclass(frozen=True, slots=True)
class JobSize:
    """What a job of a queue takes: memory with that of its VM, in MiB, the most speed that it uses, virtual CPUs, and
    labels of nodes that all jobs of it need."""

    memory_mib: float = 0.0
    max_mhz: float = math.inf
    vcpus: int = 1
    required_labels: frozenset[str] = frozenset()

    def is_like(self, other: JobSize) -> bool:
        """Return whether both are the same within a tenth."""
        near = math.isclose(self.memory_mib, other.memory_mib, rel_tol=LIKE_FRAC)
        near = near and math.isclose(self.max_mhz, other.max_mhz, rel_tol=LIKE_FRAC)
        return near and (self.vcpus, self.required_labels) == (other.vcpus, other.required_labels)

    def speed_on_mhz(self, node: Node) -> float:
        """Return the most CPU that one can use on the node, in MHz."""
        return min(self.max_mhz, self.vcpus * node.core_mhz, node.cpu_mhz)


def size_of(jobs: Iterable[Job], vm_overhead_mib: float) -> JobSize:
    """Return the usual size of jobs: medians, and the labels that most of them need."""
    known = [job for job in jobs if job.stages]
    if not known:
        return JobSize(vm_overhead_mib)
    needs = Counter(frozenset(job.required_labels) for job in known)
    return JobSize(
        median(job.memory_mib for job in known) + vm_overhead_mib,
        median(job.max_mhz for job in known),
        math.ceil(median(job.vcpus for job in known)),
        max(needs, key=lambda wanted: (needs[wanted], sorted(wanted))),
    )


@dataclass(frozen=True, slots=True)
class Worth:
    """What nodes are worth to a window. rate: float64[n], in reference nodes (0: cannot hold a job). slots: jobs that
    the reference node executes at a time, speed_mhz: how fast each is there (0: there is no such node)."""

    rate: Floats
    slots: int
    speed_mhz: float
    reference: str


def worth_of(
    nodes: Sequence[NodeEntry], size: JobSize, jobs_per_node: int, speeds: Mapping[str, float], most_slots: int = 10_000
) -> Worth:
    """Return the worth of each node. jobs_per_node: 0, as many as fit; speeds: of node types, relative to their
    clocks."""
    slots = [0] * len(nodes)
    speed_mhz = [0.0] * len(nodes)
    for index, node in enumerate(nodes):
        facts = node.inventory
        if facts is not None and size.required_labels <= set(facts.labels):
            slots[index] = min(_slots(facts, size, jobs_per_node), most_slots)
            speed_mhz[index] = size.speed_on_mhz(facts) * speeds.get(facts.node_type, 1.0)
    power = np.array(slots, dtype=np.float64) * np.array(speed_mhz, dtype=np.float64)
    able = sorted((float(power[index]), node.name, index) for index, node in enumerate(nodes) if power[index] > 0.0)
    if not able:
        return Worth(np.zeros(len(nodes)), 1, 0.0, "")
    reference, name, index = able[(len(able) - 1) // 2]
    return Worth(power / reference, slots[index], speed_mhz[index], name)


def taken_of(node: Node, size: JobSize, jobs_per_node: int, used_mhz: float, used_mib: float) -> float:
    """Return the share (0..1) of a node's slots for jobs that is lost to others with this usage."""
    slots = float(_slots(node, size, jobs_per_node))
    left = 1.0
    for one, whole, used in (
        (size.speed_on_mhz(node), node.cpu_mhz, used_mhz),
        (size.memory_mib, float(node.usable_mib), used_mib),
    ):
        if one > 0.0 and slots > 0.0:
            left = min(left, max(whole - used, 0.0) / one / min(slots, whole / one))
    return 1.0 - left


def _slots(node: Node, size: JobSize, jobs_per_node: int) -> int:
    """Return how many jobs the node executes at a time, each at full speed."""
    fit = math.floor(node.usable_mib / size.memory_mib) if size.memory_mib > 0.0 else node.cores
    if jobs_per_node:
        return min(jobs_per_node, fit) if size.memory_mib > 0.0 else jobs_per_node
    return min(fit, math.floor(node.cpu_mhz / size.speed_on_mhz(node) + 1e-9))
