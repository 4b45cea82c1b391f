"""What operations on VMs cost in time: the paper's linear model, used by the fakes, the direct engine and policies."""

from __future__ import annotations

from dataclasses import dataclass

from shared.values.actions import ActionKind
from shared.values.scalars import not_negative


@dataclass(frozen=True, slots=True)
class OperationCosts:
    """Seconds that operations take: start and resume-independent constants, and per MiB of the VM's memory.

    A resume on another node than the one that holds the image costs resume + migrate (apc.txt, Table 1).
    """

    start_s: float = 0.0
    suspend_s_per_mib: float = 0.0
    resume_s_per_mib: float = 0.0
    migrate_s_per_mib: float = 0.0

    def __post_init__(self) -> None:
        not_negative("start_s", self.start_s)
        not_negative("suspend_s_per_mib", self.suspend_s_per_mib)
        not_negative("resume_s_per_mib", self.resume_s_per_mib)
        not_negative("migrate_s_per_mib", self.migrate_s_per_mib)

    def duration_s(self, kind: ActionKind, memory_mib: float, elsewhere: bool = False) -> float:
        """How long an operation on a VM of `memory_mib` takes; `elsewhere`: the image comes from another node."""
        if kind is ActionKind.START:
            return self.start_s
        if kind is ActionKind.SUSPEND:
            return self.suspend_s_per_mib * memory_mib
        if kind is ActionKind.RESUME:
            per_mib = self.resume_s_per_mib + (self.migrate_s_per_mib if elsewhere else 0.0)
            return per_mib * memory_mib
        if kind is ActionKind.MIGRATE:
            return self.migrate_s_per_mib * memory_mib
        return 0.0


COSTS: dict[str, OperationCosts] = {
    "none": OperationCosts(),
    "paper": OperationCosts(3.6, 0.0353, 0.0333, 0.0132),  # apc.txt, Table 1 (seconds, memory in MB)
}
