"""What the runner of a lab and its guardian must agree on: names, folders, messages."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

PREFIX = "trimtab-lab"
NAME = re.compile(rf"{PREFIX}-(\d+)-(\d+)-(\d+)")
PLAN = "plan.json"
LOCK = "lock"  # held by the guardian as long as it lives
SOCKET = "guardian.sock"
FIRST = "first"  # in a host's folder: the machine's id of the host's first process, while the host has power
LIBVIRTD = "libvirtd"  # likewise of its libvirtd, while that runs
KEPT = ("etc/libvirt", "etc/pki", "var/lib/libvirt", "var/cache/libvirt", "var/log/libvirt")  # a host's disk
LOST = "run"  # what a host loses with its power


@dataclass(frozen=True, slots=True)
class HostPlan:
    """A host as the guardian makes it. `cpus`: how many of the machine's CPUs its guests get together."""

    name: str
    address: str
    partition: str
    cpus: float
    arguments: tuple[str, ...]  # of libvirtd


@dataclass(frozen=True, slots=True)
class LabPlan:
    """A lab as the guardian makes it."""

    name: str
    hosts: tuple[HostPlan, ...]

    def write(self, folder: Path) -> None:
        """Keep it in the lab's folder."""
        (folder / PLAN).write_text(json.dumps(asdict(self)), "utf-8")


def read(folder: Path) -> LabPlan:
    """The plan of the lab in a folder."""
    fields = json.loads((folder / PLAN).read_text("utf-8"))
    hosts = (HostPlan(**{**host, "arguments": tuple(host["arguments"])}) for host in fields["hosts"])
    return LabPlan(fields["name"], tuple(hosts))


def started_ticks(pid: int) -> int:
    """When a process began, in ticks since the machine's boot: with its id this names it for good. 0: it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def new_name(number: int) -> str:
    """Of this process's lab `number`: 1, 2, ..."""
    return f"{PREFIX}-{os.getpid()}-{started_ticks(os.getpid())}-{number}"


def runs(name: str) -> bool:
    """Whether the process that made a lab of this name still lives."""
    found = NAME.fullmatch(name)
    return found is not None and started_ticks(int(found[1])) == int(found[2]) > 0


def folder_of(name: str) -> Path:
    """Where everything of a lab is: a short path, since a socket's path has at most 107 characters."""
    return Path(tempfile.gettempdir()) / name
