"""The reference of each file, its reader and its example file agree on every key, and every key has a meaning."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from daemons.cli.reference.example import example_of, uncommented
from daemons.cli.reference.files import CHANNELS, FILES, ConfigFile
from shared.config import records, toml
from shared.config.reference import Key, sections
from tests.conformance.settings.keys import keys_of

WORDS_MAX = 30
ALONE = ("controller", "agent", "portal", "load", "operator")  # files that may have every key at once
NAMED = re.compile(r"\.(NAME|WEBHOOK|EMAIL|COMMAND)\b")


def documented(file: ConfigFile) -> list[Key]:
    """Every key of the reference."""
    return [key for section in file.sections for key in section.keys]


def given(table: Mapping[str, Any], names: set[str], prefix: str = "") -> Iterator[str]:
    """Yield the keys of a file as the reference names them; a table that is a key has none of its own."""
    for key, value in table.items():
        name = NAMED.sub(".*", prefix + key)
        if isinstance(value, Mapping) and name not in names:
            yield from given(value, names, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for item in value:
                yield from given(item, names, f"{name}[].")
        else:
            yield name


def unexplained(keys: list[Key]) -> list[str]:
    """Keys whose meaning is missing, long, or no sentence."""
    return [key.name for key in keys if not key.meaning.endswith(".") or not 0 < len(key.meaning.split()) <= WORDS_MAX]


def without_example(keys: list[Key]) -> list[str]:
    """Keys that have neither a default nor an example."""
    return [key.name for key in keys if key.default is None and not key.example]


def of_channels(name: str) -> bool:
    """Whether a key is one of a notification channel, which its driver reads."""
    return name.startswith(f"{CHANNELS}.")


@pytest.mark.parametrize("name", FILES)
def test_every_key_has_a_meaning(name: str) -> None:
    assert unexplained(documented(FILES[name])) == []


@pytest.mark.parametrize("name", FILES)
def test_every_table_has_a_meaning(name: str) -> None:
    assert [section.name for section in FILES[name].sections if not section.meaning.endswith(".")] == []


@pytest.mark.parametrize("name", FILES)
def test_every_key_without_a_default_has_an_example(name: str) -> None:
    assert without_example(documented(FILES[name])) == []


@pytest.mark.parametrize("name", FILES)
def test_reference_and_reader_have_the_same_keys(name: str) -> None:
    file = FILES[name]
    found = [key.name for key in documented(file) if not of_channels(key.name)]

    assert sorted(found) == sorted(keys_of(file.cls))


@pytest.mark.parametrize("name", FILES)
def test_every_key_that_the_reader_lists_is_in_the_reference(name: str) -> None:
    """`records.keys`, which names the nearest key in messages, takes an array or an optional table for one key."""
    file = FILES[name]
    tables = {section.name.removesuffix("[]") for section in file.sections}

    assert {key.name for key in records.keys(file.cls)} - {key.name for key in documented(file)} <= tables


@pytest.mark.parametrize("name", FILES)
def test_reference_and_reader_have_the_same_defaults(name: str) -> None:
    read = {key.name: key.default for key in records.keys(FILES[name].cls)}
    found = {key.name: key.default for key in documented(FILES[name]) if key.name in read}

    assert found == {key: read[key] for key in found}


@pytest.mark.parametrize("name", FILES)
def test_reference_and_example_have_the_same_keys(name: str) -> None:
    file = FILES[name]
    split = {CHANNELS} if file.kinds else set()
    names = {key.name for key in documented(file)} - split

    assert {*given(tomllib.loads(uncommented(example_of(file))), names)} == names


@pytest.mark.parametrize("name", FILES)
def test_the_reader_takes_every_value_of_the_example(name: str) -> None:
    file = FILES[name]
    cls = file.cls if name in ALONE else type("WithoutRules", (file.cls,), {"RULES": ()})

    assert isinstance(toml.parse(uncommented(example_of(file)), cls), file.cls)


@pytest.mark.parametrize("kind", [kind for kind, _ in FILES["controller"].kinds])
def test_drivers_of_channels_take_every_value_of_the_example(kind: str) -> None:
    file = FILES["controller"]
    module, _, name = dict(file.kinds)[kind].partition(":")
    cls = getattr(import_module(module), name)
    table = tomllib.loads(uncommented(example_of(file)))["notify"]["channels"][kind.upper()]

    assert table.pop("kind") == kind
    assert isinstance(records.read(table, cls, kind), cls)


@dataclass(frozen=True, slots=True)
class Planted:
    """A file."""

    silent: int = 1
    long: int = 1
    """A A A A A A A A A A A A A A A A A A A A A A A A A A A A A A A."""
    bare: int | None = None
    """Good."""


def test_what_is_missing_is_found() -> None:
    (section,) = sections(Planted)

    assert unexplained([*section.keys]) == ["silent", "long"]
    assert without_example([*section.keys]) == ["bare"]


def test_keys_of_a_file_are_found_as_the_reference_names_them() -> None:
    table = {"a": 1, "b": {"NAME": {"c": 2}}, "d": [{"e": 3}, {"e": 4}], "free": {"x": 1}, "none": []}

    assert [*given(table, {"free"})] == ["a", "b.*.c", "d[].e", "d[].e", "free", "none"]
