"""The chain of jobs whose service has phases, against the whole matrix exponential and against the exponential one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import expm  # type: ignore[import-untyped]

from daemons.models.deadline.kernels import Chain, count_bound
from daemons.models.deadline.phase_chain import NEGLECTED_ARRIVALS, PhaseChain, phase_states
from daemons.models.deadline.phases import Phases, fitted
from daemons.models.deadline.problem import DeadlineProblem, Floats

INTERVALS, JOBS = 4, 7


def problem(phases: Phases | None, mean: float, most: int = 2, **others: object) -> DeadlineProblem:
    arrivals = np.zeros((INTERVALS, 3))
    arrivals[:2] = [[1.0, 0.4, 0.1], [0.6, -0.3, 0.0]]
    free = np.zeros(INTERVALS)
    given: dict[str, object] = {"confidence": 0.99, "price": free, "removal_price": free, "phases": phases} | others
    return DeadlineProblem(arrivals, mean, 1, servers_max=most, **given)  # type: ignore[arg-type]


def naive(phases: Phases, servers: int, most: int) -> tuple[Floats, list[tuple[int, ...]]]:
    """The generator without arrivals over states (later phases.., jobs), one transition after the other."""
    states = [*itertools.product(*([range(most + 1)] * (phases.count - 1)), range(JOBS + 1))]
    place = {state: row for row, state in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for state in states:
        *later, jobs = state
        if sum(later) > jobs:
            continue
        there = [jobs - sum(later), *later]
        free = servers
        for phase in reversed(range(phases.count)):
            served = min(there[phase], free)
            free -= served
            go = phases.goes[phase] if phase < phases.count - 1 else 0.0
            for rate, step, fewer in ((1.0 - go, None, 1), (go, phase + 1, 0)):
                after = [*later, jobs - fewer]
                if phase:
                    after[phase - 1] -= 1
                if step is not None:
                    after[step - 1] += 1
                if rate * served and max(after[:-1], default=0) <= most:
                    matrix[place[state], place[tuple(after)]] += rate * served * phases.rates[phase]
                    matrix[place[state], place[state]] -= rate * served * phases.rates[phase]
    return matrix, states


@pytest.mark.parametrize("cv", [3.0, 0.75, 0.6])
@pytest.mark.parametrize("servers", [1, 2])
def test_an_interval_without_arrivals_is_the_matrix_exponential(cv: float, servers: int) -> None:
    phases = fitted(0.5, cv)
    chain = PhaseChain(problem(phases, 0.5), JOBS)
    matrix, states = naive(phases, servers, 2)
    values = np.random.default_rng(3).uniform(size=len(states))
    wanted = expm(matrix * 0.7) @ values
    found = chain.backward(3, values[None], np.array([servers]), 0.2, 0.9)[0]
    valid = np.array([sum(state[:-1]) <= state[-1] for state in states])
    assert found[valid] == pytest.approx(wanted[valid], abs=1e-12)


@pytest.mark.parametrize("interval", [0, 1, 3])
def test_phases_that_are_an_exponential_bring_what_it_does(interval: int) -> None:
    """One phase; two, of which the second is never reached; and two of the same rate from where nobody knows."""
    values = np.random.default_rng(1).uniform(size=41)
    sizes = np.array([1, 2, 2])
    wanted = Chain(problem(None, 0.4), 40).backward(interval, np.tile(values, (3, 1)), sizes)
    one = PhaseChain(problem(Phases((2.5,)), 0.4), 40)
    assert one.backward(interval, np.tile(values, (3, 1)), sizes) == pytest.approx(wanted, abs=1e-10)
    two = PhaseChain(problem(Phases((2.5, 9.0), (0.0,)), 0.4), 40)
    rows = two.backward(interval, np.tile(values, (3, 3)), sizes).reshape(3, 3, 41)
    assert rows[:, 0] == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("phases", [fitted(0.5, 3.0), fitted(0.5, 0.75), Phases((6.0, 5.0, 0.5), (0.6, 0.3))])
@pytest.mark.parametrize(("begin", "end"), [(0.0, 1.0), (0.2, 0.5)])
def test_many_jobs_are_moved_as_few_are(phases: Phases, begin: float, end: float) -> None:
    """Where servers stay busy, by convolution as by the series, for sizes below the largest too; most of the numbers of
    jobs are there. Above them values go on in straight lines."""
    chain = PhaseChain(problem(phases, phases.mean), 150)
    values = np.sort(np.random.default_rng(2).uniform(size=(2, chain.states)), axis=1)
    sizes = np.array([1, 2])
    found = chain.backward(0, values, sizes, begin, end)
    up = count_bound(chain.arrivals(0, begin, end), NEGLECTED_ARRIVALS)
    rows = values.reshape(2, -1, 151)
    wide = np.concatenate([rows, rows[..., -1:] + (rows[..., -1:] - rows[..., -2:-1]) * np.arange(1, up + 1)], axis=-1)
    for row, size in enumerate(sizes.tolist()):
        whole = wide[row].reshape(1, *chain.axes, -1)
        wanted = chain.by_series(0, whole, size, begin, end)[..., :151]
        assert found[row] == pytest.approx(wanted.reshape(-1), abs=1e-11)


def test_a_row_is_moved_for_its_own_number_of_servers() -> None:
    chain = PhaseChain(problem(fitted(0.5, 2.0), 0.5), JOBS)
    values = np.random.default_rng(5).uniform(size=(3, chain.states))
    together = chain.backward(0, values, np.array([2, 1, 2]))
    for row, servers in enumerate((2, 1, 2)):
        assert together[row] == pytest.approx(chain.backward(0, values[row : row + 1], np.array([servers]))[0])


def test_halves_of_an_interval_are_the_whole() -> None:
    chain = PhaseChain(problem(fitted(0.5, 2.0), 0.5), 60)
    done = (chain.jobs == 0.0).astype(np.float64)[None]
    servers = np.array([2])
    late = chain.backward(0, done, servers, 0.4, 1.0)
    found = chain.backward(0, late, servers, 0.0, 0.4)
    assert found == pytest.approx(chain.backward(0, done, servers), abs=1e-10)


def test_how_many_states_there_are() -> None:
    assert phase_states(problem(None, 0.5), 9) == 10
    assert phase_states(problem(fitted(0.5, 2.0), 0.5, slots=3), 9) == 7 * 10
    assert PhaseChain(problem(fitted(0.5, 0.6), 0.5), 9).states == phase_states(problem(fitted(0.5, 0.6), 0.5), 9)
