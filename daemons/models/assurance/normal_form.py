"""The normal form of the assurance (section 3.2, eq. 8): the sum is normal, cut off at the sum of peaks.

theta(Gamma) = P(x <= Gamma) + Gamma int_Gamma^M p(x) / x dx + Gamma / M P(x > M), and 1 from Gamma = M on, where the
formula as printed exceeds 1. The integral is taken over ln x, in which it is smooth, by Gauss and Legendre's rule.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.assurance.loss import theta_at_least
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(160)
_REACH = 10.0  # standard deviations beyond which there is nothing to integrate
_STILL = 1e-8  # of the mean: a smaller sd is lost in the roundings of the points, and matters less than they do


def theta(gamma: Floats, mean: Floats, sd: Floats, peak: Floats) -> Floats:
    """Return the service probability of `gamma` units (>= 0); the arguments broadcast. sd = 0, or below 1e-8 of the
    mean: the sum is its mean.

    Raises `InvalidValue` for an argument that is negative or not finite.
    """
    parts = np.broadcast_arrays(*(np.asarray(each, dtype=np.float64) for each in (gamma, mean, sd, peak)))
    for name, part in zip(("gamma", "mean", "sd", "peak"), parts, strict=True):
        if not (np.isfinite(part) & (part >= 0.0)).all():
            raise InvalidValue(name, "outside its range", "finite numbers, 0 or above")
    shape = parts[0].shape
    found = np.ones(parts[0].size)
    asked, mid, spread, most = (part.reshape(-1) for part in parts)
    fixed = spread <= _STILL * mid
    still = fixed & (asked < np.minimum(mid, most))
    found[still] = asked[still] / np.minimum(mid, most)[still]
    open_ = ~fixed & (asked < most)
    found[open_] = _below_peak(asked[open_], mid[open_], spread[open_], most[open_])
    return found.reshape(shape)


def _below_peak(gamma: Floats, mean: Floats, sd: Floats, peak: Floats) -> Floats:
    least = np.where(gamma > 0.0, gamma, 1.0)
    low = np.log(np.clip(mean - _REACH * sd, least, peak))
    high = np.maximum(np.log(np.clip(mean + _REACH * sd, least, peak)), low)
    points = np.exp((low + high)[:, None] / 2.0 + (high - low)[:, None] / 2.0 * _NODES)
    density = np.exp(-(((points - mean[:, None]) / sd[:, None]) ** 2) / 2.0) / (sd * np.sqrt(2.0 * np.pi))[:, None]
    integral = (high - low) / 2.0 * (density @ _WEIGHTS)
    beyond = gamma / peak * ndtr((mean - peak) / sd)
    found: Floats = np.minimum(ndtr((gamma - mean) / sd) + gamma * integral + beyond, 1.0)
    return found


def gamma(theta_wanted: float, mean: Floats, sd: Floats, peak: Ints) -> Ints:
    """Return the least whole numbers of units with at least this service probability (0 < theta <= 1), int64[slots]; 1:
    the peak."""
    mean, sd, most = np.asarray(mean, np.float64), np.asarray(sd, np.float64), np.asarray(peak, dtype=np.int64)
    return theta_at_least(
        theta_wanted, most, lambda units: theta(units.astype(np.float64), mean, sd, most.astype(np.float64))
    )
