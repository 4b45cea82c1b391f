"""Where callbacks are called: one thread, as in libvirt's event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Literal

Delivery = Literal["plain", "lost", "late", "twice"]
Call = Callable[[], None]


class Dispatcher:
    """Calls callbacks in the order of their events. "late" events wait until `deliver_late`."""

    def __init__(self) -> None:
        self.delivery: Delivery = "plain"
        self.failures: list[Exception] = []
        self._late: list[Call] = []
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="fake-libvirt-events", daemon=True)
        self._thread.start()

    def post(self, call: Call) -> None:
        """Queue a callback according to the current delivery mode."""
        if self.delivery == "late":
            self._late.append(call)
        elif self.delivery != "lost":
            for _ in range(2 if self.delivery == "twice" else 1):
                self._queue.put(call)

    def post_surely(self, call: Call) -> None:
        """Queue a callback in every delivery mode: the end of a connection is never lost."""
        self._queue.put(call)

    def deliver_late(self) -> None:
        """Queue the events that were held back."""
        late, self._late = self._late, []
        for call in late:
            self._queue.put(call)

    def is_current(self) -> bool:
        """Return whether the caller runs in a callback."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread once all events are delivered."""
        self._queue.put(None)
        self._thread.join(timeout=10.0)

    def settle(self) -> None:
        """Wait until all events posted so far are delivered."""
        told = threading.Event()
        self._queue.put(told.set)
        told.wait(timeout=10.0)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call()
            except Exception as problem:  # noqa: BLE001  kept: a test looks at them
                self.failures.append(problem)
