"""Whether what a leader asked an agent for may still be followed."""

from __future__ import annotations

from shared.protocol.messages import GoToSleep, RunStandardJob, SetUpNode


def outdated(asked: GoToSleep | RunStandardJob | SetUpNode, term: int, boot_id: str, now_s: float) -> str:
    """Return why the request is outdated ("": it is not): its controller is no longer the leader (`term`: the highest
    seen), it is for another boot than this one, or it is too late."""
    if asked.term < term:
        return f"term {term} has been seen"
    if asked.boot_id != boot_id:
        return f"this is boot {boot_id}"
    if now_s > asked.expires_at_s:
        return f"expired {now_s - asked.expires_at_s:.1f} s ago"
    return ""
