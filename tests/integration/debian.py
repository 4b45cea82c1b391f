"""What tests need of Debian: programs that are installed where that is possible, and what becomes of a test where it is
not."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

INSTALL_S = 600.0
LIBVIRT_REQUIREMENT = "libvirt-python>=9.0"  # as the extra `libvirt`
LIBVIRT_HEADER = "/usr/include/libvirt/libvirt.h"
LIBVIRT_PACKAGES = ("libvirt-dev", "pkg-config", "gcc", "libc6-dev", "python3-dev")
# What runs a command with mounts and processes of its own, all of which end with this thread.
OWN = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"),
)


def go_without(reason: str) -> NoReturn:
    """Skip the test, or fail it when CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def need_root(what: str) -> None:
    """Skip the test, or fail it when CI=true, unless it runs as root; `what` needs that."""
    if os.geteuid() != 0:
        go_without(f"{what} needs root")


def need_programs(programs: Sequence[str], packages: Sequence[str]) -> None:
    """Skip the test, or fail it when CI=true, unless these programs are there, or could be installed."""
    reason = missing(lambda: all(shutil.which(program) for program in programs), packages)
    if reason:
        go_without(reason)


def need_libvirt_module() -> None:
    """Skip the test, or fail it when CI=true, unless the Python module libvirt is there, or could be made: it has no
    wheels, and is compiled for the libvirt that is here."""

    def present() -> bool:
        importlib.invalidate_caches()
        return importlib.util.find_spec("libvirt") is not None

    if present():
        return
    reason = missing(lambda: Path(LIBVIRT_HEADER).exists(), LIBVIRT_PACKAGES)
    if not reason:
        with locked("pip"):
            if not present():
                command = [sys.executable, "-m", "pip", "install", "--quiet", LIBVIRT_REQUIREMENT]
                done = subprocess.run(command, capture_output=True, timeout=INSTALL_S, check=False)
                reason = (
                    "" if present() else f"{' '.join(command)} failed: {done.stderr.decode(errors='replace')[-500:]}"
                )
    if reason:
        go_without(reason)


def missing(present: Callable[[], bool], packages: Sequence[str]) -> str:
    """Why something is not there, "" when it is; installs what it comes with where that is possible."""
    if present():
        return ""
    wanted = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"not installed: {wanted} (Debian: apt-get install {wanted})"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with locked("apt"):
        if not present():
            for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
                whole = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *command]
                done = subprocess.run(whole, env=environment, capture_output=True, timeout=INSTALL_S, check=False)
                if done.returncode:
                    return f"{' '.join(whole)} failed: {done.stderr.decode(errors='replace')[-500:]}"
    return "" if present() else f"{wanted} was installed but its programs are not where they should be"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process of this machine at a time."""
    with (Path(tempfile.gettempdir()) / f"trimtab-{os.getuid()}-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
