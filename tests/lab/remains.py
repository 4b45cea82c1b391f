"""Removes what labs have left whose runner and guardian were both killed: `python -m tests.lab.remains`.

Their processes and networks went with them; files and cgroups stay. Labs that live are left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.integration.debian import locked
from tests.lab import plan
from tests.lab.errors import LabError
from tests.lab.guardian import FIRST
from tests.lab.namespaces import processes_with
from tests.lab.partitions import Partitions, find_partitions, remove_group

SUFFIX = ".partition"


def remove_remains() -> tuple[str, ...]:
    """Remove what dead labs have left on this machine; their names."""
    with locked("lab-remains"):
        return tuple(name for name in sorted(set(_names())) if _remove_if_dead(name))


def remove_lab(name: str) -> None:
    """Remove everything of one lab: its hosts' processes, its cgroups, its folder. Raises LabError when they stay."""
    folder = plan.folder_of(name)
    hosts = (host for host in folder.glob("*") if host.is_dir())
    for pid in [pid for host in hosts for pid in processes_with(str(FIRST), str(host))]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    partitions = _partitions()
    for root in partitions.roots if partitions else ():
        remove_group(root / f"{name}{SUFFIX}")
    shutil.rmtree(folder, ignore_errors=True)


def _remove_if_dead(name: str) -> bool:
    folder = plan.folder_of(name)
    if plan.runs(name):
        return False
    with suppress(FileNotFoundError), (folder / plan.LOCK).open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # its guardian is about to remove it
            return False
    remove_lab(name)
    return True


def _names() -> Iterator[str]:
    """Of everything on this machine that is, or was, a lab."""
    partitions = _partitions()
    groups = (
        [group for root in partitions.roots for group in root.glob(f"{plan.PREFIX}-*{SUFFIX}")] if partitions else []
    )
    for path in [*plan.folder_of("x").parent.glob(f"{plan.PREFIX}-*"), *groups]:
        name = path.name.removesuffix(SUFFIX)
        if plan.NAME.fullmatch(name):
            yield name


def _partitions() -> Partitions | None:
    with suppress(LabError):
        return find_partitions()
    return None


def main() -> None:
    """Say what was removed."""
    for name in remove_remains():
        print(f"removed {Path(name)}")


if __name__ == "__main__":
    main()
