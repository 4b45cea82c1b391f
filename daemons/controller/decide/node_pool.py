"""What a decision does to which nodes are in service, as far as decisions must know of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """What a provisioning decision changes: names that are to come into service, names that are to leave it, and names
    that have changed since the decision was asked for and are left as they are."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class NodePool(Protocol):
    """The nodes that provisioning decides on."""

    def seen(self, now_s: float) -> dict[str, int]:
        """Return what a decision that is asked for now knows of the nodes that it may dispose of; for `change_to`."""

    def change_to(self, in_service: Iterable[str], seen: dict[str, int], now_s: float) -> ServiceChange:
        """Return what would have to change so that these and no others are wanted."""

    def apply(self, change: ServiceChange, now_s: float) -> None:
        """Make it the desired state."""

    def stop(self, now_s: float) -> ServiceChange:
        """Give up what decisions want of nodes and has not come about or begun; return what was given up."""
