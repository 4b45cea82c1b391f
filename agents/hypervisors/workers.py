"""A few threads for operations that take time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Task = Callable[[], None]


class Workers:
    """At most `most` threads, made as they are needed; a task waits while all of them are busy. Tasks must not raise.
    The threads are daemons: an operation that hangs does not keep the process."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._free = 0

    def do(self, task: Task) -> None:
        """Have a task done; never blocks."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
            else:
                self._free -= 1  # whoever is free next is taken already
        self._tasks.put(task)

    def close(self) -> None:
        """Accept no more tasks; the threads end once all tasks are done."""
        with self._lock:
            for _ in range(self._threads):
                self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            with self._lock:
                self._free += 1
