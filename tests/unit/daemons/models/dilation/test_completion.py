"""When jobs end that come and go: the figures of d-factor.txt, stages, instances, a run that is stopped on the way."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from daemons.models.dilation import choice, formula, product_form
from daemons.models.dilation.completion import (
    NodeRun,
    Stage,
    Work,
    composed,
    composed_nodes,
    composed_stages,
    slowest,
)
from daemons.models.dilation.formula import Floats
from tests.unit.daemons.models.dilation.test_formula import CASES, drawn


def stepped(p: Floats, neutral_s: Floats, arrivals_s: Floats, step_s: float) -> Floats:
    """The same in small steps of time."""
    left_s, ends_s, now_s = neutral_s.copy(), np.zeros(len(p)), 0.0
    while (left_s > 0.0).any():
        here = (arrivals_s <= now_s + 1e-9) & (left_s > 0.0)
        now_s += step_s
        left_s[here] -= step_s / formula.dilation(p[here])
        ends_s[here & (left_s <= 0.0)] = now_s
    return ends_s


@pytest.mark.parametrize("case", CASES)
def test_worked_cases(case: dict[str, Any]) -> None:
    """Six job sets with known ends."""
    jobs = case["input"]["jobs"]

    p, neutral_s, arrivals_s = ([job[key] for job in jobs] for key in ("loading", "neutral_s", "arrival_s"))
    found = composed(p, neutral_s, arrivals_s)

    assert found == pytest.approx(case["expected"]["formula"]["completion_s"], abs=1e-5)


def test_jobs_that_arrive_one_after_the_other() -> None:
    """Three jobs with known ends; the second, larger than what is left of the others, ends last."""
    ends_s = composed([(0.58, 0.42), (1, 0), (0.2, 0.5)], [100, 80, 60], [0, 30, 50])

    assert ends_s == pytest.approx([156.260, 162.860, 141.560], abs=5e-4)


def test_map_reduce() -> None:
    """Figure 7b: Sort, Grep and PiEstimator together."""
    ends_s = composed([(0.9, 0.1), (0.5, 0.5), (0.5, 0.5)], [56.0, 95.0, 90.0])

    assert ends_s == pytest.approx([112.0, 168.0, 163.0], abs=0.5)


def test_file_bench() -> None:
    """Figure 6: one file server and two mail servers; the two of them that the paper prints, 458.1 s and 87.6 s."""
    file, mail = (0.02, 0.98), (0.10, 0.90)

    three = composed([file, mail, mail], [416.987, 46.507, 46.507])
    two = composed([file, mail], [416.987, 46.507])

    assert three == pytest.approx([497.31, 125.76, 125.76], abs=0.01)
    assert two == pytest.approx([458.1, 87.62], abs=0.05)


def test_file_compression() -> None:
    """Section 4.2: beside a probe of the disk that outlasts it."""
    ends_s = composed([(0.58, 0.42), (0, 1)], [78.1, 200.0])

    assert ends_s[0] == pytest.approx(110.9, abs=0.05)


def test_rates_change_only_at_events() -> None:
    """Given jobs drawn from a seed, then small steps of time lead to the same ends."""
    rng = np.random.default_rng(6)
    p, neutral_s, arrivals_s = drawn(rng, 5, 2), rng.uniform(5.0, 30.0, 5), rng.integers(0, 40, 5).astype(float)

    assert composed(p, neutral_s, arrivals_s) == pytest.approx(stepped(p, neutral_s, arrivals_s, 0.01), abs=0.1)


def test_stages() -> None:
    """A job that computes for 10 s and then reads for 10 s, beside one that reads for 15 s: they meet at the disk after
    10 s and share it until the second has done its last 5 s."""
    cpu, io = (1.0, 0.0), (0.0, 1.0)
    both = [Work(0.0, (Stage(10.0, cpu), Stage(10.0, io))), Work(0.0, (Stage(15.0, io),))]

    assert composed_stages(both) == pytest.approx([25.0, 20.0])


def test_stages_alike_are_one() -> None:
    """A job cut in two stages of one vector ends when it ends in one piece."""
    rng = np.random.default_rng(7)
    p, neutral_s = drawn(rng, 4, 2), rng.uniform(5.0, 30.0, 4)
    cut = [
        Work(0.0, (Stage(0.3 * alone_s, tuple(row)), Stage(0.7 * alone_s, tuple(row))))
        for row, alone_s in zip(p.tolist(), neutral_s.tolist(), strict=True)
    ]

    assert composed_stages(cut) == pytest.approx(composed(p, neutral_s), abs=1e-9)


def test_a_job_of_several_instances_ends_with_its_slowest() -> None:
    """Given a job of two instances, one beside another job, then that one is the slower; the other ends on time."""
    cpu = (1.0,)
    works = [Work(0.0, (Stage(10.0, cpu),)), Work(0.0, (Stage(10.0, cpu),)), Work(5.0, (Stage(20.0, cpu),))]

    ends_s = composed_nodes(works, (0, 1, 1))

    assert ends_s == pytest.approx([10.0, 15.0, 30.0])
    assert slowest(ends_s, (0, 0, 1)) == pytest.approx([15.0, 30.0])


def test_any_model_gives_the_rates() -> None:
    """The exact network and several servers: with two servers for two readers, each goes on as if alone."""
    io = [(0.0, 1.0)] * 2
    rng = np.random.default_rng(8)
    p = drawn(rng, 5, 2, idle=False)

    apart = partial(choice.dilation, model="product-form", servers=(1, 2))
    assert composed(io, [10.0, 20.0], rates=apart) == pytest.approx([10.0, 20.0])
    by_formula = composed(p, np.full(5, 10.0))
    exact = composed(p, np.full(5, 10.0), rates=partial(product_form.dilation, servers=None))
    assert exact == pytest.approx(by_formula, rel=0.3)
    assert exact != pytest.approx(by_formula, rel=1e-3)


def test_a_run_that_is_stopped_goes_on_where_it_was() -> None:
    """Given a run that is looked at on the way, then its ends are the same, and what is left is stated."""
    run = NodeRun()
    run.add(Work(0.0, (Stage(10.0, (1.0,)), Stage(4.0, (0.5,)))), 7)
    run.add(Work(5.0, (Stage(10.0, (1.0,)),)), 8)

    run.until(5.0)
    assert run.numbers == (7, 8)
    assert run.present()[0] == Work(5.0, (Stage(5.0, (1.0,)), Stage(4.0, (0.5,))))
    run.until(15.0)
    assert [work.stages for work in run.present()] == [(Stage(4.0, (0.5,)),), (Stage(5.0, (1.0,)),)]
    run.until()

    whole = composed_stages([Work(0.0, (Stage(10.0, (1.0,)), Stage(4.0, (0.5,)))), Work(5.0, (Stage(10.0, (1.0,)),))])
    assert [run.ends_s[7], run.ends_s[8]] == pytest.approx(whole.tolist())


def test_a_node_that_is_empty_in_between() -> None:
    """A gap without jobs, and no job at all."""
    assert composed([(1.0,), (1.0,)], [5.0, 5.0], [0.0, 100.0]) == pytest.approx([5.0, 105.0])
    assert composed(np.zeros((0, 1)), []).size == 0
