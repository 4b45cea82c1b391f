"""Texts that people send, understood in processes of their own: one that takes too long, or too much memory, is killed
with its process, and the one that answers does not feel it."""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import signal
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from daemons.portal.threads import Threads
from shared.base.errors import PermanentError

T = TypeVar("T")

LIMIT_S = 10.0
START_S = 60.0
COUNT = 2
MEMORY_BYTES_MAX = 512 << 20
NICENESS = 5
READ_BEFORE = ("daemons.portal.forms.agreements", "daemons.portal.forms.submit")  # that takes longer than most texts


class NotUnderstood(PermanentError):
    """A text took longer than it may, or more memory."""

    code = "not-understood"


class Texts:
    """Runs calls, functions of modules, in `count` processes, each within `limit_s`; for one event loop. An account has
    one in progress at a time. pool: an existing executor to use instead; nothing is killed there."""

    def __init__(self, limit_s: float = LIMIT_S, count: int = COUNT, pool: Executor | None = None) -> None:
        self._limit_s, self._pool = limit_s, pool
        self._workers = [_Worker() for _ in range(count)]
        self._free: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        for each in self._workers:
            self._free.put_nowait(each)
        self._threads = Threads(count, "texts")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def do(self, account: str, call: Callable[..., T], *values: Any) -> T:
        """Return the result of a call for an account, or raise its error. Raises `NotUnderstood`."""
        turn = self._turns.setdefault(account, asyncio.Lock())
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._limit_s):
                    await held.enter_async_context(turn)
                    worker = await self._free.get()
                    held.callback(self._free.put_nowait, worker)
                    if self._pool is not None:
                        return await asyncio.wrap_future(self._pool.submit(call, *values))
            except TimeoutError as error:
                raise NotUnderstood(f"within {self._limit_s:g} s") from error
            found: T = await self._threads.do(worker.do, call, values, self._limit_s)
            return found

    async def warm(self) -> None:
        """Have one process ready before somebody waits for it."""
        await self.do("", os.getpid)

    def close(self) -> None:
        """End the processes."""
        for each in self._workers:
            each.end()
        self._threads.close()


class _Worker:
    """One process, begun when it is needed; for one thread at a time."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def do(self, call: Callable[..., Any], values: tuple[Any, ...], limit_s: float) -> Any:
        """Return the result of the call, or raise its error. Raises `NotUnderstood`."""
        pipe = self._begun()
        try:
            pipe.send((call, values))
            if not pipe.poll(limit_s):
                self.end()
                raise NotUnderstood(f"within {limit_s:g} s")
            done, found = pipe.recv()
        except (EOFError, OSError) as error:  # the process has died
            self.end()
            raise NotUnderstood("before its process ended") from error
        if done:
            return found
        if isinstance(found, MemoryError):
            self.end()  # its state is unknown
            raise NotUnderstood(f"with {MEMORY_BYTES_MAX >> 20} MiB of memory")
        raise found

    def _begun(self) -> Connection:
        if self._pipe is not None and self._process is not None and self._process.is_alive():
            return self._pipe
        self.end()
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="texts", daemon=True)
        self._process.start()
        theirs.close()
        if not self._pipe.poll(START_S):
            self.end()
            raise NotUnderstood(f"because its process did not start within {START_S:g} s")
        self._pipe.recv()
        return self._pipe

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _serve(pipe: Connection) -> None:
    """Serve calls in the process until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    for each in READ_BEFORE:
        import_module(each)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    pipe.send(os.getpid())
    while True:
        try:
            call, values = pipe.recv()
        except EOFError:
            return
        pipe.send_bytes(_answer(call, values))


def _answer(call: Callable[..., Any], values: tuple[Any, ...]) -> bytes:
    """Return whether the call succeeded, and its result or error."""
    try:
        return pickle.dumps((True, call(*values)))
    except Exception as error:  # noqa: BLE001 - raised again where somebody waits for it
        try:
            return pickle.dumps((False, error))
        except (pickle.PicklingError, TypeError, AttributeError):
            return pickle.dumps((False, RuntimeError(repr(error))))
