"""Storage leases: a host that can reach the shared storage renews its own, and resets itself when it cannot. A lease
that nobody has renewed for long enough is therefore proof that the host runs no VM any more."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from shared.values.scalars import Number, Whole, positive, whole
from shared.values.texts import Word, check_label

SUFFIX = ".lease"  # of the file of a node in the shared folder


@dataclass(frozen=True, slots=True)
class Lease:
    """What a host writes of itself. number: grows with each renewal within a boot. proof_s: the lease is proof when it
    was not renewed for so many seconds. released: the host has given it up and does not reset itself: never proof."""

    node: str
    boot_id: str
    number: int
    proof_s: float
    released: bool = False

    def __post_init__(self) -> None:
        check_label("node", self.node)
        check_label("boot_id", self.boot_id)
        whole("number", self.number, 0, 1 << 62)
        positive("proof_s", self.proof_s)


class SeenLease(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The lease of another node as an agent sees it. unchanged_s: for how long it has been the same, by the clock of
    the agent's host that does not jump; at most the time for which the agent has looked. proof_s: see Lease."""

    node: Word
    boot_id: Word
    number: Whole
    unchanged_s: Number
    proof_s: Number

    @property
    def is_proof(self) -> bool:
        """Return whether the host with this boot has reset itself, or is off."""
        return self.unchanged_s >= self.proof_s > 0.0
