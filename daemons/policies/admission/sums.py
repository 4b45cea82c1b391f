"""What all that stands asks of a class together, and how many units its promise needs of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np

from daemons.models.assurance import comonotone
from daemons.models.assurance.aggregate import Utility, empty, utility
from daemons.models.assurance.coupling import pair_couplings
from daemons.models.assurance.loss import SLACK
from daemons.models.assurance.profile import Profile
from shared.policy_api.snapshot import Floats, Ints


class Sum(Protocol):
    """The sum of what reservations ask of one class, of one resource."""

    @classmethod
    def of(cls, slots: int, profiles: Sequence[Profile], couplings: Sequence[float]) -> Self:
        """Return the sum of any number of profiles; couplings: the assumed coupling of each, 0..1."""
        ...

    def added(self, profile: Profile, coupling: float) -> Self:
        """Return the sum with one more profile."""
        ...

    def recoupled(self, couplings: Sequence[float]) -> Self:
        """Return the same sum with other couplings."""
        ...

    def needed(self, theta: float) -> Ints:
        """Return the least units that reach a service probability of theta, int64[slots]."""
        ...

    def reached(self, units: Ints) -> Floats:
        """Return the service probability of `units` (0 or more), float64[slots]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PeakSum:
    """By the sum of peaks: what holds even if all peaks come together."""

    peaks: Ints

    @classmethod
    def of(cls, slots: int, profiles: Sequence[Profile], couplings: Sequence[float]) -> Self:
        """Couplings are nothing to it."""
        del couplings
        return cls(np.sum([np.zeros(slots, dtype=np.int64), *(each.peaks() for each in profiles)], axis=0))

    def added(self, profile: Profile, coupling: float) -> Self:
        """O(slots)."""
        del coupling
        return type(self)(self.peaks + profile.peaks())

    def recoupled(self, couplings: Sequence[float]) -> Self:
        """Return the same sum."""
        del couplings
        return self

    def needed(self, theta: float) -> Ints:
        """Return the peaks, for any theta."""
        del theta
        return self.peaks

    def reached(self, units: Ints) -> Floats:
        """Return the part of the peaks that is served."""
        return np.where(self.peaks > 0, np.minimum(1.0, units / np.maximum(self.peaks, 1)), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class StatisticalSum:
    """By the distribution of the sum: `weight` of the worst case and the rest of independent demands, so that the
    variance is what the couplings say; where the worst case is the better one of the two, it does not count.

    coupled: what the pairs add to the variance, worst: what they would add in the worst case, float64[slots]; highest:
    the largest coupling in it; groups: F(0), F(1), ... of all demands with one coupling, float64[slots, units], by the
    coupling. known: by theta what is needed, once it was asked for; hints: the same of a part of it."""

    profiles: tuple[Profile, ...]
    utility: Utility
    coupled: Floats
    worst: Floats
    highest: float
    groups: Mapping[float, Floats]
    hints: Mapping[float, Ints] = field(default_factory=dict)
    known: dict[float, Ints] = field(default_factory=dict)

    @classmethod
    def of(cls, slots: int, profiles: Sequence[Profile], couplings: Sequence[float]) -> Self:
        """Return the sum by repeated doubling: O(n log n) in the sum of peaks, for each slot."""
        if not profiles:
            zeros = np.zeros(slots)
            return cls((), empty(slots), zeros, zeros, 0.0, {})
        coupled, worst, groups = _coupled(profiles, couplings, slots)
        return cls(tuple(profiles), utility(profiles), coupled, worst, max(couplings), groups)

    def added(self, profile: Profile, coupling: float) -> Self:
        """O(slots x sum of peaks x units)."""
        if not self.profiles:
            return type(self).of(profile.slots, (profile,), (coupling,))
        whole, own = self.utility.added(profile), comonotone.cdf_of(profile)
        worst = _shared_variance(whole.worst_cdf, whole.variance_sum)
        if coupling >= self.highest:
            coupled = self.coupled + coupling * np.maximum(worst - self.worst, 0.0)
        else:
            shared = (max(coupling, one) * _covariance_max(own, cdf) for one, cdf in self.groups.items())
            coupled = self.coupled + 2.0 * np.sum(list(shared), axis=0)
        before = self.groups.get(coupling, own[:, :0])
        groups = {**self.groups, coupling: np.concatenate([before, own], axis=1)}
        highest, hints = max(coupling, self.highest), self.known or self.hints
        return type(self)((*self.profiles, profile), whole, coupled, worst, highest, groups, hints)

    def recoupled(self, couplings: Sequence[float]) -> Self:
        """Return the same sum with other couplings, without a convolution."""
        if not self.profiles:
            return self
        coupled, worst, groups = _coupled(self.profiles, couplings, self.utility.slots)
        hints = self.known or self.hints
        return type(self)(self.profiles, self.utility, coupled, worst, max(couplings), groups, hints)

    def weight(self) -> Floats:
        """Return the weight of the worst case, float64[slots], 0..1."""
        varies = self.worst > _NOTHING * max(1.0, float(self.utility.peaks.max())) ** 2
        return np.clip(np.divide(self.coupled, self.worst, out=np.ones_like(self.worst), where=varies), 0.0, 1.0)

    def needed(self, theta: float) -> Ints:
        """Return the least units for theta. All service probabilities are computed at once, by sums from the right,
        first around the units that a part of the demand needed."""
        if theta not in self.known:
            hint, last = self.hints.get(theta), self.utility.worst_cdf.shape[1]
            low, high = 0, last
            if hint is not None and self.profiles:
                low, high = int(hint.min()), min(last, int(hint.max()) + self.profiles[-1].units + _MARGIN)
            at, sure = self._least(theta, low, high)
            if not sure:
                low, (at, _) = 0, self._least(theta, 0, last)
            self.known[theta] = np.minimum(at + low, self.utility.peaks)
        return self.known[theta]

    def _least(self, theta: float, low: int, high: int) -> tuple[Ints, bool]:
        """Return how far the needed units exceed `low`, and whether that is certain: no fewer suffice, and `high` is
        enough."""
        enough = self._assured(low, high) >= theta - SLACK
        at = enough.argmax(axis=1)
        return at, bool((low == 0 or at.all()) and enough[:, -1].all())

    def reached(self, units: Ints) -> Floats:
        """E[min(units / Y, 1)] (eq. 7)."""
        given = np.clip(units, 0, self.utility.worst_cdf.shape[1])
        low = int(given.min())
        assured = self._assured(low, int(given.max()))
        found: Floats = np.take_along_axis(assured, (given - low)[:, None], axis=1)[:, 0]
        return found

    def _assured(self, low: int, high: int) -> Floats:
        """Return theta of low, low + 1 .. high, float64[slots, high - low + 1]; high: at most the units of the worst
        case."""
        cdf = self.utility.worst_cdf[:, low:]
        before = self.utility.worst_cdf[:, low - 1 : low] if low else np.zeros((len(cdf), 1))
        together = _thetas(np.diff(cdf, prepend=before, append=1.0, axis=1), low, high)
        apart = _thetas(self.utility.pmf[:, low:], low, high)
        gap = np.subtract(apart, together, out=together)
        np.maximum(gap, 0.0, out=gap)
        gap *= self.weight()[:, None]
        return np.subtract(apart, gap, out=apart)


_MARGIN = 8  # units: what couples more may need more than it is larger
_NOTHING = 1e-12  # of the squared peak: a variance below that is rounding


def _thetas(pmf: Floats, low: int, high: int) -> Floats:
    """Return theta(g) = 1 - sum over y > g of pmf(y) (1 - g / y), for g = low .. high, from pmf(low), pmf(low + 1) ..;
    beyond its end pmf is 0."""
    slots, width = len(pmf), high - low + 1
    values = np.arange(low, max(low + pmf.shape[1], high + 1), dtype=np.float64)
    found = np.ones((slots, width))
    inner = min(width, pmf.shape[1])
    if not inner:
        return found
    beyond, shares = np.zeros((slots, inner)), np.zeros((slots, inner))
    beyond[:, :-1], tail = pmf[:, 1:inner], pmf[:, inner:]
    np.divide(beyond[:, :-1], values[1:inner], out=shares[:, :-1])
    beyond[:, -1], shares[:, -1] = tail.sum(axis=1), tail @ (1.0 / values[inner : inner + tail.shape[1]])
    loss = beyond[:, ::-1].cumsum(axis=1)[:, ::-1]
    loss -= shares[:, ::-1].cumsum(axis=1)[:, ::-1] * values[:inner]
    found[:, :inner] -= loss
    return found


def _shared_variance(cdf: Floats, variance_sum: Floats) -> Floats:
    """Return the variance that all pairs would add to a sum if they varied together as much as possible, from F(0),
    F(1), ...: E[(Y - c)^2] = c^2 + sum over k of (2 (k - c) + 1) (1 - F(k)), for any c."""
    middle = cdf.shape[1] // 2
    weights = 2.0 * (np.arange(cdf.shape[1]) - middle) + 1.0
    mean = cdf.shape[1] - cdf.sum(axis=1)
    square = middle**2 + weights.sum() - cdf @ weights
    return np.asarray(np.maximum(square - (mean - middle) ** 2 - variance_sum, 0.0))


def _covariance_max(one: Floats, other: Floats) -> Floats:
    """Return the largest covariance of two sums, float64[slots]: over all F of the one and G of the other min(F, G) - F
    G (Hoeffding)."""
    total = np.zeros(len(one))
    for column in one.T:
        total += np.minimum(other, column[:, None]).sum(axis=1)
    return np.asarray(total - one.sum(axis=1) * other.sum(axis=1))


def _coupled(
    profiles: Sequence[Profile], couplings: Sequence[float], slots: int
) -> tuple[Floats, Floats, dict[float, Floats]]:
    """Return the variance that pairs add: as coupled, and in the worst case; and the combined distributions of each
    coupling. The larger coupling of a pair counts, so they are processed by rising couplings."""
    levels, spreads, groups = sorted(set(couplings)), [], {}
    variance, cdf = np.zeros(slots), np.empty((slots, 0))
    for level in levels:
        own = [each for each, coupling in zip(profiles, couplings, strict=True) if coupling == level]
        variance = variance + np.sum([each.variance() for each in own], axis=0)
        groups[level] = np.concatenate([comonotone.cdf_of(each) for each in own], axis=1)
        cdf = comonotone.merged(cdf, groups[level])
        spreads.append(_shared_variance(cdf, variance))
    return pair_couplings(levels, spreads), spreads[-1], groups
