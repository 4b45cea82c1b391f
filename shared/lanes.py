"""Threads for what takes time: each lane does its tasks one after the other, in the order given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

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

    def close(self, timeout_s: float) -> bool:
        """Let what was given be done and end; false when that takes longer than `timeout_s`."""
        self._tasks.put(None)
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


def _nothing() -> None:
    return
