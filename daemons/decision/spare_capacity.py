"""How much memory must stay free for failovers, as a task for the worker. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from daemons.planning.failover import FailoverVm, SpareCapacity, spare_capacity
from shared.policy_api.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SpareCapacityTask:
    """The question: what must stay free so that these VMs can restart elsewhere when `lost` nodes are lost at once."""

    snapshot: Snapshot
    vms: tuple[FailoverVm, ...]
    lost: int


def compute_spare_capacity(task: SpareCapacityTask) -> SpareCapacity:
    """Answer the question."""
    return spare_capacity(task.snapshot, task.vms, task.lost)
