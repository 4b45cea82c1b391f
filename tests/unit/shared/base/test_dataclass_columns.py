"""Many objects at once are as those of the constructor."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.base.dataclass_columns import from_columns


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: str
    z: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Checked:
    x: int

    def __post_init__(self) -> None:
        assert self.x > 0


@given(rows=st.lists(st.tuples(st.integers(), st.text(), st.tuples(st.integers()))))
def test_they_are_as_made_one_by_one(rows: list[tuple[int, str, tuple[int, ...]]]) -> None:
    x, y, z = ([row[at] for row in rows] for at in range(3))

    found = from_columns(Point, x, y, z)

    alone = [Point(*row) for row in rows]
    assert found == alone
    assert [*map(hash, found)] == [*map(hash, alone)]
    assert [*map(repr, found)] == [*map(repr, alone)]


def test_they_are_frozen() -> None:
    (one,) = from_columns(Point, [1], ["a"], [()])

    with pytest.raises(FrozenInstanceError):
        one.x = 2  # type: ignore[misc]


@pytest.mark.parametrize("columns", [([1],), ([1], ["a"]), ([1], ["a", "b"], [()]), ()])
def test_columns_that_do_not_fit_are_refused(columns: tuple[list[object], ...]) -> None:
    with pytest.raises(TypeError, match="Point: a column for each of x, y, z"):
        from_columns(Point, *columns)


def test_a_class_that_checks_what_it_is_made_of_is_refused() -> None:
    with pytest.raises(TypeError, match="no checks"):
        from_columns(Checked, [0])
