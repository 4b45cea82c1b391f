"""Admission as it is computed in a worker process: the standing reservations stay there, and only what has changed of
them is sent (`daemons.controller.admission.admission` sends it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daemons.decision import pipeline
from daemons.decision.impact import AssessTask, assess
from daemons.decision.spare_capacity import SpareCapacityTask, compute_spare_capacity
from daemons.decision.vm_fit import VmFitTask, vm_fit
from daemons.models.assurance.splits import cheapest_split
from shared.base.errors import InvalidInput
from shared.policy_api.admission import Grid, Pool, SlotFigures, Split, Standing, Verdict
from shared.policy_api.policies import AdmissionPolicy, TableCache
from shared.ports.plugins import find_policy


@dataclass(frozen=True, slots=True)
class AdmissionTask:
    """What is asked of an admission policy. token: whose reservations these are. since: up to which revision the worker
    should know them (0: nothing); revision: which one it has with `gone` (names) and `put`, in their order. request:
    what is asked for (None: only what the promises need from `now_s` on). replaces: the name of a standing reservation
    that goes if the request is admitted. assure: the part of its demand that the owner wants served (0: not asked).
    more: there are more of these to come, nothing is asked yet."""

    token: str
    since: int
    revision: int
    gone: tuple[str, ...]
    put: tuple[Standing, ...]
    policy: str
    params: Mapping[str, Any]
    pools: tuple[Pool, ...]
    now_s: float
    request: Standing | None = None
    replaces: str = ""
    assure: float = 0.0
    more: bool = False


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """What came of a task. behind: the worker does not know what it should; all must be sent again."""

    behind: bool = False
    verdict: Verdict | None = None
    figures: tuple[Grid, tuple[SlotFigures, ...]] | None = None
    splits: tuple[Split, ...] = ()


@dataclass(slots=True, eq=False)
class AdmissionWorker:
    """What a worker keeps between tasks: the reservations that stand, and the policy's memory."""

    token: str = ""
    revision: int = 0
    standing: dict[str, Standing] = field(default_factory=dict)
    memory: Any = None

    def answer(self, task: AdmissionTask) -> AdmissionAnswer:
        """Carry out a task. Raises what the policy raises."""
        if task.since == 0:
            self.token, self.revision, self.standing, self.memory = task.token, 0, {}, None
        if (self.token, self.revision) != (task.token, task.since):
            return AdmissionAnswer(behind=True)
        for name in task.gone:
            self.standing.pop(name, None)
        self.standing.update((each.reservation.name, each) for each in task.put)
        self.revision = task.revision
        if task.more:
            return AdmissionAnswer()
        policy: AdmissionPolicy = find_policy("admission", task.policy)
        standing = [each for name, each in self.standing.items() if name != task.replaces]
        if task.request is None:
            figures, self.memory = policy.figures(standing, task.pools, task.now_s, task.params, self.memory)
            return AdmissionAnswer(figures=figures)
        verdict, self.memory = policy.admit(task.request, standing, task.pools, task.now_s, task.params, self.memory)
        return AdmissionAnswer(verdict=verdict, splits=_splits(task))


def _splits(task: AdmissionTask) -> tuple[Split, ...]:
    """Return the cheapest split of the request if its owner states how much must be served; none for a policy whose
    parameters are not prices."""
    if task.request is None or not task.assure:
        return ()
    asked = task.request.reservation
    try:
        return tuple(
            cheapest_split(demand, asked.calendar, asked.slot_s, task.assure, task.params) for demand in asked.demands
        )
    except InvalidInput:
        return ()


_worker = AdmissionWorker()


def run(task: AdmissionTask) -> AdmissionAnswer:
    """Carry out a task in this process."""
    return _worker.answer(task)


def compute(request: Any, table_cache: TableCache = pipeline.no_tables) -> Any:
    """Compute any request of a controller, except building tables. Raises the policy's exceptions."""
    if isinstance(request, AdmissionTask):
        return run(request)
    if isinstance(request, VmFitTask):
        return vm_fit(request)
    if isinstance(request, SpareCapacityTask):
        return compute_spare_capacity(request)
    return assess(request, table_cache) if isinstance(request, AssessTask) else pipeline.run(request, table_cache)
