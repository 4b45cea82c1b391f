"""Simulates a span under settings, and puts what came of it beside what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daemons.decision.overrides import Alteration
from daemons.values.records.cluster import Deleted
from daemons.values.settings import ControllerSettings
from shared.ports import effects as fx
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Request
from sim_backend.history.figures import FIGURES, SpanStore, Tally, count_actions, utilities_of
from sim_backend.history.loop import loop_of, settings_for
from sim_backend.history.values import Log
from sim_backend.loop.shells import Shell

STEPS = 100  # of progress
Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one simulation. refused: how many requests the controller refused, by why."""

    policies: dict[str, str]
    figures: dict[str, Any]
    series: dict[str, list[Any]]
    refused: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def simulate(log: Log, base: ControllerSettings, other: Alteration, seed: int, name: str, tell: Tell) -> Run:
    """Simulate a span to its end under `base` with the alterations. Deterministic by seed. Raises the errors of
    `settings_for`."""
    settings = settings_for(log, base, other)
    tally = Tally(log.from_s, log.to_s)
    loop = loop_of(log, settings, seed, SpanStore(Deleted, tally))
    refused: Counter[str] = Counter()

    def heard(shell: Shell, event: fx.Input) -> None:
        del shell
        count_actions(tally, event)

    def recorded(effect: fx.Record) -> None:
        if effect.request.snapshot.at_cycle:
            tally.utilities.extend(utilities_of(effect.request.snapshot))

    def replied(request: Request, reply: Reply) -> None:
        if not reply.done:
            refused[f"{request.KIND}: {reply.code}"] += 1

    for shell in loop.controllers.values():
        shell.on_input, shell.record = heard, recorded
    loop.operator.on_reply = replied
    for step in range(1, STEPS + 1):
        loop.run_until(log.span_s * step / STEPS)
        tell({"run": name, "done": step, "of": STEPS, "at_s": log.from_s + loop.engine.now_s})
    policies = {"placement": settings.placement.name, "provisioning": settings.provisioning.name}
    return Run(policies, tally.figures(log), tally.series(), dict(sorted(refused.items())))


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the absolute and relative difference of each figure of `after` to that of `before`; None where one of them
    is unknown or the divisor is 0."""
    found: dict[str, dict[str, float | None]] = {}
    for name in FIGURES:
        was, is_now = before[name], after[name]
        if was is None or is_now is None:
            found[name] = {"by": None, "frac": None}
        else:
            found[name] = {"by": is_now - was, "frac": (is_now - was) / abs(was) if was else None}
    return found
