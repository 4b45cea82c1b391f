"""Scenes for the tests of the portal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.portal.scene import Scene, scene


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Scene]:
    """A controller and no nodes: enough for what is about accounts and guards."""
    with scene(tmp_path, nodes=0, run_s=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The same, for tests that change nothing."""
    with scene(tmp_path_factory.mktemp("portal"), nodes=0, run_s=1.0) as made:
        yield made
