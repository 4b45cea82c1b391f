"""VMs in fault runs that existed before Trimtab: adopted, shut down and started by their owners, released.

Drawn from a separate random stream, so that the other faults of a seed do not change. Invariants: the definition of
each VM is on exactly one host and is never removed, but for what a host has left of a VM that was restarted elsewhere;
its text stays as its owner wrote it, but for our metadata while it is adopted, and what libvirt keeps beside it stays;
none is saved or stopped without being asked for, and in the end each runs or is off as it is wanted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any

from shared.protocol.operator_messages import AdoptVm, PowerVm, ReleaseVm, SetJob
from shared.values.actions import Action, ActionKind
from shared.values.jobs import JobPhase, Rules
from shared.values.migration import feature, page_need
from shared.values.nodes import HugepagePool, Node, NodeService, NumaCell
from shared.values.vm_terms import OnShutdown, VmTerms
from shared.values.vms import LIVE_STATES, VmState
from sim_backend.fakes.definitions import MANAGED_SAVE, NVRAM, SNAPSHOTS, unlabelled
from sim_backend.fakes.hardware import PAGE_KIB, PLAIN, GuestHardware, lacking
from sim_backend.fakes.host import HOLDS_MEMORY, Domain
from sim_backend.fakes.hypervisor import FakeHypervisor
from sim_backend.faults.invariants.guests import OVER
from sim_backend.faults.script import FaultScript
from sim_backend.loop.closed_loop import ClosedLoop
from sim_backend.world.migrating import GuestMemory

SHARE, TURN = 4, 2  # one seed in so many has such VMs
COUNT_MAX = 3
MEMORY_MIB = (64, 128, 256)
ADOPTED_S = (20.0, 900.0)
OWNERS_S = (300.0, 4000.0)
STARTED_AFTER_S = (30.0, 600.0)
STORAGE_LOST_S = (5.0, 60.0)
CUT_OFF_BEFORE_S = 40.0
LINK_MIB_PER_S = 50.0
STOPS = frozenset({ActionKind.STOP, ActionKind.SUSPEND})
CELLS, POOL_MIB = (0, 1), (128, 256, 384)
CPU_FLAGS, FOLDERS = ("avx512f", "sse4.2"), ("/volumes/a", "/volumes/b")
REPORTED_AFTER_S = 60.0  # by then the controller knows what an owner has done
RELEASED_S = (3000.0, 5000.0)
ASK_AGAIN_S = 120.0
PRIORITY = 1


class OwnerFault(StrEnum):
    """What becomes of an adopted VM by its owner's hand."""

    GUEST_SHUT_DOWN = "guest-shut-down"
    VM_POWERED = "vm-powered"
    VM_ADOPTED = "vm-adopted"
    VM_SET = "vm-set"
    VM_RELEASED = "vm-released"
    POWER_CUT = "host-power-cut"
    STORAGE_LOST = "storage-lost"
    VM_RESTARTED = "vm-restarted-elsewhere"


@dataclass(frozen=True, slots=True)
class ExistingVm:
    """One such VM. `rules`: those that it is adopted with. `memory`: what its guest changes (None: not known).
    `shut_down`: when its guest shuts down, and for how long it is off; `released_s`: when its operator releases it
    (0: never). `terms`: those that it is adopted with. `off`: it is shut off when it is adopted. `powered`: when
    its operator starts it (true) or shuts it down (false). `shared`, `autostart`, `hardware`: see `Domain`.
    `set_s`: when its operator changes its importance, and nothing else. `power_cut_s`: when the power of its host
    is cut; `fence_dead`: its power driver then never confirms that it is off; `storage_lost`: when its host loses
    the shared storage, and for how long; `cut_off`: it lost its network before. `definition`: its text; `kept`:
    what its host keeps beside that, see `sim_backend.fakes.definitions`."""

    vm: str
    node: str
    memory_mib: int
    adopted_s: float
    shut_down: tuple[tuple[float, float], ...]
    released_s: float
    terms: VmTerms = field(default_factory=VmTerms)
    off: bool = False
    powered: tuple[tuple[float, bool], ...] = ()
    shared: bool = False
    autostart: bool = False
    hardware: GuestHardware = PLAIN
    rules: Rules = field(default_factory=Rules)
    memory: GuestMemory | None = None
    set_s: tuple[float, ...] = ()
    power_cut_s: tuple[float, ...] = ()
    fence_dead: bool = False
    storage_lost: tuple[tuple[float, float], ...] = ()
    cut_off: bool = False
    definition: str = ""
    kept: frozenset[str] = frozenset()


def draw_existing_vms(seed: int, nodes: Iterable[Node]) -> tuple[ExistingVm, ...]:
    """Draw the VMs of a seed."""
    rng, disks, parts = Random(f"pets of {seed}"), Random(f"disks of {seed}"), Random(f"hardware of {seed}")
    rules, memories = Random(f"rules of {seed}"), Random(f"memories of {seed}")
    hosts = {node.name: node for node in nodes}
    names = [*hosts]
    left_mib = {(node.name, pool.cell): pool.total_mib for node in hosts.values() for pool in node.hugepages}

    apart = rules.sample(names, len(names)) if rules.random() < 0.5 else []  # hosts of VMs that stay apart

    def existing(number: int) -> ExistingVm:
        shared, failover = disks.random() < 0.7, disks.random() < 0.8
        ends = sorted(rng.uniform(*OWNERS_S) for _ in range(rng.randint(0, 2)))
        node, memory_mib = rng.choice(names), rng.choice(MEMORY_MIB)
        node = apart[number] if apart else node
        return ExistingVm(
            vm=f"legacy-{number}",
            node=node,
            memory_mib=memory_mib,
            adopted_s=rng.uniform(*ADOPTED_S),
            shut_down=tuple((at_s, rng.uniform(*STARTED_AFTER_S)) for at_s in ends),
            released_s=rng.uniform(*RELEASED_S) if rng.random() < 0.5 else 0.0,
            terms=VmTerms(
                on_shutdown=rng.choice(tuple(OnShutdown)),
                failover=failover,
                moves_per_day=memories.choice((None, None, 1, 3)),
                pause_s_per_day=memories.choice((None, None, 2.0)),
                post_copy=memories.random() < 0.3,
            ),
            rules=Rules(anti_affinity="apart" if apart else f"alone-{number}"),
            memory=_draw_memory(memories, memory_mib),
            shared=shared,
            autostart=failover and disks.random() < 0.5,
            hardware=_draw_hardware(parts, hosts[node], memory_mib, number, shared, left_mib),
            power_cut_s=tuple(disks.uniform(*OWNERS_S) for _ in range(disks.randint(0, 2) if failover else 0)),
            fence_dead=disks.random() < 0.5,
            storage_lost=tuple(
                (disks.uniform(*OWNERS_S), disks.uniform(5.0, 60.0)) for _ in range(disks.randint(0, 2))
            ),
            cut_off=disks.random() < 0.5,
            set_s=tuple(disks.uniform(*OWNERS_S) for _ in range(disks.randint(0, 2))),
            off=rng.random() < 0.2,
            powered=tuple((rng.uniform(*OWNERS_S), rng.random() < 0.5) for _ in range(rng.randint(0, 2))),
        )

    texts = Random(f"definitions of {seed}")
    return tuple(_with_definition(texts, existing(number)) for number in range(rng.randint(1, COUNT_MAX)))


def _with_definition(texts: Random, own: ExistingVm) -> ExistingVm:
    """Return a VM with a definition that says more than Trimtab reads. One with snapshots would not migrate: only that
    has them which a device of its host keeps there anyway."""
    kept = {NVRAM} if texts.random() < 0.5 else set()
    if own.hardware.device and texts.random() < 0.7:
        kept.add(SNAPSHOTS)
    if own.off and texts.random() < 0.5:
        kept.add(MANAGED_SAVE)
    folder = "/shared/nvram" if own.shared else "/var/lib/libvirt/qemu/nvram"
    parts = [
        f"<name>{own.vm}</name>",
        "<!-- ask the Zürich office first -->" if texts.random() < 0.5 else "",
        '<metadata><o:ticket xmlns:o="urn:owner">4&amp;2</o:ticket></metadata>' if texts.random() < 0.5 else "",
        f"<memory unit='MiB'>{own.memory_mib}</memory>",
        f"<os firmware='efi'><nvram>{folder}/{own.vm}_VARS.fd</nvram></os>" if NVRAM in kept else "",
        f"<on_poweroff>{texts.choice(('destroy', 'preserve', 'restart'))}</on_poweroff>",
    ]
    text = "\n  ".join(("<domain type='kvm'>", *filter(None, parts))) + "\n</domain>\n"
    return replace(own, definition=text, kept=frozenset(kept))


def with_hardware(seed: int, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the nodes of a seed with hugepages in two NUMA cells, and with what not all of them have. Their ordinary
    memory is as before."""
    parts = Random(f"hosts of {seed}")

    def furnished(node: Node) -> Node:
        pools = tuple(HugepagePool(PAGE_KIB, parts.choice(POOL_MIB), cell) for cell in CELLS)
        memory_mib = node.memory_mib + sum(pool.total_mib for pool in pools)
        has = [feature("numa", "0-1"), "cpu-flag=", "shared=", *(page_need(PAGE_KIB, one.total_mib) for one in pools)]
        has += [feature("cpu-flag", f"kvm:{flag}") for flag in CPU_FLAGS if parts.random() < 0.6]
        has += [feature("shared", folder) for folder in FOLDERS if parts.random() < 0.7]
        cells = tuple(NumaCell(cell, f"{cell}", memory_mib // len(CELLS)) for cell in CELLS)
        return replace(node, memory_mib=memory_mib, hugepages=pools, numa_cells=cells, migration_has=tuple(has))

    return tuple(map(furnished, nodes))


def _draw_hardware(
    parts: Random, node: Node, memory_mib: int, number: int, shared: bool, left_mib: dict[tuple[str, int], int]
) -> GuestHardware:
    """Draw what a VM holds of the hardware of the host that it runs on at first. `left_mib`: of its hugepages."""
    paged, cell = parts.random() < 0.6, parts.choice((-1, *CELLS))
    pools = [(node.name, each) for each in CELLS if cell in (-1, each)]
    paged = paged and all(left_mib.get(pool, 0) >= memory_mib for pool in pools)
    for pool in pools if paged else ():
        left_mib[pool] -= memory_mib
    flags = [flag for flag in CPU_FLAGS if feature("cpu-flag", f"kvm:{flag}") in node.migration_has]
    folders = [folder for folder in FOLDERS if feature("shared", folder) in node.migration_has]
    return GuestHardware(
        device=f"0000:0{number + 1}:00.0" if parts.random() < 0.15 else "",
        cpu_flag=parts.choice(flags) if flags and parts.random() < 0.4 else "",
        folder=parts.choice(folders) if shared and folders and parts.random() < 0.5 else "",
        pages_mib=memory_mib if paged else 0,
        cell=cell if paged else -1,
    )


def _draw_memory(memories: Random, memory_mib: int) -> GuestMemory | None:
    """Draw what a guest changes; some guests change more than the link carries."""
    if memories.random() < 0.5:
        return None
    dirty = memories.choice((1.0, 10.0, LINK_MIB_PER_S, 4 * LINK_MIB_PER_S))
    return GuestMemory(float(memory_mib), dirty, memories.uniform(0.3, 1.0) * memory_mib)


def has_existing_vms(script: FaultScript) -> bool:
    """Return whether there are such VMs: in every script of the kind, and in one of four others without environments
    and power."""
    plain = script.environments is None and script.power is None
    return script.existing_vms or (plain and script.seed % SHARE == TURN)


def has_leases(script: FaultScript) -> bool:
    """Return whether the hosts renew storage leases: every second time that there are such VMs."""
    return has_existing_vms(script) and script.seed // (1 if script.existing_vms else SHARE) % 2 == 0


class AdoptedFaults:
    """Carries them out on a loop; `done` counts them, `report` takes violations, `touch` is called before hypervisors
    change; `started` counts what owners start, by VM."""

    def __init__(
        self,
        loop: ClosedLoop,
        vms: tuple[ExistingVm, ...],
        report: Callable[[str, str], None],
        done: Counter[str],
        touch: Callable[[], None],
        started: Counter[str],
    ) -> None:
        self.loop, self.vms, self._report, self._done, self._touch = loop, vms, report, done, touch
        self._started = started
        self._asked: Counter[str] = Counter()
        self._unfit = 0
        self._off: set[str] = set()  # those that their operator asked to shut down last
        self._newest: dict[str, int] = {}  # highest generation that a managed VM was defined with
        loop.cluster.migrations.link_mib_per_s = LINK_MIB_PER_S
        self._lived: dict[str, tuple[str, int]] = {}
        self._alive: set[str] = set()  # those that were live when it was last looked
        self._lost: set[str] = set()  # those that lived on a host when that died, and have not since
        at = loop.engine.at
        for own in vms:
            at(0.5, PRIORITY, partial(self._made, own))
            at(own.adopted_s, PRIORITY, partial(self._adopt, own))
            for at_s, off_s in own.shut_down:
                at(at_s, PRIORITY, partial(self._shut_down, own, off_s))
            for at_s in own.set_s:
                at(at_s, PRIORITY, partial(self._set, own))
            for at_s in own.power_cut_s:
                at(at_s, PRIORITY, partial(self._cut_power, own))
            for at_s, for_s in own.storage_lost if loop.leases is not None else ():
                at(at_s, PRIORITY, partial(self._lose_storage, own, for_s))
            for at_s, on in own.powered:
                at(at_s, PRIORITY, partial(self._power, own, on))
            if own.released_s:
                at(own.released_s, PRIORITY, partial(self._release, own))

    def _made(self, own: ExistingVm) -> None:
        self._touch()
        host, now_s = self.loop.cluster.hypervisor(own.node), self.loop.engine.now_s
        if own.memory is not None:
            self.loop.cluster.migrations.memories[own.vm] = own.memory
        host.add_stranger(
            own.vm,
            own.memory_mib,
            now_s,
            shared=own.shared,
            autostart=own.autostart,
            hardware=own.hardware,
            definition=own.definition,
        )
        if own.off:
            host.owner_stops(own.vm, now_s)
        self.loop.cluster.belongings.make(own.vm, own.node, own.kept, own.shared)

    def _where(self, own: ExistingVm) -> tuple[FakeHypervisor, Domain] | None:
        """Return the host that defines the VM, without the target of a migration in progress; None if there is none. Of
        several, the one where it lives, or the newest."""
        hypervisors = self.loop.cluster.hypervisors.values()
        found = [(each, each.domains[own.vm]) for each in hypervisors if own.vm in each.domains]
        defined = [one for one in found if _is_defined(one[1])]
        return max(defined, key=lambda one: (one[1].state in LIVE_STATES, one[1].generation), default=None)

    def _adopt(self, own: ExistingVm) -> None:
        """Adopt a VM as an operator does, and retry after a refusal under the same job name."""
        record, found = self._record(own), self._where(own)
        if record is not None or found is None or found[1].managed or self.loop.engine.now_s > RELEASED_S[0]:
            return
        self._asked[own.vm] += 1
        self._done[OwnerFault.VM_ADOPTED.value] += 1
        number, node = self._asked[own.vm], found[0].node.name
        request = AdoptVm(f"adopt-{own.vm}-{number}", node, own.vm, job=own.vm, rules=own.rules, terms=own.terms)
        self.loop.operator.send(request)
        self.loop.engine.at(self.loop.engine.now_s + ASK_AGAIN_S, PRIORITY, partial(self._adopt, own))

    def _set(self, own: ExistingVm) -> None:
        self._done[OwnerFault.VM_SET.value] += 1
        self._asked[own.vm] += 1
        importance = 1.0 + self._asked[own.vm]
        self.loop.operator.send(SetJob(f"set-{own.vm}-{self._asked[own.vm]}", own.vm, importance=importance))

    def _release(self, own: ExistingVm) -> None:
        self._done[OwnerFault.VM_RELEASED.value] += 1
        self.loop.operator.send(ReleaseVm(f"forget-{own.vm}", own.vm))

    def _power(self, own: ExistingVm, on: bool) -> None:
        self._done[OwnerFault.VM_POWERED.value] += 1
        self._asked[own.vm] += 1
        (self._off.discard if on else self._off.add)(own.vm)
        self.loop.operator.send(PowerVm(f"power-{own.vm}-{self._asked[own.vm]}", own.vm, on))

    def _cut_power(self, own: ExistingVm) -> None:
        found = self._where(own)
        if found is not None and found[0].up:
            name = found[0].node.name
            self._done[OwnerFault.POWER_CUT.value] += 1
            if own.fence_dead:
                self.loop.fake_power.fail_fence(name)
            self.loop.host_dies(name)

    def _lose_storage(self, own: ExistingVm, for_s: float) -> None:
        found, leases = self._where(own), self.loop.leases
        if found is None or leases is None or not found[0].up:
            return
        name, now_s, at = found[0].node.name, self.loop.engine.now_s, self.loop.engine.at
        self._done[OwnerFault.STORAGE_LOST.value] += 1
        if own.cut_off:
            self.loop.agents[name].kill()
            at(now_s + CUT_OFF_BEFORE_S, PRIORITY, partial(self._part, name, for_s))
            at(now_s + CUT_OFF_BEFORE_S + for_s, PRIORITY, partial(self._reconnect, name))
        else:
            self._part(name, for_s)

    def _part(self, name: str, for_s: float) -> None:
        """Part a host from the storage for a while."""
        leases, now_s = self.loop.leases, self.loop.engine.now_s
        assert leases is not None
        loss = leases.lose_storage(name, now_s)
        if loss:
            self.loop.engine.at(now_s + for_s, PRIORITY, partial(leases.find_storage, name, loss))

    def _reconnect(self, name: str) -> None:
        agent = self.loop.agents[name]
        if agent.hypervisor.up and not agent.alive:
            agent.restart()

    def _shut_down(self, own: ExistingVm, off_s: float) -> None:
        self._touch()
        now_s, found = self.loop.engine.now_s, self._where(own)
        if found is not None and found[0].owner_stops(own.vm, now_s):
            self._done[OwnerFault.GUEST_SHUT_DOWN.value] += 1
            self.loop.engine.at(now_s + off_s, PRIORITY, partial(self._start, own))

    def _start(self, own: ExistingVm) -> None:
        self._touch()
        found = self._where(own)
        if found is not None and found[0].owner_starts(own.vm, self.loop.engine.now_s):
            self._started[own.vm] += 1

    def _record(self, own: ExistingVm) -> Any:
        """Return its job as stored, None if there is none."""
        return self.loop.store.get(("job", own.vm))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the invariants after an event."""
        now_s = self.loop.engine.now_s
        self._check_hardware()
        for own in self.vms if now_s > 1.0 else ():
            self._count_restart(own)
            domains = [(name, each.domains.get(own.vm)) for name, each in self.loop.cluster.hypervisors.items()]
            defined = [(name, domain) for name, domain in domains if domain is not None and _is_defined(domain)]
            newest = self._newest_of(own, [domain for _, domain in defined])
            coming = max((domain.generation for _, domain in defined), default=0)
            homes = [
                name for name, domain in defined if not (_is_left(domain) and domain.generation < max(newest, coming))
            ]
            images = [name for name, each in self.loop.cluster.hypervisors.items() if own.vm in each.images]
            record = self._record(own)
            if record is not None and record.phase not in OVER and record.job.rules != own.rules:
                self._report("rules-lost", f"{own.vm}: {record.job.rules}")
            if images:
                self._report("adopted-vm-saved", f"{own.vm} on {images}: nobody has asked for it")
            if max(newest, coming) > coming or not (homes or images):
                self._report("definition-removed", f"{own.vm}: no host defines it any more")
            if len(homes) > 1:
                self._report("definition-doubled", f"{own.vm} on {homes}")
            self._check_kept(own, {name: domain for name, domain in defined if domain.generation == coming})

    def _check_kept(self, own: ExistingVm, defined: Mapping[str, Domain]) -> None:
        """Check that the newest definition of a VM is its owner's, and that what is kept beside it is there. The memory
        that its owner had saved is, until the VM lives again."""
        belongings = self.loop.cluster.belongings
        wanted = own.kept - {MANAGED_SAVE} if own.vm in belongings.lived else own.kept
        for name, domain in defined.items():
            if (unlabelled(domain.xml) if domain.managed else domain.xml) != own.definition:
                self._report("definition-changed", f"{own.vm} on {name}")
            if lost := wanted - belongings.of(own.vm, name):
                self._report("vm-files-lost", f"{own.vm} on {name}: {', '.join(sorted(lost))}")

    def _newest_of(self, own: ExistingVm, defined: Sequence[Domain]) -> int:
        """Return the highest generation that a VM was ever defined with, while it is managed."""
        record = self._record(own)
        if record is None or record.phase in OVER:
            self._newest.pop(own.vm, None)
            return max((domain.generation for domain in defined), default=0)
        there = (domain.generation for domain in defined if domain.state is not VmState.INCOMING)
        newest = self._newest[own.vm] = max((self._newest.get(own.vm, 0), *there))
        return newest

    def ordered(self, node: str, action: Action) -> None:
        """Check an order that an agent is about to carry out: an adopted VM is stopped only when it is wanted off, and
        never saved."""
        domain = self.loop.cluster.hypervisor(node).domains.get(action.vm)
        live = domain is not None and domain.foreign and domain.state in LIVE_STATES
        if not live or domain is None or action.kind not in STOPS or domain.generation != action.expects:
            return
        if action.kind is ActionKind.SUSPEND or action.vm not in self._off:
            self._report("adopted-vm-stopped", f"{action.vm} by {action.kind.value} on {node}: nobody has asked for it")

    def _check_hardware(self) -> None:
        """Check that nothing is sent to a host that lacks its hardware. Owners may have taken hugepages first; and who
        is only to be started where it is defined may have what others hold in a cell that is not known."""
        cluster = self.loop.cluster
        for at_s, vm, node, why in cluster.unfit[self._unfit :]:
            taken_s = cluster.pages_taken_s.get(node, -math.inf)
            if "hugepages" not in why or (at_s - taken_s > REPORTED_AFTER_S and not self._is_guess(vm, node)):
                self._report("hardware-lacking", f"{vm} on {node}: {why}")
        self._unfit = len(cluster.unfit)

    def _is_guess(self, vm: str, node: str) -> bool:
        domains = self.loop.cluster.hypervisor(node).domains
        others = [one.hardware for name, one in domains.items() if name != vm and one.state in HOLDS_MEMORY]
        bound = vm in domains and domains[vm].hardware.cell >= 0
        return bound and any(each.pages_mib and each.cell < 0 for each in others)

    def _count_restart(self, own: ExistingVm) -> None:
        found = self._where(own)
        if found is None or found[1].state not in LIVE_STATES:
            self._alive.discard(own.vm)
            return
        self._alive.add(own.vm)
        name, generation = found[0].node.name, found[1].generation
        self._lost.discard(own.vm)
        before, self._lived[own.vm] = self._lived.get(own.vm, (name, generation)), (name, generation)
        if before[0] != name and generation > before[1]:
            self._done[OwnerFault.VM_RESTARTED.value] += 1

    def host_died(self, node: str) -> None:
        """Note what lived on a host that has just died."""
        self._lost |= {vm for vm, (home, _) in self._lived.items() if home == node and vm in self._alive}

    def is_stuck(self, vm: str) -> bool:
        """Return whether it is an adopted VM that no other host in service could run now."""
        own = next((one for one in self.vms if one.vm == vm), None)
        found = self._where(own) if own is not None else None
        if own is None or found is None:
            return False
        others = [each for each in self.loop.cluster.hypervisors.values() if each is not found[0] and each.up]
        return all(
            self.loop.store.get(("node", each.node.name)).service is not NodeService.IN_SERVICE
            or lacking(each.node, own.hardware, [one.hardware for one in each.domains.values()], anew=True)
            for each in others
        )

    def homes(self) -> frozenset[str]:
        """Return the hosts on which VMs of owners live."""
        names = {own.vm for own in self.vms}
        return frozenset(
            name
            for name, hypervisor in self.loop.cluster.hypervisors.items()
            if any(vm in names and domain.state in LIVE_STATES for vm, domain in hypervisor.domains.items())
        )

    def unsettled(self) -> list[str]:
        """Return why jobs of adopted VMs do not show the true state yet."""
        why = []
        for own in self.vms:
            record, found = self._record(own), self._where(own)
            if found is None:
                why.append(f"{own.vm} is nowhere")
                continue
            hypervisor, domain = found
            live = domain.state in LIVE_STATES
            if domain.autostart is not own.autostart or domain.memory_mib != own.memory_mib:
                why.append(f"{own.vm} is not as it was: {domain.memory_mib} MiB, autostart {domain.autostart}")
            if sum(own.vm in each.domains for each in self.loop.cluster.hypervisors.values()) > 1:
                why.append(f"{own.vm} is defined on several hosts")
            if record is None or record.phase is JobPhase.FORGOTTEN:
                if domain.managed:
                    why.append(f"{own.vm} is let go, and has our metadata on {hypervisor.node.name}")
            elif record.phase is not (JobPhase.RUNNING if live else JobPhase.SHUT_OFF):
                why.append(f"{own.vm} is {domain.state.value}, its job {record.phase.value}")
            elif hypervisor.lacking(domain):
                continue  # others have taken its hugepages
            elif not live and (self._is_to_run(record) or (record.terms.running and own.vm in self._lost)):
                why.append(f"{own.vm} is {domain.state.value}, and is wanted to run")
        return why

    @staticmethod
    def _is_to_run(record: Any) -> bool:
        terms = record.terms
        restarts = record.lost_with_host or terms.on_shutdown is OnShutdown.RESTART
        return bool(terms.running and restarts)


def _is_left(domain: Domain) -> bool:
    """Return whether a definition may be left from before a failover: no host starts it by itself."""
    return domain.failover and domain.state not in LIVE_STATES


def _is_defined(domain: Domain) -> bool:
    """Return whether a domain has a definition where it is: not while it is only on its way there."""
    return domain.state is not VmState.INCOMING or domain.busy == ActionKind.START.value
