"""How much of the same is tried: a little in `make test`, all of it in `make full`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

THOROUGH = os.environ.get("TRIMTAB_TESTS") == "thorough"
"""Whether properties are tried on all their examples: `make full` says so and runs every one of them again."""


def examples(count: int) -> int:
    """How many examples Hypothesis is to find: `count`; in `make test` an eighth of them, but 5 or more."""
    return count if THOROUGH else min(count, max(5, count // 8))


def first(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """The cases of a test: the first `quick` of them are for `make test`, the others for `make full`."""
    return [value if at < quick else later(value) for at, value in enumerate(values)]


def only(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """The cases of a test: those in `quick` are for `make test`, the others for `make full`."""
    return [value if value in quick else later(value) for value in values]


def later(case: Any) -> Any:
    """A case for `make full`; a tuple has the values of several parameters."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.full)
