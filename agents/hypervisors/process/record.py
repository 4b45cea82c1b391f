"""The on-disk record of each program, by which a restarted agent finds it again."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from shared.base.errors import TransientError
from shared.values.vms import VmSpec, VmState, VmStatus

FILE = "record.json"


@dataclass(frozen=True, slots=True)
class Usage:
    """The cumulative usage of a program and everything that it has started. disk_time_s: how long they have waited for
    the disk (0 where the kernel does not report it)."""

    cpu_time_s: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    disk_time_s: float = 0.0

    def since(self, before: Usage) -> Usage:
        """Return the usage since an earlier reading."""
        return Usage(
            max(0.0, self.cpu_time_s - before.cpu_time_s),
            max(0, self.read_bytes - before.read_bytes),
            max(0, self.written_bytes - before.written_bytes),
            max(0.0, self.disk_time_s - before.disk_time_s),
        )


@dataclass(frozen=True, slots=True)
class Record:
    """The desired state of a program: an agent that finds a difference corrects it. `begun`: it was started. `before`:
    usage of its earlier generations; `used`: total usage when it ended."""

    vm: str
    boot_id: str
    state: VmState
    generation: int
    attempt: int
    memory_mib: int
    vcpus: int
    cpu_mhz: float
    cap_mhz: float | None = None
    managed: bool = True
    begun: bool = False
    before: Usage = Usage()
    used: Usage = Usage()

    @classmethod
    def of(cls, spec: VmSpec, boot_id: str, state: VmState, generation: int) -> Record:
        """Return the record of a program to be started."""
        size = spec.memory_mib, spec.vcpus, spec.cpu_mhz, spec.cap_mhz
        return cls(spec.vm, boot_id, state, generation, spec.attempt, *size)

    def status(self, usage: Usage, busy: str, address: str) -> VmStatus:
        """Return the VM's status for reports, with its usage since it came to life as this generation."""
        state = VmState.INCOMING if busy and not self.begun else self.state
        own = usage.since(self.before)
        return VmStatus(
            vm=self.vm,
            state=state,
            generation=self.generation,
            attempt=self.attempt,
            memory_mib=self.memory_mib,
            vcpus=self.vcpus,
            cpu_mhz=self.cpu_mhz,
            cpu_time_s=own.cpu_time_s,
            disk_read_bytes=own.read_bytes,
            disk_write_bytes=own.written_bytes,
            busy=busy,
            managed=self.managed,
            address=address,
            disk_time_s=own.disk_time_s,
        )


def write(folder: Path, record: Record) -> None:
    """Put a record into the folder of its program in one step. Raises TransientError when that cannot be."""
    write_json(folder / FILE, asdict(record))


def write_json(path: Path, value: Any) -> None:
    """Replace a file, which programs may read, in one step. Raises TransientError when that cannot be."""
    new = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o755)
        new.write_text(json.dumps(value), encoding="utf-8")
        new.chmod(0o644)
        os.replace(new, path)
    except OSError as error:
        raise TransientError(f"{path} cannot be written: {error.strerror}") from error


def read(folder: Path) -> Record | None:
    """Read the record in a folder; None if there is none that can be parsed."""
    try:
        found = json.loads((folder / FILE).read_text("utf-8"))
        known = {field.name for field in fields(Record)}
        if not isinstance(found, dict) or set(found) != known:
            return None
        return replace(
            Record(**found), state=VmState(found["state"]), before=Usage(**found["before"]), used=Usage(**found["used"])
        )
    except (OSError, ValueError, TypeError, RecursionError):
        return None
