"""Which model of dilation is used where nobody says: the exact network as far as it is affordable."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from numpy.typing import ArrayLike

from daemons.models.dilation import formula, mean_value, product_form
from daemons.models.dilation.formula import Floats, Servers

AFFORDABLE = 100_000.0  # of `product_form.cost`: about 2 ms
Rates = Callable[[Floats], Floats]
"""The dilation of each of the jobs present, float64[n], by their loading vectors, float64[n, m]."""


class Model(StrEnum):
    """`auto`: the exact network where it costs at most `AFFORDABLE`, else its approximation by mean values."""

    AUTO = "auto"
    FORMULA = "formula"
    PRODUCT_FORM = "product-form"
    MEAN_VALUE = "mean-value"


def chosen(p: ArrayLike, model: str = Model.AUTO, servers: Servers = None) -> Model:
    """Return the model that is used for these jobs; never `auto`. Raises ValueError for an unknown name."""
    wanted = Model(model)
    if wanted is not Model.AUTO:
        return wanted
    affordable = product_form.cost(p, servers) <= AFFORDABLE
    return Model.PRODUCT_FORM if affordable else Model.MEAN_VALUE


def dilation(p: ArrayLike, model: str = Model.AUTO, servers: Servers = None) -> Floats:
    """Dilation of each of the jobs that share a node, float64[n].

    Raises ValueError for an unknown name, `InvalidValue` where `product-form` is asked for and too large."""
    used = chosen(p, model, servers)
    if used is Model.FORMULA:
        return formula.dilation(p, servers)
    if used is Model.PRODUCT_FORM:
        return product_form.dilation(p, servers)
    return mean_value.dilation(p, servers)
