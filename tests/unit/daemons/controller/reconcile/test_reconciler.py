"""A VM has one action under way at a time, also where an image of it is left over on another node."""

from __future__ import annotations

from shared.protocol.operator_messages import CancelJob, DrainNode, HoldJob, SubmitJob
from shared.values.actions import ActionKind
from tests.support.controller_harness import ControllerHarness, job


def answered(harness: ControllerHarness, rounds: int = 8) -> list[list[tuple[str, ActionKind]]]:
    """Answer all orders until there are none; what was ordered at once each time, by VM."""
    found = []
    for _ in range(rounds):
        orders = harness.take_orders()
        if not orders:
            break
        found.append([(order.vm, order.kind) for order in orders])
        for order in orders:
            harness.result(order)
        harness.wait(5.0, reporting=harness.nodes)
    return found


def resuming_elsewhere(instances: int) -> ControllerHarness:
    """A job whose images lie on a node that is drained, when it has just been ordered to resume on another."""
    harness = ControllerHarness().lead()
    harness.ask(SubmitJob("s", job(instances=instances, memory_mib=500)))
    answered(harness)
    home = next(name for name in harness.nodes if harness.vms[name])
    harness.ask(HoldJob("h1", "j", True))
    answered(harness)
    harness.ask(DrainNode("d", home, True))
    harness.ask(HoldJob("h2", "j", False))
    while not harness.orders:
        harness.wait(5.0, reporting=harness.nodes)
    return harness


def test_a_resumed_gang_runs_before_its_old_images_go_and_no_action_is_left_behind() -> None:
    """Given a job of two instances whose images lie on a node that is drained: they are resumed elsewhere, set free
    together, and then their old images are discarded; no node has an action under way in the end."""
    harness = resuming_elsewhere(instances=2)

    rounds = answered(harness)

    assert [kind for _, kind in rounds[0]] == [ActionKind.RESUME] * 2
    assert all(len({vm for vm, _ in ordered}) == len(ordered) for ordered in rounds)
    kinds = [kind for ordered in rounds for _, kind in ordered]
    assert kinds == [ActionKind.RESUME] * 2 + [ActionKind.UNPAUSE] * 2 + [ActionKind.DISCARD_IMAGE] * 2
    nodes = harness.controller.cluster.nodes.values()
    assert [(node.actions, node.flights) for node in nodes] == [(0, {})] * len(nodes)
    assert harness.controller.cluster.actions == {}


def test_images_of_a_job_that_is_cancelled_while_it_is_resumed_are_discarded() -> None:
    """Given a job that is cancelled as its VM is on the way to another node: the VM is stopped, the image goes too."""
    harness = resuming_elsewhere(instances=1)
    (resume,) = harness.take_orders()
    harness.ask(CancelJob("c", "j"))
    harness.result(resume)
    harness.wait(5.0, reporting=harness.nodes)

    kinds = {kind for ordered in answered(harness) for _, kind in ordered}

    assert kinds == {ActionKind.STOP, ActionKind.DISCARD_IMAGE}
    assert harness.vms == {"n1": {}, "n2": {}}
