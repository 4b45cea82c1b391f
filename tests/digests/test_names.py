"""Names that others use stay as they are, unless a change means to change them (`python -m tests.digests`)."""

from __future__ import annotations

import json

import pytest

from tests.digests.names import NAMES, names


@pytest.mark.parametrize("place", sorted(json.loads(NAMES.read_text("utf-8"))))
def test_names_are_as_they_were(place: str) -> None:
    kept = json.loads(NAMES.read_text("utf-8"))
    assert names()[place] == kept[place]


def test_every_place_is_kept() -> None:
    assert set(names()) == set(json.loads(NAMES.read_text("utf-8")))
