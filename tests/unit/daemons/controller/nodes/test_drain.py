"""A drain is decided at once, and what is decided of it waits for approval as long as it has to."""

from __future__ import annotations

import pytest

from daemons.values.settings import Automation, PolicyChoice
from shared.protocol.operator_messages import ApprovePlan, DrainNode, SubmitJob
from shared.values.actions import ActionKind
from tests.support.controller_harness import ControllerHarness, job


def submitted(harness: ControllerHarness) -> ControllerHarness:
    harness.ask(SubmitJob("r", job()))
    harness.obey()
    return harness


def kinds(harness: ControllerHarness) -> list[tuple[ActionKind, str]]:
    return [(action.kind, action.node) for action in harness.take_orders()]


@pytest.mark.parametrize("policy", ["apc", "edf"])
def test_a_drain_is_decided_at_once(policy: str) -> None:
    harness = submitted(ControllerHarness(placement=PolicyChoice(policy)).lead())
    harness.ask(DrainNode("d", "n1", True))
    assert kinds(harness) == [(ActionKind.MIGRATE, "n1")]


@pytest.mark.parametrize("policy", ["apc", "edf"])
def test_what_happens_between_cycles_does_not_replace_a_plan_that_says_as_much(policy: str) -> None:
    harness = submitted(ControllerHarness(automation=Automation.CONFIRM, placement=PolicyChoice(policy)).lead())
    harness.ask(DrainNode("d", "n1", True))
    pending = harness.controller.deciding.pending
    harness.ask(SubmitJob("later", job("later")))
    assert harness.controller.deciding.pending is pending
    assert pending is not None
    assert [change.workload for change in pending.held] == ["j"]
    assert harness.ask(ApprovePlan("a", pending.number)).done
    assert (ActionKind.MIGRATE, "n1") in kinds(harness)


@pytest.mark.parametrize(("running", "cycles"), [(True, 1), (False, 0)])
def test_only_what_has_to_move_is_worth_a_decision_as_of_a_cycle(running: bool, cycles: int) -> None:
    harness = ControllerHarness(placement=PolicyChoice("apc")).lead()
    if running:
        submitted(harness)
    before = harness.controller.deciding.decisions
    harness.ask(DrainNode("d", "n1", True))
    assert harness.controller.deciding.decisions - before == cycles
