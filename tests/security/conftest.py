"""A portal that is attacked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.server import Attacked, attacked


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """With TLS, for one file of tests."""
    with attacked(tmp_path_factory.mktemp("attacked")) as made:
        yield made
