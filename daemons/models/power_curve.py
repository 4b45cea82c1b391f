"""The power that nodes draw at a load of their CPU: given, or fitted to what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls  # type: ignore[import-untyped]  # scipy has no types of its own

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats
from shared.values.scalars import not_negative, whole

DEFAULT = "default"
POINTS = 11  # of a fitted curve
POINTS_MAX = 1_000
EVEN = 1e-3  # how much a fitted curve is kept from bending where nothing was measured, against one measurement


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """watts: float64[k], drawn at k >= 2 evenly spaced loads from none to full, linear in between; off_w: asleep or
    off. Raises `InvalidValue` for figures below 0 or not finite."""

    watts: Floats
    off_w: float = 0.0

    def __post_init__(self) -> None:
        watts = np.array(self.watts, dtype=np.float64)
        if watts.ndim != 1 or watts.size < 2:
            raise InvalidValue("curve_w", watts.shape, "two figures at least")
        bad = watts[~(np.isfinite(watts) & (watts >= 0.0))]
        if bad.size:
            raise InvalidValue("curve_w", float(bad[0]), "finite numbers, 0 or above")
        not_negative("off_w", self.off_w)
        watts.setflags(write=False)
        object.__setattr__(self, "watts", watts)

    @property
    def idle_w(self) -> float:
        """Without load."""
        return float(self.watts[0])

    @property
    def peak_w(self) -> float:
        """At full CPU."""
        return float(self.watts[-1])

    def at(self, cpu_frac: ArrayLike) -> Floats:
        """Watts at loads; what is below 0 or above 1 counts as these. float64, shape of `cpu_frac`."""
        return np.interp(np.asarray(cpu_frac, dtype=np.float64), np.linspace(0.0, 1.0, self.watts.size), self.watts)


def curve_of(idle_w: float, peak_w: float, off_w: float = 0.0, curve_w: Sequence[float] = ()) -> PowerCurve:
    """Return a line from idle to peak, or the given curve. Raises `InvalidValue`."""
    return PowerCurve(np.array(curve_w if len(curve_w) else (idle_w, peak_w)), off_w)


@dataclass(frozen=True, slots=True)
class Draws:
    """Curves by node type; "default" stands for every other type and must be there (else `InvalidValue`)."""

    curves: Mapping[str, PowerCurve]

    def __post_init__(self) -> None:
        if DEFAULT not in self.curves:
            raise InvalidValue("draw", ", ".join(sorted(self.curves)), f"a curve for {DEFAULT!r}")

    def of(self, node_type: str) -> PowerCurve:
        """Return the curve of a node type."""
        return self.curves.get(node_type) or self.curves[DEFAULT]

    def watts(self, types: Sequence[str], cpu_frac: Floats) -> Floats:
        """Return float64[n]: the power in watts of n nodes of the given types at their loads."""
        found = np.empty(len(types))
        rows: dict[str, list[int]] = {}
        for row, node_type in enumerate(types):
            rows.setdefault(node_type if node_type in self.curves else DEFAULT, []).append(row)
        for node_type, members in rows.items():
            found[members] = self.curves[node_type].at(cpu_frac[members])
        return found


def fit(cpu_frac: Floats, watts: Floats, points: int = POINTS, off_w: float = 0.0) -> PowerCurve:
    """Return the curve of `points` points that never falls and is nearest (least squares) to measured watts at measured
    loads, both float64[m]; straight between measurements. Raises `InvalidValue` for fewer than two measurements, loads
    outside 0..1 and watts below 0 or not finite."""
    whole("points", points, 2, POINTS_MAX)
    loads, drawn = np.asarray(cpu_frac, dtype=np.float64), np.asarray(watts, dtype=np.float64)
    if loads.ndim != 1 or loads.shape != drawn.shape or loads.size < 2:
        raise InvalidValue("cpu_frac", loads.shape, "two measurements at least, each a load and its watts")
    if not ((loads >= 0.0) & (loads <= 1.0)).all():
        raise InvalidValue("cpu_frac", float(loads[~((loads >= 0.0) & (loads <= 1.0))][0]), "loads from 0 to 1")
    if not (np.isfinite(drawn) & (drawn >= 0.0)).all():
        raise InvalidValue("watts", float(drawn[~(np.isfinite(drawn) & (drawn >= 0.0))][0]), "0 or above")
    # Unknowns: watts without load, then how much is added from point to point; none of them is below 0.
    places = loads[:, None] * (points - 1) - np.arange(points - 1)[None, :]
    measured = np.hstack([np.ones((loads.size, 1)), np.clip(places, 0.0, 1.0)])
    bends = np.hstack([np.zeros((points - 2, 1)), np.diff(np.eye(points - 1), axis=0)]) * EVEN
    added, _ = nnls(np.vstack([measured, bends]), np.concatenate([drawn, np.zeros(points - 2)]))
    return PowerCurve(np.cumsum(added), off_w)
