"""How much the chain of jobs may err, by what it cuts and by rounding: what its results are held against."""

from __future__ import annotations

import math

import numpy as np

from daemons.models.deadline.kernels import NEGLECTED, Chain, _terms


def error_bound(chain: Chain, interval: int, servers: int, begin: float = 0.0, end: float = 1.0) -> float:
    """Largest error of `backward`, as a share of the largest absolute value, and of `forward`, of the mass (jobs far
    below jobs_max; the Fourier part adds rounding of the same order)."""
    eps = float(np.finfo(np.float64).eps)
    worst = 0.0
    for back in (False, True):
        pieces = chain._pieces(interval, servers, begin, end, back)
        excesses = [_terms(piece.rate, piece.events)[0] for piece in pieces]
        series = [math.exp(excess) * piece.terms * eps for piece, excess in zip(pieces, excesses, strict=True)]
        worst = max(worst, sum(series) + len(pieces) * NEGLECTED)
    return worst + 3.0 * NEGLECTED
