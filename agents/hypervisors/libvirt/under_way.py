"""Operations under way, and how their VMs are reported meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agents.hypervisors.libvirt.changes import ENDS
from agents.hypervisors.libvirt.site import Task
from agents.hypervisors.libvirt.statistics import ObservedDomain
from shared.values.actions import Action, ActionKind
from shared.values.vms import VmState, VmStatus

FORGETTING = "forget"  # the operation on a VM that is listed no more
TO_LIFE = frozenset({ActionKind.START, ActionKind.RESUME})


@dataclass(slots=True)
class UnderWay:
    """The operation under way on a VM. `checked`: it was let begin."""

    action: Action | None
    busy: str
    task: Task = field(default_factory=Task)
    checked: bool = False


def wanted_mib(action: Action, here: ObservedDomain | None) -> int:
    """The memory that an operation will take."""
    if action.kind is ActionKind.START and action.spec is not None:
        return action.spec.memory_mib
    return here.facts.memory_mib if action.kind is ActionKind.RESUME and here is not None else 0


def held_mib(found: Mapping[str, ObservedDomain], taken: Mapping[str, int]) -> int:
    """The memory of a node that is held by what is seen and `taken`, by VM, by what is under way: each once."""
    seen = {vm: one.held_mib for vm, one in found.items()}
    return sum(max(seen.get(vm, 0), taken.get(vm, 0)) for vm in seen.keys() | taken.keys())


def comes(one: UnderWay, seen: ObservedDomain | None) -> bool:
    """Whether a VM is to be shown as on its way that is not there yet."""
    if one.action is None or seen is not None:
        return False
    return one.action.kind is ActionKind.START or (one.action.kind is ActionKind.RESUME and one.checked)


def coming(action: Action | None) -> VmStatus | None:
    """One that is to be started, before there is a domain; None where the action does not say what it will be."""
    spec = action.spec if action is not None else None
    if action is None or spec is None:
        return None
    size = (spec.memory_mib, spec.vcpus, spec.cpu_mhz)
    return VmStatus(spec.vm, VmState.INCOMING, action.generation, spec.attempt, *size, busy=action.kind.value)


def status_while(seen: ObservedDomain, under: UnderWay | None) -> VmStatus:
    """As it is reported: not executing while it is brought to life, as it was while it is put to rest."""
    if under is None or under.action is None:
        busy = "migrate" if seen.state is VmState.INCOMING else ""
        return seen.status(busy)
    kind = under.action.kind
    if kind in TO_LIFE and under.checked:
        return seen.status(kind.value, VmState.INCOMING)
    if kind is ActionKind.SUSPEND and seen.state is VmState.SUSPENDED:
        return seen.status(kind.value, VmState.PAUSED)
    return seen.status(kind.value)


def as_left_by(action: Action, now: ObservedDomain | None) -> ObservedDomain | None:
    """What an operation has brought about; an end that came right after it is a change of its own."""
    if now is not None and action.kind in TO_LIFE and now.state in ENDS and now.generation == action.generation:
        return replace(now, state=VmState.RUNNING)
    return now
