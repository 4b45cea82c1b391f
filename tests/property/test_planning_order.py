"""Plans on random clusters: every intermediate state is feasible, and what can be done is done."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.planning import order
from daemons.planning.observed import Ceilings, Headroom, PlannedAction
from shared.policy_api.decision import Plan
from shared.values.actions import ActionKind
from tests.extent import examples

CAPACITY_MIB = 10.0
NODES = ("a", "b", "c", "d")
NO_CEILINGS = Ceilings()


@dataclass
class Vm:
    name: str
    node: str
    target: str
    memory_mib: float


@st.composite
def shuffles(draw: st.DrawFn) -> list[Vm]:
    """VMs that fit where they are and fit where they are wanted."""
    sizes = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0, 10.0]), min_size=1, max_size=10))
    vms: list[Vm] = []
    here, there = dict.fromkeys(NODES, 0.0), dict.fromkeys(NODES, 0.0)
    for number, size in enumerate(sizes):
        node = draw(st.sampled_from(NODES))
        target = draw(st.sampled_from(NODES))
        if here[node] + size <= CAPACITY_MIB and there[target] + size <= CAPACITY_MIB:
            here[node] += size
            there[target] += size
            vms.append(Vm(f"v#{number}", node, target, size))
    return vms


def planned(vms: list[Vm], ceilings: Ceilings = NO_CEILINGS) -> Plan:
    used = dict.fromkeys(NODES, 0.0)
    for vm in vms:
        used[vm.node] += vm.memory_mib
    rooms = {node: Headroom(CAPACITY_MIB - used[node], 1e9) for node in NODES}
    needs = [
        PlannedAction(
            ActionKind.MIGRATE, vm.name, vm.name, node=vm.node, to_node=vm.target, expects=1, memory_mib=vm.memory_mib
        )
        for vm in vms
        if vm.node != vm.target
    ]
    return order.plan(needs, rooms, {vm.name: Headroom(vm.memory_mib, 0.0) for vm in vms}, ceilings)


def replayed(vms: list[Vm], plan: Plan) -> dict[str, str]:
    """Carry a plan out wave by wave; a receiving node must hold the VM before its source lets go of it."""
    where: dict[str, str | None] = {vm.name: vm.node for vm in vms}
    size = {vm.name: vm.memory_mib for vm in vms}

    def used(node: str) -> float:
        return sum(size[name] for name, at in where.items() if at == node)

    for number in range(max((step.wave for step in plan.steps), default=-1) + 1):
        steps = [step for step in plan.steps if step.wave == number]
        arriving: dict[str, float] = {}
        for step in steps:
            if step.kind is not ActionKind.SUSPEND:
                target = step.to_node or step.node
                arriving[target] = arriving.get(target, 0.0) + size[step.vm]
        for node, more in arriving.items():
            assert used(node) + more <= CAPACITY_MIB + 1e-9
        for step in steps:
            if step.kind is ActionKind.SUSPEND:
                assert where[step.vm] == step.node
                where[step.vm] = None
            elif step.kind is ActionKind.RESUME:
                assert where[step.vm] is None
                where[step.vm] = step.node
            else:
                assert where[step.vm] == step.node
                where[step.vm] = step.to_node
    return {name: at or "" for name, at in where.items()}


@given(shuffles())
@settings(max_examples=examples(300))
def test_every_shuffle_that_fits_before_and_after_is_planned_to_its_end(vms: list[Vm]) -> None:
    plan = planned(vms)
    assert plan.blocked == ()
    assert replayed(vms, plan) == {vm.name: vm.target for vm in vms}


@given(shuffles())
@settings(max_examples=examples(100))
def test_limits_hold_in_every_wave(vms: list[Vm]) -> None:
    plan = planned(vms, Ceilings(migrations_per_node=1, actions_total=2))
    for number in {step.wave for step in plan.steps}:
        steps = [step for step in plan.steps if step.wave == number]
        assert len(steps) <= 2
        ends = [end for s in steps if s.kind is ActionKind.MIGRATE for end in (s.node, s.to_node)]
        assert len(ends) == len(set(ends))
    assert replayed(vms, plan) == {vm.name: vm.target for vm in vms}


def test_a_cycle_between_full_nodes_is_broken_by_one_suspend() -> None:
    vms = [Vm("v#0", "a", "b", 10.0), Vm("v#1", "b", "a", 10.0)]
    plan = planned(vms)
    assert [step.kind for step in plan.steps].count(ActionKind.SUSPEND) == 1
    assert replayed(vms, plan) == {"v#0": "b", "v#1": "a"}


def test_a_gang_starts_all_or_none_in_a_wave() -> None:
    def start(index: int, node: str) -> PlannedAction:
        return PlannedAction(ActionKind.START, "g", f"g#{index}", node=node, memory_mib=6.0, cpu_mhz=1.0)

    rooms = {"a": Headroom(10.0, 9.0), "b": Headroom(5.0, 9.0)}
    assert order.wave([start(0, "a"), start(1, "b")], rooms, Ceilings(), Headroom(0, 0)).chosen == []
    assert rooms["a"].memory_mib == 10.0
    rooms["b"].memory_mib = 6.0
    assert len(order.wave([start(0, "a"), start(1, "b")], rooms, Ceilings(), Headroom(0, 0)).chosen) == 2


def test_cpu_is_taken_away_before_it_is_given() -> None:
    less = PlannedAction(ActionKind.SET_CPU, "j", "j#0", node="a", cpu_mhz=-500.0, set_mhz=500.0)
    more = PlannedAction(ActionKind.SET_CPU, "k", "k#0", node="a", cpu_mhz=500.0, set_mhz=1500.0)
    plan = order.plan([more, less], {"a": Headroom(0.0, 0.0)}, {}, Ceilings())
    assert [(step.vm, step.wave) for step in plan.steps] == [("j#0", 0), ("k#0", 1)]


def test_what_never_finds_room_is_named_with_the_numbers() -> None:
    need = PlannedAction(ActionKind.START, "j", "j#0", node="a", memory_mib=6.0, cpu_mhz=1.0)
    plan = order.plan([need], {"a": Headroom(5.0, 9.0)}, {}, Ceilings())
    assert plan.steps == ()
    assert str(plan.blocked[0].reason) == "no-memory needed_mib=6 free_mib=5"
