"""What every policy must do: run each of `CHECKS[role]` on an instance, with a seed.

A check that fails raises `ContractViolation` with the seed and the broken rule. `verify` and `verify_provisioning` are
the rules for a single decision, `PLACEMENT_STEADY` what holds besides for a placement policy that never preempts,
`PROVISIONING_MONOTONE` for one whose sizes follow from the number of jobs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from shared.base.errors import ContractViolation
from shared.policy_api.decision import ChangeKind, PlacementDecision
from shared.policy_api.policies import Needs, TableCache
from shared.policy_api.snapshot import PriceView, Snapshot, WorkloadState
from sim_backend.conformance.clusters import NodeRow, WorkRow, after, provisioned, random_cluster, rows_of, snapshot
from sim_backend.conformance.verifier import verify, verify_provisioning

_CLUSTERS = 40
_NAN, _INF = math.nan, math.inf


@dataclass(frozen=True, slots=True)
class Subject:
    """A policy under test, with the parameters to give it, the seed of the clusters and how many of them are random.
    `table_cache`: for a provisioning policy."""

    policy: Any
    params: Mapping[str, Any]
    seed: int = 0
    table_cache: TableCache | None = None
    random: int = _CLUSTERS

    def clusters(self) -> Iterator[Snapshot]:
        """Random clusters, the same for the same seed, and a few at the edges."""
        rng = np.random.default_rng(self.seed)
        yield snapshot([], [])
        yield snapshot([NodeRow("n0")], [])
        yield snapshot([], [WorkRow("j0")])
        for index in range(self.random):
            seen = random_cluster(rng)
            yield seen
            if self.table_cache is not None and index % 3 == 0:
                yield provisioned(rng, seen)

    def decide(self, seen: Snapshot, state: Any = None) -> tuple[Any, Any]:
        """Return one decision and the policy's new state. Raise ContractViolation if the policy raises anything."""
        given = (self.table_cache,) if self.table_cache is not None else ()
        try:
            decided: tuple[Any, Any] = self.policy.decide(seen, state, self.params, *given)
        except Exception as error:
            raise ContractViolation(f"{self.policy.name}: raises {error!r} for {seen}") from error
        return decided

    def expect(self, holds: bool, rule: str, seen: Snapshot) -> None:
        """Raise `ContractViolation` unless the rule holds."""
        if not holds:
            raise ContractViolation(f"{self.policy.name}, seed {self.seed}: {rule}; it saw {rows_of(seen)}")


Check = Callable[[Subject], None]


def _values(seen: Snapshot) -> list[Any]:
    known = (seen.nodes, seen.workloads, seen.instances, seen.stages, seen.power, seen.prices, *seen.windows)
    return [getattr(part, field.name) for part in known if part is not None for field in fields(part)]


def _contents(seen: Snapshot) -> list[Any]:
    return [value.tobytes() if isinstance(value, np.ndarray) else value for value in _values(seen)]


def _frozen(seen: Snapshot) -> bool:
    return not any(value.flags.writeable for value in _values(seen) if isinstance(value, np.ndarray))


def _said(decision: Any) -> Any:
    """Return a decision as values that compare by equality."""
    if isinstance(decision, PlacementDecision):
        return replace(decision, changes=tuple(decision.changes), refusals=tuple(decision.refusals))
    return decision


def check_declarations(subject: Subject) -> None:
    """Check that the policy has a name and declares its data needs and whether events trigger it."""
    policy = subject.policy
    seen = snapshot([], [])
    subject.expect(isinstance(policy.name, str) and policy.name != "", "it has no name", seen)
    needs = policy.needs
    subject.expect(isinstance(needs, Needs) and 0 <= needs.reporting_frac <= 1, f"its needs are {needs}", seen)
    subject.expect(needs.report_age_s >= 0, f"its needs are {needs}", seen)
    subject.expect(isinstance(policy.event_driven, bool), "event_driven is no bool", seen)
    if subject.table_cache is not None:
        subject.expect(isinstance(getattr(policy, "covers_all", None), bool), "covers_all is no bool", seen)


def check_input_unchanged(subject: Subject) -> None:
    """Check that the policy leaves the snapshot unchanged and read-only."""
    for seen in subject.clusters():
        before = _contents(seen)
        _said(subject.decide(seen)[0])
        subject.expect(_contents(seen) == before, "it changed the snapshot", seen)
        subject.expect(_frozen(seen), "it made the snapshot writable", seen)


def check_same_again(subject: Subject) -> None:
    """Check that the same arguments give the same decision and state, also with an equal copy of the snapshot."""
    for seen in subject.clusters():
        first, state = subject.decide(seen)
        windows = tuple(_copied(window) for window in seen.windows)
        twin = replace(seen, nodes=_copied(seen.nodes), workloads=_copied(seen.workloads), windows=windows)
        for other in (seen, twin):
            again, state_again = subject.decide(other)
            subject.expect(_said(first) == _said(again), f"it decided {first}, then {again}", seen)
            subject.expect(state == state_again, f"its state was {state!r}, then {state_again!r}", seen)


def _copied(columns: Any) -> Any:
    arrays = {f.name: getattr(columns, f.name) for f in fields(columns)}
    return replace(columns, **{name: v.copy() for name, v in arrays.items() if isinstance(v, np.ndarray)})


def check_state_survives(subject: Subject) -> None:
    """Check that the state survives a round trip through msgpack, so that the next decision is the same, and that the
    policy does not change the state that it is given."""
    for seen in subject.clusters():
        _, state = subject.decide(seen)
        try:
            packed = msgpack.packb(state)
        except (TypeError, ValueError, OverflowError) as error:
            raise ContractViolation(f"{subject.policy.name}: its state cannot be packed: {error}") from error
        restored = msgpack.unpackb(packed, strict_map_key=False)
        decided = _said(subject.decide(seen, state)[0])
        subject.expect(msgpack.packb(state) == packed, "it changed the state it was given", seen)
        subject.expect(_said(subject.decide(seen, restored)[0]) == decided, "its state does not survive msgpack", seen)


def check_decisions(subject: Subject) -> None:
    """Check that `verify` finds no problem in any decision, nor in the decisions that follow once it has been
    applied."""
    for seen in subject.clusters():
        state, now = None, seen
        for _ in range(3):
            decision, state = subject.decide(now, state)
            wrong = verify(now, decision)
            subject.expect(not wrong, "; ".join(wrong), now)
            now = after(now, decision)


def check_bad_profiles_alone(subject: Subject) -> None:
    """Check that a workload with a non-finite or out-of-range number is refused and all others are placed."""
    bad: dict[str, tuple[Any, ...]] = {
        "memory_mib": (_NAN, _INF, -1.0),
        "max_mhz": (_NAN, _INF, -1.0, 0.0),
        "min_mhz": (_NAN, _INF, -1.0),
        "work_mcycles": (_NAN, _INF, -1.0),
        "done_mcycles": (_NAN, _INF, -1.0),
        "importance": (_NAN, _INF, -1.0),
        "goal_s": (_NAN, -_INF),
        "submit_s": (_NAN, _INF),
        "desired_start_s": (_NAN, _INF),
        "not_before_s": (_NAN, _INF),
        "instances": (0, -1),
        "vcpus": (0, -1),
    }
    for name, values in bad.items():
        for value in values:
            _expect_alone(subject, WorkRow("bad", **{name: value}))


def check_impossible_alone(subject: Subject) -> None:
    """Check that a workload that fits nowhere is refused and all others are placed."""
    _expect_alone(subject, WorkRow("bad", memory_mib=1e9))
    _expect_alone(subject, WorkRow("bad", min_mhz=1e9, max_mhz=1e9, vcpus=64))
    _expect_alone(subject, WorkRow("bad", required_labels=("a label that no node has",)))
    _expect_alone(subject, WorkRow("bad", instances=4, spread=True))
    _expect_alone(subject, WorkRow("bad", instances=60_000))


def _expect_alone(subject: Subject, bad: WorkRow) -> None:
    """Check that among jobs that all fit, only `bad` is refused, at any place in the order, and nothing else is
    changed."""
    nodes = [NodeRow("n0", cores=16, memory_mib=64_000.0), NodeRow("n1", cores=16, memory_mib=64_000.0)]
    good = [WorkRow(f"g{i}", goal_s=5000.0 + i, submit_s=float(i), instances=1 + i % 2) for i in range(12)]
    running = WorkRow("r", WorkloadState.RUNNING, goal_s=9000.0, places=((0, 1000.0),))
    for place in (0, 5, 12):
        seen = snapshot(nodes, [*good[:place], bad, *good[place:], running])
        decision, _ = subject.decide(seen)
        wrong = verify(seen, decision)
        subject.expect(not wrong, "; ".join(wrong), seen)
        started = {change.workload for change in decision.changes if change.kind is ChangeKind.START}
        refused = {refusal.workload for refusal in decision.refusals}
        subject.expect("bad" in refused - started, f"it did not refuse {bad}", seen)
        subject.expect(started == {row.name for row in good}, f"beside {bad} it started only {sorted(started)}", seen)


def check_bad_nodes_alone(subject: Subject) -> None:
    """Check that nodes without capacity, or with non-finite numbers, get no workload and the others are used."""
    good = NodeRow("good", cores=16, memory_mib=64_000.0)
    jobs = [WorkRow(f"g{i}", memory_mib=0.0 if i % 2 else 1000.0, goal_s=5000.0) for i in range(6)]
    bad = (
        NodeRow("bad", cores=0),
        NodeRow("bad", cores=0, memory_mib=0.0),
        NodeRow("bad", core_mhz=0.0),
        NodeRow("bad", core_mhz=_NAN),
        NodeRow("bad", memory_mib=_NAN),
        NodeRow("bad", other_mhz=1e6, other_mib=1e6),
    )
    for node in bad:
        for nodes in ([node, good], [good, node]):
            seen = snapshot(nodes, jobs)
            decision, _ = subject.decide(seen)
            wrong = verify(seen, decision)
            subject.expect(not wrong, "; ".join(wrong), seen)
            used = {given.node for change in decision.changes for given in change.allotments}
            subject.expect(used == {"good"} and len(decision.changes) == 6, f"beside {node} it used {used}", seen)


def check_names_repeated(subject: Subject) -> None:
    """Check that a repeated name of nodes or workloads refers to its first row, and that no capacity is allotted
    twice."""
    nodes = [NodeRow("n", cores=2), NodeRow("n", cores=2), NodeRow("m", cores=1)]
    running = WorkRow("j", WorkloadState.RUNNING, goal_s=9000.0, places=((0, 1000.0),))
    waiting = [WorkRow("j", goal_s=5000.0), WorkRow("k", goal_s=6000.0), WorkRow("k", goal_s=6000.0), WorkRow("i")]
    for rows in ([running, *waiting], waiting):
        seen = snapshot(nodes, rows)
        decision, _ = subject.decide(seen)
        wrong = verify(seen, decision)
        subject.expect(not wrong, "; ".join(wrong), seen)
        subject.expect(any(change.workload == "k" for change in decision.changes), "k was not started", seen)


def check_past_goals(subject: Subject) -> None:
    """Check that a workload is not refused because its goal has passed: with capacity for all, all are started."""
    jobs = [WorkRow(f"j{i}", goal_s=goal_s) for i, goal_s in enumerate((0.0, -5.0, 999.0, 1000.0, _INF))]
    seen = snapshot([NodeRow("n0", cores=8)], jobs)
    decision, _ = subject.decide(seen)
    subject.expect(len(decision.changes) == len(jobs), "it did not start all", seen)


def check_settles(subject: Subject) -> None:
    """Deciding again on what the decision made changes nothing more."""
    for seen in subject.clusters():
        decision, state = subject.decide(seen)
        now = after(seen, decision)
        again, _ = subject.decide(now, state)
        subject.expect(not again.changes, f"it then wants {list(again.changes)}", now)


def check_none_stopped(subject: Subject) -> None:
    """Check that no running workload is suspended."""
    for seen in subject.clusters():
        decision, _ = subject.decide(seen)
        stopped = [change.workload for change in decision.changes if change.kind is ChangeKind.SUSPEND]
        subject.expect(not stopped, f"it suspends {stopped}", seen)


def check_sizes(subject: Subject) -> None:
    """Check that `verify_provisioning` finds no problem in any decision, nor in those at the next decision points, and
    that no node is in service where there are none."""
    for seen in subject.clusters():
        state, now = None, seen
        for _ in range(3):
            decision, state = subject.decide(now, state)
            wrong = verify_provisioning(now, decision)
            subject.expect(not wrong, "; ".join(wrong), now)
            now = _next(now, decision.in_service)


def _next(seen: Snapshot, in_service: Sequence[str]) -> Snapshot:
    """Return the snapshot one decision point later, in which the named nodes are wanted."""
    wanted = frozenset(in_service)
    power = seen.power and replace(
        seen.power, wanted=np.array([name in wanted for name in seen.nodes.names], dtype=bool)
    )
    windows = tuple(
        replace(window, interval=min(window.interval + 1, window.intervals)) if window.opens_s <= 0.0 else window
        for window in seen.windows
    )
    return replace(seen, now_s=seen.now_s + 900.0, power=power, windows=windows)


def check_bad_windows(subject: Subject) -> None:
    """Numbers of windows, nodes and prices that cannot be are borne: the decision is sound."""
    rng = np.random.default_rng(subject.seed)
    for seen in (provisioned(rng, random_cluster(rng)) for _ in range(min(4, subject.random))):
        odd = np.full(len(seen.nodes.names), _NAN)
        power = seen.power and replace(seen.power, peak_w=odd, deploy_s=odd)
        prices = PriceView(900.0, np.array([_NAN, _INF, 1e300]), np.array([-_INF, 0.0]), 0)
        for window in seen.windows:
            for changed in (
                replace(window, rate=odd),
                replace(window, rate=-np.ones(len(odd))),
                replace(window, service_s=_NAN),
                replace(window, service_s=0.0),
                replace(window, arrivals=window.arrivals * _NAN),
                replace(window, arrivals=-window.arrivals - 1.0),
                replace(window, deploy_s=_NAN, remove_s=_INF),
                replace(window, jobs=-3, nodes=-1),
                replace(window, nodes_min=9, nodes_max=2),
                window,
            ):
                now = replace(seen, power=power, windows=(changed, *seen.windows[1:2]), prices=prices)
                wrong = verify_provisioning(now, subject.decide(now)[0])
                subject.expect(not wrong, "; ".join(wrong), now)


def check_more_jobs(subject: Subject) -> None:
    """Check that more jobs never lower the number of nodes that a window wants."""
    rng = np.random.default_rng(subject.seed)
    for seen in (provisioned(rng, random_cluster(rng)) for _ in range(subject.random)):
        before = [0] * len(seen.windows)
        for jobs in range(0, 24, 3):
            now = replace(seen, windows=tuple(replace(window, jobs=jobs) for window in seen.windows))
            sizes = [size.wanted for size in subject.decide(now)[0].windows]
            grown = all(one <= other for one, other in zip(before, sizes, strict=False))
            subject.expect(grown, f"with {jobs} jobs it wants {sizes}, with fewer {before}", now)
            before = sizes


_EVERY: tuple[Check, ...] = (check_declarations, check_input_unchanged, check_same_again, check_state_survives)
CHECKS: dict[str, tuple[Check, ...]] = {
    "placement": (
        *_EVERY,
        check_decisions,
        check_bad_profiles_alone,
        check_impossible_alone,
        check_bad_nodes_alone,
        check_names_repeated,
        check_past_goals,
    ),
    "provisioning": (*_EVERY, check_sizes, check_bad_windows),
}
PLACEMENT_STEADY: tuple[Check, ...] = (check_settles, check_none_stopped)
PROVISIONING_MONOTONE: tuple[Check, ...] = (check_more_jobs,)
