"""JSON files: keys that are there more than once, wherever they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.capacity.json_file import parse_file
from shared.base.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('{"a": 1, "b": 2, "a": 3}', ["a"]),
        ('{"a": [{}, {"x": {"y": 1, "y": 2}, "z": 1, "z": 1}]}', ["a[1].z", "a[1].x.y"]),
        ('{"a": {"x": 1, "x": 2}, "a": 1}', ["a"]),
        ("[" * 900 + '{"a": 1, "a": 2}' + "]" * 900, ["[0]" * 900 + ".a"]),
    ],
)
def test_a_key_twice_is_refused(tmp_path: Path, text: str, places: list[str]) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        parse_file(path)
    assert [problem.where for problem in caught.value.problems] == [f"{path}: {place}" for place in places]


def test_plain_objects_are_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('\ufeff{"a": [{"a": null}], "b": 1.0}', "utf-8")
    assert parse_file(path) == {"a": [{"a": None}], "b": 1.0}
