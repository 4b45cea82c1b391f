"""Whether workloads can have rules all at once: by themselves, beside each other and beside all others; by name."""

from __future__ import annotations

from typing import Any

from shared.protocol.operator_messages import AdoptVm, CheckRules, SetJob, SharedRules, SubmitJob
from shared.values.jobs import Rules
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness, job

PET = VmStatus("my.pet", VmState.RUNNING, memory_mib=500, vcpus=2, cpu_mhz=700.0, managed=False)


def harness_of() -> ControllerHarness:
    """A job `a`, and a VM `my.pet` that is adopted as `pet`."""
    harness = ControllerHarness().lead()
    harness.ask(SubmitJob("a", job("a")))
    harness.obey()
    harness.vms["n1"]["my.pet"] = PET
    harness.report("n1")
    assert harness.ask(AdoptVm("p", "n1", "my.pet", job="pet")).done
    harness.obey()
    harness.report("n1")
    return harness


def refused(harness: ControllerHarness, *shared: SharedRules) -> list[tuple[str, str]]:
    """Names and codes of those that cannot have the rules; nothing changes."""
    before = [entry.record() for entry in harness.controller.cluster.jobs.values()]
    reply = harness.ask(CheckRules(f"c{len(harness.replies)}", shared))
    assert reply.done, reply
    assert [entry.record() for entry in harness.controller.cluster.jobs.values()] == before
    rows: list[dict[str, Any]] = reply.data["refused"]
    assert all(row["detail"] for row in rows)
    return [(row["name"], row["code"]) for row in rows]


def test_workloads_are_looked_at_together_and_by_either_name() -> None:
    harness = harness_of()
    near, far = Rules(vm_affinity=("pet",)), Rules(vm_anti_affinity=("a",))
    assert refused(harness, SharedRules(near, ("a",)), SharedRules(Rules(), ("my.pet",))) == []
    assert refused(harness, SharedRules(near, ("a",)), SharedRules(far, ("my.pet",))) == [("a", "invalid-value")]
    assert refused(harness, SharedRules(far, ("my.pet",)), SharedRules(near, ("a",))) == [("my.pet", "invalid-value")]
    assert harness.ask(SetJob("s", "a", rules=near)).done
    assert refused(harness, SharedRules(far, ("pet",))) == [("pet", "invalid-value")]


def test_each_is_looked_at_by_itself_too() -> None:
    harness = harness_of()
    assert refused(harness, SharedRules(Rules(node_affinity=("n9",)), ("a", "new"))) == [
        ("a", "unknown-node"),
        ("new", "unknown-node"),
    ]
    assert refused(harness, SharedRules(Rules(label_affinity=("gpu",)), ("a", "my.pet"))) == [
        ("a", "fits-no-node"),
        ("my.pet", "fits-no-node"),
    ]


def test_vms_that_are_to_be_adopted_count_as_if_they_were() -> None:
    harness = harness_of()
    group = Rules(affinity="g", vm_anti_affinity=("new-1",))
    assert refused(harness, SharedRules(Rules(affinity="g"), ("new-1",)), SharedRules(group, ("new-2",))) == [
        ("new-1", "invalid-value")
    ]
    assert refused(harness, SharedRules(Rules(affinity="g"), ("new-1", "new-2"))) == []


def test_what_was_checked_is_not_looked_at_again() -> None:
    """Given two that are together, then the first of two changes that part them is carried out."""
    harness = harness_of()
    assert harness.ask(SetJob("1", "a", rules=Rules(vm_affinity=("pet",)))).done
    parted = Rules(vm_anti_affinity=("a",))
    assert harness.ask(SetJob("2", "pet", rules=parted)).code == "invalid-value"
    assert harness.ask(SetJob("3", "pet", rules=parted, checked=True)).done
