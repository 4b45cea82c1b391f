"""A process of its own for what computes: in a thread it would hold up every answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from multiprocessing import get_context
from typing import Any, TypeVar

from shared.base.errors import TransientError
from shared.runtime.child_process import live_with_parent
from shared.runtime.garbage_collection import keep_what_is_there

T = TypeVar("T")

WAITING_MAX = 60  # calls that are asked for and not begun or done


class TooBusy(TransientError):
    """More is asked for than is kept waiting; try again in a moment."""

    code = "busy"


class ProcessPool:
    """Runs calls in one process, in order, for one event loop. `what` it makes, in words ("drawings"); `niceness`:
    scheduling priority of the process below the answering one. pool: an existing executor to use instead; it stays
    open."""

    def __init__(self, what: str, niceness: int, pool: Executor | None = None) -> None:
        self._what, self._niceness = what, niceness
        self._pool, self._own = pool, pool is None
        self.waiting = 0

    async def do(self, call: Callable[..., T], *values: Any) -> T:
        """Return the result of a function of a module, or raise its error. Raises `TooBusy`."""
        if self.waiting >= WAITING_MAX:
            raise TooBusy(f"{self.waiting} {self._what} are already queued")
        self.waiting += 1
        try:
            return await self._try(call, *values)
        except BrokenProcessPool:  # somebody killed the process, or its memory ran out
            self._pool = None
            return await self._try(call, *values)
        finally:
            self.waiting -= 1

    async def _try(self, call: Callable[..., T], *values: Any) -> T:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), _begin, (self._niceness, os.getpid()))
        work = partial(_do, call) if self._own else call
        return await asyncio.wrap_future(self._pool.submit(work, *values))

    def close(self) -> None:
        """End the process when what it does is done."""
        if self._pool is not None and self._own:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _begin(niceness: int, parent: int) -> None:
    """Set up the process: the answering process decides when it ends, also by being killed."""
    live_with_parent(parent)
    os.nice(niceness)


def _do(call: Callable[..., T], *values: Any) -> T:
    """Run a call in the process; modules that the first call has imported are kept permanently."""
    try:
        return call(*values)
    finally:
        _keep_once()


@cache
def _keep_once() -> None:
    keep_what_is_there()
