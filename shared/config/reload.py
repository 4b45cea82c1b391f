"""What a running daemon takes from its file on SIGHUP, and what needs a restart."""

from __future__ import annotations

RELOADED = ("log",)
"""The tables of a daemon's file that SIGHUP applies."""


def needs_restart(key: str) -> bool:
    """Return whether a changed key (dotted) waits for a restart of the daemon."""
    return key.partition(".")[0] not in RELOADED
