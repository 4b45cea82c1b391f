"""Jobs onto nodes one after the other, as they arrive (d-factor.txt, section 6), and what the best order could do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daemons.models.dilation import formula
from daemons.models.dilation.choice import Rates
from daemons.models.dilation.completion import NEAR, NodeRun, Work, composed_stages
from daemons.models.dilation.formula import Floats, Servers
from shared.base.errors import InvalidValue

OPTIMUM_JOBS_MAX = 14  # 3**14 pairs of subsets: 100 MiB


class Rule(StrEnum):
    """Which node a job goes to; of several as good, the first."""

    PLAIN = "list"  # least sum of the neutral times of who is there (eq. 16, Graham 1969)
    LOADING = "loading"  # least p . P, P the sum of the vectors of who is there (eq. 15); never looks at times
    COMPOSED = "composed"  # earliest end of the last job there, the new one among them


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where each job went (numbers of nodes from 0 on), when it ends, and when the last one does."""

    nodes: tuple[int, ...]
    ends_s: Floats
    makespan_s: float


def scheduled(works: Sequence[Work], node_count: int, rule: Rule, rates: Rates = formula.dilation) -> Schedule:
    """Schedule of jobs in order of their arrival (those of one instant in the order given), ends composed with `rates`.

    Raises `InvalidValue` where there is no node."""
    if node_count < 1:
        raise InvalidValue("nodes", node_count, "at least 1")
    runs = [NodeRun(rates) for _ in range(node_count)]
    nodes = [0] * len(works)
    for row in sorted(range(len(works)), key=lambda row: works[row].arrival_s):
        for run in runs:
            run.until(works[row].arrival_s)
        there = [[works[number] for number in run.numbers] for run in runs]
        if rule is Rule.PLAIN:
            grades = [sum(map(_alone_s, others)) for others in there]
        elif rule is Rule.LOADING:
            loading = np.array(works[row].stages[0].loading)
            grades = [float(sum(loading @ other.stages[0].loading for other in others)) for others in there]
        else:
            grades = makespans_s(works[row], [run.present() for run in runs], rates).tolist()
        nodes[row] = _first_of_least(grades)
        runs[nodes[row]].add(works[row], row)
    return _ended(runs, nodes)


def makespans_s(new: Work, present: Sequence[Sequence[Work]], rates: Rates = formula.dilation) -> Floats:
    """Return the time at which the last job on each node would end if the new one joined those there, float64[nodes];
    jobs are given as their remaining work (`NodeRun.present`)."""
    return np.array([composed_stages([*there, new], rates).max() for there in present])


def _first_of_least(grades: Sequence[float]) -> int:
    """Return the first index with the least grade; grades that differ only by rounding errors count as equal."""
    most = min(grades) + NEAR * max(map(abs, grades))
    return next(row for row, grade in enumerate(grades) if grade <= most)


def _alone_s(work: Work) -> float:
    return sum(stage.neutral_s for stage in work.stages)


def _ended(runs: Sequence[NodeRun], nodes: Sequence[int]) -> Schedule:
    ends_s = np.zeros(len(nodes))
    for run in runs:
        run.until()
        for number, end_s in run.ends_s.items():
            ends_s[number] = end_s
    return Schedule(tuple(nodes), ends_s, float(ends_s.max(initial=0.0)))


# --- the best that any assignment reaches -----------------------------------------------------------------------------


def optimum_s(p: ArrayLike, neutral_s: ArrayLike, node_count: int, servers: Servers = None) -> float:
    """Return the least makespan of jobs that are all present from the beginning, over all assignments to equal nodes,
    by the formula.

    p: float64[n, m]; neutral_s: float64[n]. By dynamic programming over the 2**n subsets, 3**n steps for each doubling
    of the nodes. Raises `InvalidValue` for more than `OPTIMUM_JOBS_MAX` jobs, or no node.
    """
    loads = np.asarray(p, dtype=np.float64)
    if loads.shape[0] > OPTIMUM_JOBS_MAX:
        raise InvalidValue("jobs", loads.shape[0], f"at most {OPTIMUM_JOBS_MAX}")
    if node_count < 1:
        raise InvalidValue("nodes", node_count, "at least 1")
    return float(_best_s(subset_makespans_s(loads, neutral_s, servers), node_count)[-1])


def subset_makespans_s(p: ArrayLike, neutral_s: ArrayLike, servers: Servers = None) -> Floats:
    """Makespan on one node of every subset of n jobs, by the formula, float64[2**n]: job i is in those with bit i."""
    loads = np.asarray(p, dtype=np.float64)
    jobs = loads.shape[0]
    here = (np.arange(1 << jobs)[:, None] >> np.arange(jobs) & 1).astype(bool)
    left_s = np.where(here, np.asarray(neutral_s, dtype=np.float64), 0.0)
    ends_s = np.zeros(1 << jobs)
    for _ in range(jobs):
        others = (here @ loads)[:, None, :] - loads
        slowed = np.where(here, 1.0 + np.einsum("ji,sji->sj", loads, formula.waiting(others, servers)), 1.0)
        passed_s = np.where(here, left_s * slowed, np.inf).min(axis=1, initial=np.inf)
        passed_s[~here.any(axis=1)] = 0.0
        ends_s += passed_s
        left_s = left_s - passed_s[:, None] / slowed
        here &= left_s > NEAR * np.asarray(neutral_s, dtype=np.float64)
    return ends_s


def _best_s(alone_s: Floats, node_count: int) -> Floats:
    """Return the least makespan of every subset on `node_count` nodes."""
    if node_count == 1:
        return alone_s
    half = node_count // 2
    one = _best_s(alone_s, half)
    other = one if node_count == 2 * half else _best_s(alone_s, node_count - half)
    parts, rests, begins = _pairs(alone_s.size.bit_length() - 1)
    return np.asarray(np.minimum.reduceat(np.maximum(one[parts], other[rests]), begins))


@lru_cache(maxsize=1)
def _pairs(jobs: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Return every way to divide every subset in two: part and rest, int32[3**jobs], in order of the subset, and the
    index at which each subset's ways begin, int64[2**jobs]."""
    parts = rests = np.zeros(1, dtype=np.int32)
    for job in range(jobs):
        bit = np.int32(1 << job)
        parts, rests = np.concatenate((parts, parts | bit, parts)), np.concatenate((rests, rests, rests | bit))
    order = np.argsort(parts | rests, kind="stable")
    whole = (parts | rests)[order]
    return parts[order], rests[order], np.searchsorted(whole, np.arange(1 << jobs))
