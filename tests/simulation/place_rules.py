"""Whether a placement decision is feasible on what its snapshot shows, rule by rule, and the placement it makes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, Refusal
from shared.policy_api.snapshot import Snapshot, WorkloadState
from tests.simulation.constraint_judge import newly_broken
from tests.simulation.place_judge import Placement, Places, current, is_job, speed_limits

SLACK = 1e-6
STATE_FOR = {
    ChangeKind.START: WorkloadState.WAITING,
    ChangeKind.RESUME: WorkloadState.SUSPENDED,
    ChangeKind.SUSPEND: WorkloadState.RUNNING,
    ChangeKind.MIGRATE: WorkloadState.RUNNING,
    ChangeKind.RESIZE: WorkloadState.RUNNING,
    ChangeKind.STOP: WorkloadState.RUNNING,
}
PLACING = (ChangeKind.START, ChangeKind.RESUME)
LEAVING = (ChangeKind.SUSPEND, ChangeKind.STOP)


def judge_decision(
    seen: Snapshot, decision: PlacementDecision, changes_max: int = 0, cool_down_s: float = 0.0
) -> dict[int, Places]:
    """The placement that the decision makes; AssertionError with every rule that it breaks."""
    judge = _Judge(seen, decision)
    wrong = [*judge.names(), *judge.each_change(), *judge.rooms(), *judge.applications(), *judge.constraints()]
    wrong += judge.limits(changes_max, cool_down_s)
    assert not wrong, "\n".join(wrong)
    return judge.placement


class _Judge:
    def __init__(self, seen: Snapshot, decision: PlacementDecision) -> None:
        self.seen, self.decision = seen, decision
        self.node_of = _first_rows(seen.nodes.names)
        self.row_of = _first_rows(seen.workloads.names)
        self.known = [change for change in decision.changes if change.workload in self.row_of]
        self.before = current(seen)
        self.placement = dict(self.before)
        for change in self.known:
            row = self.row_of[change.workload]
            if change.kind in LEAVING:
                self.placement.pop(row, None)
            else:
                self.placement[row] = tuple((self.node_of.get(a.node, -1), a.cpu_mhz) for a in change.allotments)

    def names(self) -> Iterator[str]:
        """Known names, one change each, and something said of everyone who asks."""
        counted = Counter(change.workload for change in self.decision.changes)
        refused = {refusal.workload for refusal in self.decision.refusals}
        yield from (f"{name}: there is no such workload" for name in (*counted, *refused) if name not in self.row_of)
        yield from (f"{name}: changed {count} times" for name, count in counted.items() if count > 1)
        for name, row in self.row_of.items():
            asks = self.seen.workloads.state[row] != WorkloadState.RUNNING and is_job(self.seen, row)
            if asks and name not in refused and row not in self.placement:
                yield f"{name}: neither placed nor refused"
            twice = self.seen.workloads.names.count(name) > 1
            if asks and name in refused and row in self.placement and not twice:
                yield f"{name}: both placed and refused"
        said: tuple[Change | Refusal, ...] = (*self.decision.changes, *self.decision.refusals)
        for about in said:
            yield from (
                f"{about.workload}: {name} = {value} in its reason"
                for name, value in about.reason.numbers
                if not math.isfinite(value)
            )

    def each_change(self) -> Iterator[str]:
        work = self.seen.workloads
        for change in self.known:
            row, of = self.row_of[change.workload], f"{change.workload}: {change.kind.value}"
            wanted = 0 if change.kind in LEAVING else work.instances.item(row)
            suits_app = change.kind not in (ChangeKind.SUSPEND, ChangeKind.RESUME)
            suits = change.kind is not ChangeKind.STOP if is_job(self.seen, row) else suits_app
            early = max(work.desired_start_s.item(row), work.not_before_s.item(row)) > self.seen.now_s
            broken = {
                "is fixed": work.fixed.item(row),
                f"is of revision {work.revision.item(row)}, not {change.revision}": change.revision
                != work.revision.item(row),
                "is in another state": work.state.item(row) != STATE_FOR[change.kind].value,
                "has not so many instances": len(change.allotments) != wanted,
                "is of another kind": not suits,
                "is not to start yet": change.kind in PLACING and early,
                "is disturbed between cycles": not self.seen.at_cycle and not self._gentle(change, row),
            }
            yield from (f"{of}, but it {what}" for what, holds in broken.items() if holds)
            yield from (f"{of}, but {what}" for what in self._replicas(change, row))

    def _gentle(self, change: Change, row: int) -> bool:
        """Nothing running loses its place or CPU, but for what leaves a node that is to be emptied."""
        if change.kind is ChangeKind.RESIZE:
            pairs = zip(change.allotments, self.before.get(row, ()), strict=False)
            return all(given.cpu_mhz >= mhz - SLACK for given, (_, mhz) in pairs)
        if change.kind in (ChangeKind.MIGRATE, ChangeKind.STOP):  # stopped: an instance that its application can spare
            return any(node >= 0 and self.seen.nodes.draining[node] for node, _ in self.before.get(row, ()))
        return change.kind in PLACING

    def _replicas(self, change: Change, row: int) -> Iterator[str]:
        """Each instance on a node that may have it, with a speed that it may have."""
        nodes, work = self.seen.nodes, self.seen.workloads
        on = Counter(given.node for given in change.allotments)
        if work.spread[row] and any(count > 1 for count in on.values()):
            yield "two of its instances share a node"
        most, least = speed_limits(self.seen, row)
        moved = False
        for index, given in enumerate(change.allotments):
            if given.node not in self.node_of:
                yield f"there is no node {given.node}"
                continue
            node = self.node_of[given.node]
            stays = row in self.before and self.before[row][index : index + 1] and self.before[row][index][0] == node
            moved |= not stays
            if not stays and (nodes.draining[node] or not nodes.schedulable[node]):
                yield f"{given.node} takes nothing new"
            if not stays and not {*work.required_labels[row]} <= {*nodes.labels[node]}:
                yield f"{given.node} lacks a label"
            top = min(most, work.vcpus.item(row) * nodes.core_mhz.item(node), nodes.cpu_mhz.item(node))
            if not 0.0 < given.cpu_mhz <= top * (1 + SLACK):
                yield f"{given.cpu_mhz} MHz on {given.node} is not above 0 and at most {top}"
            if given.cpu_mhz < least * (1 - SLACK):
                yield f"{given.cpu_mhz} MHz on {given.node} is less than {least}"
        if moved is (change.kind is ChangeKind.RESIZE) and change.kind in (ChangeKind.RESIZE, ChangeKind.MIGRATE):
            yield "it moves" if moved else "it stays where it is"

    def rooms(self) -> Iterator[str]:
        """No node holds more than it has; one that was over before holds no more than before."""
        nodes = self.seen.nodes
        mib, mhz = self._used(self.before)
        mib_after, mhz_after = self._used(self.placement)
        for node, name in enumerate(nodes.names):
            for what, free, used, after in (
                ("MiB", nodes.free_memory_mib.item(node), mib[node], mib_after[node]),
                ("MHz", nodes.free_cpu_mhz.item(node), mhz[node], mhz_after[node]),
            ):
                room = SLACK * max(1.0, abs(after))
                if not (after <= used + room or after <= free + used + room):
                    yield f"{name}: {after} {what} wanted of {free + used}"

    def _used(self, placement: Placement) -> tuple[Counter[int], Counter[int]]:
        mib: Counter[int] = Counter()
        mhz: Counter[int] = Counter()
        for row, places in placement.items():
            for node, given_mhz in places:
                mib[node] += self.seen.workloads.memory_mib.item(row) + self.seen.vm_overhead_mib  # type: ignore[assignment]
                mhz[node] += given_mhz  # type: ignore[assignment]
        return mib, mhz

    def applications(self) -> Iterator[str]:
        """As many instances as may run, no two on one node."""
        web, app_of = self.seen.web, self.seen.workloads.app
        for app, name in enumerate(web.names):
            was = [row for row in self.before if app_of[row] == app]
            now = [row for row in self.placement if app_of[row] == app]
            on = Counter(node for row in now for node, _ in self.placement[row])
            if any(on[node] > 1 for row in now if row not in was for node, _ in self.placement[row]):
                yield f"{name}: two instances on one node"
            if len(now) > max(len(was), web.max_instances.item(app)):
                yield f"{name}: {len(now)} instances, at most {web.max_instances.item(app)}"
            if len(now) < min(len(was), web.min_instances.item(app)):
                yield f"{name}: {len(now)} instances, at least {web.min_instances.item(app)}"

    def constraints(self) -> Iterator[str]:
        """No instance comes to where a constraint forbids it; what has been so before may stay."""
        before = {row: tuple(node for node, _ in places) for row, places in self.before.items()}
        after = {row: tuple(node for node, _ in places) for row, places in self.placement.items()}
        yield from newly_broken(self.seen, before, after)

    def limits(self, changes_max: int, cool_down_s: float) -> Iterator[str]:
        """Suspends and moves are no more than a cycle may have (0: no limit), and none so soon after another change."""
        kinds = (ChangeKind.SUSPEND, ChangeKind.MIGRATE)
        disruptive = [change for change in self.known if change.kind in kinds]
        if 0 < changes_max < len(disruptive):
            yield f"{len(disruptive)} disruptive changes, at most {changes_max}"
        for change in disruptive:
            since_s = self.seen.now_s - self.seen.workloads.changed_s.item(self.row_of[change.workload])
            if since_s < cool_down_s:
                yield f"{change.workload}: {change.kind.value} only {since_s} s after its last change"


def _first_rows(names: tuple[str, ...]) -> dict[str, int]:
    return {name: row for row, name in reversed(list(enumerate(names)))}
