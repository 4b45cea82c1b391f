"""Progress of plans: the state of each step, and the other steps that it waits for.

Steps follow the orders that are sent and answered. The state of steps that an earlier leader ordered is derived from
where VMs are. A `Progress` drops the oldest plans, whose decisions can no longer be queried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from daemons.controller.decide.decision_log import KEPT_MAX
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance
from daemons.values.records.cluster import DecisionRecord
from shared.policy_api.decision import Step
from shared.protocol.messages import Result
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import LIVE_STATES, VmState

STEPS_MAX = 20_000  # of all plans that are followed
MHZ_TOLERANCE = 1.0
LEAVING = frozenset({ActionKind.STOP, ActionKind.SUSPEND, ActionKind.MIGRATE, ActionKind.DISCARD_IMAGE})
Key = tuple[str, str, str, str]


class StepState(StrEnum):
    """What has become of a step of a plan."""

    HELD = "held"  # the plan is not carried out
    WAITING = "waiting"  # not ordered yet
    SENT = "sent"
    DONE = "done"
    FAILED = "failed"  # it is tried again, or the workload is left as it is
    DROPPED = "dropped"  # its workload was changed since: it is not wanted any more
    UNKNOWN = "unknown"  # nobody has followed it


@dataclass(slots=True)
class StepProgress:
    """Of one step: its state, since when (None: not known), and in words what went wrong."""

    state: StepState
    since_s: float | None = None
    detail: str = ""


@dataclass(slots=True)
class _Plan:
    """A plan that is carried out. revisions: of its workloads, when it was made the desired state."""

    steps: Sequence[Step]
    progress: list[StepProgress]
    revisions: Mapping[str, int]


class Progress:
    """Follows the plans that are carried out, by the numbers of their decisions."""

    def __init__(self, cluster: Cluster, steps_max: int = STEPS_MAX) -> None:
        self._cluster, self.steps_max = cluster, steps_max
        self._plans: dict[int, _Plan] = {}
        self._wanted: dict[Key, StepProgress] = {}
        self._sent: dict[str, StepProgress] = {}
        self._count = 0

    def follow(self, record: DecisionRecord, now_s: float) -> None:
        """Follow a plan that has become the desired state."""
        steps = record.plan.steps
        if not steps or record.number in self._plans:
            return
        progress = [StepProgress(StepState.WAITING, now_s) for _ in steps]
        known = {step.workload: self._cluster.jobs.get(step.workload) for step in steps}
        revisions = {name: entry.revision for name, entry in known.items() if entry is not None}
        self._plans[record.number] = _Plan(steps, progress, revisions)
        self._wanted |= {_key_of(step): one for step, one in zip(steps, progress, strict=True)}
        self._count += len(steps)
        while (self._count > self.steps_max or len(self._plans) > KEPT_MAX) and len(self._plans) > 1:
            self._forget(next(iter(self._plans)))

    def _forget(self, number: int) -> None:
        gone = self._plans.pop(number)
        self._count -= len(gone.steps)
        for step, one in zip(gone.steps, gone.progress, strict=True):
            if self._wanted.get(_key_of(step)) is one:
                del self._wanted[_key_of(step)]

    def sent(self, action: Action, now_s: float) -> None:
        """Note that an order was sent."""
        found = self._wanted.get((action.kind, action.vm, action.node, action.to_node))
        if found is not None and found.state is not StepState.DONE:
            found.state, found.since_s, found.detail = StepState.SENT, now_s, ""
            self._sent[action.id] = found
            if len(self._sent) > self.steps_max:  # orders that nobody answers
                del self._sent[next(iter(self._sent))]

    def answered(self, result: Result, now_s: float) -> None:
        """Note that an order was answered."""
        found = self._sent.pop(result.action, None)
        if found is not None:
            done = result.outcome is Outcome.OK
            found.state, found.since_s = (StepState.DONE if done else StepState.FAILED), now_s
            found.detail = "" if done else f"{result.outcome.value} {result.detail}".rstrip()

    def of(self, record: DecisionRecord) -> list[StepProgress]:
        """Return the progress of each step of a decision's plan, in order."""
        plan = self._plans.get(record.number)
        if plan is None:
            held = bool(record.held) and record.approved_s is None
            return [self._unfollowed(step, held) for step in record.plan.steps]
        return [self._now(step, one, plan) for step, one in zip(plan.steps, plan.progress, strict=True)]

    def _unfollowed(self, step: Step, held: bool) -> StepProgress:
        if held:
            return StepProgress(StepState.HELD)
        return StepProgress(StepState.DONE if self._is_so(step) else StepState.UNKNOWN)

    def _now(self, step: Step, one: StepProgress, plan: _Plan) -> StepProgress:
        if one.state not in (StepState.WAITING, StepState.FAILED):
            return one
        if self._is_so(step):
            return StepProgress(StepState.DONE, one.since_s)
        entry = self._cluster.jobs.get(step.workload)
        changed = entry is None or entry.revision != plan.revisions.get(step.workload)
        dropped = changed and one.state is StepState.WAITING  # a failure is a change too
        return StepProgress(StepState.DROPPED, one.since_s) if dropped else one

    def _is_so(self, step: Step) -> bool:
        """Return whether the VM is as the step would leave it, by the last reports of its nodes."""
        instance = self._cluster.instances.get(step.vm)
        if instance is None:
            return step.kind in (ActionKind.STOP, ActionKind.DISCARD_IMAGE)
        states = self._states(instance)
        live = {name for name, state in states.items() if state in LIVE_STATES}
        match step.kind:
            case ActionKind.START | ActionKind.RESUME | ActionKind.UNPAUSE | ActionKind.ADOPT:
                return step.node in live
            case ActionKind.MIGRATE:
                return step.to_node in live and step.node not in live
            case ActionKind.SUSPEND:
                return states.get(step.node) is VmState.SUSPENDED
            case ActionKind.STOP | ActionKind.DISCARD_IMAGE | ActionKind.RELEASE | ActionKind.UNDEFINE:
                return step.node not in states
            case ActionKind.SET_CPU:
                return abs(instance.cpu_mhz - step.cpu_mhz) <= MHZ_TOLERANCE
        return False

    def _states(self, instance: Instance) -> dict[str, VmState]:
        nodes = self._cluster.nodes
        return {name: nodes[name].vms[instance.vm].state for name in instance.copies}


def _key_of(step: Step) -> Key:
    return (step.kind, step.vm, step.node, step.to_node)


def edges(steps: Sequence[Step]) -> list[list[int]]:
    """Return for each step the numbers of those that it waits for: the one before it of the same VM, and those of the
    nearest earlier wave that free capacity on the node that it needs. Takes O(steps) plus the number of returned
    pairs."""
    of_vm: dict[str, int] = {}
    leaving: dict[str, dict[int, list[int]]] = {}  # by node and wave
    after: list[list[int]] = []
    for at, step in enumerate(steps):
        before = {of_vm[step.vm]} if step.vm in of_vm else set()
        waves = leaving.get(step.to_node or step.node, {})
        if step.kind not in LEAVING or step.to_node:
            nearest = max((wave for wave in waves if wave < step.wave), default=None)
            before |= set(waves[nearest]) if nearest is not None else set()
        after.append(sorted(before))
        of_vm[step.vm] = at
        if step.kind in LEAVING:
            leaving.setdefault(step.node, {}).setdefault(step.wave, []).append(at)
    return after
