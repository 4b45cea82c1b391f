"""Each term for the end of a guest, with each action that a definition has for it: commands, controller and agents with
the libvirt driver on the stand-in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from shared.protocol.operator_messages import AddNode
from sim_backend.fake_libvirt.drift import HostDrift
from tests.conformance.test_adopt_all import CONTROLLER, LibvirtRig
from tests.support.shell_harness import wait_for

ACTIONS, TERMS = ("destroy", "restart", "preserve"), ("domain", "leave-off", "restart")
VMS = {f"{term}-{action}": (term, action) for term, action in product(TERMS, ACTIONS)}
XML = """<domain type="qemu"><name>{vm}</name><memory unit="MiB">16</memory><vcpu>1</vcpu>
<os><type arch="x86_64" machine="pc">hvm</type></os><on_poweroff>{action}</on_poweroff></domain>"""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LibvirtRig]:
    made = LibvirtRig(tmp_path, 1, 0)
    try:
        for vm, (_, action) in VMS.items():
            made.libvirt.module("h000").open().defineXML(XML.format(vm=vm, action=action)).create()
        made.controller(settings=CONTROLLER)
        made.agent("h000")
        assert made.ask(AddNode("add", "h000")).done
        yield made
    finally:
        made.close()


def rows(rig: LibvirtRig) -> dict[str, dict[str, object]]:
    return {row["vm"]: row for row in rig.command("vms", "list")["vms"]}


def numberless(live: str) -> str:
    """Without the number that libvirt gives each life."""
    return re.sub(r' id="\d+"', "", live, count=1)


def test_the_term_decides_whether_the_definition_does(rig: LibvirtRig, tmp_path: Path) -> None:
    host = HostDrift(rig.libvirt, "h000")
    wait_for(lambda: len(rows(rig)) == len(VMS), 60.0)
    before = rig.dumps()
    terms = tmp_path / "vms.toml"
    terms.write_text(
        "".join(f'[[vms]]\nmatch = "{term}-*"\nautomation = "off"\non_shutdown = "{term}"\n' for term in TERMS)
    )
    assert rig.command("vms", "adopt", "--all", "--terms", str(terms))["refused"] == []
    wait_for(lambda: all(row["managed"] for row in rows(rig).values()), 60.0)

    lives = {vm: host.domain(vm).number for vm in VMS}  # type: ignore[union-attr]
    for vm in VMS:
        assert host.guest_ends(vm)

    def runs(vm: str) -> bool:
        term, action = VMS[vm]
        return term == "restart" or (term, action) == ("domain", "restart")

    wait_for(lambda: host.running() == tuple(sorted(filter(runs, VMS))), 60.0)
    wait_for(lambda: all((row["state"] == "running") is runs(vm) for vm, row in rows(rig).items()), 60.0)
    again = {vm for vm in host.running() if host.domain(vm).number != lives[vm]}  # type: ignore[union-attr]
    assert again == {"restart-destroy", "restart-preserve"}  # libvirt itself restarted the others

    host.start("leave-off-restart")
    wait_for(lambda: all(row["busy"] == "" for row in rows(rig).values()))
    wait_for(lambda: "<on_poweroff>destroy<" in rig.dumps()["leave-off-restart"][1], 60.0)
    assert host.guest_ends("leave-off-restart")
    wait_for(lambda: rows(rig).get("leave-off-restart", {}).get("state", "running") != "running", 60.0)

    left = list(VMS)
    while left:
        left = [row["name"] for row in rig.command("vms", "release", *left)["refused"]]
    wait_for(lambda: not any(row["managed"] for row in rows(rig).values()), 60.0)
    wait_for(lambda: {vm: one[0] for vm, one in rig.dumps().items()} == {vm: one[0] for vm, one in before.items()})
    for vm, (_, live, _) in rig.dumps().items():
        assert live == "" or numberless(live) == numberless(before[vm][1])
