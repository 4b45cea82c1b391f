"""What a policy asks of a window's analyser."""

from __future__ import annotations

from dataclasses import dataclass

from shared.policy_api.snapshot import WindowView


@dataclass(frozen=True, slots=True)
class BreachQuery:
    """What a policy asks of a window's analyser through its table cache: the probability of breach with each number of
    reference nodes."""

    window: WindowView
    nodes: tuple[int, ...]
