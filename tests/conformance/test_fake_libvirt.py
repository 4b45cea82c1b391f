"""The driver `libvirt` passes the suite of its port, all of it, on a stand-in for the module libvirt."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim_backend.conformance.hypervisor_bench import Check
from sim_backend.conformance.hypervisor_checks import CHECKS
from tests.conformance.fake_libvirt_rig import Harness, fakes


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_conforms(check: Check, tmp_path: Path) -> None:
    with fakes(tmp_path) as made:
        surroundings = Harness(made)
        if check.applies(surroundings):
            check(surroundings)
            assert made.cluster.doubles == []
            assert made.cluster.misuses == []
            assert made.cluster.events.failures == []
        else:
            assert check.lacks
