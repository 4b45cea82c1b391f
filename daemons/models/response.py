"""Response time of a web application against its CPU, and back (apc.txt section 3.3).

Every registered model gives the mean response time t(w) = t_min + excess(w) of a flow of requests when all instances of
the application are allotted w MHz together; the excess falls as w grows above the load.

* `shifted-hyperbola`: excess = c / (w - load), fitted figures.
* `processor-sharing`: the same with c = d, the Mcycles of a request, and load = sum of rate x d over the application's
  flows: the mean of M/G/1 processor sharing for any distribution of work (Kleinrock, Queueing Systems II, 1976, 4.4).
* `multi-server`: requests share w, but none runs faster than one vCPU of p MHz. Below p it is processor sharing, above
  it Sakasegawa's approximation of M/M/m (Annals of the Institute of Statistical Mathematics 29, 1977) for any real
  m = w / p: excess = d / p (1 + rho^(sqrt(2 (m + 1)) - 1) / (m (1 - rho))), rho = load / w. Both agree at p.

The figures of a model are numbers, or columns of several flows' (float64 arrays of one shape, which broadcasts against
allotments): one object then stands for all of these flows, each with the same result as alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Bools, Floats, Ints
from shared.values.web_app import ModelForm

_STEPS_MAX = 100
_MHZ_MAX = 1e200  # stands for no limit where a logarithm is taken
Figure = Floats | float


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """What a model may take: c_mhz_s (fitted), work_mcycles (of a request), load_mhz (used up by all flows of the
    application), vcpu_mhz (one vCPU). A model looks at its own only; NaN: not known."""

    load_mhz: Figure
    c_mhz_s: Figure = math.nan
    work_mcycles: Figure = math.nan
    vcpu_mhz: Figure = math.nan


class ResponseModel(Protocol):
    """The part of a response time that CPU shortens. `load_mhz`: what is used up; `least_s`: what no CPU shortens."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def load_mhz(self) -> Figure:
        """CPU below which requests pile up without end."""

    @property
    def least_s(self) -> Figure:
        """Limit of the excess for ever more CPU."""

    def excess_s(self, mhz: Floats) -> Floats:
        """Return the seconds at an allotment above the load; falling in it."""

    def slope(self, mhz: Floats) -> Floats:
        """Derivative of the excess in s/MHz at an allotment above the load."""

    def mhz(self, excess_s: Floats) -> Floats:
        """Return the least allotment with an excess, the inverse of `excess_s`; inf if the excess is never reached. A
        model of columns takes an excess of at least their shape."""


@dataclass(frozen=True, slots=True)
class Hyperbola:
    """excess = c / (w - load); c_mhz_s > 0, load_mhz >= 0."""

    c_mhz_s: Figure
    load_mhz: Figure

    def __post_init__(self) -> None:
        _above("c_mhz_s", self.c_mhz_s)
        _least("load_mhz", self.load_mhz)

    @property
    def least_s(self) -> float:
        """No limit but 0."""
        return 0.0

    def excess_s(self, mhz: Floats) -> Floats:
        """Return the seconds above the shortest time."""
        excess: Floats = self.c_mhz_s / (mhz - self.load_mhz)
        return excess

    def slope(self, mhz: Floats) -> Floats:
        """Derivative in s/MHz."""
        room_mhz = mhz - self.load_mhz
        slope: Floats = -self.c_mhz_s / (room_mhz * room_mhz)
        return slope

    def mhz(self, excess_s: Floats) -> Floats:
        """Inverse of `excess_s`."""
        room = np.divide(self.c_mhz_s, excess_s, out=np.full(excess_s.shape, np.inf), where=~(excess_s <= 0.0))
        mhz: Floats = self.load_mhz + room
        return mhz


@dataclass(frozen=True, slots=True)
class MultiServer:
    """As many servers as the allotment has vCPUs of vcpu_mhz > 0 each; work_mcycles > 0 a request, load_mhz >= 0."""

    work_mcycles: Figure
    load_mhz: Figure
    vcpu_mhz: Figure

    def __post_init__(self) -> None:
        _above("work_mcycles", self.work_mcycles)
        _least("load_mhz", self.load_mhz)
        _above("vcpu_mhz", self.vcpu_mhz)

    @property
    def least_s(self) -> Figure:
        """A request alone on one vCPU."""
        return self.work_mcycles / self.vcpu_mhz

    def excess_s(self, mhz: Floats) -> Floats:
        """Return the seconds above the shortest time."""
        shared = self.work_mcycles / (mhz - self.load_mhz)
        return np.where(mhz <= self.vcpu_mhz, shared, self.least_s + self._wait_s(np.maximum(mhz, self.vcpu_mhz)))

    def slope(self, mhz: Floats) -> Floats:
        """Derivative in s/MHz; from below at one vCPU."""
        many = np.maximum(mhz, self.vcpu_mhz)
        shared = Hyperbola(self.work_mcycles, self.load_mhz).slope(mhz)
        return np.where(mhz <= self.vcpu_mhz, shared, self._wait_s(many) * self._log_slope(many))

    def mhz(self, excess_s: Floats) -> Floats:
        """Inverse of `excess_s` by Newton steps on the logarithm of the wait, within a bracket."""
        shared = Hyperbola(self.work_mcycles, self.load_mhz).mhz(excess_s)
        above, waits = shared > self.vcpu_mhz, excess_s > self.least_s
        # Without a load there is no wait, and only a rounding can have led above one vCPU.
        mhz = np.where(above, np.where(waits & (self.load_mhz == 0.0), self.vcpu_mhz, np.inf), shared)
        many = np.flatnonzero(above & waits & (self.load_mhz > 0.0))
        if len(many):
            model = self._taken(many, mhz.shape)
            mhz.flat[many] = model._invert(excess_s.flat[many] - model.least_s)
        return mhz

    def _taken(self, elements: Ints, shape: tuple[int, ...]) -> MultiServer:
        """Return the model of some elements of an array."""
        if not np.ndim(self.load_mhz):
            return self
        figures = (self.work_mcycles, self.load_mhz, self.vcpu_mhz)
        return MultiServer(*(np.broadcast_to(each, shape).flat[elements] for each in figures))

    def _invert(self, wait_s: Floats) -> Floats:
        low = np.broadcast_to(np.maximum(self.vcpu_mhz, self.load_mhz), wait_s.shape)
        # The exponent is at least 1, and with just 1 this is a quadratic equation: no less waits longer.
        with np.errstate(over="raise"):
            square = np.square(self.load_mhz) + 4.0 * self.work_mcycles * self.load_mhz / wait_s
        high = np.maximum(0.5 * (self.load_mhz + np.sqrt(square)), low)
        mhz: Floats = high
        target = np.log(wait_s)
        found: Bools | np.bool_ = np.zeros(np.shape(self.load_mhz), dtype=np.bool_)  # by model: alone as beside others
        for _ in range(_STEPS_MAX):
            gap = self._log_wait(mhz) - target
            low, high = np.where(gap > 0.0, mhz, low), np.where(gap > 0.0, high, mhz)
            aim = mhz - gap / self._log_slope(mhz)
            aim = np.where((low <= aim) & (aim <= high), aim, low + 0.5 * (high - low))
            aim = np.where(found, mhz, aim)
            close = np.abs(aim - mhz) <= 2e-15 * aim
            found, mhz = close if found.ndim else close.all(), aim
            if found.all():
                break
        return mhz

    def _wait_s(self, mhz: Floats) -> Floats:
        """Mean time in excess of a request alone, for at least one vCPU; 0 without a load."""
        with np.errstate(divide="ignore"):
            wait: Floats = np.exp(self._log_wait(np.minimum(mhz, _MHZ_MAX)))
        return wait

    def _log_wait(self, mhz: Floats) -> Floats:
        exponent = np.sqrt(2.0 * (mhz / self.vcpu_mhz + 1.0)) - 1.0
        waits: Floats = exponent * np.log(self.load_mhz / mhz) + np.log(self.work_mcycles) - np.log(mhz - self.load_mhz)
        return waits

    def _log_slope(self, mhz: Floats) -> Floats:
        root = np.sqrt(2.0 * (mhz / self.vcpu_mhz + 1.0))
        loaded = np.greater(self.load_mhz, 0.0)
        bend = np.log(np.where(loaded, self.load_mhz, mhz) / mhz) / (self.vcpu_mhz * root)
        slope: Floats = bend - (root - 1.0) / mhz - 1.0 / (mhz - self.load_mhz)
        return slope


MODELS: Mapping[ModelForm, Callable[[FlowFigures], ResponseModel]] = MappingProxyType(
    {
        ModelForm.SHIFTED_HYPERBOLA: lambda figures: Hyperbola(figures.c_mhz_s, figures.load_mhz),
        ModelForm.PROCESSOR_SHARING: lambda figures: Hyperbola(figures.work_mcycles, figures.load_mhz),
        ModelForm.MULTI_SERVER: lambda figures: MultiServer(figures.work_mcycles, figures.load_mhz, figures.vcpu_mhz),
    }
)


def model_of(form: ModelForm, figures: FlowFigures) -> ResponseModel:
    """Return the registered model with these figures; raises `InvalidValue` for required figures that are missing."""
    return MODELS[form](figures)


Columns = TypeVar("Columns", bound=ResponseModel)


def stacked(models: Sequence[Columns]) -> Columns:
    """Return models of one kind, at least one, as a model of columns: float64[models, 1]."""
    kind = type(models[0])
    return kind(*(np.array([[getattr(model, each.name)] for model in models]) for each in fields(kind)))


def each_of(columns: Columns) -> list[Columns]:
    """Return the models of a model of columns, float64[models] each."""
    kind = type(columns)
    return [kind(*row) for row in zip(*(getattr(columns, each.name).tolist() for each in fields(kind)), strict=True)]


def some_of(columns: Columns, rows: Ints) -> Columns:
    """Return some of the models of a model of columns, float64[models], as a model of columns: float64[rows, 1]."""
    kind = type(columns)
    return kind(*(getattr(columns, each.name)[rows, np.newaxis] for each in fields(kind)))


def check(field: str, value: Figure, good: bool | np.bool_ | Bools, expected: str) -> None:
    """Raise `InvalidValue` for the first figure that is not as it has to be."""
    if good is not True and not np.all(good):
        raise InvalidValue(field, np.extract(~np.asarray(good), value)[0].item(), expected)


def _above(field: str, value: Figure) -> None:
    check(field, value, (value > 0.0) & (value < math.inf), "a finite number above 0")


def _least(field: str, value: Figure) -> None:
    check(field, value, (value >= 0.0) & (value < math.inf), "a finite number, 0 or above")
