"""The read-only columns that policies see (numpy). Built by measure and by the direct engine, never changed.

One row per node and one per workload that is not over; instances of placed workloads are kept as ragged rows:
instance `i` of workload `w` is row `first_instance[w] + i` of the `instance_*` columns.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class WorkloadState(IntEnum):
    """State of a workload in a snapshot; starting counts as RUNNING, suspending as SUSPENDED."""

    WAITING = 0
    RUNNING = 1
    SUSPENDED = 2


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """One row per node, in the order of `names`.

    cpu_mhz, core_mhz (MHz), memory_mib: capacity that VMs may use, float64[n]. free_cpu_mhz, free_memory_mib: capacity
    less what is wanted there and what VMs that are not ours hold, float64[n]; may be negative. schedulable: in
    service, up and neither draining nor skewed. draining: to be emptied. labels: tuple of n tuples.
    """

    names: tuple[str, ...]
    cores: Ints
    core_mhz: Floats
    cpu_mhz: Floats
    memory_mib: Floats
    free_cpu_mhz: Floats
    free_memory_mib: Floats
    schedulable: Bools
    draining: Bools
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class WorkloadColumns:
    """One row per workload that is not over, in order of submission (ties by name).

    state: `WorkloadState`. submit_s, desired_start_s, goal_s (inf: none), not_before_s (back-off): absolute seconds.
    work_mcycles, done_mcycles: per instance, declared and measured. max_mhz, min_mhz, memory_mib, vcpus: per instance.
    instances: k. separate: one instance per node. fixed: must not be changed now (an instance is unknown or an
    operation on it is under way). importance: > 0. revision: to be copied into a `Change`. needs: tuple of tuples.
    """

    names: tuple[str, ...]
    state: Ints
    revision: Ints
    submit_s: Floats
    desired_start_s: Floats
    goal_s: Floats
    not_before_s: Floats
    work_mcycles: Floats
    done_mcycles: Floats
    max_mhz: Floats
    min_mhz: Floats
    memory_mib: Floats
    vcpus: Ints
    instances: Ints
    importance: Floats
    separate: Bools
    fixed: Bools
    first_instance: Ints
    needs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class InstanceColumns:
    """Ragged rows for the instances of every workload: node (row in nodes, -1: nowhere) and cpu_mhz allotted now.

    For a suspended workload `node` is where its image lies. Waiting workloads have no rows.
    """

    node: Ints
    cpu_mhz: Floats


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a policy sees. `now_s` absolute; `reporting_frac` share of nodes in service that are up (0..1);
    `oldest_report_s` age of the oldest report of an up node. Every array is read-only: writing raises ValueError.
    """

    now_s: float
    cycle_s: float
    nodes: NodeColumns
    workloads: WorkloadColumns
    instances: InstanceColumns
    reporting_frac: float = 1.0
    oldest_report_s: float = 0.0
    vm_overhead_mib: float = 0.0

    def __post_init__(self) -> None:
        for columns in (self.nodes, self.workloads, self.instances):
            freeze(columns)


def freeze(columns: NodeColumns | WorkloadColumns | InstanceColumns) -> None:
    """Make every array of the columns read-only, in place."""
    for name in _COLUMNS[type(columns)]:
        value = getattr(columns, name)
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


_COLUMNS = {
    kind: tuple(column.name for column in fields(kind)) for kind in (NodeColumns, WorkloadColumns, InstanceColumns)
}
