"""Definitions that owners made, as opaque text, and what libvirt keeps of a VM beside its definition.

Trimtab may change nothing of the text but its own element in `<metadata>`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

LABEL = '<t:vm xmlns:t="trimtab" generation="{}"/>'
_LABEL = re.compile(r'<t:vm xmlns:t="trimtab" generation="\d+"/>')
_ALONE = re.compile(rf"<metadata>{_LABEL.pattern}</metadata>")
NVRAM, SNAPSHOTS, MANAGED_SAVE = "nvram", "snapshots", "managed-save"
SHARED = ""  # in the place of a host


def labelled(text: str, generation: int) -> str:
    """Return a definition without a label with one: beside what its owner has in `<metadata>`, if there is that."""
    label = LABEL.format(generation)
    if "<metadata>" in text:
        return text.replace("<metadata>", f"<metadata>{label}", 1)
    return text.replace("</name>", f"</name><metadata>{label}</metadata>", 1)


def unlabelled(text: str) -> str:
    """Return a definition without its label; one that has none is returned as it is."""
    return _LABEL.sub("", _ALONE.sub("", text, count=1), count=1)


class Belongings:
    """What lies on the hosts of each VM beside its definition and its disks: the variables of its firmware (on storage
    that all hosts have where its disk is), snapshots, and its memory if its owner had it saved. `lived`: the VMs that
    have lived since."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], set[str]] = {}
        self.lived: set[str] = set()

    def make(self, vm: str, node: str, names: Collection[str], shared: bool) -> None:
        """Note what an owner has of a VM on a host. `shared`: all hosts see its firmware's variables."""
        for name in names:
            place = SHARED if shared and name == NVRAM else node
            self.kept.setdefault((vm, place), set()).add(name)
        self.lived.discard(vm)

    def of(self, vm: str, node: str) -> set[str]:
        """Return what a host sees of a VM's."""
        return self.kept.get((vm, node), set()) | self.kept.get((vm, SHARED), set())

    def comes_alive(self, vm: str, node: str) -> None:
        """Use up the memory that was saved, as libvirt does when a VM starts."""
        self.kept.get((vm, node), set()).discard(MANAGED_SAVE)
        self.lived.add(vm)

    def moves(self, vm: str, source: str, target: str) -> None:
        """Take the firmware's variables along, as QEMU does; the definition at the source goes with all that is kept
        with it."""
        gone = self.kept.pop((vm, source), set())
        if NVRAM in gone:
            self.kept.setdefault((vm, target), set()).add(NVRAM)

    def undefined(self, vm: str, node: str) -> None:
        """Remove what a host alone keeps with a definition that it removes."""
        self.kept.pop((vm, node), None)
