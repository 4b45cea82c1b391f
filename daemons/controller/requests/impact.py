"""`Assess` in the controller: the task for the worker, and the view of its answer (docs/reference/views.md)."""

from __future__ import annotations

from typing import Any

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.requests.vms import VmRequests
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.views.decisions import change_view, refusal_view
from daemons.decision.impact import DRAIN, MIGRATE, RESUME, SUSPEND, Assessment, AssessTask, undone
from daemons.values.replies import unknown
from shared.protocol.account_messages import Assess
from shared.protocol.operator_messages import MoveVm
from shared.values.actions import ActionKind

KINDS = (MIGRATE, SUSPEND, RESUME, DRAIN)
ROWS_MAX = 200
Row = dict[str, Any]
Refused = tuple[str, str]
DONE: Refused = ("", "")


class ImpactAssessor:
    """Makes tasks of questions, and rows of answers."""

    def __init__(self, cluster: Cluster, deciding: DecisionCycle, vms: VmRequests) -> None:
        self._cluster, self._deciding, self._vms = cluster, deciding, vms

    def refuse(self, asked: Assess) -> Refused:
        """Return why the question cannot be answered; ("", "") when it can."""
        if asked.kind not in KINDS:
            return "invalid-value", f"{unknown('kind', asked.kind, KINDS)}; there are {', '.join(KINDS)}"
        if asked.kind == DRAIN:
            return self._known("node", asked.subject, self._cluster.nodes)
        if asked.kind == MIGRATE:
            refused = self._known("VM", asked.subject, self._cluster.instances)
            return refused if refused[0] else self._known("node", asked.node, self._cluster.nodes)
        return self._known("job", asked.subject, self._cluster.active)

    def _known(self, what: str, name: str, there: Any) -> Refused:
        return DONE if name in there else (f"unknown-{what.lower()}", unknown(what, name, there))

    def task(self, asked: Assess, now_s: float) -> AssessTask:
        """Return the task for the worker."""
        request = self._deciding.request(now_s, True)
        if asked.kind == DRAIN:
            min_mhz = self._deciding.builder.drained_min_mhz(asked.subject, now_s)
            return AssessTask(request, DRAIN, node=asked.subject, min_mhz=min_mhz)
        if asked.kind == MIGRATE:
            job = self._cluster.instances[asked.subject].job.job
            return AssessTask(request, MIGRATE, job.name, self._index(asked), asked.node)
        return AssessTask(request, asked.kind, asked.subject)

    def _index(self, asked: Assess) -> int:
        """Return the index of the moved instance in its workload."""
        instance = self._cluster.instances[asked.subject]
        return instance.job.instances.index(instance)

    def view(self, asked: Assess, found: Assessment) -> Row:
        """Return the assessment as plain data."""
        code, detail = self._refusal(asked)
        index = self._index(asked) if asked.kind == MIGRATE else 0
        moved = [name for name in found.now if found.changed.get(name) != found.now[name]]
        shown = sorted({*moved, *found.workloads}, key=lambda name: (found.changed.get(name, 0.0), name))
        return {
            "kind": asked.kind,
            "subject": asked.subject,
            "node": asked.node,
            "refused": {"code": code, "detail": detail} if code else None,
            "skipped": found.skipped,
            "policy": self._deciding.settings.placement.name,
            "undone": None
            if found.skipped or asked.kind in (SUSPEND, DRAIN)
            else undone(asked.kind, index, asked.node, found.follows),
            "utilities": [
                {"workload": name, "now": found.now.get(name), "changed": found.changed.get(name)}
                for name in shown[:ROWS_MAX]
            ],
            "total": len(shown),
            "level": {"now": found.levels[0], "changed": found.levels[1]},
            "proposes": [change_view(one) for one in found.proposes[:ROWS_MAX]],
            "follows": [change_view(one) for one in found.follows[:ROWS_MAX]],
            "refusals": [refusal_view(one) for one in found.refusals[:ROWS_MAX]],
            "others": found.others,
            "operations": self._operations(asked)[:ROWS_MAX],
        }

    def _refusal(self, asked: Assess) -> Refused:
        """Return why a request for it would be refused now."""
        if asked.kind == MIGRATE:
            return self._vms.refuse_move(MoveVm(asked.request, asked.subject, asked.node))
        entry = self._cluster.active.get(asked.subject)
        if asked.kind in (SUSPEND, RESUME) and entry is not None and entry.over:
            return "job-over", f"job {asked.subject!r} is {entry.phase} already"
        return DONE

    def _operations(self, asked: Assess) -> list[Row]:
        """Return the operations on VMs, and how long each takes by the cost model."""
        if asked.kind == MIGRATE:
            return [self._operation(ActionKind.MIGRATE, self._cluster.instances[asked.subject])]
        if asked.kind == DRAIN:
            node = self._cluster.nodes.get(asked.subject)
            here = [self._cluster.instances[vm] for vm in sorted(node.claimed)] if node is not None else []
            return [self._operation(ActionKind.MIGRATE, instance) for instance in here]
        entry: JobEntry | None = self._cluster.active.get(asked.subject)
        kind = ActionKind.SUSPEND if asked.kind == SUSPEND else ActionKind.RESUME
        return [] if entry is None else [self._operation(kind, instance) for instance in entry.instances]

    def _operation(self, kind: ActionKind, instance: Instance) -> Row:
        seconds = self._cluster.operation_times.costs_now(self._deciding.settings).duration_s(kind, instance.memory_mib)
        return {"vm": instance.vm, "kind": kind.value, "seconds": seconds, "memory_mib": instance.memory_mib}
