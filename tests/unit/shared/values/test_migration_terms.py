"""Terms of migrations hold their ranges."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shared.base.errors import InvalidValue
from shared.values.migration_terms import MigrationBounds, MigrationMethod, MigrationTerms


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("streams", 0),
        ("streams", 256),
        ("streams", True),
        ("bandwidth_mib_per_s", -1),
        ("bandwidth_mib_per_s", 1_000_001),
        ("downtime_ms", -1),
        ("downtime_ms", 2_000_001),
        ("limit_s", -0.1),
        ("limit_s", math.nan),
        ("limit_s", math.inf),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=f"^{field} = "):
        MigrationTerms(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit_s", 0.0),
        ("limit_s", math.inf),
        ("downtime_ms", 0),
        ("downtime_ms", 2_000_001),
        ("bandwidth_mib_per_s", -1),
        ("bandwidth_mib_per_s", 1_000_001),
    ],
)
def test_bounds_out_of_range_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=f"^{field} = "):
        MigrationBounds(**{field: value})


def test_post_copy_is_allowed_by_its_method_too() -> None:
    assert MigrationTerms(MigrationMethod.POST_COPY).may_switch
    assert MigrationTerms(post_copy=True).may_switch
    assert not MigrationTerms(MigrationMethod.AUTO_CONVERGE).may_switch
