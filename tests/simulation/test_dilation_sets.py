"""List scheduling on composed times beside the plain one, by loading vectors, and the best assignment."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.dilation.list_scheduling import Rule, optimum_s, scheduled
from sim_backend.experiments.dilation.sets import LOADS, NODES, SETS, SIZES, Compared, compared, drawn
from tests.extent import first

LEAST_GAIN = {("equal", "pure"): 0.12}


def keeps(found: Compared) -> bool:
    """Whether it is on average no later than the list, and earlier where that is promised."""
    return found.gain >= LEAST_GAIN.get((found.sizes, found.loads), 0.0)


@pytest.mark.parametrize("sizes", first(SIZES))
@pytest.mark.parametrize("loads", first(LOADS))
def test_composed_times_are_never_worse_on_average(sizes: str, loads: str) -> None:
    """Given 100 sets of four machines and 12 jobs, then the mean makespan is at most that of plain list scheduling."""
    assert keeps(compared(sizes, loads, optimum=False))


@pytest.mark.full
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """All kinds of sets with the optimum beside; nothing beats it."""
    rows = [compared(sizes, loads) for sizes in SIZES for loads in LOADS]

    with capsys.disabled():
        print(f"\nmean makespans of {SETS} sets, s")
        for row in rows:
            means = "  ".join(f"{rule.value} {row.makespan_s[rule]:7.1f}" for rule in Rule)
            wins = f"earlier in {row.wins}, later in {row.losses}"
            print(f"{row.sizes:>12} {row.loads:>5}  {means}  optimum {row.optimum_s:7.1f}  {row.gain:6.1%}  {wins}")
    assert all(keeps(row) for row in rows)
    assert all(row.optimum_s is not None and row.optimum_s <= min(row.makespan_s.values()) + 1e-9 for row in rows)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nothing_beats_the_optimum(seed: int) -> None:
    """Of any one set, by any rule."""
    jobs = drawn("uniform", "mixed", np.random.default_rng(seed))
    best_s = optimum_s(jobs.p, jobs.neutral_s, NODES)

    assert all(scheduled(jobs.works(), NODES, rule).makespan_s >= best_s - 1e-9 for rule in Rule)


def test_by_loading_alone_heavy_tails_end_later() -> None:
    """Eq. 15 never looks at times: where sizes differ much it is worse than the plain list."""
    found = compared("heavy-tailed", "mixed", optimum=False)

    assert found.makespan_s[Rule.LOADING] > found.makespan_s[Rule.PLAIN]
