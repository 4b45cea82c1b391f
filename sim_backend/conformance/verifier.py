"""What holds for every decision of every placement policy: one verifier for tests and simulations.

Deliberately naive, workload by workload; it shares no code with the policies.
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from shared.policy_api.decision import (
    Change,
    ChangeKind,
    PlacementDecision,
    ProvisioningDecision,
    Reason,
    ReasonCode,
    WindowSize,
)
from shared.policy_api.snapshot import Snapshot, WindowView, WorkloadState
from shared.values.jobs import Allotment
from sim_backend.conformance.clusters import WorkRow, rows_of

_TOLERANCE = 1e-6
_PLACING = (ChangeKind.START, ChangeKind.RESUME)
_FROM = {
    ChangeKind.START: WorkloadState.WAITING,
    ChangeKind.RESUME: WorkloadState.SUSPENDED,
    ChangeKind.SUSPEND: WorkloadState.RUNNING,
    ChangeKind.MIGRATE: WorkloadState.RUNNING,
    ChangeKind.RESIZE: WorkloadState.RUNNING,
    ChangeKind.STOP: WorkloadState.RUNNING,
}
_EMPTYING = (ChangeKind.SUSPEND, ChangeKind.STOP)


def verify(snapshot: Snapshot, decision: PlacementDecision) -> list[str]:
    """Return every rule that the decision breaks, one line each; [] for a valid one.

    Workloads: known, changed at most once, not both started and refused; a fixed one is not changed and one that stays
    is not suspended. The revision is copied, the kind of change suits the state, and all instances or none are placed.
    Every waiting or suspended workload is started or refused, none before its time or with an invalid profile.

    Nodes: known and schedulable (except where an instance stays), with the required labels; instances with `spread` are
    on different nodes. Each allotment is within vcpus x core_mhz, the node, max_mhz and min_mhz. Every node that
    receives something has enough memory and CPU, including the capacity that the decision frees. Reasons are finite.

    A repeated name refers to its first row.
    """
    return list(_Verifier(snapshot).problems(decision))


def verify_provisioning(snapshot: Snapshot, decision: ProvisioningDecision) -> list[str]:
    """Return every rule that the decision breaks; [] for a valid one.

    Nodes are known, named once and available, and include those that must stay. There is one size for each open window,
    in their order, within the window's limits and the capacity of its nodes; it is less than wanted only where nodes
    are short. Probabilities lie between 0 and 1 and never rise; reasons and costs are finite.
    """
    known = set(snapshot.nodes.names)
    found = [f"{name}: there is no such node" for name in decision.in_service if name not in known]
    found += [f"{name}: named {count} times" for name, count in Counter(decision.in_service).items() if count > 1]
    found += _reason_problems("decision", decision.reason)
    if decision.predicted_cost is not None and not math.isfinite(decision.predicted_cost):
        found.append("the predicted cost is not finite")
    found += [f"refused {size}: {utility}" for size, utility in decision.refused if not math.isfinite(utility)]
    named = frozenset(decision.in_service)
    first = {name: row for row, name in reversed(list(enumerate(snapshot.nodes.names)))}
    if snapshot.power is not None:
        for name, row in first.items():
            usable = bool(snapshot.power.available[row])
            if name in named and not usable:
                found.append(f"{name}: not available")
            if usable and snapshot.power.must_stay[row] and name not in named:
                found.append(f"{name}: must stay")
    wanted = [window for window in snapshot.windows if not window.opens_s > 0.0]
    if [window.name for window in wanted] != [size.window for size in decision.windows]:
        return [*found, f"sizes for {[size.window for size in decision.windows]}"]
    for window, size in zip(wanted, decision.windows, strict=True):
        found += _size_problems(snapshot, window, size, [first[name] for name in named if name in first])
    return found


def _size_problems(snapshot: Snapshot, window: WindowView, size: WindowSize, rows: list[int]) -> Iterator[str]:
    rate = [float(each) if math.isfinite(each) and each > 0.0 else 0.0 for each in window.rate]
    all_rows = {name: row for row, name in reversed(list(enumerate(snapshot.nodes.names)))}.values()
    usable = [row for row in all_rows if snapshot.power is None or snapshot.power.available[row]]
    reachable = sum(rate[row] for row in usable)
    taken = [min(max(float(each), 0.0), 1.0) if math.isfinite(each) else 0.0 for each in window.taken]
    left = reachable - min(sum(map(operator.mul, rate, taken)), max(reachable - 1.0, 0.0))
    given = sum(rate[row] for row in rows)
    name = f"window {window.name}"
    if not 0 <= size.nodes <= given + _TOLERANCE:
        yield f"{name}: given {size.nodes}, but its nodes are worth {given:g}"
    most = max(window.nodes_max, window.nodes_min)
    if not min(window.nodes_min, int(left + _TOLERANCE)) <= size.wanted <= most:
        yield f"{name}: wants {size.wanted}, may have {window.nodes_min} to {most} of {left:g}"
    if not size.nodes <= size.wanted or (size.nodes < size.wanted and size.reason.code is not ReasonCode.OUT_OF_REACH):
        yield f"{name}: given {size.nodes} of {size.wanted} because of {size.reason}"
    falls = all(one >= other for one, other in pairwise(size.breach))
    if not falls or not all(0.0 <= chance <= 1.0 for chance in size.breach):
        yield f"{name}: probabilities {size.breach}"
    if size.predicted_cost is not None and not math.isfinite(size.predicted_cost):
        yield f"{name}: the predicted cost is not finite"
    yield from _reason_problems(name, size.reason)


def sound_profile(row: WorkRow) -> bool:
    """Return whether every number of the row is finite (the goal may be inf) and in its range."""
    times = (row.submit_s, row.desired_start_s, row.not_before_s)
    amounts = (row.memory_mib, row.min_mhz, row.work_mcycles, row.done_mcycles)
    positive = (row.max_mhz, row.importance)
    return (
        all(math.isfinite(value) for value in (*times, *amounts, *positive))
        and all(value >= 0 for value in amounts)
        and all(value > 0 for value in positive)
        and row.min_mhz <= row.max_mhz
        and row.goal_s > -math.inf
        and row.vcpus >= 1
        and row.instances >= 1
    )


def _reason_problems(of: str, reason: Reason) -> list[str]:
    return [f"{of}: {name} of its reason is {value}" for name, value in reason.numbers if not math.isfinite(value)]


class _Verifier:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes, self.workloads = rows_of(snapshot)
        self.node_of = {row.name: index for index, row in reversed(list(enumerate(self.nodes)))}
        self.work_of = {row.name: row for row in reversed(self.workloads)}

    def problems(self, decision: PlacementDecision) -> Iterator[str]:
        changes = [change for change in decision.changes if change.workload in self.work_of]
        for name, count in Counter(change.workload for change in decision.changes).items():
            if name not in self.work_of:
                yield f"{name}: there is no such workload"
            elif count > 1:
                yield f"{name}: changed {count} times"
        yield from self._left_out(decision)
        for change in changes:
            yield from self._change_problems(change)
        yield from self._overfull(changes)

    def _left_out(self, decision: PlacementDecision) -> Iterator[str]:
        placed = {change.workload for change in decision.changes if change.kind in _PLACING}
        refused = {refusal.workload for refusal in decision.refusals}
        for row in self.workloads:
            if row.state is not WorkloadState.RUNNING and row.name not in placed | refused:
                yield f"{row.name}: {row.state.name.lower()}, neither started nor refused"
        first = {name for name in placed & refused if list(self.snapshot.workloads.names).count(name) == 1}
        yield from (f"{name}: both started and refused" for name in sorted(first))
        yield from (f"{name}: refused, but unknown" for name in sorted(refused - set(self.work_of)))
        for refusal in decision.refusals:
            yield from _reason_problems(refusal.workload, refusal.reason)

    def _change_problems(self, change: Change) -> Iterator[str]:
        row = self.work_of[change.workload]
        of = f"{change.workload}: {change.kind.value}"
        yield from _reason_problems(of, change.reason)
        if row.fixed:
            yield f"{of} though it is fixed"
        if row.stays and change.kind in _EMPTYING:
            yield f"{of} though it stays"
        if change.revision != row.revision:
            yield f"{of} of revision {change.revision}, the snapshot shows {row.revision}"
        if row.state is not _FROM[change.kind]:
            yield f"{of} though it is {row.state.name.lower()}"
        if change.kind in _PLACING and max(row.desired_start_s, row.not_before_s) > self.snapshot.now_s:
            yield f"{of} before its time"
        if change.kind not in _EMPTYING and not sound_profile(row):
            yield f"{of} though its profile is bad"
        if change.kind is ChangeKind.STOP and row.app < 0:
            yield f"{of} though it is a job"
        wanted = 0 if change.kind in _EMPTYING else row.instances
        if len(change.allotments) != wanted:
            yield f"{of} with {len(change.allotments)} allotments instead of {wanted}"
        yield from self._allotments_problems(of, change, row)

    def _allotments_problems(self, of: str, change: Change, row: WorkRow) -> Iterator[str]:
        nodes = Counter(given.node for given in change.allotments)
        for name in nodes:
            if name not in self.node_of:
                yield f"{of} on {name}, which does not exist"
            if row.spread and nodes[name] > 1:
                yield f"{of} with {nodes[name]} instances on {name} though they are to be separate"
        for given, before in zip(change.allotments, self._before(change, row), strict=False):
            if given.node in self.node_of:
                yield from self._allotment_problems(f"{of} on {given.node}", given, before, row)
                if change.kind is ChangeKind.RESIZE and (before is None or given.node != before.node):
                    yield f"{of} moves an instance to {given.node}"

    def _allotment_problems(self, of: str, given: Allotment, before: Allotment | None, row: WorkRow) -> Iterator[str]:
        node = self.nodes[self.node_of[given.node]]
        stays = before is not None and before.node == given.node
        if not stays and not (node.schedulable and not node.draining):
            yield f"{of}, which is not schedulable"
        if not stays and not set(row.required_labels) <= set(node.labels):
            yield f"{of}, which lacks labels of {row.required_labels}"
        if given == before:
            return
        most = min(row.vcpus * node.core_mhz, node.cores * node.core_mhz, row.max_mhz)
        if not 0 < given.cpu_mhz <= most * (1 + _TOLERANCE):
            yield f"{of} with {given.cpu_mhz} MHz, at most {most} can be used"
        if given.cpu_mhz < row.min_mhz * (1 - _TOLERANCE):
            yield f"{of} with {given.cpu_mhz} MHz, below its minimum of {row.min_mhz}"

    def _before(self, change: Change, row: WorkRow) -> Iterable[Allotment | None]:
        """Return the current allotment of each instance, None for one that is not running."""
        if change.kind in _PLACING:
            return [None] * len(change.allotments)
        return [Allotment(self.nodes[node].name, mhz) if node >= 0 else None for node, mhz in row.places]

    def _overfull(self, changes: Iterable[Change]) -> Iterator[str]:
        """Yield a problem for each node that is allotted more than it has free, with the capacity freed by the
        decision."""
        net_mib, net_mhz = defaultdict[int, float](float), defaultdict[int, float](float)
        for change in changes:
            row = self.work_of[change.workload]
            need_mib = row.memory_mib + self.snapshot.vm_overhead_mib
            given = [(self.node_of.get(given.node, -1), given.cpu_mhz) for given in change.allotments]
            freed = [(node, -mhz) for node, mhz in row.places] if row.state is WorkloadState.RUNNING else []
            for node, mhz in given + freed:
                net_mhz[node] += mhz
            for node, sign in [(node, 1) for node, _ in given] + [(node, -1) for node, _ in freed]:
                net_mib[node] += sign * need_mib
        columns = self.snapshot.nodes
        for node, name in enumerate(columns.names):
            yield from _overdrawn(f"{name}: memory in MiB", columns.free_memory_mib.item(node), net_mib[node])
            yield from _overdrawn(f"{name}: CPU in MHz", columns.free_cpu_mhz.item(node), net_mhz[node])


def _overdrawn(of: str, free: float, net: float) -> Iterator[str]:
    room = _TOLERANCE * max(1.0, abs(net))
    if net > room and not net <= free + room:
        yield f"{of}: {net:g} more is given than freed, {free:g} is free"
