"""The values that planning works on: what is wanted of a workload and what is seen of its VMs."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.values.actions import ActionKind
from shared.values.jobs import JobPhase
from shared.values.vms import VmState


@dataclass(frozen=True, slots=True)
class VmCopy:
    """A VM or image as last reported by its node. `usable`: the node is up and orders may be sent to it. `held_mib`:
    memory that an image holds there, where it is frozen. `definition`: digest of the definition of an adopted VM ("":
    unknown). `stale`: an image with disks that the VM has used since without the image. `guarded`: the host of an
    adopted VM does not start it by itself; `stays_off`: nor does libvirt restart it there when its guest has ended."""

    node: str
    state: VmState
    attempt: int
    generation: int
    cpu_mhz: float
    usable: bool
    held_mib: float = 0.0
    definition: str = ""
    stale: bool = False
    guarded: bool = False
    stays_off: bool = False


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """One instance. `busy`: an operation is in progress. `unknown`: it may be on a node whose state is unknown, or that
    has not reported yet. `issued`: a START of this attempt was sent. `adopted`: the VM was started externally; it is
    adopted where it is, and later started by the definition that is there. `definition`: digest of the definition in
    the store, for an adopted VM. `defined`: its adoption has completed. `anew`: it is to be defined anew where it is
    wanted, since its own node is off. `guards`: its host must not start it by itself. `stays_off`: nor must libvirt
    restart it when its guest has ended."""

    vm: str
    want_node: str
    want_mhz: float
    memory_mib: float
    copies: tuple[VmCopy, ...]
    busy: bool
    unknown: bool
    issued: bool
    ended: bool
    adopted: bool = False
    definition: str = ""
    defined: bool = False
    anew: bool = False
    guards: bool = False
    stays_off: bool = False


@dataclass(frozen=True, slots=True)
class ObservedWorkload:
    """A workload: its desired phase, the attempt that counts, and its instances. `ends`: of one that is shut off, its
    guest is to be shut down; else a live one is its owner's doing."""

    name: str
    phase: JobPhase
    attempt: int
    instances: tuple[ObservedInstance, ...]
    ends: bool = False


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """An operation that would bring one VM nearer to what is wanted. `expects`: the generation it finds.

    `memory_mib` and `cpu_mhz` are what it takes on `to_node` (MIGRATE) or `node`; a SET_CPU takes the difference.
    `then`: what the VM needs once this is done; for plans, since what is seen afterwards says it again. `stays`: the VM
    is never suspended to make room.
    """

    kind: ActionKind
    workload: str
    vm: str
    node: str
    to_node: str = ""
    from_node: str = ""
    expects: int = 0
    memory_mib: float = 0.0
    cpu_mhz: float = 0.0
    set_mhz: float = 0.0
    paused: bool = False
    then: PlannedAction | None = None
    stays: bool = False

    @property
    def target(self) -> str:
        """The node on which it needs room."""
        return self.to_node or self.node


@dataclass(frozen=True, slots=True)
class Diff:
    """What separates a workload from its desired state.

    `lost`: an instance of this attempt is proven gone, so that the attempt cannot go on; the controller takes it back.
    `together`: every instance is live, nothing is missing. Neither and no needs: wait.
    """

    needs: tuple[PlannedAction, ...] = ()
    lost: bool = False
    together: bool = False


@dataclass(slots=True)
class Headroom:
    """Live totals of one node while waves are composed (mutable scratch, created for each use).

    `actions` and `migrations` count operations in progress.
    """

    memory_mib: float
    cpu_mhz: float
    actions: int = 0
    migrations: int = 0


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The maximum number of actions and migrations in progress, per node and in total; 0 means no limit."""

    actions_per_node: int = 0
    migrations_per_node: int = 0
    actions_total: int = 0
    migrations_total: int = 0


@dataclass(slots=True)
class Wave:
    """Needs that may be sent together, and those that must wait."""

    chosen: list[PlannedAction] = field(default_factory=list)
    blocked: list[PlannedAction] = field(default_factory=list)
