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
    the action's id. A driver checks what only it can know (capacity, the VM's state). It is idempotent: an action whose
    post-condition is already met answers OK. Operations on different VMs run side by side; on one VM only one at a time
    (a second answers BUSY). A failed, aborted or refused operation leaves the VM as it was. Unrequested guest changes
    come from `poll` as `GuestChanged`. A driver that can see what others did to a managed VM reports LEFT, STARTED or
    STOPPED, also for changes that it finds when it restarts; one that cannot reports VANISHED.

    Virtual-time drivers use `now_s` and `next_due_s`; real ones work in threads of their own, call `wake` when `poll`
    has something and answer None from `next_due_s`.
    """

    def inventory(self) -> Node:
        """Return capacity, labels and abilities of the node. A driver refuses operations for which it lacks the
        ability: one that cannot SAVE freezes VMs instead of suspending them, and they keep their memory. Raises
        TransientError when the hypervisor does not answer."""
        ...

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        """Return every VM and every saved image on this node, managed or unmanaged, with `busy` set while an operation
        runs."""
        ...

    def begin(self, action: Action, now_s: float) -> None:
        """Begin an action; never blocks, never raises for anything the action says."""
        ...

    def abort(self, vm: str, now_s: float) -> None:
        """Abort the operation in progress on `vm` (answer TIMED_OUT); do nothing when there is none."""
        ...

    def forget(self, vm: str, now_s: float) -> None:
        """Remove the definition of an ENDED or CRASHED VM; anything else is left alone."""
        ...

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:
        """Return the events up to `now_s` that were not returned before, in the order in which they happened."""
        ...

    def next_due_s(self) -> float | None:
        """Return when `poll` will next have something, None if that is unknown or nothing is in progress."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Reads the node's own counters."""

    def sample(self, now_s: float) -> NodeSample:
        """Take one reading; fractions cover the time since the previous call (0 at the first)."""
        ...


class Journal(Protocol):
    """An agent's durable memory."""

    def append(self, record: Any) -> None:
        """Make a record durable before returning. Raises StoreUnavailable when the disk is full."""
        ...

    def records(self) -> tuple[Any, ...]:
        """Return every record appended so far, oldest first (an implementation may compact to an equivalent list)."""
        ...


class SetupDriver(Protocol):
    """Carries out setup policies on the agent's own host."""

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        """Carry out one, within its time limit; idempotent, also after a crash half-way. Never raises for anything that
        the setup says: a command that the host does not know, fails or takes too long is an answer."""
        ...
