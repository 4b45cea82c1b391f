"""A cluster as an operator makes it by docs/how-to, and what is asked of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from shared.base.clock import SystemClock
from tests.integration.first_day import pages, plan
from tests.integration.first_day.machines import BROKER, Node
from tests.integration.first_day.plan import Span, Step, Swaps
from tests.lab.guest_sectors import program

IMAGE_BYTES = 1 << 20
LOOK_S = 0.5
SOON_S = 120.0
STEP_LIMIT_S = 300.0
SECTOR = Path(__file__).with_name("idle_sector.s")
BASE_IMAGE = "debian-12-generic-amd64.qcow2"  # what first-node.md calls it
OWN = "legacy1"  # the VM that was there before
OWN_DISK = f"/var/lib/libvirt/images/{OWN}.qcow2"
OWN_BUS = "/machine/peripheral/virtio-disk0/virtio-backend"
OWN_XML = f"""
<domain type="qemu">
  <name>{OWN}</name>
  <description>made before Trimtab came</description>
  <memory unit="MiB">64</memory>
  <vcpu>1</vcpu>
  <os><type arch="x86_64" machine="pc">hvm</type><boot dev="hd"/></os>
  <features><acpi/><apic/></features>
  <devices>
    <disk type="file" device="disk">
      <driver name="qemu" type="qcow2"/><source file="{OWN_DISK}"/><target dev="vda" bus="virtio"/>
    </disk>
    <serial type="pty"/>
  </devices>
</domain>
"""
EDITOR = """#!/usr/bin/python3
import json, pathlib, sys
file = pathlib.Path(sys.argv[1])
text = file.read_text()
edits = json.loads(pathlib.Path("/srv/edits.json").read_text())
for old, new in edits[file.name].items():
    assert old in text, f"{file} has no {old!r}"
    text = text.replace(old, new)
file.write_text(text)
"""
_CLOCK = SystemClock()


class Cluster:
    """Three machines with the packages in root's home, and a program `editor` that makes the changes of the plan."""

    def __init__(self, nodes: Mapping[str, Node], packages: Sequence[Path]) -> None:
        self.nodes = nodes
        sector = program(SECTOR)
        for node in nodes.values():
            for package in packages:
                node.put_home(package.name, package.read_bytes())
            edits = {file: _swapped_pairs(swaps, node.name) for file, swaps in plan.EDITS.items()}
            node.machine.put("/srv/edits.json", json.dumps(edits))
            node.machine.put("/usr/bin/editor", EDITOR, 0o755)
            node.put_home("sector.img", sector.ljust(IMAGE_BYTES, b"\0"))
            node.shell(f"qemu-img convert -f raw -O qcow2 sector.img {BASE_IMAGE}")

    def follow(self, *steps: Step) -> dict[str, str]:
        """Do what steps say, each on its machines at the same time; what the last one printed there."""
        printed: dict[str, str] = {}
        for step in steps:
            with ThreadPoolExecutor(len(step.on)) as pool:
                done = pool.map(self._do, repeat(step), [self.nodes[name] for name in step.on])
                printed = dict(zip(step.on, done, strict=True))
        return printed

    def _do(self, step: Step, node: Node) -> str:
        lines = [swapped(command.text, step.swaps, node.name) for command in plan.of_step(step)]
        try:
            return node.shell("\n".join(lines), limit_s=STEP_LIMIT_S)
        except AssertionError as error:
            raise AssertionError(f"{step.page}, {step.section}, on {node.name}: {error}") from None

    def say(self, span: Span, on: str = BROKER, swaps: Swaps | None = None, *, text: str = "") -> str:
        """Give a command of a page's text on a machine, with `text` as its input; what it printed."""
        command, given = pages.span(span.page, span.begins), swaps or {}
        assert all(old in command for old in given), f"{span.page}: {command!r} has not all of {[*given]}"
        return self.nodes[on].shell(swapped(command, given, on), text=text)

    def ask(self, *words: str) -> dict[str, Any]:
        """What a command of Trimtab's says in JSON."""
        command = shlex.join(["trimtab", *words, "--output", "json"])
        return dict(json.loads(self.nodes[BROKER].shell(command)))

    def job(self, name: str) -> dict[str, Any]:
        """What is known of a job."""
        return dict(self.ask("jobs", "show", name)["job"])

    def where(self, job: str) -> str:
        """The node on which the VM of a job runs; "" where it does not, or where something is done with it."""
        (instance,) = self.job(job)["instance_list"]
        at_rest = instance["state"] == "running" and not instance["action"]
        return str(instance["node"]) if at_rest else ""

    def node(self, name: str) -> dict[str, Any]:
        """The row of a node."""
        return next(row for row in self.ask("nodes", "list")["nodes"] if row["name"] == name)

    def is_managed(self, vm: str) -> bool | None:
        """Whether a VM is Trimtab's; None where no node has told of it."""
        return next((row["managed"] for row in self.ask("vms", "list")["vms"] if row["vm"] == vm), None)

    def alarms(self) -> set[str]:
        """What alarms are about."""
        return {alarm["what"] for alarm in self.ask("status")["alarms"]}

    def events(self) -> str:
        """What happened."""
        return self.nodes[BROKER].shell("trimtab events --since 1d")

    def pools(self, node: str) -> str:
        """Folders of storage pools that a node is known to have."""
        return self.nodes[BROKER].shell(f"trimtab nodes show {node} | grep -o 'storage=[^ ,]*'")

    def mark(self, number: int, node: str) -> None:
        """Write a marker to the disk of the operator's VM as its guest does: through its QEMU."""
        command = f'qemu-io -d {OWN_BUS} "write -P {number} {number}M 64k"'
        said = self.nodes[node].shell(shlex.join(["virsh", "qemu-monitor-command", OWN, "--hmp", command]))
        assert not said.strip() or "wrote" in said, said

    def see(self, number: int, node: str) -> None:
        """Find a marker on the disk, which may be in use: the firmware asks for no write cache, so that QEMU flushes
        each write, and the file has it."""
        said = self.nodes[node].shell(f"qemu-io -U -r -f qcow2 -c 'read -P {number} {number}M 64k' {OWN_DISK}")
        assert "read 65536/65536" in said, said
        assert "verification failed" not in said, said

    def make_own_vm(self) -> None:
        """On the first machine, as an operator did before there was Trimtab."""
        self.nodes[BROKER].put_home(f"{OWN}.xml", OWN_XML)
        self.nodes[BROKER].shell(
            f"""
            mkdir -p {Path(OWN_DISK).parent}
            cp {BASE_IMAGE} {OWN_DISK} && qemu-img resize {OWN_DISK} 64M
            virsh define {OWN}.xml
            virsh autostart {OWN}
            virsh start {OWN}
            """
        )

    def until(self, what: str, true: Callable[[], object], limit_s: float = SOON_S) -> None:
        """Wait for something."""
        until_s = _CLOCK.monotonic_s() + limit_s
        while not true():
            assert _CLOCK.monotonic_s() < until_s, f"not within {limit_s:.0f} s: {what}\n{self.logs()}"
            _CLOCK.sleep(LOOK_S)

    def logs(self) -> str:
        """The end of what the daemons have logged."""
        units = {name: ["trimtab-agent"] for name in self.nodes}
        units[BROKER] = ["trimtab-controller", *units[BROKER]]
        parts = [
            f"=== {unit} on {name}\n{self.nodes[name].machine.journal(unit)[-3_000:]}"
            for name, own in units.items()
            for unit in own
        ]
        return "\n".join(parts)


def swapped(text: str, swaps: Swaps, node: str) -> str:
    """A command with what is written otherwise on a machine. Raises AssertionError where it has nothing of it."""
    for old, new in _swapped_pairs(swaps, node).items():
        text = text.replace(old, new)
    return text


def _swapped_pairs(swaps: Swaps, node: str) -> dict[str, str]:
    return {old: new.replace("{node}", node) for old, new in swaps.items()}
