"""What operations on VMs cost in time: the paper's linear model, used by the fakes, the direct engine and policies."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from shared.values.actions import ActionKind
from shared.values.scalars import not_negative


@dataclass(frozen=True, slots=True)
class OperationCosts:
    """Seconds that operations take: a fixed part, and per MiB of the VM's memory. The paper has a fixed part for the
    start alone, and nothing but that there.

    A resume on another node than the one that holds the image costs resume + migrate (apc.txt, Table 1).
    """

    start_s: float = 0.0
    suspend_s_per_mib: float = 0.0
    resume_s_per_mib: float = 0.0
    migrate_s_per_mib: float = 0.0
    start_s_per_mib: float = 0.0
    suspend_s: float = 0.0
    resume_s: float = 0.0
    migrate_s: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            not_negative(each.name, getattr(self, each.name))

    def line(self, kind: ActionKind) -> tuple[float, float]:
        """Return the fixed part in seconds and the seconds per MiB of a kind of operation; 0 for one that costs
        nothing."""
        if kind not in COSTLY:
            return 0.0, 0.0
        return getattr(self, f"{kind.value}_s"), getattr(self, f"{kind.value}_s_per_mib")

    def durations_s(self, kind: ActionKind, memory_mib: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how long an operation takes on VMs of so much memory, float64 of its shape."""
        fixed_s, s_per_mib = self.line(kind)
        return fixed_s + s_per_mib * memory_mib

    def duration_s(self, kind: ActionKind, memory_mib: float, elsewhere: bool = False) -> float:
        """Return how long an operation on a VM of `memory_mib` takes; `elsewhere`: the image comes from another
        node."""
        fixed_s, s_per_mib = self.line(kind)
        if kind is ActionKind.RESUME and elsewhere:
            fixed_s, s_per_mib = fixed_s + self.migrate_s, s_per_mib + self.migrate_s_per_mib
        return fixed_s + s_per_mib * memory_mib


COSTLY = (ActionKind.START, ActionKind.SUSPEND, ActionKind.RESUME, ActionKind.MIGRATE)

COSTS: dict[str, OperationCosts] = {
    "none": OperationCosts(),
    "paper": OperationCosts(
        start_s=3.6, suspend_s_per_mib=0.0353, resume_s_per_mib=0.0333, migrate_s_per_mib=0.0132
    ),  # apc.txt, Table 1 (seconds, memory in MB)
}
