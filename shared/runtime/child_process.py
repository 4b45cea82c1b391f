"""What processes that only compute for their parent do at their begin."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SET_PDEATHSIG = 1  # of prctl(2)


def live_with_parent(parent: int) -> None:
    """End at once when the process `parent` ends, however that comes, or its thread that began this one; and leave
    Ctrl-C, which a terminal sends to both, to it. For the child's main thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold SIGINT back, also in processes begun meanwhile: none is interrupted while it imports what it needs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
