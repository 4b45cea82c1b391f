"""`CheckVmFit` in the controller: the task for the worker, and the view of its answer (docs/reference/views.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from daemons.controller.contract.feature import DONE, Refused
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.node_fit import unknown_nodes
from daemons.decision.vm_fit import COPY_NAMES, Fit, Migration, Misfit, Obstacle, VmFit, VmFitTask
from daemons.planning.make_room import MOVES_MAX
from daemons.values.text_format import memory_text, number_text
from shared.protocol.operator_messages import CheckVmFit
from shared.values.jobs import Constraint, Rules, instance_name

ROWS_MAX = 1_000
Row = dict[str, Any]
ConstraintsAbout = Callable[[Sequence[str], Rules], tuple[Constraint, ...]]
"""Returns the constraints about new workloads of these names with these rules."""


class VmFitQuestions:
    """Makes tasks of questions, and rows of answers."""

    def __init__(self, cluster: Cluster, deciding: DecisionCycle, constraints_about: ConstraintsAbout) -> None:
        self._cluster, self._deciding, self._constraints_about = cluster, deciding, constraints_about

    def refuse(self, asked: CheckVmFit) -> Refused:
        """Return why the question cannot be answered; ("", "") when it can."""
        unknown = unknown_nodes(self._cluster, asked.vm.rules)
        return ("unknown-node", unknown) if unknown else DONE

    def task(self, asked: CheckVmFit, now_s: float) -> VmFitTask:
        """Return the task for the worker."""
        constraints = self._constraints_about(COPY_NAMES, asked.vm.rules) if asked.vm.rules != Rules() else ()
        return VmFitTask(self._deciding.builder.build(now_s, at_cycle=False), asked.vm, constraints, asked.count)

    def view(self, asked: CheckVmFit, found: VmFit) -> Row:
        """Return the answer as plain data."""
        return {
            "vcpus": asked.vm.vcpus,
            "memory_mib": asked.vm.memory_mib,
            "cpu_mhz": asked.vm.cpu_mhz or None,
            "count": asked.count,
            "placements": [self._fit(each) for each in found.placements],
            "how_many": found.how_many,
            "limited": found.limited,
            "totals": {
                "fits": len(found.fits),
                "with_moves": len(found.with_moves),
                "misfits": len(found.misfits),
            },
            "fits": [self._fit(each) for each in found.fits[:ROWS_MAX]],
            "with_moves": [self._fit(each) for each in found.with_moves[:ROWS_MAX]],
            "misfits": [misfit_view(each) for each in found.misfits[:ROWS_MAX]],
            "unknown": self._unknown(asked.vm.rules),
        }

    def _fit(self, fit: Fit) -> Row:
        return {
            "node": fit.node,
            "free_memory_mib": fit.free_memory_mib,
            "free_cpu_mhz": fit.free_cpu_mhz,
            "moves": [self._move(each) for each in fit.moves],
            "limited": fit.limited,
        }

    def _move(self, move: Migration) -> Row:
        entry = self._cluster.active.get(move.workload)
        known = entry is not None and move.index < len(entry.instances)
        vm = entry.instances[move.index].vm if entry and known else instance_name(move.workload, move.index)
        return {"vm": vm, "node": move.node, "to_node": move.to_node, "memory_mib": move.memory_mib}

    def _unknown(self, rules: Rules) -> list[str]:
        """Return the workloads that the rules name and that there are not."""
        named = dict.fromkeys((*rules.vm_affinity, *rules.vm_anti_affinity))
        return [name for name in named if name not in self._cluster.active and name not in self._cluster.web]


def misfit_view(misfit: Misfit) -> Row:
    """Return why a node cannot hold the VM: the code, its numbers and names, and a line for people."""
    return {
        "node": misfit.node,
        "code": misfit.obstacle.value,
        "numbers": dict(misfit.numbers),
        "names": list(misfit.names),
        "rule": misfit.rule,
        "limited": misfit.limited,
        "text": _text(misfit) + (f"; {MOVES_MAX} moves do not make room" if misfit.limited else ""),
    }


def _text(misfit: Misfit) -> str:
    names, numbers = ", ".join(misfit.names), dict(misfit.numbers)
    match misfit.obstacle:
        case Obstacle.ENVIRONMENT:
            return f"belongs to environment {names}" if names else "is being reassigned, or fenced"
        case Obstacle.NOT_SCHEDULABLE:
            return "not up, not in service, or draining"
        case Obstacle.LABELS:
            return f"lacks labels: {names}"
        case Obstacle.RULE:
            rule = misfit.rule.replace("_", " ")
            return f"rule {rule}: {names}" if names else f"rule {rule}"
        case Obstacle.MEMORY:
            needed, free, capacity = (numbers[name] for name in ("needed_mib", "free_mib", "capacity_mib"))
            most = f"has {memory_text(capacity)}" if needed > capacity else f"free {memory_text(free)}"
            return f"memory: needs {memory_text(needed)}, {most}"
        case Obstacle.CPU if "cores" in numbers:
            return f"CPU: needs {numbers['needed_vcpus']:g} cores, has {numbers['cores']:g}"
        case Obstacle.CPU:
            needed, free, capacity = (numbers[name] for name in ("needed_mhz", "free_mhz", "capacity_mhz"))
            most = f"at most {number_text(capacity)} MHz" if needed > capacity else f"free {number_text(free)} MHz"
            return f"CPU: needs {number_text(needed)} MHz, {most}"
