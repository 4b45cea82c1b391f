"""What an agent's shell calls: hypervisor, samplers, journal, setup. `sim_backend.conformance` checks drivers."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from shared.ports.effects import GuestChanged, HostSetUp, Operated
from shared.values.actions import Action
from shared.values.host_setup import Setup
from shared.values.nodes import Node, NodeSample, SetupStep
from shared.values.vms import VmStatus


@runtime_checkable
class Hypervisor(Protocol):
    """One node's hypervisor.

    All operations are begun with `begin` and answered by an `Operated` from `poll`, one per `begin`, whose call_id is
    the action's id. A driver checks what only it can know (room, the VM's state) and is idempotent in this sense: an
    action that finds its post-condition met answers OK. Operations on different VMs run side by side; on one VM only
    one at a time (a second answers BUSY). A failed, aborted or refused operation leaves the VM as it was.
    Guest changes nobody asked for come from `poll` as `GuestChanged`; a driver that can tell what others did to a VM of
    ours says LEFT, STARTED or STOPPED, also of what it finds done when it begins anew; one that cannot, VANISHED.

    Virtual-time drivers use `now_s` and `next_due_s`; real ones work in threads of their own, call `wake` when `poll`
    has something and answer None from `next_due_s`.
    """

    def inventory(self) -> Node:
        """Capacity, labels and abilities of the node. What it lacks, it refuses: a driver that cannot SAVE freezes what
        is to be suspended, which keeps its memory. Raises TransientError when the hypervisor does not answer."""
        ...

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        """Every VM and every saved image on this node, ours or not, with `busy` set where an operation runs."""
        ...

    def begin(self, action: Action, now_s: float) -> None:
        """Begin an action; never blocks, never raises for anything the action says."""
        ...

    def abort(self, vm: str, now_s: float) -> None:
        """Give up the operation under way on `vm` (answer TIMED_OUT); nothing happens when there is none."""
        ...

    def forget(self, vm: str, now_s: float) -> None:
        """Remove the definition of an ENDED or CRASHED VM; anything else is left alone."""
        ...

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:
        """What has happened up to `now_s` and was not returned before, in the order in which it happened."""
        ...

    def next_due_s(self) -> float | None:
        """When `poll` will next have something, None if that is not known or nothing is under way."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Reads the node's own counters."""

    def sample(self, now_s: float) -> NodeSample:
        """One reading; fractions cover the time since the previous call (0 at the first)."""
        ...


class Journal(Protocol):
    """An agent's durable memory."""

    def append(self, record: Any) -> None:
        """Make a record durable before returning. Raises StoreUnavailable when the disk is full."""
        ...

    def records(self) -> tuple[Any, ...]:
        """Every record appended so far, oldest first (an implementation may compact to an equivalent list)."""
        ...


class SetupDriver(Protocol):
    """Carries out setup policies on the agent's own host."""

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        """Carry out one, within its time limit; idempotent, also after a crash half-way. Never raises for anything that
        the setup says: a command that the host does not know, fails or takes too long is an answer."""
        ...
