"""The driver `process` passes the suite of its port with real programs in real cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim_backend.conformance.hypervisor_bench import Check
from sim_backend.conformance.hypervisor_checks import CHECKS
from tests.conformance.process_rig import harness

CAPABILITIES = frozenset({"ends"})


@pytest.mark.parametrize("check", [check for check in CHECKS if "cpu" not in check.needs], ids=lambda check: check.name)
def test_conforms(check: Check, tmp_path: Path) -> None:
    with harness(tmp_path, CAPABILITIES) as surroundings:
        if check.applies(surroundings):
            check(surroundings)
        else:
            assert check.needs & {"migration", "slow", "scripts", "save"}
