"""What the controller knows and wants of one node: a row of `daemons.controller.state.cluster`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from daemons.controller.state.jobs import Instance
from daemons.controller.state.kept import kept_in, record_of
from daemons.values.records.cluster import NO_RATES, NodeMigrations, NodeRecord
from shared.protocol.messages import Report, UnderWay
from shared.values.nodes import Handover, Node, NodeCondition, NodeService
from shared.values.vms import VmState, VmStatus

SKEW_READINGS = 8
BOOTS_KEPT = 8  # earlier boots of a node, whose late messages are known by them
EVENTS_ABOVE_MAX = 4096  # guest events of a node that are kept above a gap


@dataclass(slots=True, eq=False)
class NodeEntry:
    """The known and desired state of a node. `vms`: its last reported VMs, corrected by later results and events;
    `last`: its last report of this boot; `before`: an earlier one from which its CPU usage is computed. `back_s`: when
    it reported although it was considered off. `trouble`: when its agent last reported that it cannot read the
    hypervisor, and the detail; None since the last report.

    `wanted`: in service by the last decision that was carried out; `held`: an operator holds it back. `service`: its
    state, since `since_s`; `detail`: why it failed. `sleeping`: it was asked to go to sleep, and may be asleep.
    `linked`: other schedulers may use it. `woken_s`: its last observed wake (0: never). `changes` counts changes that a
    decision in progress cannot know of. `cpu_sum`: its load (0..1), summed over `cpu_readings` reports since its energy
    was last counted. `watch`: the number of the last list of watched instances that was sent to it (0: none by this
    leader).

    `spare_mib`: memory that decisions keep free on it, for VMs of nodes that are lost.

    `paged`: the instances that are wanted on it and hold hugepages, or memory of certain NUMA cells. `unmanaged_mib`,
    `committed_mib`, `wanted_mib` are ordinary memory, without hugepages.

    `environment`: the environment whose workloads may run on it ("": those of no environment); `given`: the environment
    to which it is assigned; `handover`: the state of its reassignment; `setup_request`: the last provisioning step sent
    to its agent. `migration_facts`: see NodeRecord.
    """

    name: str
    service: NodeService = NodeService.IN_SERVICE
    condition: NodeCondition = NodeCondition.UNKNOWN
    inventory: Node | None = None
    boot_id: str = ""
    off_boot_id: str = ""
    report_seq: int = 0
    vm_seq: dict[str, int] = field(default_factory=dict)
    seen_s: float = 0.0
    watch: int = 0
    cpu_sum: float = 0.0  # beside what every report writes too: it costs no more memory to touch
    cpu_readings: int = 0
    last: Report | None = None
    before: Report | None = None
    trouble: tuple[float, str, str] | None = None  # when, what its hypervisor says, boot id
    boots: deque[str] = field(default_factory=lambda: deque(maxlen=BOOTS_KEPT))
    back_s: float | None = None
    echoed: bool = False
    skews_s: deque[float] = field(default_factory=lambda: deque(maxlen=SKEW_READINGS))
    skewed: bool = False
    term_ahead: int = 0
    vms: dict[str, VmStatus] = field(default_factory=dict)
    in_progress: dict[str, UnderWay] = field(default_factory=dict)
    claimed: dict[str, Instance] = field(default_factory=dict)
    flights: dict[str, Instance] = field(default_factory=dict)
    paged: dict[str, Instance] = field(default_factory=dict)
    spare_mib: float = 0.0
    unmanaged_mib: float = 0.0
    committed_mib: float = 0.0
    committed_mhz: float = 0.0
    wanted_mib: float = 0.0
    wanted_mhz: float = 0.0
    actions: int = 0
    migrations: int = 0
    events_seen: int = 0
    events_above: set[int] = field(default_factory=set)
    hello_s: float = -1.0
    hello_wait_s: float = 0.0
    silent_s: float | None = None
    off_s: float = 0.0
    fencing: bool = False
    wanted: bool = True
    held: bool = False
    since_s: float = 0.0
    detail: str = ""
    sleeping: bool = False
    linked: bool = True
    woken_s: float = 0.0
    changes: int = 0
    environment: str = ""
    given: str = ""
    handover: Handover = Handover.SETTLED
    setup_request: str = ""
    migration_facts: NodeMigrations = NO_RATES

    @property
    def asleep(self) -> bool:
        """Return whether the node is unreachable on purpose: asleep, falling asleep or waking. It holds no VM."""
        return self.sleeping or self.service in (NodeService.OFF, NodeService.WAKING)

    @property
    def usable(self) -> bool:
        """Orders may be sent to it: up, its clock is near enough, and it takes them."""
        return self.condition is NodeCondition.UP and not (self.skewed or self.term_ahead)

    @property
    def schedulable(self) -> bool:
        """New VMs may be placed on it."""
        return self.usable and self.service is NodeService.IN_SERVICE and self.inventory is not None and self.in_hand

    @property
    def in_hand(self) -> bool:
        """It serves who is to have it."""
        return self.handover is Handover.SETTLED and self.given == self.environment

    def takes_event(self, number: int) -> bool:
        """Return whether a guest event is new, and not one too many above a gap. An honest agent's next report closes
        the gap."""
        if number <= self.events_seen or number in self.events_above:
            return False
        return len(self.events_above) < EVENTS_ABOVE_MAX or number == self.events_seen + 1

    def skip_events(self, first: int) -> bool:
        """Skip events that an earlier leader has stored although this store, restored from a backup, does not have
        them. An agent repeats all guest events whose storage was not confirmed, the lowest of them `first`. Return
        whether anything was skipped."""
        if first <= self.events_seen + 1:
            return False
        self.events_seen = first - 1
        self.events_above = {number for number in self.events_above if number >= first}
        return True

    @classmethod
    def of(cls, record: NodeRecord, now_s: float) -> NodeEntry:
        """Return the node as a store knew it: nothing is known of it until it reports."""
        condition = NodeCondition.OFF if record.off_boot_id else NodeCondition.UNKNOWN
        return cls(**kept_in(record), condition=condition, seen_s=now_s, silent_s=now_s, off_s=now_s)

    def record(self) -> NodeRecord:
        """Return the node as the store keeps it."""
        return record_of(NodeRecord, self)

    def room_mib(self) -> float:
        """Memory that no VM holds or may hold."""
        usable = self.inventory.usable_mib if self.inventory else 0
        return usable - self.committed_mib - self.unmanaged_mib - self.frozen_mib()

    def frozen_mib(self) -> float:
        """Memory that suspended VMs hold where they cannot be saved to disk. One that is on its way back is counted by
        what it is promised."""
        if self.inventory is None or not self.inventory.freezes:
            return 0.0
        frozen = [status for vm, status in self.vms.items() if vm not in self.claimed]
        return float(sum(status.memory_mib for status in frozen if status.state is VmState.SUSPENDED))

    def room_mhz(self) -> float:
        """Return the CPU that is allotted to no VM, in MHz."""
        return (self.inventory.cpu_mhz if self.inventory else 0.0) - self.committed_mhz
