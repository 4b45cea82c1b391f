"""The exact dilation under processor sharing: a closed product-form network with one customer for each job.

Job j is a customer that goes from slice to slice: to resource i with probability p_ij, or to none (its idle share).
Resource i serves min(k, s_i) of the k slices at it at a time, all at the same rate. The network of a set S of jobs, of
which the jobs S_i are at resource i, has the normalising constant

    G(S) = sum over all places of all jobs of  prod_i (f_i(|S_i|) prod_{j in S_i} p_ij)  prod_{j idle} z_j,
    f_i(k) = k! / (min(1, s_i) min(2, s_i) ... min(k, s_i)),  z_j = 1 - sum_i p_ij,

and job j's dilation is G(S) / G(S without j) (Baskett, Chandy, Muntz, Palacios 1975). Mean value analysis (Reiser,
Lavenberg 1980) finds it in a number of steps that grows as 2**n. Here it grows as a power of n: with one server
f(k) = k! is the integral of t**k exp(-t), G that of prod_j (z_j + sum_i p_ij t_i), and Gauss-Laguerre points make it
exact, since the degree in t_i is the number of jobs that use resource i. A resource of more servers is summed over the
number of jobs at it (convolution). All terms are positive, so nothing cancels.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.polynomial.laguerre import laggauss
from numpy.typing import ArrayLike, NDArray

from daemons.models.dilation.formula import Floats, Servers
from shared.base.errors import InvalidValue

JOBS_MAX = 240  # that use one resource: the weights of more points leave the range of doubles
COUNTED_JOBS_MAX = 120  # with a resource of more servers: so does f(k) for more
NUMBERS_MAX = 1 << 23  # that are worked on: 64 MiB
Flags = NDArray[np.bool_]


def dilation(p: ArrayLike, servers: Servers = None) -> Floats:
    """Return the slowdown of each of the jobs that share a node, float64[n], to about 1e-11; see `cost` for the
    computing time.

    Raises `InvalidValue` for more jobs than `JOBS_MAX` or `COUNTED_JOBS_MAX`, or more than `NUMBERS_MAX` numbers.
    """
    loads = np.asarray(p, dtype=np.float64)
    if loads.shape[0] == 0:
        return np.ones(0)
    if cost(loads, servers) > NUMBERS_MAX:
        raise InvalidValue("jobs", loads.shape[0], "fewer jobs or fewer resources for the exact network")
    waits, counted, limits = _kinds(loads, servers)
    alike, inverse, counts = np.unique(loads, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    points, log_weights = _points(alike[:, waits], counts)
    factors = np.maximum(1.0 - alike[:, waits | counted].sum(axis=1), 0.0) + points @ alike[:, waits].T
    if not counted.any():
        return np.asarray(_ratios(factors, log_weights, counts)[inverse])
    return _by_counts(factors[:, inverse], log_weights, loads[:, counted], limits[counted])


def cost(p: ArrayLike, servers: Servers = None) -> float:
    """Return how many numbers `dilation` processes, some 5 ns each. With one server everywhere: (jobs that differ) x
    product over the resources of (u_i // 2 + 1), u_i the number of jobs that use resource i. A resource with 1 < s <
    u_i servers multiplies by 3 (u_i + 1) instead, and equal jobs count one by one. Infinite for too many jobs."""
    loads = np.asarray(p, dtype=np.float64)
    waits, counted, _ = _kinds(loads, servers)
    users = np.count_nonzero(loads, axis=0)
    several = bool(counted.any())
    if (users[waits] > JOBS_MAX).any() or (several and loads.shape[0] > COUNTED_JOBS_MAX):
        return math.inf
    rows = loads.shape[0] if several else np.unique(loads, axis=0).shape[0]
    points = np.prod(users[waits] // 2 + 1.0)
    return float(rows * points * np.prod(3.0 * (users[counted] + 1.0)))


def _kinds(loads: Floats, servers: Servers) -> tuple[Flags, Flags, Floats]:
    """Return the resources with one server that several jobs use, those with more servers but too few for their users
    (no job ever waits at any other), and the number of servers of each."""
    users = np.count_nonzero(loads, axis=0)
    limits = np.ones(loads.shape[1]) if servers is None else np.asarray(servers, dtype=np.float64)
    short = users > limits
    return short & (limits == 1.0), short & (limits > 1.0), limits


def _points(alike: Floats, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Points t, float64[g, resources], and the logarithms of their weights, float64[g]."""
    points, log_weights = np.zeros((1, 0)), np.zeros(1)
    for users in ((alike > 0.0) * counts[:, None]).sum(axis=0).tolist():
        more, log_more = _laguerre(users // 2 + 1)
        left = np.repeat(points, len(more), axis=0)
        points = np.column_stack((left, np.tile(more, len(points))))
        log_weights = (log_weights[:, None] + log_more).reshape(-1)
    return points, log_weights


@lru_cache(maxsize=JOBS_MAX)
def _laguerre(count: int) -> tuple[Floats, Floats]:
    points, weights = laggauss(count)
    return points, np.log(weights)


def _ratios(factors: Floats, log_weights: Floats, counts: NDArray[np.int64]) -> Floats:
    """G(S) / G(S without one job of the class), float64[classes]."""
    logs = np.log(factors) @ counts + log_weights
    weights = np.exp(logs - logs.max())
    return np.asarray(weights.sum() / (weights @ (1.0 / factors)))


# --- resources of several servers: summed over how many jobs are at them ----------------------------------------------


def _by_counts(factors: Floats, log_weights: Floats, loads: Floats, limits: Floats) -> Floats:
    """Compute the same for every job. factors: float64[g, n], the factor of a job at a point while it is at none of
    these resources; loads: float64[n, r], at these.

    For each point the numbers of jobs at these resources have a distribution, built job by job. A backward pass covers
    the jobs after each one, so a job can be left out without a division.
    """
    scales = factors + loads.sum(axis=1)  # at each point a job's factors then sum to 1
    log_weights = log_weights + np.log(scales).sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    axes = loads.shape[1]
    away, moves = factors / scales, loads[:, :, None] / scales.T[:, None, :]
    before = [_nobody(weights, np.count_nonzero(loads, axis=0).tolist())]
    for job in range(len(loads)):
        before.append(_with(before[-1], away[:, job], moves[job], 1))
    after = np.ones_like(before[0])
    for axis in range(axes):
        after = after * _over(_crowding(after.shape[axis + 1], limits.item(axis)), axis, axes)
    whole = float((before[-1] * after).sum())
    found = np.ones(len(loads))
    for job in reversed(range(len(loads))):
        without = (before[job] * after).reshape(len(weights), -1).sum(axis=1)
        found[job] = whole / float((without / scales[:, job]).sum())
        after = _with(after, away[:, job], moves[job], -1)
    return found


def _nobody(weights: Floats, users: list[int]) -> Floats:
    """Return the weights with no job anywhere, at each point: float64[g, u_1 + 1, ..., u_r + 1]."""
    begin = np.zeros((len(weights), *(count + 1 for count in users)))
    begin.reshape(len(weights), -1)[:, 0] = weights
    return begin


def _with(numbers: Floats, away: Floats, moves: Floats, step: int) -> Floats:
    """Add one job: away, or at one of the resources, whose number is then one higher (`step` 1) or was (-1)."""
    axes = numbers.ndim - 1
    found = numbers * away.reshape(-1, *(1,) * axes)
    for axis in range(axes):
        to, of = (slice(1, None), slice(None, -1)) if step > 0 else (slice(None, -1), slice(1, None))
        front = (slice(None),) * (axis + 1)
        found[*front, to] += numbers[*front, of] * moves[axis].reshape(-1, *(1,) * axes)
    return found


def _crowding(count: int, servers: float) -> Floats:
    """Return f(k) for k = 0 .. count - 1."""
    numbers = np.arange(1.0, count)
    return np.concatenate(([1.0], np.cumprod(numbers / np.minimum(numbers, servers))))


def _over(values: Floats, axis: int, axes: int) -> Floats:
    """Values along one of the axes after the first."""
    return values.reshape(-1, *(1,) * (axes - 1 - axis))
