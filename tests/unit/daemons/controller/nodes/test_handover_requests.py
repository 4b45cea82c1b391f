"""What operators may do to nodes of environments and to nodes that change hands, and what they are told of them."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.state.availability import sleep_blocker, staying
from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import SetUpAnswer, SetUpNode
from shared.protocol.operator_messages import AdoptVm, ConfirmOff, MoveVm, Query, RemoveNode, RepairNode, SubmitJob
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import Handover, NodeCondition
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import job
from tests.support.coordination_harness import CoordinationHarness
from tests.support.node_service_harness import power

WIPE = Setup(SetupPolicy.WIPE)


class SetupHarness(CoordinationHarness):
    """Keeps what agents were asked to do to their hosts."""

    def __init__(self, count: int = 2, **settings: Any) -> None:
        self.setups: list[SetUpNode] = []
        super().__init__(count, **settings)

    def _publish(self, effect: Publish) -> None:
        if isinstance(effect.message, SetUpNode):
            self.setups.append(effect.message)
        super()._publish(effect)

    def done(self, ok: bool = True, output: str = "", sender: str = "") -> int:
        """The answer to what was asked last; returns its delivery."""
        asked = self.setups[-1]
        seq = self.next_seq(asked.node)
        answer = SetUpAnswer(asked.node, asked.boot_id, seq, self.now_s, asked.request, ok, output)
        return self.say(answer, sender or topology.agent_user(asked.node))

    def handover(self, name: str = "n000") -> Handover:
        """How far a node is."""
        return self.controller.cluster.nodes[name].handover

    def row(self, name: str = "n000") -> dict[str, Any]:
        """A node's view."""
        self.say(Query(f"q{len(self.replies)}", "node", name), "operator.test")
        data: dict[str, Any] = self.replies[-1].data["node"]
        return data


def harness() -> SetupHarness:
    """Environment `hpc` is being given one of two nodes; `n000` is on its way to it."""
    made = SetupHarness()
    made.begin()
    made.environment("hpc", "batch", 1, upper=1, setup=WIPE, lease_s=1e6)
    made.look()
    assert made.setups[-1].node == "n000"
    return made


def failed_harness() -> SetupHarness:
    """The setup of `n000` has failed for good."""
    made = harness()
    while made.handover() is not Handover.FAILED:
        if made.controller.cluster.nodes["n000"].setup_request:
            made.done(False, "no space left")
        made.wait(20.0, ["n000"])
    return made


def test_a_node_is_taken_into_use_when_its_agent_has_answered() -> None:
    made = harness()
    assert (made.row()["environment"], made.row()["handover"]) == ("hpc", "acquiring")
    assert made.row()["setup_request"] == made.setups[-1].request
    assert made.row()["schedulable"] is False

    delivery = made.done()

    assert (made.row()["given"], made.row()["handover"], made.row()["schedulable"]) == ("hpc", "settled", True)
    assert [event.subject for event in made.happenings("node-acquired")] == ["n000"]
    assert delivery in made.acknowledged


def test_only_the_nodes_own_agent_may_answer() -> None:
    made = harness()

    made.done(sender=topology.agent_user("n001"))

    assert made.handover() is Handover.ACQUIRING
    assert "may not speak for node n000" in made.dead[-1][1]


def test_a_failed_setup_is_an_alarm_and_repair_tries_again() -> None:
    made = failed_harness()
    assert "no space left" in made.row()["failure"]
    made.say(Query("st", "status", ""), "operator.test")
    alarms = {(alarm["what"], alarm["subject"]) for alarm in made.replies[-1].data["alarms"]}
    assert ("setup-failed", "n000") in alarms
    asked = len(made.setups)

    stays = made.ask(RemoveNode("x1", "n000"))
    assert (stays.code, "repair it" in stays.detail) == ("node-in-environment", True)
    assert made.ask(RepairNode("r1", "n000")).done
    assert len(made.setups) == asked + 1
    assert made.handover() is not Handover.FAILED
    assert made.ask(RepairNode("r2", "n001")).code == "not-failed"


def test_a_node_of_an_environment_is_not_removed_unless_it_is_off() -> None:
    made = harness()
    assert made.ask(RemoveNode("x1", "n000")).code == "node-in-environment"
    made.done()
    assert made.ask(RemoveNode("x2", "n000")).code == "node-in-environment"

    made.controller.cluster.nodes["n000"].condition = NodeCondition.UNKNOWN
    assert made.ask(ConfirmOff("o1", "n000")).done
    assert made.ask(RemoveNode("x3", "n000")).done


@pytest.mark.parametrize("answered", [False, True])
def test_no_vm_is_adopted_where_an_environment_has_the_node(answered: bool) -> None:
    made = harness()
    if answered:
        made.done()
    made.vms["n000"]["theirs"] = VmStatus("theirs", VmState.RUNNING, memory_mib=100, managed=False)
    made.report("n000")

    reply = made.ask(AdoptVm("ad", "n000", "theirs", job="mine"))

    assert reply.code == "node-in-environment"


def test_no_vm_is_moved_to_a_node_that_changes_hands() -> None:
    made = harness()
    made.ask(SubmitJob("s1", job("j")))
    made.obey()
    assert list(made.vms["n001"]) == ["j#0"]

    reply = made.ask(MoveVm("m1", "j#0", "n000"))

    assert reply.code == "node-not-schedulable"
    assert "it changes hands" in reply.detail


def test_nodes_of_environments_stay_in_service_and_awake() -> None:
    made = harness()
    cluster = made.controller.cluster
    settings = power(keep_nodes=0)

    for _ in range(2):
        assert staying(cluster, settings) == {"n000"}
        assert "environment" in sleep_blocker(cluster.nodes["n000"], settings)
        made.done()
