"""What the driver answers before it does anything: pure."""

from __future__ import annotations

from dataclasses import dataclass

from agents.hypervisors.answers import (
    MET,
    NO_SPEC,
    NOT_OURS,
    Answer,
    adopt,
    allotment,
    generation,
    is_strange,
    not_now,
    other,
    room,
)
from agents.hypervisors.process.record import Record
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import HOLDING_STATES, LIVE_STATES, VmState

HOLDING = HOLDING_STATES | {VmState.SUSPENDED}  # what is frozen keeps its memory
FROZEN = "a frozen program cannot move"
NO_DEFINITION = "a program has no definition"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the node has left: MiB, the MHz of a core, and its own name."""

    node: str
    free_mib: int
    core_mhz: float


def check(action: Action, here: Record | None, capacity: Capacity) -> Answer | None:
    """None when the action may begin on the program, else how it is answered; OK where it finds itself done."""
    if is_strange(action, here):
        return NOT_OURS
    kind = action.kind
    if kind is ActionKind.START:
        return _start(action, here, capacity)
    if kind is ActionKind.RESUME:
        return _resume(action, here, capacity)
    if kind is ActionKind.STOP:
        return MET if here is None else generation(action, here)
    if kind is ActionKind.DISCARD_IMAGE:
        return MET if here is None or here.state is not VmState.SUSPENDED else generation(action, here)
    if kind is ActionKind.ADOPT:
        answer = adopt(action, here)
        return not_now(here) if answer is None and here is not None and here.state not in LIVE_STATES else answer
    if kind is ActionKind.UNDEFINE:
        return Outcome.REFUSED, NO_DEFINITION
    if kind is ActionKind.RELEASE and (here is None or not here.managed):
        return MET
    return _of_live(action, here, capacity)


def _of_live(action: Action, here: Record | None, capacity: Capacity) -> Answer | None:
    if here is None:
        return Outcome.NO_SUCH_VM, ""
    if (answer := generation(action, here)) is not None:
        return answer
    if here.state is VmState.SUSPENDED and action.kind is ActionKind.SUSPEND:
        return MET
    if here.state not in LIVE_STATES:
        return (Outcome.NO_SUCH_VM, "it is frozen") if here.state is VmState.SUSPENDED else not_now(here)
    if action.kind is ActionKind.MIGRATE:
        return Outcome.REFUSED, "a program cannot move"
    wanted = {ActionKind.PAUSE: VmState.PAUSED, ActionKind.UNPAUSE: VmState.RUNNING}.get(action.kind)
    if here.state is wanted:
        return MET
    if action.kind is ActionKind.SET_CPU:
        return allotment(action.cpu_mhz, here.vcpus, capacity.core_mhz)
    return None


def _start(action: Action, here: Record | None, capacity: Capacity) -> Answer | None:
    spec = action.spec
    if spec is None or spec.vm != action.vm:
        return NO_SPEC
    if spec.definition or (action.expects and (here is None or here.generation != action.generation)):
        return Outcome.REFUSED, f"{NO_DEFINITION} to be started by"
    freed_mib = 0
    if here is not None:
        if here.state is not VmState.SUSPENDED and here.generation == action.generation:
            return MET
        if here.state is not VmState.SUSPENDED or here.attempt >= spec.attempt:
            return other(here)
        freed_mib = here.memory_mib  # frozen in an earlier attempt: of no more use, it gives way
    free_mib = capacity.free_mib + freed_mib
    return room(spec.memory_mib, free_mib) or allotment(spec.cpu_mhz, spec.vcpus, capacity.core_mhz)


def _resume(action: Action, here: Record | None, capacity: Capacity) -> Answer | None:
    if here is not None and here.state is not VmState.SUSPENDED:
        return MET if here.generation == action.generation else other(here)
    if action.from_node not in ("", capacity.node):
        return Outcome.REFUSED, FROZEN
    if here is None:
        return Outcome.NO_SUCH_VM, "no frozen program of that name"
    if (answer := generation(action, here)) is not None:
        return answer
    return None if action.spec is None else allotment(action.spec.cpu_mhz, here.vcpus, capacity.core_mhz)
