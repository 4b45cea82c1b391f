"""Installs packages with apt from the host's own sources: apt checks their signatures, this the digests of the files.

Nothing is installed before every file is here, is what was asked for, and apt has said what else would happen.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.helper.errors import Failure, Refusal
from agents.helper.policy import Policy
from agents.helper.request import PackageRequest

ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "l",
}
OUTPUT_CHARS_MAX = 1_000
FILE_BYTES_MAX = 4 << 30
CHUNK_BYTES = 1 << 20
OPTIONS = ("-q", "-o", "DPkg::Lock::Timeout=60", "-o", "APT::Install-Recommends=false", "-o", "APT::Sandbox::User=_apt")
INSTALL = ("-y", "--no-remove", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
WOULD = re.compile(r"^(Inst|Remv) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Installed:
    """What has been installed now, and what was there already, each NAME=VERSION."""

    installed: tuple[str, ...]
    present: tuple[str, ...]


def install(
    wanted: Sequence[PackageRequest], policy: Policy, folder: Path, variables: Mapping[str, str] = ENVIRONMENT
) -> Installed:
    """Have these packages installed; `folder`, root's alone, is where their files are kept meanwhile. Raises Refusal
    while nothing has been changed, else Failure."""
    apt = Apt(folder, variables)
    present = {package.name: version for package in wanted if (version := apt.present(package))}
    missing = [package for package in wanted if package.name not in present]
    there = tuple(f"{name}={version}" for name, version in present.items())
    if not missing:
        return Installed((), there)
    try:
        apt.clear()
        files = {package.name: apt.fetched(package, policy.update) for package in missing}
        apt.mend()
        inst, remv = apt.would(list(files.values()))
        if remv:
            raise Refusal(f"would remove {', '.join(sorted(remv))}")
        policy.check_others(inst - set(files))
        apt.install(list(files.values()))
    finally:
        apt.clear()
    return Installed(tuple(f"{package.name}={apt.version(package.name)}" for package in missing), there)


class Apt:
    """apt and dpkg, run without a shell in an environment of their own."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self._partial, self._kept = folder / "partial", folder / "kept"

    def clear(self) -> None:
        """Remove the files of packages."""
        for folder in (self._partial, self._kept):
            if folder.exists():
                shutil.rmtree(folder)

    def version(self, name: str) -> str:
        """Return the full version that is installed; "" when none is."""
        asked = self._run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}|${Version}", name)
        status, _, version = asked.stdout.partition("|")
        return version if asked.returncode == 0 and status.strip() == "ii" else ""

    def present(self, package: PackageRequest) -> str:
        """Return the installed version if it is the requested one, else "". If a source still has that version, its
        digest must match too; otherwise the version alone decides."""
        version = self.version(package.name)
        if not version or package.version not in ("", version):
            return ""
        known = self._run("apt-cache", "show", "--no-all-versions", f"{package.name}={version}").stdout
        digest = re.search(r"^SHA256: ([0-9a-f]{64})$", known, re.MULTILINE)
        if digest is None:
            return version if package.version else ""
        return version if digest[1] == package.sha256 else ""

    def fetched(self, package: PackageRequest, update: bool) -> str:
        """Download and check the package's file; return its path, where the download user has no access."""
        name = f"{package.name}={package.version}" if package.version else package.name
        got = self._download(name)
        if got.returncode and update:
            self._run("apt-get", *OPTIONS, "update")
            got = self._download(name)
        files = sorted(self._partial.glob("*.deb"))
        if got.returncode or len(files) != 1:
            raise Refusal(f"{name} cannot be had from the host's sources: {_said(got)}")
        self._kept.mkdir(mode=0o700, exist_ok=True)
        kept = self._kept / f"{package.name}.deb"
        found = _moved(files[0], kept)
        shutil.rmtree(self._partial)
        if found != package.sha256:
            raise Refusal(f"{name} has the SHA-256 digest {found}, not {package.sha256}")
        inside = self._run("dpkg-deb", "-f", str(kept), "Package").stdout.strip()
        if inside != package.name:
            raise Refusal(f"the file of {name} is a package {inside!r}")
        return str(kept)

    def mend(self) -> None:
        """Let dpkg finish what an earlier run was interrupted in."""
        if self._run("dpkg", "--audit").stdout.strip():
            self._run("dpkg", "--configure", "-a")

    def would(self, files: Sequence[str]) -> tuple[set[str], set[str]]:
        """Return the packages that would be installed and removed. Raises Refusal if that cannot be determined."""
        asked = self._run("apt-get", *OPTIONS, *INSTALL[:2], "--simulate", "install", *files)
        if asked.returncode:
            raise Refusal(f"cannot be installed: {_said(asked)}")
        found = WOULD.findall(asked.stdout)
        names = {kind: {name.split(":")[0] for which, name in found if which == kind} for kind in ("Inst", "Remv")}
        return names["Inst"], names["Remv"]

    def install(self, files: Sequence[str]) -> None:
        """Install files of packages, with what they depend on. Raises Failure."""
        done = self._run("apt-get", *OPTIONS, *INSTALL, "install", *files)
        if done.returncode:
            raise Failure(f"apt-get failed: {_said(done)}")

    def _download(self, name: str) -> subprocess.CompletedProcess[str]:
        """Into an empty folder that apt's own user may write."""
        if self._partial.exists():
            shutil.rmtree(self._partial)
        self._partial.mkdir(mode=0o700)
        shutil.chown(self._partial, "_apt")
        return self._run("apt-get", *OPTIONS, "download", name, cwd=str(self._partial))

    def _run(self, *command: str, cwd: str = "/") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=cwd,
            env=self._variables,
            umask=0o022,
        )


def _moved(source: Path, target: Path) -> str:
    """Copy a file to where nobody else can reach it; returns the digest of the copy."""
    digest = hashlib.sha256()
    size = 0
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as read, target.open("xb") as write:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Refusal(f"{source.name} is no file")
        while chunk := read.read(CHUNK_BYTES):
            size += len(chunk)
            if size > FILE_BYTES_MAX:
                raise Refusal(f"{source.name} is larger than {FILE_BYTES_MAX >> 30} GiB")
            digest.update(chunk)
            write.write(chunk)
    return digest.hexdigest()


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the end of a program's output, on one line."""
    return " ".join((done.stderr.strip() or done.stdout.strip()).split())[-OUTPUT_CHARS_MAX:]
