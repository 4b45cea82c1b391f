"""Faults on nodes that can only freeze what is suspended: nothing is doubled or lost, no memory is promised twice, and
what is frozen goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim_backend.faults.run import run_script
from sim_backend.faults.script import FaultScript, write_environments, write_script


def frozen(script: FaultScript) -> FaultScript:
    """The script on nodes without abilities."""
    return replace(script, nodes=tuple(replace(node, abilities=()) for node in script.nodes))


@pytest.mark.accept
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.accept) for seed in (1, 2, 3, 4, 5, 6, 7))])
def test_faults_on_nodes_that_can_only_freeze(seed: int) -> None:
    outcome = run_script(frozen(write_script(seed)))
    assert not outcome.violations, outcome.crash


@pytest.mark.accept
@pytest.mark.parametrize(
    "seed", [4, *(pytest.param(seed, marks=pytest.mark.accept) for seed in (0, 1, 2, 6, 7, 8, 10))]
)
def test_environments_on_nodes_that_can_only_freeze(seed: int) -> None:
    """Seeds in which no web instance stays for good on a node that frozen jobs wait for: they wait as long."""
    outcome = run_script(frozen(write_environments(seed)))
    assert not outcome.violations, outcome.crash
