"""The job processing period of batch-provisioning.txt, chapter 5, with what the thesis leaves open chosen."""

from __future__ import annotations

from daemons.capacity.provisioning.file import (
    Arrivals,
    Period,
    Price,
    PricedScenario,
    Promise,
    Scenario,
    Servers,
    Service,
)

SHAPES = ("uniform", "increasing", "decreasing", "quadratic-1", "quadratic-2")
"""Cost functions 1 to 5 (section 5.3)."""
SIMPLE = ("threshold", "delayed-threshold")
AWARE = ("cost-aware", "cost-aware-monotone", "cost-aware-fast")
THESIS = (*SIMPLE, *AWARE)
HEURISTIC = {name: f"H{number}" for number, name in enumerate(THESIS, 1)}

RATIO = 3.0
RUNS = 1_000  # of each experiment in the thesis
CONFIDENCE = 0.9999
LOOSE = 0.985  # the confidence that comes near to what the thesis's own tables keep
PROFILE = (2.0, -1.04167e-4, 1.80845e-9)
MEAN_S = 480.0
SUBMISSION_END, DEADLINE = 64, 92
SERVERS_MAX = 5
SIZES = (5, 10, 20, 30)
"""The largest numbers of servers of section 5.4.4."""


def thesis(servers_max: int = SERVERS_MAX, ratio: float = RATIO, confidence: float = CONFIDENCE) -> PricedScenario:
    """Return the scenario of the thesis. Arrivals come `servers_max` / 5 times as often as with five servers."""
    scenario = Scenario(
        period=Period(900.0, SUBMISSION_END, DEADLINE),
        servers=Servers(servers_max),
        arrivals=Arrivals(MEAN_S * SERVERS_MAX / servers_max, PROFILE),
        service=Service(1_200.0),
        promise=Promise(confidence),
        price=Price(ratio=ratio),
    )
    return PricedScenario(scenario)
