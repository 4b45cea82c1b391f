"""Which inputs of the controller's shell go into the history."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from daemons.controller.core.controller import Controller
from daemons.controller.measure.screening import speaks_for_itself
from shared.ports import effects as fx
from shared.protocol.messages import Report, Result
from shared.values.nodes import NodeSample

FIGURE_MAX = 2.0**53  # no reading of a node is above it
FIGURES: Callable[[NodeSample], tuple[float, ...]] = attrgetter(*NodeSample.__struct_fields__)


def is_noted(event: fx.Input, core: Controller, now_s: float) -> bool:
    """Return whether to record an input. Excluded are an agent's statements about another node, results that nobody
    ordered, and a report with impossible readings: their sums would exceed the range of the store."""
    if not isinstance(event, fx.Received):
        return True
    message = event.message
    if not speaks_for_itself(event.sender, message):
        return False
    if isinstance(message, Report):
        return _is_possible(message.sample)
    return not isinstance(message, Result) or core.screening.is_worth_keeping(message, core.cluster, now_s)


def _is_possible(sample: NodeSample) -> bool:
    figures = FIGURES(sample)
    return min(figures) >= 0.0 and max(figures) <= FIGURE_MAX
