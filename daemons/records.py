"""What the controller keeps in the store: everything a successor needs to go on, one record per key.

Written before the actions that depend on it are sent (architecture, rule 3 and rule 5).
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.model import Allotment, Change, Job, JobPhase, Node, NodeService, Plan, Refusal


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """One instance: where its VM is or may be, what was issued, and the work counted so far.

    `counter_*` name the last reading that is part of `done_mcycles`: the VM's CPU seconds on that node and generation.
    """

    may_run_on: tuple[str, ...]
    generation: int
    issued_attempt: int
    ended: bool
    cpu_mhz: float
    done_mcycles: float
    counter_node: str
    counter_generation: int
    counter_s: float


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and its desired state. `instances` is empty once the job is over. `held`: an operator keeps it from
    running. `adopted`: the name of the VM that was not started by us ("" for every other job)."""

    job: Job
    request: str
    order: int
    revision: int
    phase: JobPhase
    attempt: int
    released: bool
    resuming: bool
    allotments: tuple[Allotment, ...]
    not_before_s: float
    failures: int
    accepted_s: float
    finished_s: float
    instances: tuple[InstanceRecord, ...]
    held: bool = False
    adopted: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("job", self.job.name)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node that takes part. `events_seen`: every guest event up to that number is in the store.
    `off_boot_id`: the boot that was proven off, whose late messages mean nothing ("" while it is not off)."""

    name: str
    service: NodeService
    events_seen: int
    boot_id: str
    off_boot_id: str
    inventory: Node | None

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("node", self.name)


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision as taken: changes, refusals, and what was dropped because its workload had changed since.

    `held` are the changes that the automation level holds back, and `plan` is what carrying them out would take.
    """

    number: int
    at_s: float
    term: int
    policy: str
    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]
    dropped: tuple[Refusal, ...]
    held: tuple[Change, ...]
    plan: Plan

    @property
    def key(self) -> tuple[str, str]:
        """Kind and number."""
        return ("decision", f"{self.number:012d}")


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """Switches and counters that outlive a controller. `acting` false: it only observes until an operator says
    otherwise (after a restore)."""

    deciding: bool
    decisions: int
    submissions: int
    acting: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """There is one."""
        return ("control", "")


@dataclass(frozen=True, slots=True)
class Deleted:
    """Removes the record of a key."""

    key: tuple[str, str]


Record = JobRecord | NodeRecord | DecisionRecord | ControlRecord | Deleted
