"""Nodes asleep and awake as commands show them, with real agents and hosts that fall asleep in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.core.controller import Controller
from daemons.values.settings import Automation, PolicyChoice, PowerSettings
from shared.values.nodes import PowerOperation, SleepMode
from tests.support import parts
from tests.support.operator_harness import Rig


def rig(sleep: SleepMode = SleepMode.SUSPEND, **more: Any) -> Rig:
    """Three nodes of which one is to be in service."""
    power = PowerSettings(
        driver="fake",
        does=frozenset({PowerOperation.WAKE, PowerOperation.FENCE}),
        through_agents=True,
        sleep=sleep,
        standby_s=60.0,
        wake_limit_s=200.0,
        wake_test_days=0.0,
    )
    given: dict[str, Any] = {
        "provisioning": PolicyChoice("static", {"nodes": 1}),
        "decide_s": 100.0,
        "fence_after_s": 60.0,
    } | more
    made = Rig(3, power=power, **given)
    made.run(30.0)
    return made


def controller(rig: Rig) -> Controller:
    core = rig.loop.controllers["a"].core
    assert isinstance(core, Controller)
    return core


def services(rig: Rig) -> dict[str, str]:
    return {row["name"]: row["service"] for row in rig.asked("nodes", "list")["nodes"]}


@pytest.mark.parametrize("sleep", list(SleepMode))
def test_nodes_fall_asleep_and_wake(sleep: SleepMode) -> None:
    made = rig(sleep)
    made.run(400.0)
    assert services(made) == {"n1": "in-service", "n2": "off", "n3": "off"}
    found = made.asked("status")
    assert (found["nodes"]["service"]["off"], found["alarms"]) == (2, [])
    shown = made.asked("nodes", "show", "n2")["node"]
    assert (shown["wanted"], shown["must_stay"], shown["woken_at_s"]) == (False, False, None)
    made.asked("nodes", "drain", "n1")
    made.run(400.0)  # one is kept in service, and n1 is kept out of it
    assert sorted(services(made).values()) == ["draining", "in-service", "off"]
    assert made.loop.fake_power.asleep_with == []
    learnt = list(parts.lifecycle(controller(made)).durations)
    assert sorted(each.what for each in learnt) == ["deploy", "remove"]


def test_a_node_that_does_not_wake_is_an_alarm_until_it_is_repaired() -> None:
    made = rig()
    made.run(400.0)
    made.loop.fake_power.fail_wake("n2")
    made.asked("nodes", "drain", "n1")
    made.run(600.0)
    assert services(made) == {"n1": "draining", "n2": "failed", "n3": "in-service"}
    (alarm,) = made.asked("status")["alarms"]
    assert (alarm["what"], alarm["subject"]) == ("node-failed", "n2")
    assert "did not come back within 200 s" in alarm["detail"]
    assert "failed" in made.trimtab("nodes", "show", "n2").stdout
    made.asked("nodes", "repair", "n2")
    assert services(made)["n2"] != "failed"
    assert made.asked("status")["alarms"] == []
    refused = made.trimtab("nodes", "repair", "n3", "--output", "json")
    assert (refused.exit_code, "not-failed" in refused.stdout) == (1, True)


def test_a_plan_says_what_becomes_of_nodes() -> None:
    made = rig(automation=Automation.CONFIRM)
    made.run(100.0)
    shown = made.asked("plan", "show")
    assert shown["decision"]["provisioning"]["removed"] == ["n2", "n3"]
    text = made.trimtab("plan", "show").stdout
    assert "static" in text
    assert "n3" in text
    made.asked("plan", "approve", shown["decision"]["number"])
    made.run(10.0)
    assert services(made) == {"n1": "in-service", "n2": "standby", "n3": "standby"}
    (newest, *_) = made.asked("plan", "history")["decisions"]
    assert newest["provisioning"]["removed"] in (0, 2)
