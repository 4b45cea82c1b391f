"""Decisions that wait for an operator's word: who has approved them, and what was rejected.

A plan is carried out when `approvals` different accounts have approved it. One that replaces it and holds exactly the
same takes their word over. What was rejected is not proposed again for `REJECTED_CYCLES` cycles, unless the workload
has changed since, or other nodes serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from daemons.controller.decide.decision_log import DecisionLog
from daemons.controller.decide.node_pool import NodePool, ServiceChange
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import automation_of
from daemons.values.records.cluster import Approval, DecisionRecord, Provisioned
from daemons.values.settings import Automation, ControllerSettings
from shared.policy_api.decision import Change, Reason, ReasonCode, Refusal

REJECTED_CYCLES = 4
ADDED, REMOVED = "added", "removed"  # what was rejected of a node
Refused = tuple[str, str]
DONE: Refused = ("", "")
Held = tuple[tuple[object, ...], ...]


@dataclass(slots=True)
class _Rejected:
    """What was rejected until when, and what there was then: the workload's revision, the nodes that served (None: not
    known any more). stopped: it was in progress. Its workload changes once more when it ends and nodes come back into
    service by it: it ends early only where a node that served does not any more."""

    until_s: float
    revision: int
    serving: frozenset[str] | None
    stopped: bool


class Approvals:
    """Keeps the decision that waits. `carry_out(record, now_s)` makes it the desired state and returns what was dropped
    of it because its workload had changed since."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        nodes: NodePool,
        history: DecisionLog,
        carry_out: Callable[[DecisionRecord, float], Sequence[Refusal]],
    ) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self.nodes, self.history, self._carry_out = nodes, history, carry_out
        self.pending: DecisionRecord | None = None
        self._seen: dict[str, int] | None = None  # of nodes, when it was asked for (None: an earlier leader asked)
        self._rejected: dict[tuple[str, str], _Rejected] = {}

    @property
    def missing(self) -> int:
        """How many more accounts must approve the decision that waits."""
        return 0 if self.pending is None else self._missing(self.pending)

    def loaded(self, now_s: float) -> None:
        """Resume after a new leader has read the decisions: a pending decision stays pending, a rejected one stays
        rejected."""
        last = next((record for record in self.history if record.asks), None)
        if last is not None and last.is_open and self._waits(last):
            self.pending = last
        for record in self.history:
            if record.rejected is not None and now_s < record.rejected.at_s + self._rejected_s():
                self._note(record, record.rejected.at_s, None)

    def _waits(self, record: DecisionRecord) -> bool:
        """Return whether anything of a decision waits for approval at the levels that hold now."""
        level = self.settings.automation
        own = (automation_of(self.cluster.job(one.workload), level) for one in record.held)
        return level is Automation.CONFIRM or Automation.CONFIRM in own

    # --- waiting ----------------------------------------------------------------------------------------------------

    def needs_approval(self, provisioned: Provisioned | None) -> bool:
        """Return whether a decision with these changes of nodes needs approval."""
        return self.settings.automation is Automation.CONFIRM and bool(change_of(provisioned))

    def standing(self, held: Sequence[Change], provisioned: Provisioned | None) -> tuple[Approval, ...]:
        """Return the approvals already given to exactly these changes."""
        before = self.pending
        if before is None or _content(before.held, before.provisioning) != _content(held, provisioned):
            return ()
        return before.approvals

    def wait(self, record: DecisionRecord, seen: dict[str, int]) -> None:
        """Have it wait, in the place of the one that does. seen: what was known of nodes when it was asked for."""
        self.pending, self._seen = record, seen

    def measured(self, record: DecisionRecord) -> None:
        """Replace the pending record by this one, if both are of the same decision."""
        if self.pending is not None and self.pending.number == record.number:
            self.pending = record

    # --- words ------------------------------------------------------------------------------------------------------

    def approve(self, number: int, by: Approval) -> Refused:
        """Take an account's word; with the last one that is needed the decision is carried out."""
        record = self.pending
        if record is None or record.number != number:
            return _not_waiting(number)
        approved = any(each.account == by.account for each in record.approvals)
        if approved and self.missing:  # none is missing when fewer are asked for than when it was approved
            return "already-approved", f"{by.account} has approved it already; {self.missing} more must, not the same"
        record = record if approved else replace(record, approvals=(*record.approvals, by))
        self.pending, missing = record, self._missing(record)
        more = f"; {missing} more must" if missing else ""
        self.unit_of_work.emit(by.at_s, "plan-approved", f"{number}", f"{_who(by)}{more}")
        if not missing:
            self.pending = None
            record = self._carried_out(replace(record, approved_s=by.at_s), by.at_s)
        self._keep(record)
        return DONE

    def _missing(self, record: DecisionRecord) -> int:
        return max(0, self.settings.approvals - len(record.approvals))

    def reject(self, number: int, by: Approval) -> Refused:
        """Drop the decision that waits."""
        record = self.pending
        if record is None or record.number != number:
            return _not_waiting(number)
        self.pending = None
        self._note(record, by.at_s, self._serving())
        self.unit_of_work.emit(by.at_s, "plan-rejected", f"{number}", _who(by))
        self._keep(replace(record, rejected=by))
        return DONE

    def _carried_out(self, record: DecisionRecord, now_s: float) -> DecisionRecord:
        service = change_of(record.provisioning)
        now = self.nodes.seen(now_s)
        seen = now if self._seen is None else self._seen
        same = {name for name in (*service.added, *service.removed) if name in now and seen.get(name) == now[name]}
        added, removed = (tuple(n for n in names if n in same) for names in (service.added, service.removed))
        self.nodes.apply(ServiceChange(added, removed), now_s)
        return replace(record, dropped=(*record.dropped, *self._carry_out(record, now_s)))

    def _keep(self, record: DecisionRecord) -> None:
        self.history.replace(record)
        self.unit_of_work.records.append(record)

    # --- what was rejected ------------------------------------------------------------------------------------------

    def rejected(self, changes: Sequence[Change], now_s: float) -> list[Refusal]:
        """Return the changes that are rejected and may not be proposed again yet."""
        if not self._rejected:
            return []
        left = {one.workload: self._left_s(one.workload, one.kind.value, one.revision, now_s) for one in changes}
        return [
            Refusal(name, Reason(ReasonCode.REJECTED, (("seconds_left", left_s),)))
            for name, left_s in left.items()
            if left_s > 0.0
        ]

    def without_rejected(self, service: ServiceChange, now_s: float) -> ServiceChange:
        """Return what is left of a change of nodes; rejected nodes are dropped from it."""
        if not self._rejected:
            return service
        added = tuple(name for name in service.added if self._left_s(name, ADDED, 0, now_s) <= 0.0)
        removed = tuple(name for name in service.removed if self._left_s(name, REMOVED, 0, now_s) <= 0.0)
        gone = {*service.added, *service.removed} - {*added, *removed}
        return ServiceChange(added, removed, (*service.dropped, *sorted(gone)))

    def stopped(self, record: DecisionRecord) -> None:
        """Note that what an operator has stopped is not to be proposed again for a while."""
        self._note(record, record.at_s, self._serving())

    def _note(self, record: DecisionRecord, at_s: float, serving: frozenset[str] | None) -> None:
        until_s = at_s + self._rejected_s()
        service = change_of(record.provisioning)
        for change in record.held:
            one = _Rejected(until_s, change.revision, serving, record.is_stop)
            self._rejected[change.workload, change.kind.value] = one
        for names, what in ((service.added, ADDED), (service.removed, REMOVED)):
            self._rejected |= {(name, what): _Rejected(until_s, 0, serving, record.is_stop) for name in names}

    def _left_s(self, name: str, what: str, revision: int, now_s: float) -> float:
        """Return the seconds for which it stays rejected; 0: it is not rejected, or its conditions have changed
        since."""
        found = self._rejected.get((name, what))
        if found is None:
            return 0.0
        serving = self._serving()
        if found.serving is None:
            found.serving = serving
        as_then = found.serving == serving and found.revision == revision
        if now_s >= found.until_s or not (found.serving <= serving if found.stopped else as_then):
            del self._rejected[name, what]
            return 0.0
        return found.until_s - now_s

    def _rejected_s(self) -> float:
        """Ends a little before the cycle that may propose it again."""
        return (REJECTED_CYCLES - 0.5) * self.settings.decide_s

    def _serving(self) -> frozenset[str]:
        return frozenset(name for name, node in self.cluster.nodes.items() if node.schedulable)


def change_of(provisioned: Provisioned | None) -> ServiceChange:
    """Return the node changes that wait for an operator's approval."""
    if provisioned is None or not provisioned.held:
        return ServiceChange((), ())
    return ServiceChange(provisioned.added, provisioned.removed)


def _content(held: Sequence[Change], provisioned: Provisioned | None) -> tuple[Held, ServiceChange]:
    """Return a key by which two decisions with the same changes compare equal."""
    changes = tuple((one.workload, one.revision, one.kind, one.allotments) for one in held)
    service = change_of(provisioned)
    return tuple(sorted(changes, key=lambda one: (one[0], one[2]))), ServiceChange(service.added, service.removed)


def _not_waiting(number: int) -> Refused:
    return "no-such-plan", f"no plan of decision {number} waits for approval"


def _who(by: Approval) -> str:
    return f"{by.account}: {by.why}" if by.why else by.account
