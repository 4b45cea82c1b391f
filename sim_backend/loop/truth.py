"""What truly happened in a closed loop: when operations began, which nodes held VMs. Figures are made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shared.ports import effects as fx
from shared.values.actions import COMING, Action, ActionKind, Outcome
from shared.values.jobs import INSTANCE_SEPARATOR, Job, workload_of
from shared.values.web_app import WebApp
from sim_backend.loop.agent_shell import AgentShell
from sim_backend.world.figures import BusyNodes, JobRun

BRINGING = frozenset({ActionKind.START, ActionKind.RESUME, ActionKind.MIGRATE})
COUNTED = frozenset({*BRINGING, ActionKind.SUSPEND})


class Truth:
    """Watches what agents do to their hypervisors, through the hooks of their shells.

    `begun[job]`: attempt and time of the first START of its latest attempt. `busy` counts a VM on a node from the
    begin of the operation that brings it there until it is gone. `operations` counts those on instance 0 of each job,
    `actions` everything that an agent began. `apps`: the web applications, whose VMs are no jobs.
    """

    def __init__(
        self, completions: Mapping[str, Sequence[tuple[int, float]]], apps: Mapping[str, WebApp] | None = None
    ) -> None:
        self._apps = {} if apps is None else apps
        self.begun: dict[str, tuple[int, float]] = {}
        self.operations: Counter[str] = Counter()
        self.actions: Counter[str] = Counter()
        self.busy = BusyNodes()
        self._completions = completions
        self._on: dict[str, set[str]] = {}
        self._in_progress: dict[str, Action] = {}

    def on_effect(self, shell: AgentShell, effect: fx.Effect) -> None:
        """Record an effect that an agent is about to carry out."""
        if type(effect) is not fx.Operate:
            return
        action, now_s = effect.action, shell.engine.now_s
        kind = action.kind
        self.actions[kind.value] += 1
        if kind in BRINGING:
            self._hold(action.vm, action.to_node or action.node, now_s)
        if kind in COUNTED and INSTANCE_SEPARATOR in action.vm:  # an adopted VM keeps its own name
            job, index = workload_of(action.vm)
            if index == 0 and job not in self._apps:
                self.operations[kind.value] += 1
            if kind is ActionKind.START and action.spec is not None:
                attempt = action.spec.attempt
                if job not in self.begun or self.begun[job][0] != attempt:
                    self.begun[job] = (attempt, now_s)
        self._in_progress[action.id] = action

    def on_input(self, shell: AgentShell, event: fx.Input) -> None:
        """Record an event that an agent is about to receive from its hypervisor."""
        if type(event) is fx.Operated:
            action = self._in_progress.pop(event.call_id, None)
            if action is not None:
                self._operated(action, event.outcome, shell.engine.now_s)
        elif type(event) is fx.GuestChanged and event.change not in COMING:
            self._release(event.status.vm, shell.node, shell.engine.now_s)

    def host_died(self, node: str, now_s: float) -> None:
        """Note that a host has died and holds no VMs any more."""
        for vm in [vm for vm, nodes in self._on.items() if node in nodes]:
            self._release(vm, node, now_s)

    def run_of(self, job: Job) -> JobRun:
        """Return the run of a job. Its end is its first completion."""
        begun = self.begun.get(job.name)
        ends = self._completions.get(job.name)
        return JobRun(job.name, job.submit_s, begun[1] if begun else None, ends[0][1] if ends else None, job.goal_s)

    def _operated(self, action: Action, outcome: Outcome, now_s: float) -> None:
        done = outcome is Outcome.OK
        kind = action.kind
        if kind in (ActionKind.SUSPEND, ActionKind.STOP) and done:
            self._release(action.vm, action.node, now_s)
        elif kind is ActionKind.MIGRATE:
            self._release(action.vm, action.node if done else action.to_node, now_s)
        elif kind in BRINGING and not done and outcome is not Outcome.ALREADY_THERE:
            self._release(action.vm, action.node, now_s)

    def _hold(self, vm: str, node: str, now_s: float) -> None:
        nodes = self._on.setdefault(vm, set())
        if node not in nodes:
            nodes.add(node)
            self.busy.hold((node,), now_s)

    def _release(self, vm: str, node: str, now_s: float) -> None:
        nodes = self._on.get(vm)
        if nodes is None or node not in nodes:
            return
        nodes.discard(node)
        if not nodes:
            del self._on[vm]
        self.busy.release((node,), now_s)
