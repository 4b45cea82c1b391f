"""A Debian in a folder, for machines that have nothing of this one: made once and kept below /var/cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.integration import debian

SUITE = "bookworm"
SUITES = ("bookworm", "trixie")
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    *("systemd", "systemd-sysv", "libpam-systemd", "dbus", "polkitd"),
    *("python3", "libvirt0", "man-db", "ca-certificates"),
)
CACHE = Path("/var/cache/trimtab-tests")
MAKE_S = 900.0
SAID = 500  # characters


def debian_root(suite: str = SUITE, packages: Sequence[str] = PACKAGES) -> Path:
    """The folder of a release with some of its packages, which everybody leaves as it is. Skips the test, or fails it
    when CI=true, without one."""
    debian.need_root("a Debian of its own")
    debian.need_programs(["debootstrap", "setpriv", "unshare"], ["debootstrap", "util-linux"])
    key = hashlib.sha256(" ".join((suite, *packages)).encode()).hexdigest()[:12]
    made = CACHE / f"{suite}-{key}"
    with debian.locked("debian-root"):
        if not made.exists():
            _make(made, suite, packages)
    return made


def _make(made: Path, suite: str, packages: Sequence[str]) -> None:
    part = made.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, str(part), mirror()]
    done = subprocess.run([*debian.OWN, *words], capture_output=True, text=True, timeout=MAKE_S, check=False)
    if done.returncode:
        shutil.rmtree(part, ignore_errors=True)
        debian.go_without(f"{' '.join(words)}: {(done.stdout + done.stderr)[-SAID:]}")
    for archive in (part / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    part.rename(made)


def mirror() -> str:
    """Where this machine has its own Debian from, which has the other releases, too; else Debian's own address."""
    asked = ["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60.0, check=False).stdout
    lines = (line.split() for line in said.splitlines())
    return next((words[2].rstrip("/") for words in lines if words[0] in SUITES and words[1] == "main"), MIRROR)
