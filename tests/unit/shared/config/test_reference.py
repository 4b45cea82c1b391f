"""The reference of a file: its keys with type, range, unit, default and meaning, and rules between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import pytest

from shared.config.records import AtLeast, Form, IsAddress, Items, OneOf, Range, Rule
from shared.config.reference import Key, rules, sections, toml_value, unit_of


class Colour(StrEnum):
    """Of a lamp."""

    RED, GREEN = "red", "green"


@dataclass(frozen=True, slots=True)
class Lamp:
    """A lamp.

    Not part of the reference.
    """

    colour: Colour
    """Colour of the light. Example: `"red"`."""
    power_w: Annotated[float, Range(0, 60)] = 5.0
    """Power
    drawn."""


@dataclass(frozen=True, slots=True)
class Shade:
    """What is around a lamp."""

    width_mm: int = 3


@dataclass(frozen=True, slots=True)
class Room:
    """A room."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        AtLeast("wait_s_max", "lamps[0].power_w"),
        AtLeast("wait_s_max", "lamps[1].power_w"),
        IsAddress("address"),
    )

    class_: Annotated[str, Form("[a-z]+", "lower-case letters", secret=True)]
    """Class of the room. Example: `"a b"`."""
    lamps: tuple[Lamp, ...] = ()
    wait_s_max: Annotated[float, Range(1, 10)] | None = None
    """Longest wait."""
    by_name: Mapping[str, Lamp] = field(default_factory=dict)
    shade: Shade | None = None
    window: Shade = field(default_factory=Shade)
    words: Annotated[tuple[Annotated[str, OneOf(("on", "off"))], ...], Items(1, 2)] = ("on",)
    """Words."""
    programs: tuple[tuple[str, ...], ...] = ()
    address: str = ""
    free: Mapping[str, Any] = field(default_factory=dict)
    due: Annotated[Any, Form(".*", "a time")] = None
    is_on: bool = True


def keys() -> dict[str, Key]:
    return {key.name: key for section in sections(Room) for key in section.keys}


def test_every_table_is_a_section_with_what_it_is_for() -> None:
    found = [(each.name, each.header, each.meaning, each.is_optional) for each in sections(Room)]

    assert found == [
        ("", "", "A room.", False),
        ("lamps[]", "[[lamps]]", "A lamp.", True),
        ("by_name.*", "[by_name.NAME]", "A lamp.", True),
        ("shade", "[shade]", "What is around a lamp.", True),
        ("window", "[window]", "What is around a lamp.", False),
    ]


def test_a_key_has_its_type_range_unit_default_and_meaning() -> None:
    assert keys()["lamps[].power_w"] == Key(
        name="lamps[].power_w",
        type="number",
        values="0 to 60",
        unit="W",
        default=5.0,
        is_required=False,
        meaning="Power drawn.",
    )


def test_a_key_without_a_default_is_required_and_may_have_an_example() -> None:
    found = keys()

    assert found["class"] == Key(
        name="class",
        type="string",
        values="lower-case letters",
        unit="",
        default=None,
        is_required=True,
        meaning="Class of the room.",
        example='"a b"',
        is_secret=True,
    )
    assert (found["wait_s_max"].default, found["wait_s_max"].is_required) == (None, False)


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("wait_s_max", "number", "1 to 10"),
        ("lamps[].colour", "string", '"red", "green"'),
        ("words", "array of strings", '1 to 2, "on", "off"'),
        ("programs", "array of arrays of strings", ""),
        ("free", "table", ""),
        ("due", "date-time", "a time"),
        ("is_on", "boolean", ""),
        ("shade.width_mm", "integer", ""),
    ],
)
def test_types_are_said_as_toml_has_them(name: str, kind: str, values: str) -> None:
    assert (keys()[name].type, keys()[name].values) == (kind, values)


def test_a_key_without_a_text_has_no_meaning() -> None:
    assert keys()["address"].meaning == ""


def test_rules_are_said_once_with_the_keys_that_they_are_about() -> None:
    assert rules(Room) == (
        "`wait_s_max` is at least `lamps[].power_w`.",
        "`address`, unless empty, is an IP address.",
    )


@pytest.mark.parametrize(
    ("name", "unit"),
    [("a.report_s", "s"), ("file_mib_max", "MiB"), ("migrate_s_per_mib", "s/MiB"), ("s", "s"), ("class", "")],
)
def test_the_end_of_a_name_says_the_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (900.0, "900"),
        (0.1, "0.1"),
        (float("inf"), "inf"),
        (True, "true"),
        (7, "7"),
        (Colour.RED, '"red"'),
        ('a"é', '"a\\"é"'),
        ((1, 2), "[1, 2]"),
        ({"a": "b"}, '{a = "b"}'),
    ],
)
def test_values_are_written_as_toml_has_them(value: Any, text: str) -> None:
    assert toml_value(value) == text


def test_what_no_key_holds_has_no_text() -> None:
    with pytest.raises(TypeError):
        toml_value(None)
