"""What is made of views and of the history for all readers together: made once, not for each page."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

from starlette.requests import Request

T = TypeVar("T")

KEPT_MAX = 64


class Memo:
    """Keeps what was made last under each key, as long as it is asked for with what it was made of: the very same
    objects, or equal ones. At most `kept_max` keys, those that were asked for last. Keys that begin alike are of the
    same sources: what was made of older ones goes with the first that is made of newer ones."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._kept: OrderedDict[Hashable, tuple[tuple[object, ...], Any]] = OrderedDict()
        self._making: dict[tuple[Hashable, tuple[Hashable, ...]], asyncio.Future[Any]] = {}

    def get(self, key: Hashable, sources: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the result of `make`, or the earlier one for the same source objects."""
        found = self._kept.get(key)
        if found is not None and len(found[0]) == len(sources) and all(map(_same, found[0], sources)):
            self._kept.move_to_end(key)
            return cast(T, found[1])
        made = make()
        for other in [each for each in self._kept if _kind(each) == _kind(key)]:
            if not all(map(_same, self._kept[other][0], sources)):
                del self._kept[other]
        return self.put(key, sources, made)

    def find(self, key: Hashable, sources: tuple[object, ...]) -> Any:
        """Return the value stored for equal sources; None if there is none."""
        found = self._kept.get(key)
        return found[1] if found is not None and found[0] == sources else None

    async def once(self, key: Hashable, sources: tuple[Hashable, ...], make: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `make`, or the earlier one for equal sources; it is computed once for all concurrent
        callers. Its error is raised to all of them, and not kept."""
        if key in self._kept and self._kept[key][0] == sources:
            self._kept.move_to_end(key)
            return cast(T, self._kept[key][1])
        task = self._making.get((key, sources))
        if task is None:
            task = self._making[key, sources] = asyncio.ensure_future(make())
            task.add_done_callback(lambda done: self._made(key, sources, done))
        return cast(T, await asyncio.shield(task))

    def _made(self, key: Hashable, sources: tuple[Hashable, ...], done: asyncio.Future[Any]) -> None:
        del self._making[key, sources]
        if not done.cancelled() and done.exception() is None:
            self.put(key, sources, done.result())

    def put(self, key: Hashable, sources: tuple[object, ...], made: T) -> T:
        """Keep something that was made of these sources; what was put."""
        self._kept[key] = (sources, made)
        self._kept.move_to_end(key)
        while len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        return made


def _same(one: object, other: object) -> bool:
    return one is other


def _kind(key: Hashable) -> Hashable:
    return key[0] if isinstance(key, tuple) else key


def derived(request: Request) -> Memo:
    """Return the application's cached results. The key of a restricted result includes who may see it."""
    state = request.app.state
    if not hasattr(state, "derived"):
        state.derived = Memo()
    found: Memo = state.derived
    return found
