"""Options for terms: each is a change of its own, and what is not given is left as it is."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.cli.term_options import KEYS, changed_terms
from shared.values.vm_terms import OnShutdown, TermChanges, VmAutomation


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, TermChanges()),
        ({"suspend": False}, TermChanges(suspend=False)),
        (
            {"automation": "confirm", "on_shutdown": "restart", "moves_per_day": 2},
            TermChanges(automation=VmAutomation.CONFIRM, on_shutdown=OnShutdown.RESTART, moves_per_day=2),
        ),
        (
            {"automation": "cluster", "moves_per_day": "none", "pause_s_per_day": "none", "failover": True},
            TermChanges(failover=True, clear=("automation", "moves_per_day", "pause_s_per_day")),
        ),
    ],
)
def test_options_are_changes(given: dict[str, Any], changes: TermChanges) -> None:
    assert changed_terms(dict.fromkeys(KEYS) | given) == changes
