"""The driver `libvirt` passes the suite of its port on libvirt's own test driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim_backend.conformance.hypervisor_bench import Check
from sim_backend.conformance.hypervisor_checks import CHECKS
from tests.conformance.libvirt_rig import harness


@pytest.mark.parametrize("check", [check for check in CHECKS if not check.lacks], ids=lambda check: check.name)
def test_conforms(check: Check, tmp_path: Path) -> None:
    with harness(tmp_path) as surroundings:
        if check.applies(surroundings):
            check(surroundings)
        else:
            assert check.needs & {"migration", "slow", "scripts", "cpu"}


@pytest.mark.parametrize("check", [check for check in CHECKS if check.lacks], ids=lambda check: check.name)
def test_says_what_it_lacks(check: Check, tmp_path: Path) -> None:
    """It cannot migrate; what it suspends, it saves."""
    with harness(tmp_path) as surroundings:
        if check.applies(surroundings):
            check(surroundings)
        else:
            assert "save" in check.lacks
