"""Readings that go past what hangs.

A call for all domains waits for the monitor of each; one QEMU that answers nothing (stopped, or waiting for storage
that is gone) keeps it for as long as that lasts. It keeps the one call alone: libvirt answers the next one without
the figures of a monitor that is asked already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Generic, NoReturn, TypeVar

from agents.hypervisors.libvirt.errors import Unavailable

LATE_S = 2.0
LIMIT_S = 20.0
MOST = 3  # of the five calls that libvirtd takes of a client at once

T = TypeVar("T")


class Patience(Generic[T]):
    """Makes the same call, each time in a thread of its own: again after `late_s`, at most `most` at once, and waits no
    longer than `limit_s` for the last of them. What comes too late is thrown away."""

    def __init__(self, what: str, late_s: float = LATE_S, limit_s: float = LIMIT_S, most: int = MOST) -> None:
        self._what, self._late_s, self._limit_s, self._most = what, late_s, limit_s, most
        self._free = Semaphore(most)

    def ask(self, call: Callable[[], T]) -> T:
        """Return the first answer. Raises what `call` raises; Unavailable if it hangs repeatedly."""
        answers: SimpleQueue[Callable[[], T]] = SimpleQueue()
        for left in reversed(range(self._most)):
            if not self._free.acquire(blocking=False):
                break
            Thread(target=self._have, args=(call, answers), name=f"libvirt-{self._what}", daemon=True).start()
            try:
                answer = answers.get(timeout=self._late_s if left else self._limit_s)
            except Empty:
                continue
            return answer()
        raise Unavailable(f"{self._what}: libvirt has left {self._most} calls without an answer; does a QEMU hang?")

    def _have(self, call: Callable[[], T], answers: SimpleQueue[Callable[[], T]]) -> None:
        try:
            answers.put(partial(_itself, call()))
        except Exception as error:  # noqa: BLE001  whoever asked raises it
            answers.put(partial(_raised, error))
        finally:
            self._free.release()


def _itself(answer: T) -> T:
    return answer


def _raised(error: Exception) -> NoReturn:
    raise error
