"""When an unreachable node is fenced, and when not: its agent reports, or an operator has drained it."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.state.fencing import needs_no_fence
from shared.ports.effects import PowerDone, Received
from shared.protocol import topology
from shared.protocol.messages import NoReading
from shared.protocol.operator_messages import AddNode, DrainNode, Query, SubmitJob
from shared.values.actions import ActionKind, GuestChange
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, PowerOperation
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness, job

FENCE_S = 30.0
LATE_S = 15.0 + FENCE_S  # unreachable, then fenced
NONE: list[str] = []


def lead(**settings: Any) -> ControllerHarness:
    return ControllerHarness(fence_after_s=FENCE_S, **settings).lead()


def fenced(harness: ControllerHarness) -> list[str]:
    """The nodes that were asked to be fenced."""
    return [power.node for power in harness.powers if power.operation is PowerOperation.FENCE]


def unread(
    harness: ControllerHarness,
    node: str,
    seconds: float,
    others: tuple[str, ...] = (),
    boot_id: str = "",
    behind_s: float = 0.0,
) -> None:
    """Time passes in which a node's agent reports that its hypervisor does not answer. `behind_s`: its clock."""
    end_s = harness.now_s + seconds
    while harness.now_s < end_s:
        harness.wait(5.0, others)
        said = NoReading(node, "libvirtd does not answer", boot_id, harness.now_s - behind_s)
        harness.feed(Received(None, topology.agent_user(node), said))


def alarm(harness: ControllerHarness, node: str) -> str:
    """What the alarm says of an unreachable node ("": there is none)."""
    rows = harness.ask(Query(f"q-{harness.now_s}", "status")).data["alarms"]
    return "".join(row["detail"] for row in rows if (row["what"], row["subject"]) == ("node-unreachable", node))


def submit(harness: ControllerHarness, name: str = "j", **fields: Any) -> None:
    assert harness.ask(SubmitJob(f"submit-{name}", job(name, **fields))).done
    harness.obey()


# --- its agent reports ----------------------------------------------------------------------------------------------


def test_a_node_whose_agent_reports_is_not_fenced() -> None:
    """Given a node with a VM whose hypervisor does not answer, when hours pass, then it is unreachable, has an alarm
    that says why, and is not fenced: its VM may run."""
    harness = lead()
    submit(harness)

    unread(harness, "n1", 3_600.0, ("n2",))

    assert harness.controller.cluster.nodes["n1"].condition is NodeCondition.UNKNOWN
    assert fenced(harness) == NONE
    assert harness.controller.cluster.jobs["j"].phase is JobPhase.RUNNING
    assert alarm(harness, "n1") == (
        "its agent is connected, but cannot read its hypervisor: libvirtd does not answer; "
        "1 VMs are or may be on it; not fenced: its agent reports"
    )


def test_once_its_agent_falls_silent_it_is_fenced_after_the_whole_wait() -> None:
    harness = lead()
    submit(harness)
    unread(harness, "n1", 600.0, ("n2",))

    harness.wait(FENCE_S - 5.0, ("n2",))
    assert fenced(harness) == NONE
    harness.wait(10.0, ("n2",))

    assert fenced(harness) == ["n1"]
    assert "not fenced" not in alarm(harness, "n1")
    harness.feed(PowerDone("n1", PowerOperation.FENCE, True, "bmc: off"))
    assert [event.detail for event in harness.happenings("node-off")] == ["bmc: off"]
    assert [(order.kind, order.node) for order in harness.take_orders()] == [(ActionKind.START, "n2")]


def test_a_node_that_has_rebooted_is_off_although_its_hypervisor_does_not_answer() -> None:
    """The VMs of the boot before have stopped: they start elsewhere, without a fence. When its hypervisor answers, it
    is up again."""
    harness = lead()
    submit(harness)

    unread(harness, "n1", 30.0, ("n2",), "boot-2")

    assert [event.detail for event in harness.happenings("node-off")] == [
        "it has rebooted, and its hypervisor does not answer"
    ]
    assert [(order.kind, order.node) for order in harness.take_orders()] == [(ActionKind.START, "n2")]
    assert fenced(harness) == NONE
    harness.boots["n1"] = "boot-2"
    harness.vms["n1"].clear()
    harness.report("n1")
    assert harness.controller.cluster.nodes["n1"].condition is NodeCondition.UP


@pytest.mark.parametrize(
    ("boot_id", "behind_s"),
    [
        pytest.param("boot-1", 0.0, id="the same boot"),
        pytest.param("", 0.0, id="an agent that does not say which"),
        pytest.param("boot-2", 3_600.0, id="said before the last report, by its clock"),
        pytest.param("boot-0", 0.0, id="late word of an earlier boot"),
    ],
)
def test_what_does_not_prove_a_reboot(boot_id: str, behind_s: float) -> None:
    harness = ControllerHarness(fence_after_s=None).lead()
    harness.boots["n1"] = "boot-0"
    harness.report("n1")
    harness.boots["n1"] = "boot-1"
    harness.report("n1")
    submit(harness)

    unread(harness, "n1", 600.0, ("n2",), boot_id, behind_s)

    assert harness.happenings("node-off") == []
    assert harness.controller.cluster.nodes["n1"].condition is NodeCondition.UNKNOWN


def test_the_word_of_another_boot_does_not_keep_a_node_from_being_fenced() -> None:
    harness = lead()
    submit(harness)

    unread(harness, "n1", LATE_S + 10.0, ("n2",), "boot-2", behind_s=3_600.0)

    assert fenced(harness) == ["n1"]


def test_a_hypervisor_that_answers_again_is_no_trouble_any_more() -> None:
    harness = lead()
    submit(harness)
    unread(harness, "n1", 600.0, ("n2",))

    harness.report("n1")
    assert harness.controller.cluster.nodes["n1"].condition is NodeCondition.UP
    assert alarm(harness, "n1") == ""
    harness.wait(LATE_S + 10.0, ("n2",))

    assert fenced(harness) == ["n1"]


def test_a_failed_fence_is_repeated_only_while_the_agent_is_silent() -> None:
    harness = lead()
    submit(harness)
    harness.wait(LATE_S + 5.0, ("n2",))
    harness.feed(PowerDone("n1", PowerOperation.FENCE, False, "bmc: no answer"))
    assert fenced(harness) == ["n1"]

    unread(harness, "n1", 600.0, ("n2",))

    assert fenced(harness) == ["n1"]


def test_another_nodes_words_do_not_protect_it() -> None:
    harness = lead()
    submit(harness)

    unread(harness, "n2", LATE_S + 10.0)

    assert fenced(harness) == ["n1"]


def test_a_node_that_reports_without_knowing_this_leader_is_not_fenced() -> None:
    """Given a new leader whose hello does not reach a node, when the node goes on reporting, then it is unreachable and
    not fenced; once it is silent it is."""
    harness = lead()
    submit(harness)
    second = ControllerHarness(store=harness.store, fence_after_s=FENCE_S)
    second.now_s, second.seqs, second.vms = harness.now_s, harness.seqs, harness.vms
    second.carry(second.controller.start(second.now_s))
    assert alarm(second, "n1") == "1 VMs are or may be on it"

    for _ in range(60):
        second.wait(5.0, ("n2",))
        second.report("n1", term=1)

    assert second.controller.cluster.nodes["n1"].condition is NodeCondition.UNKNOWN
    assert fenced(second) == NONE
    assert alarm(second, "n1").endswith("not fenced: its agent reports")
    second.wait(LATE_S, ("n2",))
    assert fenced(second) == ["n1"]


def test_without_fencing_the_alarm_does_not_speak_of_it() -> None:
    harness = ControllerHarness().lead()
    unread(harness, "n1", 60.0, ("n2",))

    assert alarm(harness, "n1").endswith("libvirtd does not answer; 0 VMs are or may be on it")


# --- an operator has drained it -------------------------------------------------------------------------------------


def test_a_drained_empty_node_may_be_off() -> None:
    """Given a node that an operator has drained, when it is switched off for hours, then nobody cuts its power."""
    harness = lead()
    harness.ask(DrainNode("d", "n1", True))

    harness.wait(7_200.0, ("n2",))

    assert fenced(harness) == NONE
    assert alarm(harness, "n1") == "0 VMs are or may be on it; not fenced: it is drained and empty"


def test_a_node_that_is_not_drained_is_fenced_although_it_is_empty() -> None:
    harness = lead()

    harness.wait(LATE_S + 5.0, ("n2",))

    assert fenced(harness) == ["n1"]


def test_a_drained_node_that_is_not_empty_is_fenced() -> None:
    harness = lead()
    submit(harness)
    harness.compute = False
    harness.ask(DrainNode("d", "n1", True))

    harness.wait(LATE_S + 5.0, ("n2",))

    assert fenced(harness) == ["n1"]


def test_unmanaged_vms_are_no_reason_to_fence_a_drained_node() -> None:
    harness = lead()
    harness.vms["n1"]["theirs"] = VmStatus("theirs", VmState.RUNNING, 0, memory_mib=100, managed=False)
    harness.report("n1")
    harness.ask(DrainNode("d", "n1", True))

    harness.wait(600.0, ("n2",))

    assert fenced(harness) == NONE


def test_undrained_it_has_the_whole_wait_to_report() -> None:
    """But for the time since the last look, at most `unreachable_after_s`: 15 s."""
    harness = ControllerHarness(fence_after_s=100.0).lead()
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(600.0, ("n2",))

    harness.ask(DrainNode("u", "n1", False))
    harness.wait(80.0, ("n2",))
    assert fenced(harness) == NONE
    harness.wait(40.0, ("n2",))

    assert fenced(harness) == ["n1"]


def test_a_drained_node_that_reboots_in_time_is_as_before() -> None:
    harness = lead()
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(600.0, ("n2",))
    harness.boots["n1"] = "boot-2"
    harness.report("n1")

    node = harness.controller.cluster.nodes["n1"]
    assert (node.condition, node.held, node.silent_s) == (NodeCondition.UP, True, None)
    harness.wait(60.0, ("n1", "n2"))
    assert (fenced(harness), alarm(harness, "n1")) == (NONE, "")


def test_a_node_that_is_asked_about_a_missing_vm_is_fenced() -> None:
    """Given a VM that disappeared from n2 and may have been moved to the drained n1, when n1 falls silent, then the
    proof that it is off is needed: the job waits for it."""
    harness = lead()
    harness.ask(DrainNode("d", "n1", True))
    submit(harness)
    assert "j#0" in harness.vms["n2"]
    harness.report("n1")
    harness.report("n2")
    harness.guest("n2", "j#0", GuestChange.VANISHED)
    node = harness.controller.cluster.nodes["n1"]
    assert harness.controller.cluster.instances["j#0"].awaited == {"n1"}
    assert not needs_no_fence(harness.controller.cluster, node)

    harness.wait(LATE_S + 5.0, ("n2",))

    assert fenced(harness) == ["n1"]


def test_a_new_leader_fences_a_drained_node_only_for_vms_that_it_has_not_found() -> None:
    """Given a leader that takes over while a drained node is off, then it is left alone unless a wanted VM that was
    issued has not been seen anywhere: that may have been moved there."""
    harness = lead()
    harness.ask(DrainNode("d", "n1", True))
    submit(harness)
    second = ControllerHarness(store=harness.store, fence_after_s=FENCE_S)
    second.now_s, second.seqs, second.vms = harness.now_s, harness.seqs, harness.vms
    second.carry(second.controller.start(second.now_s))
    second.report("n2")
    node = second.controller.cluster.nodes["n1"]
    assert "n1" in second.controller.cluster.nodes_not_reported
    assert needs_no_fence(second.controller.cluster, node)

    second.controller.cluster.instances["j#0"].sought = True
    assert not needs_no_fence(second.controller.cluster, node)
    second.controller.cluster.nodes_not_reported.clear()
    assert needs_no_fence(second.controller.cluster, node)


@pytest.mark.parametrize("held", [True, False])
def test_an_operation_in_progress_is_a_reason(held: bool) -> None:
    harness = lead()
    harness.ask(AddNode("a", "n1"))
    node = harness.controller.cluster.nodes["n1"]
    node.held = held
    assert needs_no_fence(harness.controller.cluster, node) is held

    node.actions = 1

    assert not needs_no_fence(harness.controller.cluster, node)
