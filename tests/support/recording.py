"""Keeps a closed loop's history in a store as a controller's own shell does, so that what looks back has something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from daemons.decision.packing import snapshot_of
from daemons.store import Batch, History, SqlStore
from shared.ports import effects as fx
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.shells import Shell

EVERY_S = 300.0  # of virtual time, between two writes of what has gathered


def recorded(settings: LoopSettings) -> LoopSettings:
    """The settings with which a loop hands out what its decisions were computed from."""
    return replace(settings, controller=replace(settings.controller, record_snapshots=True))


class Recording:
    """Writes what the one controller of a loop keeps, and its history, into an empty store. `finish` at the end."""

    def __init__(self, loop: ClosedLoop, store: SqlStore) -> None:
        self._loop, self._store, self._history = loop, store, History()
        self._next_s = EVERY_S
        (shell,) = loop.controllers.values()
        store.take_lead(shell.name)
        loop.store.on_write = self._write
        shell.on_effect, shell.on_input, shell.record = self._effect, self._input, self._record

    def finish(self) -> None:
        """Write what has gathered."""
        self._store.append(self._history.take(float("inf")))

    def _write(self, term: int, records: tuple[Any, ...]) -> None:
        self._store.write(term, records)
        if self._loop.engine.now_s >= self._next_s:
            self._next_s = self._loop.engine.now_s + EVERY_S
            self._store.append(self._history.take(self._loop.engine.clock_s))

    def _effect(self, shell: Shell, effect: fx.Effect) -> None:
        del shell
        self._history.effect(effect, self._loop.engine.clock_s)

    def _input(self, shell: Shell, event: fx.Input) -> None:
        del shell
        self._history.input(event, self._loop.engine.clock_s)

    def _record(self, effect: fx.Record) -> None:
        self._store.append(Batch(snapshots=(snapshot_of(effect),)))
