"""The fake hypervisor passes the suite of its port, and the suite finds fakes that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from shared.base.errors import ContractViolation
from shared.ports.agent import Hypervisor
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.jobs import workload_of
from shared.values.nodes import Ability, Node
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.vms import VmState, VmStatus
from sim_backend.conformance.hypervisor_bench import Check
from sim_backend.conformance.hypervisor_checks import CHECKS
from sim_backend.fakes.hypervisor import Failure, FakeCluster, FakeHypervisor
from sim_backend.world.world import World

LIMIT_S = 1_000.0
NODE = Node("n1", cores=2, core_mhz=1_000.0, memory_mib=1_000)
HOW: dict[str, Failure] = {"refuse": "refuse", "hang": "hang", "fail-half-way": "fail-half-way"}


class Harness:
    """Two fakes in virtual time."""

    tolerance_frac = 1e-9
    template = ""

    def __init__(self, costs: OperationCosts, make: type[FakeHypervisor] = FakeHypervisor, node: Node = NODE) -> None:
        slow = {"slow"} if costs.start_s else set()
        self.capabilities = frozenset({"migration", "scripts", "ends", "cpu"} | slow)
        self.cluster = FakeCluster(World(), costs)
        self.fake = make(node, cluster=self.cluster)
        self.other = make(replace(node, name="n2"), cluster=self.cluster)
        self.node: Hypervisor = self.fake
        self.peer: Hypervisor | None = self.other
        self._now_s = 0.0

    def now_s(self) -> float:
        """Virtual time."""
        return self._now_s

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._now_s += seconds
        self.cluster.advance(self._now_s)

    def until(self, ready: Callable[[], bool]) -> None:
        """Pass from event to event."""
        limit_s = self._now_s + LIMIT_S
        while not ready() and self._now_s < limit_s:
            due_s = self.cluster.next_due_s()
            self._now_s = limit_s if due_s is None else min(limit_s, due_s)

    def fail_next(self, kind: ActionKind, how: str) -> None:
        """Script the node."""
        self.fake.fail_next(kind, HOW[how])

    def will_end(self, vm: str, cpu_s: float) -> None:
        """Give the guest a task."""
        self.cluster.world.add_task(workload_of(vm)[0], [(cpu_s * NODE.core_mhz, NODE.core_mhz)], 1)


@pytest.mark.parametrize("costs", ["none", "paper"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_fake_conforms(check: Check, costs: str) -> None:
    """Every check that applies passes; with no costs nothing is ever under way."""
    harness = Harness(COSTS[costs])
    if check.applies(harness):
        check(harness)
    else:
        assert check.lacks or (costs, "slow" in check.needs) == ("none", True)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_fake_that_can_only_freeze_conforms(check: Check) -> None:
    """A node without the abilities to save and to migrate, as where programs are run instead of VMs."""
    harness = Harness(COSTS["paper"], node=replace(NODE, abilities=()))
    harness.capabilities -= {"migration"}
    harness.peer = None
    if check.applies(harness):
        check(harness)
    else:
        assert check.needs & {"migration", Ability.SAVE}


def test_the_fake_is_a_hypervisor_without_arguments() -> None:
    """A lone fake needs nothing to be given."""
    lone = FakeHypervisor()
    assert isinstance(lone, Hypervisor)
    assert lone.vms(0.0) == ()
    assert lone.next_due_s() is None


class _IgnoresGenerations(FakeHypervisor):
    """Carries out whatever it is asked, whichever VM was meant."""

    def begin(self, action: Action, now_s: float) -> None:
        known = self.status(action.vm, now_s)
        super().begin(replace(action, expects=known.generation if known else action.expects), now_s)


class _Overcommits(FakeHypervisor):
    """Counts no memory."""

    def memory_used_mib(self) -> int:
        return 0


class _AnswersTwice(FakeHypervisor):
    """Says everything twice."""

    def tell(self, event: Operated | GuestChanged, now_s: float) -> None:
        super().tell(event, now_s)
        super().tell(event, now_s)


class _HidesImages(FakeHypervisor):
    """Lists only live VMs."""

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        return tuple(status for status in super().vms(now_s) if status.state is not VmState.SUSPENDED)


class _LosesAttempts(FakeHypervisor):
    """Keeps no attempt in its metadata."""

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        return tuple(structs.replace(status, attempt=0) for status in super().vms(now_s))


class _SaysOk(FakeHypervisor):
    """Takes every failure for a success."""

    def answer(self, action: Action, outcome: Outcome, now_s: float, *args: Any, **fields: Any) -> None:
        del outcome
        super().answer(action, Outcome.OK, now_s, *args, **fields)


class _ForgetsAll(FakeHypervisor):
    """Forgets the living too."""

    def forget(self, vm: str, now_s: float) -> None:
        self.calls.append((now_s, "forget", vm, None))
        self.domains.pop(vm, None)


class _NeverAborts(FakeHypervisor):
    """Cannot give up."""

    def abort(self, vm: str, now_s: float) -> None:
        self.calls.append((now_s, "abort", vm, None))


class _IgnoresAllotments(FakeHypervisor):
    """Does nothing about SET_CPU but says that it did."""

    def begin(self, action: Action, now_s: float) -> None:
        if action.kind is ActionKind.SET_CPU:
            self.answer(action, Outcome.OK, now_s)
        else:
            super().begin(action, now_s)


class _KeepsSilent(FakeHypervisor):
    """Never says that a guest arrived."""

    def tell_change(self, change: GuestChange, status: VmStatus, now_s: float, detail: str = "") -> None:
        del change, status, now_s, detail


BROKEN = [
    (_IgnoresGenerations, "wrong_generation"),
    (_Overcommits, "memory_is_not_overcommitted"),
    (_AnswersTwice, "start_runs"),
    (_HidesImages, "suspend_and_resume"),
    (_LosesAttempts, "start_runs"),
    (_SaysOk, "missing_vm"),
    (_ForgetsAll, "forget_leaves_the_living_alone"),
    (_NeverAborts, "abort"),
    (_IgnoresAllotments, "weights"),
    (_KeepsSilent, "migrate"),
]


@pytest.mark.parametrize(("make", "name"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_the_suite_finds_what_is_broken(make: type[FakeHypervisor], name: str) -> None:
    """A fake with one thing wrong fails the check that is about it."""
    (check,) = [check for check in CHECKS if check.name == name]
    with pytest.raises(ContractViolation):
        check(Harness(COSTS["paper"], make))
