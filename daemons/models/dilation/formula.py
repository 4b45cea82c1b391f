"""The dilation of jobs as a quadratic form of their loading vectors (d-factor.txt, sections 3.3 and 3.6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Servers = Sequence[int] | Ints | None


def dilation(p: ArrayLike, servers: Servers = None) -> Floats:
    """Dilation of each of the jobs that share a node, float64[n]: 1 + p_j . h(P - p_j), P the sum of all (eq. 5).

    Exact for two jobs, and for more where each loads all resources evenly, or each one of them alone."""
    loads = np.asarray(p, dtype=np.float64)
    return np.asarray(1.0 + np.einsum("ji,ji->j", loads, waiting(loads.sum(axis=0) - loads, servers)))


def added(p_new: ArrayLike, totals: ArrayLike, servers: Servers = None) -> Floats:
    """Dilation of each candidate on each node if it joined those there, float64[k, nodes]; with one server each the
    product that eq. 15 minimises, plus 1. p_new: float64[k, m]; totals: float64[nodes, m], the sums of the vectors of
    who is on each node, without the candidate's own."""
    joined = waiting(np.asarray(totals, dtype=np.float64), servers)
    return np.asarray(1.0 + np.asarray(p_new, dtype=np.float64) @ joined.T)


def waiting(others: Floats, servers: ArrayLike | None = None) -> Floats:
    """Return the waiting time of a request at each resource, in units of its own service time, next to others of summed
    load `others` (any shape, its last axis the resources): h(x) = max(x + 1 - s, 0) / s with s servers, x with one.

    servers: 1 or more each; measured ones may be fractional. Of x + 1 requests, s are served at a time. The mean x
    stands for the number of others, so h is a lower bound of the expected value: exact if they never leave the
    resource, and 0 while there are not more requests than servers.
    """
    if servers is None:
        return others
    counts = np.asarray(servers, dtype=np.float64)
    return np.asarray(np.maximum(others + 1.0 - counts, 0.0) / counts)
