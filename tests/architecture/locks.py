"""The lock files of the Debian packages, as tests and the tests' builders read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.sources import ROOT

FOLDER = ROOT / "systemd/debian/locks"
# The extras of each environment that `systemd/debian/build` makes.
SETS: Mapping[str, tuple[str, ...]] = {
    "agent": ("libvirt",),
    "trimtab": ("controller", "postgresql"),
    "portal": ("controller", "postgresql", "portal"),
}
OWN = "trimtab"
PYTHONS = ("3.11", "3.13")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A distribution in a lock file. `text`: its lines, as they are."""

    requirement: Requirement
    hashes: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        """As indexes have it."""
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        """The one version, "" where another one would do, too."""
        (specifier,) = self.requirement.specifier or [None]
        return specifier.version if specifier is not None and specifier.operator == "==" else ""


def read(text: str) -> list[Entry]:
    """The entries of a lock file. Raises ValueError where it has anything but distributions, hashes and comments."""
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    found = []
    for block in re.findall(r"^\S.*(?:\n[ \t].*)*\n", lines, re.MULTILINE):
        head, *rest = (part.strip() for part in block.replace("\\\n", "\n").strip().split("\n"))
        if wrong := [part for part in rest if not HASH.fullmatch(part)]:
            raise ValueError(f"{head}: {wrong[0]!r} is no SHA-256 hash")
        found.append(Entry(Requirement(head), tuple(rest), block))
    if "".join(entry.text for entry in found) != lines:
        raise ValueError("has lines that belong to no distribution")
    return found


def locked(name: str) -> list[Entry]:
    """The entries of one of the lock files."""
    return read((FOLDER / f"{name}.txt").read_text("utf-8"))


def everything() -> dict[str, Entry]:
    """The entries of all lock files by name; each distribution has one version."""
    return {entry.name: entry for name in (*SETS, "build") for entry in locked(name)}


def wanted(config: ConfigParser, extras: Iterable[str]) -> Iterator[Requirement]:
    """What setup.cfg asks for with these extras, those of extras of our own included."""
    texts = [config["options"]["install_requires"], *(config["options.extras_require"][name] for name in extras)]
    for line in "\n".join(texts).split("\n"):
        if line.strip():
            requirement = Requirement(line)
            if requirement.name == OWN:
                yield from wanted(config, sorted(requirement.extras))
            else:
                yield requirement


def gaps(requirements: Iterable[Requirement], entries: Iterable[Entry], extras: Iterable[str] = ("",)) -> list[str]:
    """What is asked for and not locked, or locked at a version that does not do. Extras of others count as what they
    bring: see `brought`."""
    by_name = {entry.name: entry for entry in entries}
    found = []
    for requirement in requirements:
        entry = by_name.get(canonicalize_name(requirement.name))
        if not needed(requirement, extras):
            continue
        if entry is None:
            found.append(f"{requirement} is not locked")
        elif not requirement.specifier.contains(entry.version, prereleases=True):
            found.append(f"{requirement} is locked at {entry.version}")
    return found


def needed(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Whether a Debian of ours needs it, for any of these extras of who asks."""
    if requirement.marker is None:
        return True
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    return any(
        requirement.marker.evaluate(
            {**linux, **cpython, "extra": extra, "python_version": python, "python_full_version": f"{python}.0"}
        )
        for extra in extras
        for python in PYTHONS
    )
