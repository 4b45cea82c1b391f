"""Has decisions packed in another process, one after the other, and hands them to the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from daemons.decision.packing import task_of
from daemons.decision.recording import SnapshotEntry
from shared.ports import effects as fx
from shared.runtime.logs import get_logger

ENCODE_LIMIT_S = 60.0


class Computer(Protocol):
    """What computes; see `daemons.service.worker.Worker`."""

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        """Return the answer, or None and why there is none."""
        ...


class Recorder:
    """Carries out `Record` in a shell. `do` has the worker make the bytes where it decides; `keep` receives them
    through `ask`, in the shell's own thread. Once `is_over`, nothing is requested from the worker any more: the request
    would restart it."""

    def __init__(
        self,
        worker: Computer,
        do: Callable[[Callable[[], None]], None],
        ask: Callable[[Callable[[], None]], object],
        keep: Callable[[SnapshotEntry], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._worker, self._do, self._ask, self._keep, self._is_over = worker, do, ask, keep, is_over
        self.log = get_logger("recorder")

    def __call__(self, effect: fx.Record) -> None:
        """Have it kept; a failure is logged and harms nothing else."""
        self._do(partial(self._encode, effect))

    def _encode(self, effect: fx.Record) -> None:
        if self._is_over():
            return
        body, error = self._worker.compute(task_of(effect), ENCODE_LIMIT_S)
        if isinstance(body, bytes):
            entry = SnapshotEntry(effect.number, effect.at_s, effect.term, body)
            self._ask(lambda: self._keep(entry))
        else:
            self.log.error("snapshot not recorded", decision=effect.number, error=error)
