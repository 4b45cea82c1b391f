"""The reader of mappings: what it takes as JSON has it, lists with limits, and checks of a file that is partly good."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import pytest

from shared.base.errors import InvalidInput
from shared.config.records import JSON, PROBLEMS_MAX, TOML, Findings, Form, Items, Notation, OneOf, Range, read


@dataclass(frozen=True, slots=True)
class Shelf:
    SHOWN_BY: ClassVar[str] = "name"

    name: Annotated[str, Form(r"\S+", "a word", printable=True)]
    width: float
    books: Annotated[int, Range(0, 9)] | None = None


@dataclass(frozen=True, slots=True)
class Room:
    shelves: Annotated[tuple[Shelf, ...], Items(1, 120)]
    tags: Annotated[tuple[str, ...], Items(most=3, distinct=True)] = ()
    light: Annotated[str, OneOf(("on", "off"))] | Shelf = "on"
    kept: Mapping[str, int | None] = field(default_factory=dict)


SHELF = {"name": "a", "width": 1}


def problems(raw: Any, notation: Notation = JSON) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        read(raw, Room, "f", notation=notation)
    return [str(problem).removeprefix("f: ") for problem in caught.value.problems]


def test_json_takes_null_for_a_key_that_is_left_out_and_3_0_for_a_whole_number() -> None:
    raw = {"shelves": [SHELF | {"books": 3.0}], "tags": None, "light": None, "kept": {"x": None, "y": 2.0}}
    found = read(raw, Room, "f", notation=JSON)
    assert found == Room((Shelf("a", 1.0, 3),), kept={"x": None, "y": 2})
    assert type(found.shelves[0].books) is int


def test_toml_does_not() -> None:
    assert problems({"shelves": [SHELF | {"books": 3.0}]}, TOML) == [
        "shelves[0] (a).books: is 3.0 (expected a whole number from 0 to 9)"
    ]
    assert problems({"shelves": [SHELF | {"books": None}]}, TOML) == [
        "shelves[0] (a).books: is null (expected a whole number from 0 to 9)"
    ]


def test_a_section_or_a_word() -> None:
    assert read({"shelves": [SHELF], "light": "off"}, Room, "f").light == "off"
    assert read({"shelves": [SHELF], "light": SHELF}, Room, "f").light == Shelf("a", 1.0)
    assert problems({"shelves": [SHELF], "light": "dim"}) == ["light: is 'dim' (expected one of on, off or an object)"]
    assert problems({"shelves": [SHELF], "light": {"name": "a"}}) == ["light.width: is missing (expected a number)"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "is a list of 0 (expected an object)"),
        ({"shelves": []}, "shelves: is a list of 0 (expected a list of 1 to 120, each an object)"),
        ({"shelves": [3]}, "shelves[0]: is 3 (expected an object)"),
        ({"shelves": [SHELF | {"name": None}]}, "shelves[0].name: is missing (expected a word)"),
        ({"shelves": [SHELF | {"name": "\ud800"}]}, "shelves[0].name: is '\\ud800' (expected a word)"),
        ({"shelves": [SHELF | {"width": math.inf}]}, "shelves[0] (a).width: is Infinity (expected a number)"),
        ({"shelves": [SHELF], "tags": ["x", "y", "x"]}, "tags: has 'x' 2 times (expected none of them twice)"),
        ({"shelves": [SHELF], "kept": {"x": 0.5}}, "kept.x: is 0.5 (expected a whole number)"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_json(raw: Any, said: str) -> None:
    assert problems(raw) == [said]


def test_a_check_is_given_what_is_good_and_its_problems_come_with_the_others() -> None:
    def check(room: Room, found: Findings) -> None:
        narrow, wrong = room.shelves
        assert narrow == Shelf("a", 1.0)
        assert (wrong.name, wrong.books, room.kept) == ("", None, {"y": 1})
        assert math.isnan(wrong.width)
        assert found.is_good("shelves[0].width")
        assert found.is_good("shelves[1].books")
        assert not found.is_good("shelves[1].width")
        found.wrong("shelves[0].width", "is 1", "more")

    raw = {"shelves": [SHELF, {"width": "x"}], "kept": {"x": "?", "y": 1}}
    with pytest.raises(InvalidInput) as caught:
        read(raw, Room, "f", notation=JSON, check=check)
    assert [str(problem).split(": ")[1] for problem in caught.value.problems] == [
        "shelves[1].name",
        "shelves[1].width",
        "kept.x",
        "shelves[0] (a).width",
    ]


def test_no_more_is_looked_for_after_many_problems() -> None:
    def check(*_: Any) -> None:
        raise AssertionError

    with pytest.raises(InvalidInput) as caught:
        read({"shelves": [{"name": "a"}] * 110}, Room, "f", notation=JSON, check=check)
    assert len(caught.value.problems) == PROBLEMS_MAX + 1
    assert "more problems" in str(caught.value.problems[-1])
