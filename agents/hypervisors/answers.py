"""What drivers answer in the same way before they do anything: pure."""

from __future__ import annotations

from typing import Protocol

from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import LIVE_STATES, OFF_STATES, VmState

Answer = tuple[Outcome, str]
MET: Answer = (Outcome.OK, "")
NOT_OURS: Answer = (Outcome.REFUSED, "it is not ours")
NO_SPEC: Answer = (Outcome.REFUSED, "no spec for this VM")
OVER_CAPACITY = 1.0 + 1e-9  # an allotment of exactly vcpus x core_mhz is right, whatever the rounding
_OF_WHAT_IS_NOT_OURS = frozenset({ActionKind.START, ActionKind.ADOPT, ActionKind.RELEASE})


class Present(Protocol):
    """What a node has of a VM; `state` None: nothing any more."""

    @property
    def managed(self) -> bool:
        """Whether it is ours."""
        ...

    @property
    def generation(self) -> int:
        """See `shared.values.vms.VmSpec`."""
        ...

    @property
    def state(self) -> VmState | None:
        """How it is."""
        ...


def is_strange(action: Action, here: Present | None) -> bool:
    """Return whether an action is on something unmanaged that it may not touch."""
    return here is not None and not here.managed and action.kind not in _OF_WHAT_IS_NOT_OURS


def generation(action: Action, here: Present) -> Answer | None:
    """None where it is of the generation that the action expects."""
    return None if here.generation == action.expects else other(here, Outcome.WRONG_GENERATION)


def other(here: Present, outcome: Outcome = Outcome.ALREADY_THERE) -> Answer:
    """Return the answer for a VM of another generation."""
    return outcome, f"generation {here.generation}"


def not_now(here: Present) -> Answer:
    """Return the answer for a VM whose state does not allow the action."""
    return Outcome.REFUSED, f"it is {here.state.value if here.state else 'gone'}"


def adopt(action: Action, here: Present | None) -> Answer | None:
    """None where the action may take it over."""
    if action.spec is None or action.spec.vm != action.vm:
        return NO_SPEC
    if here is None:
        return Outcome.NO_SUCH_VM, ""
    if here.managed:
        return MET if here.generation == action.generation else other(here)
    return None if here.state in LIVE_STATES | OFF_STATES else not_now(here)


def room(memory_mib: int, free_mib: int) -> Answer | None:
    """None where a VM's memory is there."""
    return None if memory_mib <= free_mib else (Outcome.NO_ROOM, f"{memory_mib} MiB wanted, {free_mib} MiB free")


def allotment(cpu_mhz: float, vcpus: int, core_mhz: float) -> Answer | None:
    """None where a VM may be given so much CPU (architecture, CPU)."""
    most_mhz = vcpus * core_mhz
    if 0.0 <= cpu_mhz <= most_mhz * OVER_CAPACITY:
        return None
    return Outcome.REFUSED, f"{cpu_mhz:g} MHz wanted, at most {most_mhz:g} MHz"
