"""What is done to VMs: the actions that a controller orders, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.values.migration_terms import MigrationTerms
from shared.values.texts import Label, Word
from shared.values.vms import VmSpec


class ActionKind(StrEnum):
    """What an agent can be asked to do to a VM."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"  # to disk, or frozen: see Ability
    RESUME = "resume"  # from a saved image, also one that another node holds
    MIGRATE = "migrate"  # live, to `to_node`
    SET_CPU = "set-cpu"
    DISCARD_IMAGE = "discard-image"
    ADOPT = "adopt"  # write our metadata onto a running VM that is not ours
    RELEASE = "release"  # remove our metadata from a VM; it runs on
    UNDEFINE = "undefine"  # remove what is left here of an adopted VM that was restarted on another node


@dataclass(frozen=True, slots=True)
class Action:
    """One operation on one VM, addressed to the node that carries it out.

    `expects` is the generation that the VM (or its image) must have now, 0 for a START that makes the VM; a START that
    expects one starts an adopted VM by the definition that is there, and one whose `spec` has a definition makes that
    anew on a node that has none. `generation` is the one that it has afterwards.
    The agent refuses an action of a term older than the highest it has seen, of another boot of its host, or whose
    `expires_at_s` (agent's clock) has passed before it was begun. `spec` goes with START, RESUME and ADOPT,
    `from_node` with RESUME (who holds the image), `to_node` with MIGRATE, `cpu_mhz`/`cap_mhz` with SET_CPU;
    `paused` leaves a started or resumed VM paused (gangs). ADOPT takes no more of `spec` than generation, attempt and
    `failover`.
    `disks` is the newest generation of the VM's local disks that the controller knows (0: none, nothing is compared).
    It grows whenever local disks are made, or copied to another node: what an agent finds must not be older, or the
    answer is STALE_DISK. `migration` goes with MIGRATE (None: as the agent's configuration says). `digest` goes with
    UNDEFINE: that of the definition by which the VM was restarted on another node, see VmStatus ("": not known). What
    differs from it was edited here since, and stays.
    """

    id: Word
    kind: ActionKind
    node: Word
    vm: Label
    term: int
    boot_id: Word
    expires_at_s: float
    expects: int = 0
    generation: int = 0
    spec: VmSpec | None = None
    from_node: Word = ""
    to_node: Word = ""
    cpu_mhz: float = 0.0
    cap_mhz: float | None = None
    paused: bool = False
    disks: int = 0
    migration: MigrationTerms | None = None
    digest: Word = ""


class Outcome(StrEnum):
    """How an action ended. Everything but OK leaves the VM as it was, or gone where the status says so."""

    OK = "ok"
    OLDER_TERM = "older-term"
    OTHER_BOOT = "other-boot"
    EXPIRED = "expired"
    WRONG_GENERATION = "wrong-generation"
    BUSY = "busy"  # another action on the same VM is in progress
    NO_SUCH_VM = "no-such-vm"
    ALREADY_THERE = "already-there"
    NO_ROOM = "no-room"
    REFUSED = "refused"  # the hypervisor said no
    UNFIT = "migration-fit"  # the node lacks what the VM needs, such as a pool for one of its disks
    STALE_DISK = "stale-disk"  # a disk is not the one that the VM ran with last
    FAILED = "failed"  # begun, and failed half-way; rolled back
    TIMED_OUT = "timed-out"  # begun, aborted after the time limit; rolled back
    INTERRUPTED = "interrupted"  # the agent died before it was begun
    NOT_CONVERGING = "will-not-converge"  # the guest changes memory faster than it is sent; aborted and rolled back


class GuestChange(StrEnum):
    """What a guest did, or what others did to it, without being asked by us."""

    ENDED = "ended"
    VANISHED = "vanished"
    ARRIVED = "arrived"  # came in by migration
    LEFT = "left"  # left this node by a migration that this agent did not carry out
    STARTED = "started"  # somebody else brought it to life
    STOPPED = "stopped"  # somebody else stopped it, or saved it where we cannot resume it from


COMING = frozenset({GuestChange.ARRIVED, GuestChange.STARTED})
