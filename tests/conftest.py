"""What tests of several folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public logs and traces that TRIMTAB_DATA names: without it the test is skipped, on CI it fails."""
    folder = Path(os.environ.get("TRIMTAB_DATA", ""))
    if os.environ.get("TRIMTAB_DATA") and folder.is_dir():
        return folder
    reason = "TRIMTAB_DATA does not name the folder of the public logs and traces"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
