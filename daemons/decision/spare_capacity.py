"""How much memory must stay free for failovers, as a task for the worker. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from daemons.planning.failover import FailoverVm, FreePages, SpareCapacity, spare_capacity
from shared.policy_api.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SpareCapacityTask:
    """The question: what must stay free so that these VMs can restart elsewhere when `lost` nodes are lost at once.
    pages: what is free of hugepages, and of NUMA cells."""

    snapshot: Snapshot
    vms: tuple[FailoverVm, ...]
    lost: int
    pages: FreePages | None = None


def compute_spare_capacity(task: SpareCapacityTask) -> SpareCapacity:
    """Answer the question."""
    return spare_capacity(task.snapshot, task.vms, task.lost, task.pages)
