"""Packs what decisions were computed from: in the process that decides, for the shell that stores it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from typing import Any, Protocol

from daemons.decide import DecideRequest
from daemons.recording import SnapshotEntry
from daemons.saved_requests import header_bytes, to_bytes
from shared import effects as fx
from shared.logs import get_logger

DISTRIBUTION = "trimtab"
ENCODE_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class EncodeRequest:
    """Have a request made into bytes, in the process that decides. The answer are the bytes."""

    request: DecideRequest
    header: dict[str, Any]


class Computer(Protocol):
    """What computes; see `daemons.worker.Worker`."""

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        """The answer, or None and why there is none."""
        ...


def encode(task: EncodeRequest) -> bytes:
    """The bytes of a request. Raises `InvalidValue` for a policy's state or parameters that are no plain data."""
    return header_bytes({"program": _program(), **task.header}) + to_bytes(task.request)


@cache
def _program() -> str:
    return metadata.version(DISTRIBUTION)


def snapshot_of(effect: fx.Record) -> SnapshotEntry:
    """What an effect wants kept, made here and now. Raises as `encode` does."""
    return SnapshotEntry(effect.number, effect.at_s, effect.term, encode(_task(effect)))


def _task(effect: fx.Record) -> EncodeRequest:
    header = {"number": effect.number, "term": effect.term, "at_s": effect.at_s, **effect.notes}
    return EncodeRequest(effect.request, header)


class Recorder:
    """Carries out `Record` in a shell: `do` has the worker make the bytes where it decides, `keep` takes them, in the
    shell's own thread, by way of `ask`. Once `is_over` nothing is asked of the worker any more: it would be begun anew.
    """

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
        body, error = self._worker.compute(_task(effect), ENCODE_LIMIT_S)
        if isinstance(body, bytes):
            entry = SnapshotEntry(effect.number, effect.at_s, effect.term, body)
            self._ask(lambda: self._keep(entry))
        else:
            self.log.error("snapshot not recorded", decision=effect.number, error=error)
