"""Threads for what takes time: each lane does its tasks one after the other, in the order given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from zlib import crc32

Task = Callable[[], None]


class Lane:
    """One thread. What a task raises ends the lane and goes to `failed`: a lane never dies in silence.

    `due_s`, if given, says in how many seconds `when_due` should be called next though nobody asked (None: never); it
    is asked after every task. Threads are daemons: a task that hangs does not keep the process.
    """

    def __init__(
        self,
        name: str,
        failed: Callable[[BaseException], None],
        due_s: Callable[[], float | None] | None = None,
        when_due: Task | None = None,
    ) -> None:
        self.name = name
        self._failed = failed
        self._due_s = due_s
        self._when_due = when_due
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, task: Task) -> None:
        """Have a task done after those given before; never blocks."""
        self._tasks.put(task)

    def end(self) -> None:
        """Let what was given be done and end; never blocks."""
        self._tasks.put(None)

    def close(self, timeout_s: float) -> bool:
        """Let what was given be done and end; false when that takes longer than `timeout_s`."""
        self.end()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                task = self._next()
                if task is None:
                    return
                task()
        except BaseException as error:  # noqa: BLE001  handed on: the core's thread raises it
            self._failed(error)

    def _next(self) -> Task | None:
        wait_s = None if self._due_s is None else self._due_s()
        try:
            return self._tasks.get(timeout=None if wait_s is None else max(0.0, wait_s))
        except Empty:
            return self._when_due or _nothing


class SharedLanes:
    """At most `most` lanes for any number of subjects: what is about one subject is always done in the same lane, and
    few wait for another's. Lanes are made by `make`, called with a name, when they are needed."""

    def __init__(self, name: str, most: int, make: Callable[[str], Lane]) -> None:
        self._name, self._most, self._make = name, most, make
        self._lanes: dict[int, Lane] = {}

    def of(self, subject: str) -> Lane:
        """Return the lane of a subject."""
        slot = crc32(subject.encode()) % self._most
        if slot not in self._lanes:
            self._lanes[slot] = self._make(f"{self._name} {slot}")
        return self._lanes[slot]


def _nothing() -> None:
    return
