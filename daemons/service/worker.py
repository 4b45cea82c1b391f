"""Decides in a process of its own, with a time limit: a policy may loop for ever, run out of memory or crash, and the
controller goes on."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from daemons.decision import pipeline
from daemons.decision.packing import EncodeRequest
from shared.base.clock import SystemClock
from shared.runtime.garbage_collection import keep_what_is_there
from shared.runtime.logs import get_logger

BEGIN_LIMIT_S = 60.0  # for the worker to import what policies need
END_WAIT_S = 5.0
NICENESS = 1
OUT_OF_TIME = "out of time"
Decide = Callable[[Any], Any]


class Worker:
    """One worker process at a time. For one thread.

    `decide` runs in it and must be importable there by its name. The process is started by `warm` or the first
    computation, and restarted after it was killed or died.
    """

    def __init__(self, function: Decide = pipeline.run) -> None:
        self._function = function
        self._clock = SystemClock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self.log = get_logger("worker")

    @property
    def pid(self) -> int | None:
        """The worker's process, None when there is none."""
        return None if self._process is None else self._process.pid

    def warm(self) -> bool:
        """Have a worker ready; false when it did not come up."""
        try:
            self._ready()
        except _LostError as error:
            self._kill()
            self.log.error("no worker", error=str(error))
            return False
        return True

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        """Return the result of `decide(request)`, or None and why there is none. The worker is killed at the limit."""
        begun_s = self._clock.monotonic_s()
        try:
            pipe = self._ready()
            begun_s = self._clock.monotonic_s()
            done, answer = _asked(pipe, request, limit_s)
        except _LostError as error:
            reason = self._lost(error)
            self.log.error("decision failed", error=reason, wall_s=self._since_s(begun_s))
            return None, reason
        if done:
            self.log.info(
                "recorded" if isinstance(request, EncodeRequest) else "decided", wall_s=self._since_s(begun_s)
            )
            return answer, ""
        text, trace = answer
        self.log.error("a policy has failed", error=text, traceback=trace)
        return None, text

    def close(self) -> None:
        """End the worker, also in the middle of a computation; from any thread."""
        self._kill()

    def _since_s(self, begun_s: float) -> float:
        return round(self._clock.monotonic_s() - begun_s, 3)

    def _ready(self) -> Connection:
        if self._pipe is not None and self._process is not None and self._process.is_alive():
            return self._pipe
        self._kill()
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._function), name="decide", daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        _receive(ours, BEGIN_LIMIT_S)
        return ours

    def _lost(self, error: _LostError) -> str:
        """Return why there is no decision; kill a remaining worker."""
        reason, process = str(error), self._process
        if process is not None and isinstance(error, _DiedError):
            process.join(END_WAIT_S)
            if process.exitcode is not None:
                reason = f"{reason} (exit status {process.exitcode})"
        self._kill()
        return reason

    def _kill(self) -> None:
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if process is not None:
            process.kill()
            process.join(END_WAIT_S)
        if pipe is not None:
            pipe.close()


class _LostError(Exception):
    """The worker has not answered; says why."""


class _DiedError(_LostError):
    """The worker's process has died."""

    def __init__(self) -> None:
        super().__init__("the worker has died")


def _asked(pipe: Connection, request: Any, limit_s: float) -> tuple[bool, Any]:
    try:
        pipe.send(request)
    except OSError as error:
        raise _DiedError from error
    except Exception as error:
        raise _LostError(f"the request cannot be sent: {error}") from error
    answer: tuple[bool, Any] = _receive(pipe, limit_s)
    return answer


def _receive(pipe: Connection, limit_s: float) -> Any:
    try:
        if not pipe.poll(limit_s):
            raise _LostError(OUT_OF_TIME)
        return pipe.recv()
    except (EOFError, OSError) as error:
        raise _DiedError from error
    except _LostError:
        raise
    except Exception as error:
        raise _LostError(f"the answer cannot be read: {error}") from error


# --- in the worker -------------------------------------------------------------------------------------------------


def _serve(pipe: Connection, function: Decide) -> None:
    """Answer requests until the controller is gone: the worker's whole life."""
    os.nice(NICENESS)  # measuring and carrying out go before deciding
    _leave_signals()
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    pipe.send(None)
    is_new = True
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        answer = _answer(function, request)
        try:
            pipe.send(answer)
        except OSError:
            return
        except Exception as error:  # noqa: BLE001  pickle raises whatever a value's own methods raise
            pipe.send((False, (f"the decision cannot be sent: {error}", traceback.format_exc())))
        if is_new:  # policies are imported when they are first asked
            del request, answer
            keep_what_is_there()
            is_new = False


def _answer(function: Decide, request: Any) -> tuple[bool, Any]:
    try:
        return True, function(request)
    except Exception as error:  # noqa: BLE001  a policy may raise anything; the controller is told
        return False, (f"{type(error).__name__}: {error}", traceback.format_exc())


def _end_with_parent() -> None:
    """End the worker when its controller was killed; its results would have no receiver."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _leave_signals() -> None:
    """Leave signals to the whole process group to the controller."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
