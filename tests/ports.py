"""Ports for what tests start: no two tests get the same one, and no connection takes one before its server does."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

# Below those that Linux gives to outgoing connections, which would take a port between its choice and its use.
FIRST, LAST = 15_000, 32_000


def free_port() -> int:
    """A port that nobody listens on."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each after the one that any process of this user was given last."""
    path = Path(tempfile.gettempdir()) / f"trimtab-{os.getuid()}-ports.lock"
    with path.open("a+", encoding="ascii") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        text = last.read()
        # Who has temporary files elsewhere does not know of the others: each begins in another place.
        port = int(text) if text else FIRST + os.getpid() * 37 % (LAST - FIRST)
        found: list[int] = []
        while len(found) < count:
            port = port + 1 if FIRST <= port < LAST else FIRST
            if _is_free(port):
                found.append(port)
        last.truncate(0)
        last.write(str(port))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True
