"""The first process of a host: makes its mounts, says so, and waits for whatever processes are left to it.

It is run by its path, without the packages of the tests: it takes the host's name and folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

READY = b"ready\n"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
OWN = ("group", "hosts", "hostname", "machine-id", "passwd", "resolv.conf")
BOUND = ("etc/libvirt", "etc/pki", "var/lib/libvirt", "var/cache/libvirt", "var/log/libvirt", "run")


def mount(*arguments: str) -> None:
    """Run mount(8)."""
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


def make_kernel_views(folder: Path) -> None:
    """/proc and /sys of the new namespaces. The cgroups, which a new /sys lacks, stay as they were."""
    mount("-t", "proc", "proc", "/proc")
    groups = folder / "groups"
    groups.mkdir(exist_ok=True)
    mount("--rbind", "/sys/fs/cgroup", str(groups))
    mount("-t", "sysfs", "sysfs", "/sys")
    mount("--rbind", str(groups), "/sys/fs/cgroup")
    mount("--make-private", str(groups))
    subprocess.run(["umount", "--recursive", "--lazy", str(groups)], check=True)


def make_disk(folder: Path) -> None:
    """/etc is the machine's with the host's own files in it; what libvirt keeps is the host's own."""
    layers = folder / "layers"
    layers.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=16m,mode=755", "trimtab-lab", str(layers))
    for name in ("upper", "work"):
        (layers / name).mkdir()
    mount("-t", "overlay", "trimtab-lab", "-o", f"lowerdir=/etc,upperdir={layers}/upper,workdir={layers}/work", "/etc")
    for name in OWN:
        with suppress(FileNotFoundError):
            Path("/etc", name).unlink()  # it may be a link to somewhere else
        shutil.copy(folder / "etc" / name, Path("/etc", name))
    for name in BOUND:
        Path("/", name).mkdir(parents=True, exist_ok=True)
        mount("--bind", str(folder / name), f"/{name}")


def make_boot_id(folder: Path) -> None:
    """Each time the host gets power is a boot of its own."""
    file = folder / "run/boot_id"
    file.write_text(f"{uuid.uuid4()}\n", "ascii")
    mount("--bind", str(file), BOOT_ID)


def main() -> None:
    """Become the host."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    name, folder = sys.argv[1], Path(sys.argv[2])
    socket.sethostname(name)
    make_kernel_views(folder)
    make_disk(folder)
    make_boot_id(folder)
    os.chdir("/")
    os.write(1, READY)
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main()
