"""`trimtab nodes drain --wait`: what is left on nodes until they are empty, or are not to be any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.protocol.operator_messages import CancelJob, DrainNode, RemoveNode
from tests.support.operator_harness import Rig
from tests.unit.daemons.controller.views.test_nodes_operator import node_of, submit


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    return made


@pytest.fixture
def stuck(rig: Rig, tmp_path: Path) -> str:
    """A node whose VM finds no room elsewhere: that of job `one`."""
    for name in ("one", "two"):
        submit(rig, tmp_path, name, memory_mib=3_500)
    return node_of(rig, "one")


def test_a_node_that_is_empty_is_drained(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path, "one")
    node = node_of(rig, "one")

    outcome = rig.trimtab("nodes", "drain", node, "--wait")

    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout == f"node {node} is drained\n"
    assert outcome.stderr == f"next: trimtab nodes undrain {node}\n"
    assert node_of(rig, "one") != node


def test_json_is_one_object_at_the_end(rig: Rig) -> None:
    outcome = rig.trimtab("nodes", "drain", "n1", "n7", "n2", "--wait", "-o", "json")

    assert outcome.exit_code == 1
    found = json.loads(outcome.stdout)
    assert (found["done"], [row["code"] for row in found["refused"]]) == (["n1", "n2"], ["unknown-node"])
    assert found["unfinished"] == []
    assert "hint: Look up its name. Run: trimtab nodes list" in outcome.stderr
    assert "next: " not in outcome.stderr


def test_what_keeps_a_node_from_being_empty_is_said_until_it_has_gone(rig: Rig, stuck: str) -> None:
    rig.loop.engine.at(rig.now_s() + 30.0, 0, lambda: rig.loop.operator.send(CancelJob("end", "two")))
    began_s = rig.now_s()

    outcome = rig.trimtab("nodes", "drain", stuck, "--wait")

    assert outcome.exit_code == 0, outcome.output
    assert f"node {stuck} has 1 VM left; one#0: memory: needs 3,500 MiB, most free 500 (no-memory)" in outcome.stderr
    assert rig.now_s() - began_s >= 30.0


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (lambda node: DrainNode("back", node, False), "was undrained: another request asked for that"),
        (lambda node: RemoveNode("out", node), "was removed"),
    ],
)
def test_a_drain_that_ends_otherwise_is_a_failure(rig: Rig, stuck: str, request_: object, why: str) -> None:
    """A node is removed once its VM is gone: between two looks."""
    assert callable(request_)
    node = stuck
    if why == "was removed":
        rig.loop.engine.at(rig.now_s() + 10.2, 0, lambda: rig.loop.operator.send(CancelJob("end", "one")))
    for at_s in (10.4, 10.6, 10.8, 11.1):
        rig.loop.engine.at(rig.now_s() + at_s, 0, lambda: rig.loop.operator.send(request_(node)))

    outcome = rig.trimtab("nodes", "drain", node, "--wait", "-o", "json")

    assert outcome.exit_code == 1
    found = json.loads(outcome.stdout)
    assert found["done"] == []
    assert found["unfinished"] == [{"name": node, "code": "not-yet", "detail": f"node {node} {why}"}]
    assert f"error: {node}: not-yet: node {node} {why}" in outcome.stderr


def test_the_wait_ends_with_the_time_limit_and_the_drain_does_not(rig: Rig, stuck: str) -> None:
    began_s = rig.now_s()

    outcome = rig.trimtab("nodes", "drain", stuck, "--wait", "--timeout", 20)

    assert (outcome.exit_code, outcome.stdout) == (1, "")
    assert 20.0 <= rig.now_s() - began_s < 22.0
    assert f"error: {stuck}: not-yet: node {stuck} has 1 VM left" in outcome.stderr
    assert rig.asked("nodes", "show", stuck)["node"]["held"] is True


def test_an_interruption_ends_the_wait_and_not_the_drain(rig: Rig, stuck: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    rig.loop.engine.at(rig.now_s() + 20.0, 0, interrupt)

    outcome = rig.trimtab("nodes", "drain", stuck, "--wait", "-o", "json")

    assert outcome.exit_code == 130
    assert json.loads(outcome.stdout)["error"]["code"] == "interrupted"
    assert "stopped waiting; the drain continues" in outcome.stderr
    assert rig.asked("nodes", "show", stuck)["node"]["held"] is True


def test_a_controller_that_is_away_for_a_while_is_waited_for(rig: Rig, stuck: str) -> None:
    """Given a controller that dies and comes back, then that is said once and the drain followed to its end."""
    shell = rig.loop.controllers["a"]
    rig.loop.engine.at(rig.now_s() + 5.0, 0, shell.kill)
    rig.loop.engine.at(rig.now_s() + 60.0, 0, shell.restart)
    rig.loop.engine.at(rig.now_s() + 200.0, 0, lambda: rig.loop.operator.send(CancelJob("end", "two")))

    outcome = rig.trimtab("nodes", "drain", stuck, "--wait")

    assert outcome.exit_code == 0, outcome.output
    assert outcome.stderr.count("still waiting: no controller answered within 10 s") == 1
