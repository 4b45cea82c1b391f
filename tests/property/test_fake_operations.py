"""Whatever is asked of a cluster of fakes, in whatever order: no memory overcommitted, no VM live twice, none lost."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS
from shared.values.vms import LIVE_STATES, VmSpec, VmState
from sim_backend.fakes.host import HOLDS_MEMORY
from sim_backend.fakes.hypervisor import FakeCluster, FakeHypervisor
from sim_backend.world.world import World
from tests.extent import examples

NODES = ("n1", "n2", "n3")
VMS = ("a#0", "b#0", "b#1", "c#0")
STEPS = 120

LEAVING = frozenset(
    {ActionKind.STOP, ActionKind.DISCARD_IMAGE, ActionKind.MIGRATE, ActionKind.RELEASE, ActionKind.UNDEFINE}
)


class _Chaos:
    """A cluster, random orders and faults, and what may rightly have gone since the last look."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now_s, self.ids = rng, 0.0, 0
        self.world = World()
        self.cluster = FakeCluster(self.world, COSTS[rng.choice(["none", "paper"])])
        for name in NODES:
            self.cluster.add_node(Node(name, 2, 1_000.0, memory_mib=1_000))
        for name, instances in (("a", 1), ("b", 2), ("c", 1)):
            self.world.add_task(name, [(rng.uniform(1e4, 1e6), 1_000.0)], instances)
        self.kinds: dict[str, ActionKind] = {}
        self.begun: list[str] = []
        self.answered: list[str] = []
        self.may_go: set[str] = set()
        self.had: set[str] = set()

    def order(self) -> None:
        """Mostly sensible, sometimes anything."""
        rng = self.rng
        vm, name, kind = rng.choice(VMS), rng.choice(NODES), rng.choice(list(ActionKind))
        holder = [n for n in NODES if self.cluster.hypervisor(n).status(vm, self.now_s) is not None]
        if holder and rng.random() < 0.7:
            name = rng.choice(holder)
        on = self.cluster.hypervisor(name)
        status = on.status(vm, self.now_s)
        generation = status.generation if status is not None and rng.random() < 0.9 else rng.randint(0, 5)
        from_node = rng.choice(holder) if holder and rng.random() < 0.5 else ""
        if from_node and kind is ActionKind.RESUME:
            image = self.cluster.hypervisor(from_node).status(vm, self.now_s)
            generation = image.generation if image is not None else generation
        after = generation + (kind in (ActionKind.START, ActionKind.RESUME))
        self.ids += 1
        action = Action(
            f"x{self.ids}",
            kind,
            name,
            vm=vm,
            term=1,
            boot_id="boot",
            expires_at_s=1e12,
            expects=generation,
            generation=after,
            spec=VmSpec(
                vm,
                after,
                rng.randint(1, 2),
                memory_mib=rng.choice([300, 400, 600]),
                vcpus=1,
                cpu_mhz=rng.choice([500.0, 1_000.0]),
            ),
            from_node=from_node,
            to_node=rng.choice(NODES),
            cpu_mhz=rng.choice([100.0, 1_000.0, 5_000.0]),
            paused=rng.random() < 0.3,
        )
        self.kinds[action.id] = kind
        if on.up:
            self.begun.append(action.id)
        if kind in (ActionKind.STOP, ActionKind.DISCARD_IMAGE):
            self.may_go.add(vm)  # whether or not it succeeds
        on.begin(action, self.now_s)

    def fault(self) -> None:
        """One fault of any kind."""
        rng, name, vm = self.rng, self.rng.choice(NODES), self.rng.choice(VMS)
        on, what = self.cluster.hypervisor(name), self.rng.randrange(7)
        if what == 0:
            self._kill(on)
        elif what == 1:
            on.host_returns(f"boot-{self.now_s}")
        elif what == 2:
            on.fail_next(None, rng.choice(["refuse", "hang", "fail-half-way"]))
        elif what == 3:
            on.abort(vm, self.now_s)
        elif what == 4 and (on.lose_vm if rng.random() < 0.5 else on.crash_vm)(vm, self.now_s):
            self.may_go.add(vm)
        elif what == 5:
            apart = {rng.choice(NODES) for _ in range(2)} if rng.random() < 0.5 else set()
            self.cluster.reachable = lambda a, b: {a, b} != apart
        else:
            on.forget(vm, self.now_s)

    def _kill(self, on: FakeHypervisor) -> None:
        """Those executing or paused there die with it; what is starting there was not anywhere yet."""
        died = [op.action.id for op in on.operations.values()]
        died += [event.call_id for event in on.outbox if isinstance(event, Operated)]
        self.begun = [call for call in self.begun if call not in died]
        gone = on.host_dies(self.now_s)
        self.may_go.update(gone)

    def check(self) -> None:
        """The invariants, from outside."""
        live: dict[str, str] = {}
        have: set[str] = set()
        for name in NODES:
            on = self.cluster.hypervisor(name)
            statuses = on.vms(self.now_s)
            assert len({status.vm for status in statuses}) == len(statuses)
            assert sum(s.memory_mib for s in statuses if s.state in HOLDS_MEMORY) <= on.node.memory_mib
            assert not (statuses and not on.up and any(s.state in HOLDS_MEMORY for s in statuses))
            have.update(on.images)  # also what an operation under way on it hides
            for status in statuses:
                if status.state is VmState.ENDED:
                    self.may_go.add(status.vm)
                if status.state in LIVE_STATES:
                    assert status.vm not in live, f"{status.vm} on {live[status.vm]} and {name}"
                    live[status.vm] = name
        assert live == {vm: home for vm in VMS if (home := self.world.where(vm)) is not None}
        for vm in VMS:
            if vm in live:
                assert self.cluster.locks[vm] == live[vm]
        have.update(live)
        lost = self.had - have - self.may_go
        assert not lost, f"lost {lost}"
        self.had, self.may_go = have, set()

    def collect(self) -> None:
        """Every begin is answered once; guests that end are gone rightly."""
        for name in NODES:
            for event in self.cluster.hypervisor(name).poll(self.now_s):
                if isinstance(event, Operated):
                    self.answered.append(event.call_id)
                    if event.outcome is Outcome.OK and event.status is None:
                        assert self.kinds[event.call_id] in LEAVING
                elif isinstance(event, GuestChanged) and event.change is GuestChange.ENDED:
                    self.may_go.add(event.status.vm)


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_random_operations_and_faults(seed: int) -> None:
    """The invariants hold after every step, and every operation is answered exactly once."""
    chaos = _Chaos(random.Random(seed))
    for _ in range(STEPS):
        chaos.now_s += chaos.rng.choice([0.0, 0.0, 1.0, 5.0, 40.0])
        chaos.cluster.advance(chaos.now_s)
        if chaos.rng.random() < 0.75:
            chaos.order()
        else:
            chaos.fault()
        chaos.collect()
        chaos.check()
    for name in NODES:
        for vm in VMS:
            chaos.cluster.hypervisor(name).abort(vm, chaos.now_s)
    chaos.collect()
    assert sorted(chaos.answered) == sorted(chaos.begun)
    assert not any(chaos.cluster.hypervisor(name).operations for name in NODES)
