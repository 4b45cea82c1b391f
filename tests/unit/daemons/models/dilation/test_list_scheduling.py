"""Jobs onto nodes one after the other: the example of d-factor.txt, section 6, and the best that any order reaches."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from daemons.models.dilation import formula
from daemons.models.dilation.completion import Stage, Work, composed, composed_nodes
from daemons.models.dilation.formula import Floats
from daemons.models.dilation.list_scheduling import (
    OPTIMUM_JOBS_MAX,
    Rule,
    makespans_s,
    optimum_s,
    scheduled,
    subset_makespans_s,
)
from shared.base.errors import InvalidValue
from tests.unit.daemons.models.dilation.test_formula import drawn

CPU, IO = (1.0, 0.0), (0.0, 1.0)
TABLE_3 = (
    Work(0.0, (Stage(110.56, CPU),)),
    Work(0.0, (Stage(115.83, IO),)),
    Work(0.0, (Stage(180.0, CPU),)),
    Work(60.0, (Stage(110.56, CPU),)),
)


def works(p: Floats, neutral_s: Floats) -> list[Work]:
    """Jobs of one stage that are all there from the begin."""
    return [
        Work(0.0, (Stage(alone_s, tuple(row)),)) for row, alone_s in zip(p.tolist(), neutral_s.tolist(), strict=True)
    ]


def naive_optimum_s(p: Floats, neutral_s: Floats, nodes: int) -> float:
    """Every assignment."""
    jobs = works(p, neutral_s)
    return min(float(composed_nodes(jobs, homes).max()) for homes in product(range(nodes), repeat=len(jobs)))


def test_table_3() -> None:
    """The list scheduler takes 290.56 s, by loading vectors and by composed times it is 221.12 s: 23.9 % less."""
    plain, loading, by_times = (scheduled(TABLE_3, 2, rule) for rule in Rule)

    assert plain.makespan_s == pytest.approx(290.56)
    assert loading.nodes == by_times.nodes == (0, 0, 1, 0)
    assert by_times.ends_s == pytest.approx([161.12, 115.83, 180.00, 221.12])
    assert 1.0 - by_times.makespan_s / plain.makespan_s == pytest.approx(0.239, abs=5e-4)


def test_sums_in_another_order_are_a_tie() -> None:
    """Two machines have 0.3 s of work each, 0.1 + 0.2 on the first: the next job goes there."""
    jobs = [Work(0.0, (Stage(alone_s, CPU),)) for alone_s in (0.1, 0.3, 0.2, 1.0)]
    assert scheduled(jobs, 2, Rule.PLAIN).nodes == (0, 1, 0, 0)


def test_the_papers_own_start_of_the_list_scheduler() -> None:
    """With the first three where the paper has them, the fourth goes to the second machine and ends it at 290.56 s."""
    assert composed_nodes(TABLE_3, (0, 0, 1, 1)).max() == pytest.approx(290.56)


def test_ties_go_to_the_first() -> None:
    """Equal jobs on three nodes, by any rule: in turn; those that load nothing all to the first by loading alone."""
    equal = [Work(0.0, (Stage(10.0, CPU),))] * 3
    idle = [Work(0.0, (Stage(10.0, (0.0, 0.0)),))] * 3

    assert {scheduled(equal, 3, rule).nodes for rule in Rule} == {(0, 1, 2)}
    assert scheduled(idle, 3, Rule.LOADING).nodes == scheduled(idle, 3, Rule.COMPOSED).nodes == (0, 0, 0)


def test_who_has_ended_counts_no_more() -> None:
    """Given a job that ended before the next arrives, then every rule finds its node empty."""
    jobs = [Work(0.0, (Stage(10.0, CPU),)), Work(20.0, (Stage(10.0, CPU),))]

    assert {scheduled(jobs, 2, rule).nodes for rule in Rule} == {(0, 0)}


def test_where_one_more_job_would_end() -> None:
    """The makespan of each node with the new job is that of all its jobs together."""
    rng = np.random.default_rng(10)
    p, neutral_s = drawn(rng, 5, 2), rng.uniform(5.0, 30.0, 5)
    jobs = works(p, neutral_s)

    found = makespans_s(jobs[4], [jobs[:1], jobs[1:4], []])

    assert found[0] == pytest.approx(composed(p[[0, 4]], neutral_s[[0, 4]]).max())
    assert found[1] == pytest.approx(composed(p[1:], neutral_s[1:]).max())
    assert found[2] == pytest.approx(neutral_s[4])


@pytest.mark.parametrize("servers", [None, (1, 2)])
def test_makespans_of_all_subsets(servers: tuple[int, int] | None) -> None:
    """They are those of each subset alone."""
    rng = np.random.default_rng(11)
    p, neutral_s = drawn(rng, 5, 2), rng.uniform(5.0, 30.0, 5)

    found = subset_makespans_s(p, neutral_s, servers)

    for subset in range(1, 32):
        rows = [job for job in range(5) if subset >> job & 1]
        ends_s = composed(p[rows], neutral_s[rows], rates=lambda q: formula.dilation(q, servers))
        assert found[subset] == pytest.approx(ends_s.max())
    assert found[0] == 0.0


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_the_optimum_is_that_of_all_assignments(nodes: int) -> None:
    """By dynamic programming over subsets, and by trying every assignment."""
    rng = np.random.default_rng(nodes)
    p, neutral_s = drawn(rng, 4, 2), rng.uniform(5.0, 30.0, 4)

    assert optimum_s(p, neutral_s, nodes) == pytest.approx(naive_optimum_s(p, neutral_s, nodes))


def test_limits() -> None:
    """Too many jobs for the optimum, no node, no job."""
    with pytest.raises(InvalidValue, match="jobs"):
        optimum_s(np.ones((OPTIMUM_JOBS_MAX + 1, 1)), np.ones(OPTIMUM_JOBS_MAX + 1), 2)
    with pytest.raises(InvalidValue, match="nodes"):
        optimum_s(np.ones((2, 1)), np.ones(2), 0)
    with pytest.raises(InvalidValue, match="nodes"):
        scheduled(TABLE_3, 0, Rule.PLAIN)
    assert scheduled([], 2, Rule.COMPOSED).makespan_s == 0.0
    assert math.isclose(optimum_s(np.zeros((0, 1)), [], 2), 0.0)
