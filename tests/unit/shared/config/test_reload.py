"""What SIGHUP applies."""

from __future__ import annotations

import pytest

from shared.config.reload import needs_restart


@pytest.mark.parametrize(
    ("key", "waits"), [("log", False), ("log.level", False), ("logs.level", True), ("bus.url", True)]
)
def test_only_the_log_is_applied_on_a_reload(key: str, waits: bool) -> None:
    assert needs_restart(key) is waits
