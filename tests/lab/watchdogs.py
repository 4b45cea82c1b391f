"""The watchdogs of a lab's hosts: each is a pipe in the host's /run, and what looks after it here cuts the host's power
when it was petted and is not any more, as the kernel does with the real device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from shared.base.clock import SystemClock

DEVICE = "run/trimtab-watchdog"
DISARM = b"V"
LOOK_S = 0.1
_CLOCK = SystemClock()


class Watchdog:
    """Looks after one host. `reset` is called, once for each arming, `timeout_s` after the last pet."""

    def __init__(self, folder: Path, timeout_s: float, reset: Callable[[], None]) -> None:
        self.path, self._timeout_s, self._reset = folder / DEVICE, timeout_s, reset
        self._pipe = self._opened()
        self._lock, self._over = threading.Lock(), threading.Event()
        self._petted_s: float | None = None
        self.resets = 0
        self._thread = threading.Thread(target=self._watch, name=f"watchdog of {folder.name}", daemon=True)
        self._thread.start()

    def disarm(self) -> None:
        """Forget the pets so far: the host has lost power."""
        self._petted_s = None

    def boot(self) -> None:
        """Look after the next boot of the host: its /run is new, and so is the pipe."""
        with self._lock:
            os.close(self._pipe)
            self._petted_s, self._pipe = None, self._opened()

    def _opened(self) -> int:
        if not self.path.exists():
            os.mkfifo(self.path)
        return os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()
        os.close(self._pipe)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            with self._lock:
                try:
                    pets = os.read(self._pipe, 4096)
                except BlockingIOError:
                    pets = b""
            if pets.endswith(DISARM):
                self._petted_s = None
            elif pets:
                self._petted_s = _CLOCK.monotonic_s()
            elif self._petted_s is not None and _CLOCK.monotonic_s() - self._petted_s > self._timeout_s:
                self._petted_s = None
                self._reset()
                self.resets += 1
