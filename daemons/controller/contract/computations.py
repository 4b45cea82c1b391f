"""What is computed beside the core, and who gets the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daemons.controller.state.unit_of_work import UnitOfWork
from shared.ports.effects import Compute, Computed

Answered = Callable[[Any, str, float], None]
"""Takes an outcome (None: there is none), why there is none, and the time."""


class Computations:
    """Numbers computations and passes each answer to its requester. Answers to requests of an earlier process are
    dropped."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self._asked = 0
        self._open: dict[int, Answered] = {}

    def ask(self, task: object, limit_s: float, answered: Answered) -> int:
        """Have a task computed within so many seconds; returns its number."""
        self._asked += 1
        self._open[self._asked] = answered
        self._unit_of_work.effects.append(Compute(self._asked, task, limit_s))
        return self._asked

    def answer(self, event: Computed, now_s: float) -> None:
        """Pass an answer to the callback that waits for it."""
        answered = self._open.pop(event.compute_id, None)
        if answered is not None:
            answered(event.outcome, event.error, now_s)
