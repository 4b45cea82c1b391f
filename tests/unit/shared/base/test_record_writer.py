"""Records are written without what is at its default, and only those of exactly the class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.base.record_writer import compile_writer


@dataclass(frozen=True)
class Row:
    name: str
    size: int = 3
    marks: tuple[str, ...] = field(default_factory=tuple)
    note: str | None = None


def same(value: Any) -> Any:
    return value


WRITE = compile_writer(Row, {"name": str.upper, "size": same, "marks": list, "note": same}, ValueError)


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (Row("a"), {"name": "A"}),
        (Row("a", 3, (), None), {"name": "A"}),
        (Row("a", 4, ("x",), ""), {"name": "A", "size": 4, "marks": ["x"], "note": ""}),
        (Row("a", 0), {"name": "A", "size": 0}),
    ],
)
def test_what_is_at_its_default_is_left_out(row: Row, written: dict[str, Any]) -> None:
    assert WRITE(row) == written


def test_another_class_is_refused() -> None:
    class Other(Row):
        pass

    for value in (Other("a"), None, {"name": "a"}):
        with pytest.raises(ValueError, match="a Row"):
            WRITE(value)


def test_what_a_writer_raises_goes_through() -> None:
    with pytest.raises(TypeError):
        WRITE(Row(3))  # type: ignore[arg-type]
