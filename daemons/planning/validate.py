"""Looks at one action again just before it is sent, against what is known of its nodes at that moment."""

from __future__ import annotations

from dataclasses import dataclass

from shared.values.actions import Action, ActionKind

ROOM_SLACK_MIB = 1e-3  # sums of floats


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node at the moment of sending. `room_mib` is negative when more is promised than there is."""

    usable: bool
    boot_id: str
    room_mib: float


def validate(action: Action, node: NodeNow, target: NodeNow | None, now_s: float) -> str:
    """Explain why the action must not be sent now ("": it may).

    The ledger already includes the action's claims: a negative capacity means that the state has changed since
    planning. `target` is the receiving node of a migration, else None.
    """
    if not node.usable:
        return "its node is not usable"
    if node.boot_id != action.boot_id:
        return "its node has rebooted"
    if now_s > action.expires_at_s:
        return "it has expired"
    receiving = target if action.kind is ActionKind.MIGRATE else node
    if action.kind in (ActionKind.MIGRATE, ActionKind.START, ActionKind.RESUME):
        if receiving is None or not receiving.usable:
            return "the receiving node is not usable"
        if receiving.room_mib < -ROOM_SLACK_MIB:
            return "the receiving node has no room any more"
    return ""
