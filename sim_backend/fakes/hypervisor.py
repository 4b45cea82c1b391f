"""A hypervisor in virtual time that keeps state, takes the papers' times for its operations and fails on request.

`FakeCluster` joins the fakes of all hosts to one world; `FakeHypervisor()` alone is a host of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Literal

from shared.base.errors import ContractViolation, TransientError
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.nodes import Ability, Node
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.vms import LIVE_STATES, VmState, VmStatus
from sim_backend.fakes import operations
from sim_backend.fakes.definitions import Belongings
from sim_backend.fakes.hardware import PLAIN, GuestHardware
from sim_backend.fakes.host import Disks, Domain, Operation, Site
from sim_backend.fakes.migrations import Migrations, Planned
from sim_backend.world.world import World

Failure = Literal["refuse", "hang", "fail-half-way"]
CALLS_KEPT = 1_000
LONE_NODE = Node("fake", cores=4, core_mhz=2_000.0, memory_mib=8_192, abilities=tuple(Ability))
DEFINED_ONLY = frozenset({VmState.ENDED, VmState.CRASHED})


class FakeHypervisor(Site):
    """`shared.ports.agent.Hypervisor` of one node of a `FakeCluster` (of its own when none is given).

    An operation takes `costs.duration_s` times `cluster.duration_factor(action)`; what takes no time is answered by
    `poll` at the instant of its `begin`. `calls` are the last calls as (at_s, method, vm, action or None).
    Agents come and go without the hypervisor noticing: it goes on, see `forget_answers`.
    """

    def __init__(
        self,
        node: Node | None = None,
        world: World | None = None,
        costs: OperationCosts | None = None,
        cluster: FakeCluster | None = None,
        speed_factor: float = 1.0,
        disk_servers: int = 1,
    ) -> None:
        if cluster is None:
            cluster = FakeCluster(world or World(), costs or COSTS["none"])
        super().__init__(node or LONE_NODE, cluster)
        more = {Ability.FAILOVER} if Ability.MIGRATE in self.node.abilities else set[Ability]()
        abilities = tuple(sorted({*self.node.abilities} | more, key=list(Ability).index))
        self._inventory = replace(self.node, abilities=abilities)
        self.cluster = cluster
        self.costs = costs or cluster.costs
        self.calls: deque[tuple[float, str, str, Action | None]] = deque(maxlen=CALLS_KEPT)
        self._failures: list[tuple[ActionKind | None, Failure, str | None]] = []
        cluster.enrol(self, speed_factor, disk_servers)

    # --- the port ------------------------------------------------------------------------------------------------

    def inventory(self) -> Node:
        """Capacity and labels as declared; what can migrate can fail over too. Raises TransientError while the host is
        down."""
        if not self.up:
            raise TransientError(f"{self.node.name} is down")
        return self._inventory

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        """Return one status for each VM here: of its domain, otherwise of its image."""
        self.cluster.catch_up(now_s)
        domains = [self.status_of(domain, now_s) for domain in self.domains.values()]
        if not self.images:
            return tuple(domains)
        images = [self.status_of(image, now_s) for vm, image in self.images.items() if vm not in self.domains]
        return (*domains, *images)

    def begin(self, action: Action, now_s: float) -> None:
        """Begin an action. On a host that is down nothing happens and nothing is ever answered."""
        self.calls.append((now_s, "begin", action.vm, action))
        self.cluster.catch_up(now_s)
        if not self.up:
            return
        op = Operation(action, self)
        answer = operations.check(op, now_s)
        if answer is not None:
            self.answer(action, answer[0], now_s, detail=answer[1])
            return
        how = self._scripted(action) if self._failures else None
        if how == "refuse":
            self.answer(action, Outcome.REFUSED, now_s, detail="refused by the script")
            return
        duration_s = self._duration_s(op)
        op.fails = how == "fail-half-way"
        operations.begin(op, now_s)
        self.operations[action.vm] = op
        if how == "hang":
            return
        op.due_s = now_s + (duration_s / 2 if op.fails else duration_s)
        if op.due_s <= now_s:
            self.end(op, now_s)
        else:
            self.cluster.schedule(op)

    def abort(self, vm: str, now_s: float) -> None:
        """Give up the operation that was begun here on `vm`; it is rolled back and answered TIMED_OUT."""
        self.calls.append((now_s, "abort", vm, None))
        self.cluster.catch_up(now_s)
        op = self.operations.get(vm)
        if op is not None:
            self.end(op, now_s, Outcome.TIMED_OUT, "aborted")

    def forget(self, vm: str, now_s: float) -> None:
        """Remove the definition of an ENDED or CRASHED VM."""
        self.calls.append((now_s, "forget", vm, None))
        domain = self.domains.get(vm)
        over = domain is not None and domain.state in DEFINED_ONLY and vm not in self.operations
        if domain is not None and over and not domain.foreign:
            del self.domains[vm]
            self.cluster.disks.remove(vm, self.node.name)

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:
        """Return the events up to `now_s` that were not returned before."""
        self.cluster.catch_up(now_s)
        happened = tuple(self.outbox)
        self.outbox.clear()
        return happened

    def next_due_s(self) -> float | None:
        """Return the time of the next `poll`, at or before the next event."""
        if self.outbox:
            return self.told_s
        return self.cluster.next_due_s()

    # --- scripts -------------------------------------------------------------------------------------------------

    def fail_next(self, kind: ActionKind | None, how: Failure, vm: str | None = None) -> None:
        """Let the next operation of this kind (None: any) on this VM (None: any) fail that passes its checks.

        "refuse" answers REFUSED; "hang" never answers until `abort`; "fail-half-way" answers FAILED after half its
        time. All leave the VM as it was.
        """
        self._failures.append((kind, how, vm))

    def clear_failures(self) -> None:
        """Forget the scripted failures that have not happened yet."""
        self._failures.clear()

    def add_stranger(
        self,
        vm: str,
        memory_mib: int,
        now_s: float,
        vcpus: int = 1,
        cpu_mhz: float = 100.0,
        shared: bool = False,
        autostart: bool = False,
        hardware: GuestHardware = PLAIN,
        definition: str = "",
    ) -> None:
        """Start an unmanaged VM here. It is idle unless the world knows a task of its name. `shared`, `autostart`,
        `hardware`: see Domain. `definition`: its owner's ("": a plain one). Raises ContractViolation when a VM of that
        name is here or alive elsewhere."""
        self.cluster.catch_up(now_s)
        if vm in self.domains:
            raise ContractViolation(f"{vm} is on {self.node.name} already")
        domain = Domain(
            vm, 0, 1, memory_mib=memory_mib, vcpus=vcpus, cpu_mhz=cpu_mhz, cap_mhz=None, state=VmState.RUNNING
        )
        domain.foreign, domain.shared, domain.autostart = True, shared, autostart
        domain.hardware = self.cluster.hardware[vm] = hardware
        domain.xml = self.cluster.definitions[vm] = definition or domain.plain_text
        if hardware.pages_mib:
            self.cluster.pages_taken_s[self.node.name] = now_s
        if shared:
            self.cluster.disks.shared.add(vm)
        self.cluster.disks.make(vm, self.node.name)
        self.come_alive(domain, VmState.RUNNING, now_s)
        domain.managed, domain.attempt = False, 0
        self.domains[vm] = domain
        self.cluster.locks[vm] = self.node.name

    def owner_stops(self, vm: str, now_s: float) -> bool:
        """Shut down the guest of a VM that Trimtab did not create. Return false when no such VM is live and idle
        here."""
        self.cluster.catch_up(now_s)
        domain = self.domains.get(vm)
        if domain is None or not domain.foreign or domain.state not in LIVE_STATES or domain.busy:
            return False
        self.guest_ended(vm, now_s)
        return True

    def owner_starts(self, vm: str, now_s: float) -> bool:
        """Start a VM that is defined here and that Trimtab did not create. Return false when this is not possible."""
        self.cluster.catch_up(now_s)
        domain = self.domains.get(vm)
        if not self.up or domain is None or not domain.foreign or domain.state not in DEFINED_ONLY or domain.busy:
            return False
        if vm in self.cluster.locks or self.memory_used_mib() + domain.ordinary_mib > self.node.usable_mib:
            return False
        if self.lacking(domain):
            return False
        if domain.hardware.pages_mib:
            self.cluster.pages_taken_s[self.node.name] = now_s
        self.come_alive(domain, VmState.RUNNING, now_s)
        self.cluster.locks[vm] = self.node.name
        if domain.managed:
            self.tell_change(GuestChange.STARTED, self.status_of(domain, now_s), now_s, "booted")
        return True

    def lose_vm(self, vm: str, now_s: float) -> bool:
        """Remove the domain of a live VM (VANISHED). Return false when no such VM is live here."""
        domain = self._cut_off(vm, now_s)
        if domain is None:
            return False
        del self.domains[vm]
        self.tell_change(GuestChange.VANISHED, self.status_of(domain, now_s), now_s)
        return True

    def crash_vm(self, vm: str, now_s: float) -> bool:
        """Crash a live VM, which stays defined as CRASHED (VANISHED). Return false when no such VM is live here."""
        domain = self._cut_off(vm, now_s)
        if domain is None:
            return False
        self.tell_change(GuestChange.VANISHED, self.status_of(domain, now_s), now_s)
        return True

    def host_dies(self, now_s: float) -> list[str]:
        """Power is cut: live and incoming domains and operations are gone without a word; images and the definitions
        of ended VMs stay on disk. Returns the guests that were alive here."""
        self.cluster.catch_up(now_s)
        if not self.up:
            return []
        self.up = False
        anew = {vm for vm, op in self.operations.items() if not op.action.expects}
        for op in list(self.operations.values()):
            op.over = True
            if op.peer is not None and op.arriving is not None:
                op.peer.domains.pop(op.action.vm, None)
        self.operations.clear()
        self.outbox.clear()
        for vm, domain in list(self.domains.items()):
            if domain.state not in DEFINED_ONLY:
                if domain.state in LIVE_STATES:
                    self.cluster.disks.write(vm, self.node.name)
                starts = domain.busy == ActionKind.START.value and vm not in anew  # by a definition that stays
                if domain.foreign and (starts or domain.state in LIVE_STATES):
                    domain.state, domain.cpu_time_s = VmState.CRASHED, 0.0
                else:
                    del self.domains[vm]
                if self.cluster.locks.get(vm) == self.node.name:
                    del self.cluster.locks[vm]
        for image in (*self.images.values(), *self.domains.values()):
            image.busy = ""
        gone = self.cluster.world.host_dies(self.node.name, now_s)
        self.cluster.peer_died(self, now_s)
        return gone

    def host_returns(self, boot: str) -> None:
        """Bring the host up again under a new boot id, with the data on its disk. It starts what starts with it."""
        if self.up:
            return
        self.up, self.boot_id = True, boot
        self.cluster.world.host_returns(self.node.name)
        for vm, domain in self.domains.items():
            if domain.autostart and not domain.failover and domain.state in DEFINED_ONLY:
                if vm in self.cluster.locks:
                    self.cluster.note_double(vm, self.node.name, self.cluster.now_s)
                else:
                    self.owner_starts(vm, self.cluster.now_s)

    def forget_answers(self) -> None:
        """Drop every answer that the agent's process has not fetched or still waits for. Operations continue, but only
        their state is visible. Call it when the agent dies, and when it starts for events in between."""
        self.outbox.clear()
        for op in self.operations.values():
            op.silent = True

    # --- inside --------------------------------------------------------------------------------------------------

    def end(self, op: Operation, now_s: float, outcome: Outcome | None = None, detail: str = "") -> None:
        """Complete an operation: successfully if possible, or with `outcome`."""
        op.over = True
        del self.operations[op.action.vm]
        planned = op.planned
        if outcome is None:
            detail = operations.trouble(op)
            outcome = Outcome.FAILED if detail else Outcome.OK
            if planned is not None and not detail:
                outcome, detail = planned.outcome, planned.detail
        final = None
        if outcome is Outcome.OK:
            final = operations.finish(op, now_s)
        else:
            operations.undo(op, now_s)
        if not op.silent:
            ended = planned is not None and outcome is planned.outcome
            self.answer(op.action, outcome, now_s, final, detail, planned.figures if planned and ended else None)

    def guest_ended(self, vm: str, now_s: float) -> None:
        """Shut down a guest that has done its work. A migration of it fails."""
        op = self.operations.get(vm)
        if op is not None and op.action.kind is ActionKind.MIGRATE:
            self.end(op, now_s, Outcome.FAILED, "the guest ended")
        domain = self.domains[vm]
        busy = domain.busy
        self.leave_world(domain, VmState.ENDED, now_s)
        domain.busy = busy
        self.tell_change(GuestChange.ENDED, self.status_of(domain, now_s), now_s)

    def _cut_off(self, vm: str, now_s: float) -> Domain | None:
        self.cluster.catch_up(now_s)
        domain = self.domains.get(vm)
        if domain is None or domain.state not in LIVE_STATES:
            return None
        op = self.operations.get(vm)
        if op is not None:
            self.end(op, now_s, Outcome.FAILED, "the VM was lost")
        self.leave_world(domain, VmState.CRASHED, now_s)
        return domain

    def _scripted(self, action: Action) -> Failure | None:
        for i, (kind, how, vm) in enumerate(self._failures):
            if kind in (None, action.kind) and vm in (None, action.vm):
                del self._failures[i]
                return how
        return None

    def _duration_s(self, op: Operation) -> float:
        action, domain = op.action, op.domain
        memory_mib = 0 if domain is None else domain.memory_mib
        duration_s = self.costs.duration_s(action.kind, memory_mib, op.peer is not None)
        if action.kind is ActionKind.MIGRATE and domain is not None and op.peer is not None:
            runs = domain.state is VmState.RUNNING
            op.planned = self.cluster.plan_migration(self, op.peer, action, runs)
            duration_s = duration_s if op.planned is None else op.planned.duration_s
        if duration_s > 0.0 and self.cluster.duration_factor is not None:
            duration_s *= self.cluster.duration_factor(action)
        return duration_s


class FakeCluster:
    """All fake hosts, joined by one world and by the locks on the VMs' disks.

    `duration_factor(action)` (>= 0) makes operations take longer or shorter than `costs`. `reachable(a, b)` says
    whether two hosts reach each other; replace it to part them. `make`: what hosts are made of. `doubles` lists
    (at_s, vm, node) each time a disk lock has kept a VM from coming to life a second time: an action that should
    never have been asked for. `hardware`, `definitions`: see Fabric. `unfit` lists (at_s, vm, node, why) each time
    a host lacked it. `pages_taken_s`: when an owner last took hugepages of a host. `disks`: the truth of the disks.
    `belongings`: what hosts keep beside definitions. `migrations`: guests that are known to change memory.
    """

    def __init__(
        self,
        world: World,
        costs: OperationCosts,
        duration_factor: Callable[[Action], float] | None = None,
        make: type[FakeHypervisor] = FakeHypervisor,
    ) -> None:
        self.world, self.costs, self.duration_factor = world, costs, duration_factor
        self._make = make
        self.reachable: Callable[[str, str], bool] = _always
        self.hypervisors: dict[str, FakeHypervisor] = {}
        self.sites: dict[str, Site] = {}
        self.locks: dict[str, str] = {}
        self.hardware: dict[str, GuestHardware] = {}
        self.definitions: dict[str, str] = {}
        self.doubles: list[tuple[float, str, str]] = []
        self.unfit: list[tuple[float, str, str, str]] = []
        self.pages_taken_s: dict[str, float] = {}
        self.disks = Disks()
        self.belongings = Belongings()
        self.migrations = Migrations()
        self.now_s = 0.0  # the latest time that anyone has named
        self._heap: list[tuple[float, int, Operation]] = []
        self._order = 0
        self._ready: dict[str, None] = {}
        self._addresses: dict[str, str] = {}

    def add_node(self, node: Node, speed_factor: float = 1.0, disk_servers: int = 1) -> FakeHypervisor:
        """Add a host to the cluster. It truly runs at `speed_factor` times the declared speed, and its disk serves
        `disk_servers` requests at a time."""
        return self._make(node, cluster=self, speed_factor=speed_factor, disk_servers=disk_servers)

    def hypervisor(self, name: str) -> FakeHypervisor:
        """Return the hypervisor of a node. Raises KeyError when there is none."""
        return self.hypervisors[name]

    def next_due_s(self) -> float | None:
        """Return the time at which `advance` next has something to do, None when nothing is in progress. O(log n) at
        worst."""
        heap = self._heap
        while heap and heap[0][2].over:
            heappop(heap)
        end_s = self.world.next_end_s()
        if not heap:
            return end_s
        return heap[0][0] if end_s is None else min(end_s, heap[0][0])

    def advance(self, now_s: float) -> list[str]:
        """Let everything due by `now_s` happen, in order. Returns the nodes whose `poll` has got something since the
        last `advance`, in the order in which they got it."""
        self.catch_up(now_s)
        if not self._ready:
            return []
        ready = [name for name in self._ready if self.hypervisors[name].outbox]
        self._ready.clear()
        return ready

    # --- for the hypervisors -------------------------------------------------------------------------------------

    def enrol(self, hypervisor: FakeHypervisor, speed_factor: float, disk_servers: int) -> None:
        """Take a host in. ContractViolation when its name is taken."""
        name = hypervisor.node.name
        if name in self.hypervisors:
            raise ContractViolation(f"host {name} is there already")
        self.world.add_host(hypervisor.node, speed_factor, disk_servers)
        self.hypervisors[name] = self.sites[name] = hypervisor

    def schedule(self, op: Operation) -> None:
        """Schedule the end of an operation at `op.due_s`, unless it is over before."""
        self._order += 1
        heappush(self._heap, (op.due_s, self._order, op))

    def catch_up(self, now_s: float) -> None:
        """Let everything due by `now_s` happen; at one instant guests end before operations do."""
        heap, world = self._heap, self.world
        while True:
            due_s = self.next_due_s()
            if due_s is None or due_s > now_s:
                self.now_s = max(self.now_s, now_s)
                return
            for vm in world.advance(due_s):
                self.hypervisors[self._home(vm)].guest_ended(vm, due_s)
            if heap and heap[0][0] <= due_s:
                op = heappop(heap)[2]
                if not op.over:
                    self.hypervisors[op.site.node.name].end(op, due_s)

    def peer_died(self, dead: FakeHypervisor, now_s: float) -> None:
        """Operations of other hosts in which the dead one took part fail."""
        for hypervisor in self.hypervisors.values():
            for op in [op for op in hypervisor.operations.values() if op.peer is dead]:
                hypervisor.end(op, now_s, Outcome.FAILED, f"{dead.node.name} died")

    def plan_migration(self, source: Site, target: Site, action: Action, runs: bool) -> Planned | None:
        """Return how a migration will go, beside those in progress on the same links; None for a VM whose guest is not
        known to change memory."""
        going = [op for site in self.sites.values() for op in site.operations.values() if op.planned is not None]
        others = max(sum(op.site is source for op in going), sum(op.peer is target for op in going))
        return self.migrations.plan(action.vm, action.migration, others, runs, source.node.migration_bounds)

    def address_of(self, vm: str) -> str:
        """Return the address of a guest: one address of 10.0.0.0/8 for each name, in the order of first requests."""
        address = self._addresses.get(vm)
        if address is None:
            number = len(self._addresses) + 1
            address = self._addresses[vm] = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        return address

    def note_ready(self, node: str) -> None:
        """Note that the node's agent has events to fetch."""
        self._ready[node] = None

    def note_double(self, vm: str, node: str, now_s: float) -> None:
        """Record that a lock prevented a VM from starting a second time, on `node`."""
        self.doubles.append((now_s, vm, node))

    def note_unfit(self, vm: str, node: str, why: str) -> None:
        """Record that a VM was refused on `node` for want of hardware."""
        self.unfit.append((self.now_s, vm, node, why))

    def _home(self, vm: str) -> str:
        home = self.world.where(vm)
        if home is None:
            raise ContractViolation(f"{vm} ended but is nowhere")
        return home


def _always(_a: str, _b: str) -> bool:
    return True
