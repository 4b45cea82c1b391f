"""Operations in progress, and how their VMs are reported meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.changes import ENDS
from agents.hypervisors.libvirt.migration_needs import Surroundings
from agents.hypervisors.libvirt.site import Task
from agents.hypervisors.libvirt.statistics import ObservedDomain
from shared.values.actions import Action, ActionKind
from shared.values.vms import LIVE_STATES, VmState, VmStatus

FORGETTING = "forget"  # the operation on a VM that is listed no more
TO_LIFE = frozenset({ActionKind.START, ActionKind.RESUME})
MAKES_GENERATION = TO_LIFE | {ActionKind.ADOPT}
LEAVES_LIVE = TO_LIFE | {ActionKind.SET_CPU, ActionKind.PAUSE, ActionKind.UNPAUSE}


@dataclass(slots=True)
class UnderWay:
    """The operation in progress on a VM. `checked`: it was allowed to begin."""

    action: Action | None
    busy: str
    task: Task = field(default_factory=Task)
    checked: bool = False


def wanted_mib(action: Action, here: ObservedDomain | None, around: Surroundings = domain_xml.NOWHERE) -> int:
    """Return the ordinary memory that an operation will take, as far as it is known: a VM that is started from a
    template counts with all its memory. `around`: the node."""
    if action.kind is ActionKind.START and here is not None:
        return here.facts.ordinary_mib
    if action.kind is ActionKind.START and action.spec is not None:
        definition = "".join(action.spec.definition)
        return domain_xml.facts_of(definition, around).ordinary_mib if definition else action.spec.memory_mib
    return here.facts.ordinary_mib if action.kind is ActionKind.RESUME and here is not None else 0


def held_mib(found: Mapping[str, ObservedDomain], taken: Mapping[str, int]) -> int:
    """Return the memory of a node that is held by the domains seen and by operations in progress (`taken`, by VM), each
    VM counted once."""
    seen = {vm: one.held_mib for vm, one in found.items()}
    return sum(max(seen.get(vm, 0), taken.get(vm, 0)) for vm in seen.keys() | taken.keys())


def comes(one: UnderWay, seen: ObservedDomain | None) -> bool:
    """Return whether to report a VM as incoming that is not there yet."""
    if one.action is None or seen is not None:
        return False
    return one.action.kind is ActionKind.START or (one.action.kind is ActionKind.RESUME and one.checked)


def coming(action: Action | None) -> VmStatus | None:
    """Return the status of a VM to be started, before it has a domain; None if the action does not describe the VM."""
    spec = action.spec if action is not None else None
    if action is None or spec is None:
        return None
    size = (spec.memory_mib, spec.vcpus, spec.cpu_mhz)
    row = VmStatus(spec.vm, VmState.INCOMING, action.generation, spec.attempt, *size, busy=action.kind.value)
    if action.kind is ActionKind.START and spec.definition:
        return structs.replace(row, adopted=True, failover=True, autostart=spec.autostart, disks=action.disks)
    return row


def status_while(seen: ObservedDomain, under: UnderWay | None) -> VmStatus:
    """Return the reported status: not executing while the VM is being started or resumed, unchanged while it is being
    stopped or suspended."""
    if under is None or under.action is None:
        if seen.starts:
            return seen.status(ActionKind.START.value)
        moves = seen.state is VmState.INCOMING or seen.halted
        return seen.status(ActionKind.MIGRATE.value if moves else "")
    kind = under.action.kind
    if kind in TO_LIFE and under.checked:
        return seen.status(kind.value, VmState.INCOMING)
    if kind is ActionKind.SUSPEND and seen.state is VmState.SUSPENDED:
        return seen.status(kind.value, VmState.PAUSED)
    return seen.status(kind.value)


def as_left_by(action: Action, before: ObservedDomain | None, now: ObservedDomain | None) -> ObservedDomain | None:
    """Return the result of an operation; an end that came during it or right after it is a separate change. before: the
    domain as it was last seen without the operation."""
    leaves_live = action.kind in LEAVES_LIVE
    if action.kind is ActionKind.ADOPT:  # also what is off is adopted
        leaves_live = before is not None and before.state in LIVE_STATES
    generation = action.generation if action.kind in MAKES_GENERATION else action.expects
    if now is not None and leaves_live and now.state in ENDS and now.generation == generation:
        return replace(now, state=VmState.RUNNING)
    return now
