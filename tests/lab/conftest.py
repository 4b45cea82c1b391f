"""What the tests of the lab share."""

from __future__ import annotations

import pytest

from tests.lab.needs import need_lab


@pytest.fixture(scope="session")
def lab_tools() -> None:
    """A lab can be made here, else the test is skipped, on CI it fails."""
    need_lab()
