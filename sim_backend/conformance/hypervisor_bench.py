"""The surroundings that the hypervisor checks ask for, and the bench that they are written on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from msgspec import structs

from shared.base.errors import ContractViolation
from shared.ports.agent import Hypervisor
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import VmSpec, VmStatus

VM = "job#0"
OTHER = "other#0"
SMALL_MIB = 96
PARTS = 8  # a test VM asks for this part of a node's CPU
HALF_AND_MORE = 0.6  # two VMs of this part of a node's memory do not fit


class HypervisorHarness(Protocol):
    """What the checks need of the surroundings of a driver.

    `capabilities`: "migration" (there is a `peer`, images are within its reach), "slow" (operations take time: BUSY
    can be seen), "scripts" (`fail_next`), "ends" (guests given by `will_end` shut themselves down), "cpu"
    (guests burn all CPU they get; counters are true to within `tolerance_frac`). `peer` is None without migration.
    `template` is what VMs are made from. What a driver itself declares in its inventory counts as a capability too.
    """

    @property
    def capabilities(self) -> frozenset[str]:
        """What the checks may ask for."""
        ...

    @property
    def template(self) -> str:
        """Of every VM of the checks."""
        ...

    @property
    def tolerance_frac(self) -> float:
        """How far counters may be off, relative."""
        ...

    @property
    def node(self) -> Hypervisor:
        """The driver under test, on an empty node."""
        ...

    @property
    def peer(self) -> Hypervisor | None:
        """The same driver on another empty node of the same size."""
        ...

    def now_s(self) -> float:
        """Return the time to pass to the drivers."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def until(self, ready: Callable[[], bool]) -> None:
        """Let time pass until `ready()` or the harness's time limit."""
        ...

    def fail_next(self, kind: ActionKind, how: str) -> None:
        """Let the node's next operation of a kind fail: "refuse", "hang" or "fail-half-way"."""
        ...

    def will_end(self, vm: str, cpu_s: float) -> None:
        """Arrange that the guest of this VM, which has not started yet, ends after this much CPU time."""
        ...


def expect(what: str, got: object, wanted: object) -> None:
    """Raise `ContractViolation` unless they are equal."""
    if got != wanted:
        raise ContractViolation(f"{what}: got {got!r}, expected {wanted!r}")


def expect_near(what: str, got: float, wanted: float, tolerance_frac: float) -> None:
    """Raise `ContractViolation` unless they are within a relative tolerance."""
    if abs(got - wanted) > tolerance_frac * wanted:
        raise ContractViolation(f"{what}: got {got}, expected {wanted} within {tolerance_frac:.0%}")


class Bench:
    """A harness with the operations that checks are written in."""

    def __init__(self, harness: HypervisorHarness) -> None:
        self.harness, self.node = harness, harness.node
        self.inventory = harness.node.inventory()
        self.cpu_mhz = self.inventory.core_mhz / PARTS
        self.answers: dict[str, Operated] = {}
        self.changes: dict[str, list[GuestChanged]] = {}
        self._ids = 0

    @property
    def peer(self) -> Hypervisor:
        """The peer of a check that needs migration."""
        if self.harness.peer is None:
            raise ContractViolation("a harness with migration must have a peer")
        return self.harness.peer

    def spec(self, vm: str = VM, memory_mib: int = SMALL_MIB, **changes: Any) -> VmSpec:
        """Return the specification of a small VM."""
        plain = VmSpec(vm, 1, 1, memory_mib=memory_mib, vcpus=1, cpu_mhz=self.cpu_mhz, template=self.harness.template)
        return replace(plain, **changes)

    def begin(self, kind: ActionKind, vm: str = VM, on: Hypervisor | None = None, **fields: Any) -> str:
        """Begin an action; returns its id."""
        self._ids += 1
        host = on or self.node
        action = Action(f"a{self._ids}", kind, host.inventory().name, vm=vm, term=1, boot_id="boot", expires_at_s=1e12)
        host.begin(replace(action, **fields), self.harness.now_s())
        return action.id

    def answer(self, call_id: str) -> Operated:
        """Wait for an answer."""
        self.harness.until(lambda: call_id in self._collect())
        if call_id not in self.answers:
            raise ContractViolation(f"{call_id} was never answered")
        return self.answers[call_id]

    def do(self, kind: ActionKind, vm: str = VM, on: Hypervisor | None = None, **fields: Any) -> Operated:
        """Begin an action and wait for its answer."""
        return self.answer(self.begin(kind, vm, on, **fields))

    def must(self, outcome: Outcome, kind: ActionKind, vm: str = VM, **fields: Any) -> Operated:
        """Do it and expect an outcome."""
        answer = self.do(kind, vm, **fields)
        expect(f"outcome of {kind.value} of {vm} ({answer.detail})", answer.outcome, outcome)
        return answer

    def start(self, vm: str = VM, memory_mib: int = SMALL_MIB, **fields: Any) -> VmStatus:
        """Start a VM as generation 1 and return its status."""
        spec = fields.pop("spec", None) or self.spec(vm, memory_mib)
        self.must(Outcome.OK, ActionKind.START, vm, generation=1, spec=spec, **fields)
        return self.status(vm)

    def find(self, vm: str = VM, on: Hypervisor | None = None) -> VmStatus | None:
        """Return the VM's only status on a node, or None if it is not there."""
        found = [status for status in (on or self.node).vms(self.harness.now_s()) if status.vm == vm]
        if len(found) > 1:
            raise ContractViolation(f"{vm} is listed {len(found)} times")
        return found[0] if found else None

    def status(self, vm: str = VM, on: Hypervisor | None = None) -> VmStatus:
        """Return the VM's status; the VM must be there."""
        found = self.find(vm, on)
        if found is None:
            raise ContractViolation(f"{vm} is not listed")
        return found

    def change(self, vm: str, on: Hypervisor | None = None) -> GuestChanged:
        """Wait for a change of a guest."""
        name = (on or self.node).inventory().name

        def seen() -> list[GuestChanged]:
            self._collect()
            return [change for change in self.changes.get(name, []) if change.status.vm == vm]

        self.harness.until(lambda: bool(seen()))
        if not seen():
            raise ContractViolation(f"nothing was said of {vm} on {name}")
        return seen()[0]

    def _collect(self) -> dict[str, Operated]:
        for host in [host for host in (self.node, self.harness.peer) if host is not None]:
            for event in host.poll(self.harness.now_s()):
                if isinstance(event, GuestChanged):
                    self.changes.setdefault(host.inventory().name, []).append(event)
                elif event.call_id in self.answers:
                    raise ContractViolation(f"{event.call_id} was answered twice")
                else:
                    self.answers[event.call_id] = event
        return self.answers


def relabelled(status: VmStatus, generation: int, attempt: int, managed: bool = True) -> VmStatus:
    """Return the same VM with other metadata."""
    return structs.replace(status, generation=generation, attempt=attempt, managed=managed)


def settled(status: VmStatus | None) -> VmStatus | None:
    """Return a status without its counters, which keep growing, and without address, requirements, disks and what a
    migration would have to move, which only some have."""
    if status is None:
        return None
    return structs.replace(
        status,
        cpu_time_s=0.0,
        disk_read_bytes=0,
        disk_write_bytes=0,
        disk_time_s=0.0,
        net_rx_bytes=0,
        net_tx_bytes=0,
        busy="",
        address="",
        migration_needs=(),
        disks=0,
        dirty_mib_per_s=-1.0,
        resident_mib=0,
        disk_mib=0,
        working_set_mib=0,
    )


Body = Callable[[Bench], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One check and the capabilities it cannot do without, of the harness or of the driver itself; and those that it
    is about the lack of."""

    name: str
    run: Body
    needs: frozenset[str]
    lacks: frozenset[str] = frozenset()

    def applies(self, harness: HypervisorHarness) -> bool:
        """Return whether the harness and the driver have the capabilities that the check needs and lack those that it
        excludes."""
        has = harness.capabilities | {ability.value for ability in harness.node.inventory().abilities}
        return self.needs <= has and not self.lacks & has

    def __call__(self, harness: HypervisorHarness) -> None:
        """Run it; raises `ContractViolation`."""
        self.run(Bench(harness))
