"""Each check finds the bug that it is there for: policies with one planted bug each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemons.decision.pipeline import no_tables
from daemons.decision.tables.memory import MemoryTables
from daemons.policies.placement.first_fit import FirstFit
from daemons.policies.provisioning.rules import Threshold
from daemons.policies.provisioning.static import Static
from shared.base.errors import ContractViolation
from shared.policy_api.decision import (
    Change,
    ChangeKind,
    PlacementDecision,
    ProvisioningDecision,
    Reason,
    ReasonCode,
    Refusal,
    WindowSize,
)
from shared.policy_api.policies import Needs, TableCache
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import Allotment
from sim_backend.conformance import policy_checks as checks
from sim_backend.conformance.clusters import NodeRow, WorkRow, after, random_cluster, rows_of, snapshot
from sim_backend.conformance.policy_checks import Check, Subject
from sim_backend.conformance.verifier import verify

Decide = Callable[[Snapshot, Any], tuple[PlacementDecision, Any]]
WHY = Reason(ReasonCode.KEEP)


class Planted:
    """First-fit but for what `decide` was replaced by."""

    name = "planted"
    needs = Needs()
    event_driven = True

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Any will do."""

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, Any]:
        """Whatever was planted."""
        del params
        return self._decide(snapshot, state)


def sound(seen: Snapshot) -> PlacementDecision:
    """What first-fit says."""
    return FirstFit().decide(seen, None, {})[0]


def writes(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Unlocks the arrays and changes one."""
    seen.nodes.free_cpu_mhz.flags.writeable = True
    np.subtract(seen.nodes.free_cpu_mhz, 1.0, out=seen.nodes.free_cpu_mhz)
    return sound(seen), state


def unlocks(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Leaves an array writable."""
    seen.workloads.goal_s.flags.writeable = True
    return sound(seen), state


def fickle() -> Decide:
    """Counts its calls outside the state."""
    calls: list[int] = []

    def decide(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
        calls.append(1)
        return replace(sound(seen), evaluations=len(calls)), state

    return decide


def fickle_state() -> Decide:
    """The state differs from call to call."""
    calls: list[int] = []

    def decide(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
        del state
        calls.append(1)
        return sound(seen), len(calls)

    return decide


def odd_state(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """msgpack knows no sets."""
    del state
    return sound(seen), {1, 2}


def tuple_state(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """A tuple comes back from msgpack as a list."""
    count = 1 if isinstance(state, tuple) else 0
    return replace(sound(seen), evaluations=count), (1, 2)


def edits_state(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Changes the state that it was given."""
    if state is not None:
        state["calls"] += 1
    return sound(seen), {"calls": 0}


def crashes_on_nan(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Turns numbers into whole ones."""
    [int(value) for value in seen.workloads.memory_mib]
    return sound(seen), state


def refuses_all_for_one(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """One bad profile spoils the whole decision."""
    decision = sound(seen)
    if any(refusal.reason.code is ReasonCode.BAD_PROFILE for refusal in decision.refusals):
        names = [*seen.workloads.names]
        return PlacementDecision((), tuple(Refusal(name, WHY) for name in names)), state
    return decision, state


def stops_at_first(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """A job that does not fit holds up those behind it."""
    decision = sound(seen)
    refused = {refusal.workload for refusal in decision.refusals}
    at = min(
        (row for row, name in enumerate(seen.workloads.names) if name in refused), default=len(seen.workloads.names)
    )
    behind = set(seen.workloads.names[at:])
    changes = tuple(change for change in decision.changes if change.workload not in behind)
    held = tuple(Refusal(change.workload, WHY) for change in decision.changes if change.workload in behind)
    return PlacementDecision(changes, (*decision.refusals, *held)), state


def refuses_late(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Gives up on jobs whose goal has passed."""
    decision = sound(seen)
    late = {name for name, goal_s in zip(seen.workloads.names, seen.workloads.goal_s, strict=True) if goal_s < 1000.0}
    changes = tuple(change for change in decision.changes if change.workload not in late)
    return PlacementDecision(changes, (*decision.refusals, *(Refusal(name, WHY) for name in late))), state


def uses_empty_nodes(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Gives jobs without memory 0 MHz on a node without CPU."""
    decision = sound(seen)
    bad = [name for name, mhz in zip(seen.nodes.names, seen.nodes.cpu_mhz, strict=True) if not mhz > 0]
    if not bad:
        return decision, state
    given = (Allotment(bad[0], 0.0),)
    return replace(decision, changes=tuple(replace(change, allotments=given) for change in decision.changes)), state


def starts_twins(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Starts both rows of a repeated name."""
    decision = sound(seen)
    names = seen.workloads.names
    twice = tuple(change for change in decision.changes if names.count(change.workload) > 1)
    return replace(decision, changes=(*decision.changes, *twice)), state


def shuffles(seen: Snapshot, state: Any) -> tuple[PlacementDecision, Any]:
    """Suspends whatever runs, resumes it next time."""
    work = seen.workloads
    running = (work.state == WorkloadState.RUNNING.value) & ~work.fixed
    stopped = tuple(
        Change(work.names[row], int(work.revision[row]), ChangeKind.SUSPEND, (), WHY) for row in running.nonzero()[0]
    )
    decision = sound(seen)
    names = {change.workload for change in stopped}
    kept = tuple(change for change in decision.changes if change.workload not in names)
    return replace(decision, changes=(*stopped, *kept)), state


BUGS: list[tuple[Check, Callable[[], Decide]]] = [
    (checks.check_input_unchanged, lambda: writes),
    (checks.check_input_unchanged, lambda: unlocks),
    (checks.check_same_again, fickle),
    (checks.check_same_again, fickle_state),
    (checks.check_state_survives, lambda: odd_state),
    (checks.check_state_survives, lambda: tuple_state),
    (checks.check_state_survives, lambda: edits_state),
    (checks.check_bad_profiles_alone, lambda: crashes_on_nan),
    (checks.check_bad_profiles_alone, lambda: refuses_all_for_one),
    (checks.check_impossible_alone, lambda: stops_at_first),
    (checks.check_bad_nodes_alone, lambda: uses_empty_nodes),
    (checks.check_names_repeated, lambda: starts_twins),
    (checks.check_past_goals, lambda: refuses_late),
    (checks.check_settles, lambda: shuffles),
    (checks.check_none_stopped, lambda: shuffles),
]


@pytest.mark.parametrize(("check", "bug"), BUGS, ids=lambda item: item.__name__)
def test_check_finds_its_bug(check: Check, bug: Callable[[], Decide]) -> None:
    """The check passes for first-fit and fails with the bug planted."""
    check(Subject(FirstFit(), {}))
    with pytest.raises(ContractViolation):
        check(Subject(Planted(bug()), {}))


@pytest.mark.parametrize("field", ["name", "needs", "event_driven"])
def test_declarations(field: str) -> None:
    """A name, needs and event_driven that are none are found."""
    policy = Planted(lambda seen, state: (sound(seen), state))
    checks.check_declarations(Subject(policy, {}))
    setattr(policy, field, {"name": "", "needs": Needs(reporting_frac=2.0), "event_driven": None}[field])
    with pytest.raises(ContractViolation):
        checks.check_declarations(Subject(policy, {}))


def test_sizes() -> None:
    """A provisioning policy that names a node that does not exist is found."""

    class Inventive(Static):
        """One node too many."""

        def decide(
            self, snapshot: Snapshot, state: Any, params: Mapping[str, Any], table_cache: TableCache
        ) -> tuple[ProvisioningDecision, Any]:
            decision, state = super().decide(snapshot, state, params, table_cache)
            return replace(decision, in_service=(*decision.in_service, "n99")), state

    checks.check_sizes(Subject(Static(), {}, table_cache=no_tables))
    with pytest.raises(ContractViolation, match="no such node"):
        checks.check_sizes(Subject(Inventive(), {}, table_cache=no_tables))


class Sizing(Threshold):
    """Heuristic 1 but for what is planted."""

    def __init__(self, bug: Callable[[Snapshot, ProvisioningDecision], ProvisioningDecision]) -> None:
        self._bug = bug

    def decide(
        self, snapshot: Snapshot, state: Any, params: Mapping[str, Any], table_cache: TableCache
    ) -> tuple[ProvisioningDecision, Any]:
        decision, state = super().decide(snapshot, state, params, table_cache)
        return self._bug(snapshot, decision), state


def all_nodes(seen: Snapshot, decision: ProvisioningDecision) -> ProvisioningDecision:
    """Names also what is not available."""
    return replace(decision, in_service=tuple(dict.fromkeys(seen.nodes.names)))


def no_nodes(seen: Snapshot, decision: ProvisioningDecision) -> ProvisioningDecision:
    """Names nothing, not even what must stay."""
    del seen
    return replace(decision, in_service=(), windows=tuple(replace(size, nodes=0) for size in decision.windows))


def sized(change: Callable[[WindowSize], WindowSize]) -> Callable[..., ProvisioningDecision]:
    """Changes what is said of the first window."""

    def bug(seen: Snapshot, decision: ProvisioningDecision) -> ProvisioningDecision:
        del seen
        first = tuple(change(size) for size in decision.windows[:1])
        return replace(decision, windows=(*first, *decision.windows[1:]))

    return bug


def one_window_less(seen: Snapshot, decision: ProvisioningDecision) -> ProvisioningDecision:
    """Says nothing of the first window."""
    del seen
    return replace(decision, windows=decision.windows[1:])


SIZE_BUGS: dict[str, Callable[..., ProvisioningDecision]] = {
    "not available": all_nodes,
    "must stay": no_nodes,
    "its nodes are worth": sized(lambda size: replace(size, nodes=size.nodes + 9, wanted=size.wanted + 9)),
    "may have": sized(lambda size: replace(size, nodes=0, wanted=99)),
    "because of": sized(lambda size: replace(size, nodes=max(size.nodes - 1, 0), reason=WHY)),
    "probabilities": sized(lambda size: replace(size, breach=(0.1, 0.2))),
    "cost is not finite": sized(lambda size: replace(size, predicted_cost=float("inf"))),
    "sizes for": one_window_less,
}
TABLE_CACHE = MemoryTables()


@pytest.mark.parametrize("rule", SIZE_BUGS)
def test_sizes_of_windows(rule: str) -> None:
    """A provisioning policy that breaks a rule for windows is told by that rule."""
    checks.check_sizes(Subject(Threshold(), {}, table_cache=TABLE_CACHE))
    with pytest.raises(ContractViolation, match=rule):
        checks.check_sizes(Subject(Sizing(SIZE_BUGS[rule]), {}, table_cache=TABLE_CACHE))


def test_fewer_nodes_for_more_jobs() -> None:
    """A policy that gives a window fewer nodes for more jobs is found."""

    def bug(size: WindowSize) -> WindowSize:
        return replace(size, wanted=max(size.wanted - size.jobs, 0))

    with pytest.raises(ContractViolation, match="with fewer"):
        checks.check_more_jobs(Subject(Sizing(sized(bug)), {}, table_cache=TABLE_CACHE))


def test_windows_with_odd_numbers() -> None:
    """A policy that cannot bear numbers that are none is found."""

    def bug(seen: Snapshot, decision: ProvisioningDecision) -> ProvisioningDecision:
        [int(rate) for window in seen.windows for rate in window.rate]
        return decision

    with pytest.raises(ContractViolation, match="raises"):
        checks.check_bad_windows(Subject(Sizing(bug), {}, table_cache=TABLE_CACHE))


NODES = [NodeRow("n0", cores=2, memory_mib=2000.0), NodeRow("n1", cores=2, memory_mib=2000.0, labels=("ssd",))]
AWAY = NodeRow("n2", draining=True)
RUNNING = WorkRow("r", WorkloadState.RUNNING, places=((0, 1000.0),))
ON_N0 = (Allotment("n0", 1000.0),)


def start(*given: Allotment, revision: int = 1, kind: ChangeKind = ChangeKind.START, name: str = "j") -> Change:
    """A change to j."""
    return Change(name, revision, kind, given, WHY)


VIOLATIONS = {
    "no such workload": (WorkRow("j"), [start(*ON_N0), start(*ON_N0, name="x")]),
    "changed 2 times": (WorkRow("j"), [start(*ON_N0), start(*ON_N0)]),
    "neither started nor refused": (WorkRow("j"), []),
    "of revision 2": (WorkRow("j"), [start(*ON_N0, revision=2)]),
    "though it is fixed": (WorkRow("j", fixed=True), [start(*ON_N0)]),
    "though it is waiting": (WorkRow("j"), [start(*ON_N0, kind=ChangeKind.RESUME)]),
    "before its time": (WorkRow("j", not_before_s=1001.0), [start(*ON_N0)]),
    "though its profile is bad": (WorkRow("j", work_mcycles=-1.0), [start(*ON_N0)]),
    "with 1 allotments instead of 2": (WorkRow("j", instances=2), [start(*ON_N0)]),
    "which does not exist": (WorkRow("j"), [start(Allotment("n9", 1000.0))]),
    "to be separate": (WorkRow("j", instances=2, spread=True, memory_mib=1.0), [start(*ON_N0, *ON_N0)]),
    "not schedulable": (WorkRow("j"), [start(Allotment("n2", 1000.0))]),
    "lacks labels": (WorkRow("j", required_labels=("ssd",)), [start(*ON_N0)]),
    "at most 1000.0 can be used": (WorkRow("j"), [start(Allotment("n1", 1100.0))]),
    "at most 1000.0": (WorkRow("j", max_mhz=4000.0), [start(Allotment("n1", 2000.0))]),
    "with 0.0 MHz": (WorkRow("j"), [start(Allotment("n1", 0.0))]),
    "with nan MHz": (WorkRow("j"), [start(Allotment("n1", float("nan")))]),
    "below its minimum": (WorkRow("j", min_mhz=900.0), [start(Allotment("n1", 800.0))]),
    "n0: memory": (WorkRow("j", memory_mib=1001.0), [start(*ON_N0)]),
    "n0: CPU": (WorkRow("j", memory_mib=1.0, vcpus=2, max_mhz=2000.0), [start(Allotment("n0", 1500.0))]),
    "moves an instance": (
        WorkRow("j"),
        [start(*ON_N0), start(Allotment("n1", 500.0), name="r", kind=ChangeKind.RESIZE)],
    ),
}


@pytest.mark.parametrize("rule", VIOLATIONS)
def test_verify_names_the_rule(rule: str) -> None:
    """A decision with a fault is told by that fault."""
    job, changes = VIOLATIONS[rule]
    found = verify(snapshot([*NODES, AWAY], [job, RUNNING]), PlacementDecision(tuple(changes)))
    assert any(rule in line for line in found), found


def test_verify_counts_what_is_freed() -> None:
    """A suspended job's room may be given away in the same decision; not more than that."""
    seen = snapshot([NODES[0]], [WorkRow("j", memory_mib=2000.0, vcpus=2, max_mhz=2000.0), RUNNING])
    take = start(Allotment("n0", 2000.0))
    assert verify(seen, PlacementDecision((start(kind=ChangeKind.SUSPEND, name="r"), take))) == []
    assert len(verify(seen, PlacementDecision((take,)))) == 2


def test_verify_moves() -> None:
    """A migration frees its old node and fills the new one; an instance may stay on a node that is not schedulable."""
    gang = WorkRow("r", WorkloadState.RUNNING, instances=2, places=((0, 1000.0), (1, 1000.0)))
    nodes = [NodeRow("n0", cores=1, draining=True), NodeRow("n1", cores=1, schedulable=False), NodeRow("n2", cores=1)]
    seen = snapshot(nodes, [gang])
    moved = (Allotment("n2", 1000.0), Allotment("n1", 1000.0))
    assert verify(seen, PlacementDecision((start(*moved, name="r", kind=ChangeKind.MIGRATE),))) == []
    both = (Allotment("n2", 1000.0), Allotment("n2", 1000.0))
    assert any(
        "n2: CPU" in line
        for line in verify(seen, PlacementDecision((start(*both, name="r", kind=ChangeKind.MIGRATE),)))
    )


def test_verify_reasons_and_refusals() -> None:
    """Numbers in reasons are finite; nobody is both started and refused, or refused without being there."""
    seen = snapshot(NODES, [WorkRow("j"), WorkRow("k")])
    odd = Refusal("k", Reason(ReasonCode.NO_CPU, (("needed_mhz", float("inf")),)))
    found = verify(seen, PlacementDecision((start(*ON_N0),), (odd, Refusal("j", WHY), Refusal("x", WHY))))
    assert len(found) == 3, found


def test_random_clusters_are_sound() -> None:
    """Rows and snapshots turn into each other; nothing is overfull; every state and trait occurs."""
    rng = np.random.default_rng(5)
    seen_states, traits = set(), set()
    for _ in range(60):
        seen = random_cluster(rng)
        assert (seen.nodes.free_cpu_mhz >= -1e-9).all()
        assert (seen.nodes.free_memory_mib >= -1e-9).all()
        nodes, workloads = rows_of(seen)
        assert rows_of(snapshot(nodes, workloads, seen.now_s, seen.vm_overhead_mib)) == (nodes, workloads)
        for row in workloads:
            seen_states.add(row.state)
            traits |= {name for name in ("spread", "fixed", "required_labels") if getattr(row, name)}
    assert seen_states == set(WorkloadState)
    assert traits == {"spread", "fixed", "required_labels"}


def test_after_a_suspension() -> None:
    """The image lies where the job ran, its room is free and its revision new."""
    seen = snapshot(NODES, [RUNNING])
    now = after(seen, PlacementDecision((start(kind=ChangeKind.SUSPEND, name="r"),)))
    _, workloads = rows_of(now)
    assert workloads == [replace(RUNNING, state=WorkloadState.SUSPENDED, revision=2)]
    assert now.nodes.free_memory_mib.tolist() == [2000.0, 2000.0]
