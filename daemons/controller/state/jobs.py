"""What the controller knows and wants of one job and of each of its VMs: rows of `daemons.controller.state.cluster`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from daemons.controller.state.kept import kept_in, record_of
from daemons.values.records.cluster import (
    DECLARED,
    NO_MIGRATIONS,
    FailoverFacts,
    InstanceRecord,
    JobRecord,
    ReconciliationPause,
    VmMigrations,
)
from shared.values.actions import ActionKind, GuestChange
from shared.values.jobs import Allotment, Job, JobPhase
from shared.values.migration import NO_PAGES, PageUse
from shared.values.vm_terms import VmTerms
from shared.values.vms import VmState

OVER = frozenset({JobPhase.COMPLETED, JobPhase.CANCELLED, JobPhase.FORGOTTEN})
WANTED = frozenset({JobPhase.RUNNING, JobPhase.SUSPENDED})
FAILURE_MAX = 500


@dataclass(slots=True)
class InFlight:
    """An action sent (or about to be) and not yet answered."""

    id: str
    kind: ActionKind
    node: str
    to_node: str
    boot_id: str
    expires_at_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed last on a VM: the kind of the action and its outcome, or "guest" and "crashed"; on which node, when
    that was heard, and the hypervisor's words, cut at `FAILURE_MAX` characters."""

    kind: str
    node: str
    at_s: float
    outcome: str
    detail: str


@dataclass(slots=True, eq=False)
class Instance:
    """One VM of a job. `copies`: nodes whose last message lists the VM in any state.

    `sought`: the store says that it was started but not where it is; its image is on a node that has not reported yet,
    or it is lost. `left`, `address*`, `disks`: see InstanceRecord. `awaited`: nodes whose reports are awaited since
    `missed_s`, when it disappeared from its node without an explanation.

    `places`: where this controller's orders may make it appear; `home`: where it was seen last. `beat`, `weighed`: its
    state and MHz as seen last, or as the last order left them (None: the next observation is taken as correct). `said`:
    the detail of its last move that was not ordered; `by_other`: it was started externally. `failed`: the last failure
    that this controller knows of. `shunned`: nodes to which a migration has failed, each with the time until which
    decisions avoid it. `exit`, `host_restarted`, `failover`, `migration_facts`, `settles`: see InstanceRecord.
    `insisted`: an operator asked for its migration. `move_at_s`: until then no decision migrates it; `pause_hold`:
    until when, and for which pause in s, its disruption budget was found too small. `needs`: what it needs of a node
    that it is migrated to, as reported last; `pages`: the hugepages that it holds, and memory in NUMA cells that it
    must be in. `memory_mib`: its ordinary memory and its overhead, without what is in hugepages.
    """

    vm: str
    job: JobEntry
    memory_mib: float
    cpu_mhz: float = 0.0
    may_run_on: set[str] = field(default_factory=set)
    copies: set[str] = field(default_factory=set)
    generation: int = 0
    issued_attempt: int = 0
    ended: bool = False
    done_mcycles: float = 0.0
    counter_node: str = ""
    counter_generation: int = -1
    counter_s: float = 0.0
    in_flight: InFlight | None = None
    arriving_until_s: float = 0.0
    retry_at_s: float = 0.0
    failures: int = 0
    sought: bool = False
    left: str = ""
    address: str = ""
    address_generation: int = -1
    disks: int = 0
    awaited: set[str] = field(default_factory=set)
    missed_s: float = 0.0
    places: set[str] = field(default_factory=set)
    home: str = ""
    beat: VmState | None = None
    weighed: float | None = None
    said: str = ""
    by_other: bool = False
    failed: Failure | None = None
    shunned: dict[str, float] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    pages: PageUse = NO_PAGES
    exit: GuestChange | None = None
    host_restarted: bool = False
    insisted: bool = False
    move_at_s: float = 0.0
    pause_hold: tuple[float, float] = (0.0, 0.0)
    failover: FailoverFacts | None = None
    migration_facts: VmMigrations = NO_MIGRATIONS
    settles: bool = False

    def take_over(self, record: InstanceRecord) -> None:
        """Take over what a store knew, but for the nodes that it may run on, which the ledger claims."""
        for name, value in kept_in(record, "may_run_on").items():
            setattr(self, name, value)

    def record(self) -> InstanceRecord:
        """Return the part that must outlive the controller."""
        return record_of(InstanceRecord, self, may_run_on=tuple(sorted(self.may_run_on)))


@dataclass(slots=True, eq=False)
class JobEntry:
    """A job's desired state and life, or those of one instance of a web application.

    `revision` counts every change that a decision in the making cannot know. `held`, `adopted`, `profile`,
    `measured_*`, `awaits`, `ran_*`, `runs_since_s`, `reconciliation_paused`, `definition*`, `taken`, `terms`,
    `lost_with_host`, `moves_s`, `pauses`, `failover_to`, `left_on` and `left_digests`: see JobRecord.
    `reweights`: how many weights that others have set were put right since `reweighted_s`. `reading`: when it was last
    looked how fast it is, and its work done then. `crashed`: the last attempt that a guest ended by crashing;
    `crashes`: how many have in a row, each soon after its start.
    """

    job: Job
    request: str
    order: int
    accepted_s: float
    revision: int = 1
    phase: JobPhase = JobPhase.WAITING
    attempt: int = 0
    released: bool = False
    allotments: tuple[Allotment, ...] = ()
    instances: list[Instance] = field(default_factory=list)
    not_before_s: float = 0.0
    failures: int = 0
    resuming: bool = False
    begun_s: float | None = None
    wanted_s: float = 0.0
    wanted_rank: int = 0
    progress_s: float = 0.0
    stalled: bool = False
    finished_s: float = 0.0
    held: bool = False
    adopted: str = ""
    changed_s: float = -math.inf
    profile: str = DECLARED
    measured_mcycles: float = 0.0
    measured_mhz: float = 0.0
    reading: tuple[float, float] | None = None
    awaits: tuple[str, ...] = ()
    ran_mcycles: float = 0.0
    runs_since_s: float | None = None
    ran_on: str | None = None
    user: str = ""
    crashed: int = 0
    crashes: int = 0
    reconciliation_paused: ReconciliationPause | None = None
    definition: tuple[str, ...] = ()
    definition_digest: str = ""
    taken: bool = False
    terms: VmTerms | None = None
    lost_with_host: bool = False
    moves_s: tuple[float, ...] = ()
    pauses: tuple[tuple[float, float], ...] = ()
    failover_to: str = ""
    left_on: tuple[str, ...] = ()
    left_digests: tuple[tuple[str, str], ...] = ()
    reweights: int = 0
    reweighted_s: float = -math.inf

    def left_alone(self, now_s: float) -> bool:
        """Return whether reconciliation of the job is paused after an external change."""
        return self.reconciliation_paused is not None and now_s < self.reconciliation_paused.until_s

    @property
    def over(self) -> bool:
        """Nothing is wanted of it any more."""
        return self.phase in OVER

    @property
    def done_mcycles(self) -> float:
        """Work done per instance: that of the slowest one."""
        return min((instance.done_mcycles for instance in self.instances), default=0.0)

    @classmethod
    def of(cls, record: JobRecord, now_s: float) -> JobEntry:
        """Return the job from its stored record, without its instances; its times restart."""
        runs = record.phase is JobPhase.RUNNING and not record.released
        return cls(**kept_in(record, "instances"), begun_s=now_s if runs else None, wanted_s=now_s, progress_s=now_s)

    def record(self) -> JobRecord:
        """Return the job as the store keeps it."""
        instances = () if self.over and self.clear else tuple(instance.record() for instance in self.instances)
        return record_of(JobRecord, self, instances=instances)

    @property
    def clear(self) -> bool:
        """Return whether no VM or image of it is or may be anywhere, and no operation is in progress."""
        return not any(i.may_run_on or i.copies or i.in_flight for i in self.instances)
