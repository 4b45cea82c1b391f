"""Keys of files with the terms of adopted VMs: what a controller keeps of them, and what decisions see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from daemons.manifests.vm_terms import read_terms
from shared.base.errors import InvalidInput
from shared.protocol.operator_messages import AdoptVm
from shared.values.vms import VmState, VmStatus
from tests.conformance.settings.core import Recorded
from tests.conformance.settings.row import Given, Row, shown_by

NODES = ("n1", "n2", "n3")
NAMES = ("db-1", "www")
FILE: dict[str, Any] = {"vms[].match": "*"}


def adopted(given: Given) -> object:
    """Two VMs that are adopted with the terms of the file: their records, and the constraints that decisions see."""
    try:
        assigned = read_terms(given.file("vms.toml"), NAMES)
    except InvalidInput as error:
        return [problem.where.rpartition(": ")[2] for problem in error.problems]
    harness = Recorded(NODES)
    for name in NODES:
        harness.nodes[name] = replace(harness.nodes[name], labels=("rack=a",) if name < "n3" else ("ssd", "rack=b"))
    harness.lead()
    for vm in NAMES:
        harness.vms["n1"][vm] = VmStatus(vm, VmState.RUNNING, memory_mib=100, vcpus=1, cpu_mhz=100.0, managed=False)
    harness.report("n1")
    codes = []
    for vm, own in assigned.items():
        codes.append(
            harness.ask(AdoptVm(vm, "n1", vm, job=vm, importance=own.importance, rules=own.rules, terms=own.terms)).code
        )
    harness.obey()
    entries = [harness.controller.cluster.jobs[vm] for vm in sorted(harness.controller.cluster.jobs)]
    snapshot = harness.controller.deciding.builder.build(harness.now_s)
    return codes, [(entry.job.importance, entry.job.rules, entry.terms) for entry in entries], snapshot.constraints


TABLE: tuple[Row, ...] = (
    *shown_by(adopted, {"vms[].match": ("*", "db-*")}),
    *shown_by(
        adopted,
        {
            "vms[].importance": (1, 5),
            "vms[].automation": ("", "off"),
            "vms[].on_shutdown": ("domain", "restart"),
            "vms[].suspend": (False, True),
            "vms[].moves_per_day": (1, 2),
            "vms[].pause_s_per_day": (1, 2),
            "vms[].post_copy": (False, True),
            "vms[].failover": (False, True),
            "vms[].rules.node_affinity": ([], ["n3"]),
            "vms[].rules.node_anti_affinity": ([], ["n1"]),
            "vms[].rules.affinity": ("", "g"),
            "vms[].rules.anti_affinity": ("", "h"),
            "vms[].rules.no_migration": (False, True),
            "vms[].rules.label_affinity": ([], ["ssd"]),
            "vms[].rules.label_anti_affinity": ([], ["old"]),
            "vms[].rules.vm_affinity": ([], ["other"]),
            "vms[].rules.vm_anti_affinity": ([], ["apart"]),
            "vms[].rules.affinity_scope": ("node", "rack"),
            "vms[].rules.anti_affinity_scope": ("node", "rack"),
            "vms[].rules.preferred[].node_affinity": ("n2", "n3"),
            "vms[].rules.preferred[].node_anti_affinity": ("n1", "n2"),
            "vms[].rules.preferred[].label_affinity": ("ssd", "old"),
            "vms[].rules.preferred[].label_anti_affinity": ("rack=a", "ssd"),
            "vms[].rules.preferred[].affinity": ("other", "apart"),
            "vms[].rules.preferred[].anti_affinity": ("apart", "other"),
        },
        FILE,
    ),
    *shown_by(
        adopted, {"vms[].rules.preferred[].scope": ("node", "rack")}, FILE | {"vms[].rules.preferred[].affinity": "x"}
    ),
    *shown_by(adopted, {"vms[].rules.preferred[].weight": (1, 100)}, FILE | {"vms[].rules.preferred[].affinity": "x"}),
)
