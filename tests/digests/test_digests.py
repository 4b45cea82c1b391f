"""What cores ask for stays as it is, effect by effect, unless a change means to change it.

Such a change says so, and writes the digests again: `python -m tests.digests`.
"""

from __future__ import annotations

import json

import pytest

from tests.digests.cases import CASES, DIGESTS, QUICK
from tests.extent import only


@pytest.mark.parametrize("name", only(QUICK, CASES))
def test_all_effects_are_as_they_were(name: str) -> None:
    kept = json.loads(DIGESTS.read_text("utf-8"))[name]
    found = CASES[name]().to_json()
    if found != kept:
        same = [a == b for a, b in zip(found["parts"], kept["parts"], strict=False)]
        pytest.fail(
            f"{name}: {sum(same)} half hours are as they were; {found['effects']} effects, not {kept['effects']}"
        )


def test_every_run_has_a_digest() -> None:
    assert set(json.loads(DIGESTS.read_text("utf-8"))) == set(CASES)
