"""What the controller keeps in the store: everything a successor needs to go on, one record per key.

Written before the actions that depend on it are sent (architecture, rule 3 and rule 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from shared.decision import Change, Plan, Refusal
from shared.model import Allotment, Job, JobPhase, Node, NodeService
from shared.webapp import WebApp

DECLARED = "declared"


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
    running. `adopted`: the name of the VM that was not started by us ("" for every other job). `profile`: where its
    stages come from, in words. `measured_mcycles`: the work of one instance when it was complete; `measured_mhz`: the
    highest speed of one that was seen (0: not measured)."""

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
    profile: str = DECLARED
    measured_mcycles: float = 0.0
    measured_mhz: float = 0.0

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


class FlowWork(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Requests of a flow that were answered within a window."""

    flow: str
    served: int


class WorkWindow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the work profiler learns from: CPU work that the instances of a web application did in `seconds`, in
    Mcycles, how many there were at its end, and the requests that they answered meanwhile."""

    seconds: float
    used_mcycles: float
    instances: int
    served: tuple[FlowWork, ...]


@dataclass(frozen=True, slots=True)
class WebRecord:
    """A web application. Its instances are jobs of their own. `removed`: it goes when the last of them is gone."""

    app: WebApp
    request: str
    order: int
    accepted_s: float
    removed: bool = False
    windows: tuple[WorkWindow, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("web", self.app.name)


class Gain(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a decision predicted for one workload, see `Outlook`, and what was measured when that time had come
    (None: not measured)."""

    workload: str
    now: float
    predicted: float
    best: float
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision as taken: changes, refusals, and what was dropped because its workload had changed since.

    `held` are the changes that the automation level holds back, and `plan` is what carrying them out would take.
    `gains` and `level` are what the policy predicted; `measured_s`: when it was measured what came of it (None: not
    yet, or not at all).
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
    gains: Sequence[Gain] = ()
    level: float | None = None
    measured_s: float | None = None

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


Record = JobRecord | NodeRecord | WebRecord | DecisionRecord | ControlRecord | Deleted
