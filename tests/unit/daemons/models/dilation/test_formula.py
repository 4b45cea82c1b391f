"""The dilation of jobs that share a node: the formula, the exact network, its approximation, the choice of one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from daemons.models.dilation import choice, formula, linear, mean_value, product_form
from daemons.models.dilation.choice import AFFORDABLE, Model
from daemons.models.dilation.formula import Floats
from shared.base.errors import InvalidValue
from tests.support.paths import ROOT

CASES = json.loads((ROOT / "tests/support/dilation_cases.json").read_text("utf-8"))


def drawn(rng: np.random.Generator, jobs: int, resources: int, idle: bool = True) -> Floats:
    """Vectors, uniform over all that there are; without an idle share unless it is wanted."""
    return rng.dirichlet(np.ones(resources + idle), jobs)[:, :resources]


def naive_dilation(p: Floats) -> list[float]:
    """Eq. 3 and 4, slice by slice."""
    jobs, resources = p.shape
    found = []
    for j in range(jobs):
        time = 1.0 - sum(p[j, i] for i in range(resources))
        for i in range(resources):
            time += p[j, i] * (1.0 + sum(p[k, i] for k in range(jobs)) - p[j, i])
        found.append(time)
    return found


@pytest.mark.parametrize("case", CASES)
def test_worked_cases(case: dict[str, Any]) -> None:
    """Six job sets with known dilations."""
    p = np.array([job["loading"] for job in case["input"]["jobs"]])
    expected = case["expected"]

    assert formula.dilation(p) == pytest.approx(expected["formula"]["dilation"], abs=1e-9)
    assert formula.dilation(p).sum() == pytest.approx(expected["formula"]["total_dilation"], abs=1e-9)
    assert product_form.dilation(p) == pytest.approx(expected["product-form"]["dilation"], abs=1e-7)


def test_the_formula_is_that_of_slices() -> None:
    """Eq. 5 is eq. 4, and eq. 14 its sum in norms."""
    p = drawn(np.random.default_rng(1), 7, 3)

    assert formula.dilation(p) == pytest.approx(naive_dilation(p), abs=1e-12)
    norms = len(p) + (p.sum(axis=0) ** 2).sum() - (p**2).sum()
    assert formula.dilation(p).sum() == pytest.approx(norms, abs=1e-12)


def test_jobs_that_load_one_resource() -> None:
    """Lemma 1, remark 5: n busy jobs are n times slower; of part p it is 1 + (n - 1) p**2."""
    assert formula.dilation(np.ones((5, 1))).tolist() == linear.dilation(np.ones((5, 1))).tolist() == [5.0] * 5
    assert formula.dilation(np.full((4, 1), 0.3)) == pytest.approx([1.0 + 3 * 0.09] * 4)


@pytest.mark.parametrize("servers", [None, (1, 1, 1), (1, 2, 3)])
def test_candidates_are_added_as_if_one_by_one(servers: tuple[int, ...] | None) -> None:
    """The dilation of each candidate on each node is what it has among those who are there."""
    rng = np.random.default_rng(2)
    candidates = drawn(rng, 6, 3)
    nodes = [drawn(rng, count, 3) for count in (0, 1, 2, 5, 9)]

    found = formula.added(candidates, np.array([there.sum(axis=0) for there in nodes]), servers)

    for row, candidate in enumerate(candidates):
        for column, there in enumerate(nodes):
            alone = formula.dilation(np.vstack((there, candidate)), servers)[-1]
            assert found[row, column] == pytest.approx(alone, abs=1e-12)


def test_several_servers_delay_only_what_exceeds_them() -> None:
    """Given a resource that serves three at once, then three never wait, and six pure ones are twice as slow."""
    pure = np.ones((6, 1))

    assert formula.dilation(pure[:3], (3,)).tolist() == [1.0] * 3
    assert formula.dilation(pure, (3,)).tolist() == [2.0] * 6
    assert product_form.dilation(pure[:3], (3,)) == pytest.approx([1.0] * 3)
    assert product_form.dilation(pure, (3,)) == pytest.approx([2.0] * 6)
    assert mean_value.dilation(pure, (3,)) == pytest.approx([2.0] * 6, abs=1e-6)


def test_two_jobs() -> None:
    """Property 2: for two jobs every model of the formula's kind says 1 + p . q, the exact one too."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        p = drawn(rng, 2, 4)
        expected = [1.0 + float(p[0] @ p[1])] * 2
        assert formula.dilation(p) == pytest.approx(expected, abs=1e-13)
        assert product_form.dilation(p) == pytest.approx(expected, abs=1e-13)
        servers = (1, 2, 3, 1)
        assert formula.dilation(p, servers) == pytest.approx(product_form.dilation(p, servers), abs=1e-13)


def test_who_loads_nothing_is_not_slowed() -> None:
    """A job without any load among others, no job, and one alone."""
    p = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    for model in (Model.FORMULA, Model.PRODUCT_FORM, Model.MEAN_VALUE):
        assert choice.dilation(p, model)[0] == pytest.approx(1.0, abs=1e-9)
        assert choice.dilation(p[1:2], model) == pytest.approx([1.0])
        assert choice.dilation(np.zeros((0, 2)), model).size == 0


def test_many_equal_jobs_stay_exact() -> None:
    """Given as many jobs as are allowed, all pure, or all half and half, then what is known of them holds."""
    most = product_form.JOBS_MAX

    assert product_form.dilation(np.ones((most, 1))) == pytest.approx([most] * most, rel=1e-11)
    assert product_form.dilation(np.full((most, 2), 0.5)) == pytest.approx([(most + 1) / 2] * most, rel=1e-11)
    assert product_form.dilation(np.ones((120, 1)), (4,)) == pytest.approx([30.0] * 120, rel=1e-11)


def test_what_is_too_large_is_refused() -> None:
    """More jobs at one resource than the weights allow, or too many resources at once."""
    for p in (np.ones((product_form.JOBS_MAX + 1, 1)), np.full((20, 10), 0.1)):
        assert product_form.cost(p) > product_form.NUMBERS_MAX
        with pytest.raises(InvalidValue, match="exact network"):
            product_form.dilation(p)


def test_the_choice() -> None:
    """Small sets are exact, large ones approximate; a model that is named is used; an unknown one is an error."""
    rng = np.random.default_rng(4)
    small, large = drawn(rng, 8, 3), drawn(rng, 200, 3)

    assert choice.chosen(small) is Model.PRODUCT_FORM
    assert choice.chosen(large) is Model.MEAN_VALUE
    assert product_form.cost(small) <= AFFORDABLE < product_form.cost(large)
    assert choice.dilation(small).tolist() == product_form.dilation(small).tolist()
    assert choice.dilation(large).tolist() == mean_value.dilation(large).tolist()
    assert choice.dilation(small, "formula", (1, 2, 2)).tolist() == formula.dilation(small, (1, 2, 2)).tolist()
    with pytest.raises(ValueError, match="guess"):
        choice.dilation(small, "guess")


@pytest.mark.parametrize(("jobs", "resources", "servers"), [(8, 2, None), (20, 3, None), (20, 2, (1, 4))])
def test_mean_values_are_nearer_than_the_formula(jobs: int, resources: int, servers: Any) -> None:
    """Where the exact network is too dear, the approximation is the better one."""
    rng = np.random.default_rng(5)
    errors = {formula: 0.0, mean_value: 0.0}
    for _ in range(10):
        p = drawn(rng, jobs, resources)
        exact = product_form.dilation(p, servers)
        for model in errors:
            errors[model] += float(np.abs(model.dilation(p, servers) / exact - 1.0).mean()) / 10

    assert errors[mean_value] < 0.06
    assert errors[mean_value] < 0.6 * errors[formula]


def test_the_linear_sum_with_a_gap() -> None:
    """Theorem 1 where there is no gap; a gap before a late arrival adds to it."""
    assert linear.total_s([10.0, 20.0, 5.0]) == 35.0
    assert linear.total_s([10.0, 20.0, 5.0], [0.0, 3.0, 100.0]) == 105.0
    assert linear.total_s([]) == 0.0
