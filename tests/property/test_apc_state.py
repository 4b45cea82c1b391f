"""What the search keeps up to date is what a naive prediction says of the same placement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.place_clusters import loaded
from daemons.models.outlook import outlook_of
from daemons.models.placement_rules import rules_of
from daemons.policies.placement.apc.params import Params
from daemons.policies.placement.apc.problem import RUNNING, problem_of
from daemons.policies.placement.apc.state import State, Trial
from shared.policy_api.snapshot import Snapshot
from shared.ports.plugins import find_policy
from shared.values.operation_costs import COSTS
from tests.extent import first
from tests.simulation.place_instances import mixed_instance, small_instance
from tests.simulation.place_judge import Places, counts, is_job, predict
from tests.simulation.sharing_instances import with_loading

NEAR = 1e-9


def _state(seen: Snapshot) -> State:
    problem = problem_of(seen, Params())
    return State(problem, rules_of(seen, problem.usable))


def _random_trial(state: State, rng: np.random.Generator) -> Trial | None:
    """Some jobs leave a random node, some come, as far as its memory goes; they may be jobs of several instances."""
    problem = state.problem
    node = int(rng.integers(len(state.here)))
    gone = [row for row in state.here[node] if rng.random() < 0.5]
    free_mib = state.free_mib[node] + sum(problem.memory[row] * (state.places[row] or ()).count(node) for row in gone)
    come = []
    for row in rng.permutation(state.rows).tolist():
        k = problem.k[row]
        waits = (problem.may_start[row] or problem.movable[row]) and (state.places[row] is None or row in gone)
        if waits and problem.memory[row] * k <= free_mib and problem.usable[node] and rng.random() < 0.6:
            free_mib -= problem.memory[row] * k
            least, most = state.division.limits(row, node)
            if most >= least:
                come.append((row, (node,) * k, least))
    if not gone and not come:
        return None
    singles = all(problem.k[row] == 1 for row in (*gone, *state.here[node], *(row for row, _, _ in come)))
    if singles and problem.usable[node] and rng.random() < 0.5:
        return state.exchange(node, gone, [row for row, _, _ in come])
    return state.trial(gone, come)


def _placement(state: State) -> dict[int, Places]:
    found: dict[int, Places] = {}
    for row, was in enumerate(state.problem.state):
        place = state.place_of(row)
        if place is None or not place:
            continue
        if not state.problem.movable[row] and was == RUNNING:
            found[row] = tuple(zip(place, state.problem.home_mhz[row], strict=True))
        elif is_job(state.problem.snapshot, row):
            found[row] = tuple((node, state.jobs[row].mhz) for node in place)
        else:
            found[row] = ((place[0], state.replica_given_mhz[row]),)
    return found


def _agrees(state: State, seen: Snapshot) -> None:
    judged = predict(seen, _placement(state))
    for row, name in enumerate(seen.workloads.names):
        if counts(seen, row):
            assert state.utility(row) == pytest.approx(judged.utilities[name], rel=1e-7, abs=1e-7), name
    if judged.level is not None:
        assert state.levels.level == pytest.approx(judged.level, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("seed", first(range(40), 5))
def test_trials_lead_to_what_is_predicted_naively(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = mixed_instance(seed, constrained=False) if seed % 2 else small_instance(seed)
    state, applied = _state(seen), 0
    for _ in range(12):
        trial = _random_trial(state, rng)
        if trial is None:
            continue
        foretold = {row: job.utility(trial.level) for row, job in trial.changed.items()}
        state.apply(trial)
        applied += 1
        for row, utility in foretold.items():
            assert state.utility(row) == pytest.approx(utility, rel=NEAR, abs=NEAR)
        _agrees(state, seen)
        for node, rows in enumerate(state.here):
            used = sum(state.problem.memory[row] * (state.places[row] or ()).count(node) for row in rows)
            replicas = sum(state.problem.memory[row] for row, at in state.replica_place.items() if at == node)
            assert state.free_mib[node] == pytest.approx(state.problem.memory_mib[node] - used - replicas)
    assert applied


@pytest.mark.parametrize("seed", first(range(30), 4))
def test_trials_with_jobs_that_slow_each_other_down_are_what_is_predicted_naively(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = with_loading(mixed_instance(seed, constrained=False) if seed % 2 else small_instance(seed), seed)
    state = _state(seen)
    assert state.sharing is not None
    for _ in range(8):
        trial = _random_trial(state, rng)
        if trial is None:
            continue
        state.apply(trial)
        _agrees(state, seen)
        summed, waits = state.sharing.columns()
        anew = state._slow()
        assert state.columns.slow[state.rows] == pytest.approx(np.where(state.columns.placed, anew, 1.0)[state.rows])
        np.testing.assert_allclose(summed, state.sharing.loads, atol=1e-12)
        np.testing.assert_allclose(waits, state.sharing.waits, atol=1e-12)


@pytest.mark.parametrize("model", ["formula", "product-form", "auto"])
@pytest.mark.parametrize("seed", first(range(8), 2))
def test_outlook_of_jobs_that_slow_each_other_down_is_that_of_the_shared_model(seed: int, model: str) -> None:
    seen = with_loading(mixed_instance(200 + seed), seed, model)
    decision, _ = find_policy("placement", "apc").decide(seen, None, {})
    told, naive = decision.outlook, outlook_of(seen, decision.changes)
    for mine, others in ((told.predicted, naive.predicted), (told.now, naive.now), (told.best, naive.best)):
        expected = dict(zip(naive.names, others, strict=True))
        assert dict(zip(told.names, mine, strict=True)) == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("costs", ["paper", "none"])
def test_one_newton_step_at_a_time_ends_at_the_exact_level(costs: str) -> None:
    """With more jobs than are solved exactly each time, the final prediction is that of the shared model."""
    seen = replace(loaded(120, 600), costs=COSTS[costs])
    decision, _ = find_policy("placement", "apc").decide(seen, None, {"guard": "off"})
    told, naive = decision.outlook, outlook_of(seen, decision.changes)
    assert decision.evaluations > 50
    assert told.names == naive.names
    for mine, others in ((told.predicted, naive.predicted), (told.now, naive.now), (told.best, naive.best)):
        np.testing.assert_allclose(mine, others, rtol=1e-9, atol=1e-9)
    assert told.level == pytest.approx(naive.level, rel=1e-9)


@pytest.mark.parametrize("seed", first(range(30), 4))
def test_outlook_is_that_of_the_shared_model(seed: int) -> None:
    seen = mixed_instance(200 + seed)
    decision, _ = find_policy("placement", "apc").decide(seen, None, {})
    told, naive = decision.outlook, outlook_of(seen, decision.changes)
    assert dict(zip(told.names, told.predicted, strict=True)) == pytest.approx(
        dict(zip(naive.names, naive.predicted, strict=True)), rel=1e-7, abs=1e-7
    )


def test_sums_are_kept_up_to_date_job_by_job() -> None:
    """Between two exact solutions the sums at the level near by are what summing up anew gives."""
    rng = np.random.default_rng(1)
    state = _state(replace(loaded(120, 600), costs=COSTS["paper"]))
    levels, applied = state.levels, 0
    assert not levels.exact
    while applied < 25:
        trial = _random_trial(state, rng)
        if trial is None:
            continue
        state.apply(trial)
        applied += 1
        anew = levels._sums(levels._base)
        assert (levels._need, levels._active, levels._slope) == pytest.approx(anew, rel=1e-9)
    foretold = levels.level
    assert levels.solve(levels.given_mhz) == pytest.approx(foretold, abs=1e-3)


@pytest.mark.parametrize("seed", first(range(20), 4))
def test_one_node_is_divided_as_all_are(seed: int) -> None:
    state = _state(small_instance(seed) if seed % 2 else loaded(20, 100, seed))
    everywhere = state.division.all()
    for node, rows in enumerate(state.here):
        given = state.division.node(node, list(reversed(rows)), {})
        assert given == pytest.approx({row: everywhere[row] for row in rows})
        least, most = zip(*(state.division.limits(row, node) for row in rows), strict=True) if rows else ((), ())
        assert sum(everywhere[row] for row in rows) == pytest.approx(
            min(sum(most), state.problem.cpu_mhz[node]) if rows else 0.0
        )
        assert all(low <= everywhere[row] for low, row in zip(least, rows, strict=True))
