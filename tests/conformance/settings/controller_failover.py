"""Keys of the controller's file about failover: what is kept free for it, and what proves a node off."""

from __future__ import annotations

from typing import Any

from shared.protocol.operator_messages import AdoptVm
from shared.values.lease import SeenLease
from shared.values.vm_terms import VmTerms
from shared.values.vms import VmState, VmStatus
from tests.conformance.settings.core import Recorded, led
from tests.conformance.settings.row import Given, Row, shown_by

NODES = ("n1", "n2", "n3", "n4")
SPARED: dict[str, Any] = {"automation.level": "auto"}


def with_vm(given: Given) -> Recorded:
    """Return a controller of four nodes, on the first of which an adopted VM with failover runs."""
    harness = led(given, NODES)
    harness.vms["n1"]["db"] = VmStatus("db", VmState.RUNNING, memory_mib=100, vcpus=1, cpu_mhz=100.0, managed=False)
    harness.report("n1")
    assert harness.ask(AdoptVm("a", "n1", "db", job="db", terms=VmTerms(failover=True))).done
    harness.obey()
    return harness


def spared(given: Given) -> object:
    """What is kept free on each node after some cycles."""
    harness = with_vm(given)
    for _ in range(60):
        harness.wait(20.0, NODES)
        harness.obey()
    return [node.spare_mib for node in harness.controller.cluster.nodes.values()]


def proven(given: Given) -> object:
    """A node falls silent; two others report its lease as expired, one after the other: when that proves it off."""
    harness, found = with_vm(given), []
    others = NODES[1:]
    harness.wait(30.0, others)
    for witness in others[:2]:
        harness.report(witness, leases=(SeenLease("n1", harness.boots["n1"], 7, 60.0, 45.0),))
        found.append(harness.controller.cluster.nodes["n1"].condition.value)
    return found


TABLE: tuple[Row, ...] = (
    *shown_by(spared, {"failover.spare_nodes": (0, 1)}, SPARED),
    *shown_by(proven, {"fencing.lease_witnesses": (1, 2)}),
)
