"""`trimtab plan stop`: it says what the controller says of it, and nothing that may not be so."""

from __future__ import annotations

import json

import pytest

from shared.base.clock import ManualClock
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Request, StopPlan
from tests.support.fake_controller import FakeController, trimtab
from tests.support.operator_harness import Rig


@pytest.mark.parametrize(
    ("detail", "text"),
    [("", "plans are stopped"), ("nothing was in progress", "plans are stopped: nothing was in progress")],
)
def test_a_stop_says_what_it_stopped(detail: str, text: str) -> None:
    def answer(request: Request) -> Reply:
        assert isinstance(request, StopPlan)
        return Reply(request.request, True, detail=detail)

    outcome = trimtab(FakeController(ManualClock(100.0), answer), "plan", "stop")
    assert (outcome.exit_code, outcome.stdout) == (0, f"{text}\n"), outcome.output
    outcome = trimtab(FakeController(ManualClock(100.0), answer), "plan", "stop", "-o", "json")
    assert json.loads(outcome.stdout) == {"done": True, "request": "r1", "note": detail}


def test_a_plan_is_stopped() -> None:
    rig = Rig()
    rig.run(30.0)
    outcome = rig.trimtab("plan", "stop", "--abort")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.startswith("plans are stopped")
