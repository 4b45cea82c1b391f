"""What this machine has, as far as the configuration does not say."""

from __future__ import annotations

import os
import re
from pathlib import Path

from agents.collectors.clock import base_clock_mhz
from shared.base.errors import InvalidInput, Problem
from shared.config.agent import ProcessKeys
from shared.values.nodes import Node

LABELS = ("process",)  # so that jobs can say that they need a program, not a VM


def node_of(name: str, keys: ProcessKeys, root: str = "/") -> Node:
    """Return the node as reported, before its type and reserve are applied. Raises InvalidInput if the clock has to be
    configured."""
    cores = keys.cores or len(cpus_of(keys.cpus)) or len(os.sched_getaffinity(0))
    cpu_model = _field(Path(root, "proc/cpuinfo"), "model name")
    memory_mib = keys.memory_mib
    if memory_mib is None:
        memory_mib = int(_field(Path(root, "proc/meminfo"), "MemTotal").split()[0]) // 1024
    core_mhz = keys.core_mhz or _clock_mhz(Path(root))
    programs = tuple(sorted(keys.programs))
    return Node(
        name,
        cores,
        core_mhz,
        memory_mib=memory_mib,
        labels=LABELS,
        cpu_model=cpu_model,
        abilities=(),
        templates=programs,
    )


def cpus_of(text: str) -> frozenset[int]:
    """Return the CPUs of a list such as "0-3,6"."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _clock_mhz(root: Path) -> float:
    base_mhz = base_clock_mhz(root)
    if base_mhz is not None:
        return base_mhz
    try:
        return float(_field(root / "proc/cpuinfo", "cpu MHz"))
    except ValueError:
        problem = Problem(
            "process.core_mhz", "is missing, and this machine does not report its clock rate", "MHz of a core"
        )
        raise InvalidInput(problem) from None


def _field(path: Path, name: str) -> str:
    """Return the first value of a name in a file of lines `name: value`; "" when there is none."""
    try:
        found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", path.read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else ""
