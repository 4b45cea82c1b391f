"""A few threads for what blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """Does calls beside the event loop, at most `count` at a time; the others wait in order."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self.waiting = 0

    async def do(self, call: Callable[..., T], *values: Any) -> T:
        """Return the result of the call, or raise its error. The call runs to its end even if nobody waits any more."""
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *values))
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """End the threads when what they do is done."""
        self._pool.shutdown(wait=False, cancel_futures=True)
