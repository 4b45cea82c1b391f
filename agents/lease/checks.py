"""Whether this host can have a lease as its configuration says: the folder with its mark, and the device."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from agents.lease import folder
from agents.lease.folder import MARK, FolderUnusable
from shared.base.errors import InvalidInput, Problem
from shared.config.agent import LeaseKeys

LIMIT_S = 5.0
DEVICES = "/dev/"
CLASS = "/sys/class/watchdog"


def check_host(keys: LeaseKeys, limit_s: float = LIMIT_S, devices: str = CLASS) -> None:
    """Raise InvalidInput with what is missing on this host; nothing is checked without a folder. `devices`: the folder
    in which the kernel lists its watchdogs."""
    if not keys.folder:
        return
    problems = [*_folder_problems(keys.folder, limit_s), *_device_problems(keys.watchdog, devices)]
    if problems:
        raise InvalidInput(*problems)


def _folder_problems(path: str, limit_s: float) -> list[Problem]:
    why: list[str] = []

    def look() -> None:
        try:
            folder.check(path)
            why.append("")
        except FolderUnusable as error:
            why.append(str(error))

    # In a thread, since storage that is away may never answer.
    thread = threading.Thread(target=look, name="lease folder", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not why:
        return [Problem("lease.folder", f"{path} does not answer within {limit_s:g} s", "storage that is there")]
    return [Problem("lease.folder", why[0], f"a folder on shared storage with the file {MARK}")] if why[0] else []


def _device_problems(path: str, devices: str) -> list[Problem]:
    # A unit with PrivateDevices= sees no watchdog in /dev, and the kernel's list of them all the same.
    name = path.removeprefix(DEVICES)
    listed = path.startswith(DEVICES) and (Path(devices) / ("watchdog0" if name == "watchdog" else name)).exists()
    if os.path.exists(path) or listed:
        return []
    expected = "a watchdog device: load the driver of this machine's watchdog, or softdog"
    return [Problem("lease.watchdog", f"{path} is not there", expected)]
