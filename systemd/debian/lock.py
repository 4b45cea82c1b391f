"""Write the lock files of the packages: `make lock`, which installs uv for it.

Each file in locks/ names every distribution of one environment, with its version and the hashes of what Python 3.11 and
3.13 (Debian 12 and 13) on amd64 and arm64 may install of it: its wheels, or its source where there are none. All files
have the same versions. What is resolved comes from setup.cfg and pyproject.toml; see docs/adr/0029-supply-chain.md.
"""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).resolve().parent / "locks"
# The extras of each environment; `systemd/debian/build` installs them.
SETS = {
    "agent": ("libvirt",),
    "trimtab": ("controller", "postgresql"),
    "portal": ("controller", "postgresql", "portal"),
}
RELEASES = (((3, 11), 36), ((3, 13), 41))  # Python and the minor version of glibc 2, of Debian 12 and 13
MACHINES = ("x86_64", "aarch64")
OLDEST_GLIBC_MINOR = 5
HEADER = """# Made by `make lock` from {source}; not to be edited.
# {what}
"""


def requirements(extras: tuple[str, ...]) -> list[str]:
    """What setup.cfg asks for, without extras and with these; extras of our own that they name are followed."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    wanted, seen, names = config["options"]["install_requires"].splitlines(), set[str](), list(extras)
    while names:
        name = names.pop()
        if name not in seen:
            seen.add(name)
            wanted += config["options.extras_require"][name].splitlines()
        names += [line[len("trimtab[") : -1] for line in wanted if line.startswith("trimtab[")]
        wanted = [line for line in wanted if not line.startswith("trimtab[")]
    return sorted({line for line in wanted if line})


def build_requirements() -> list[str]:
    """What pyproject.toml asks for to build with."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"])


def resolve(wanted: list[str], versions: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """The distributions that uv resolves these to, at `versions` where it names them, with all files of each."""
    asked, bounds, found = folder / "wanted.in", folder / "versions.in", folder / "pylock.toml"
    asked.write_text("".join(f"{line}\n" for line in wanted))
    bounds.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    words = ["pip", "compile", "--quiet", "--universal", "--fork-strategy=fewest", "--python-version=3.11", "--upgrade"]
    words += ["--no-config", f"--constraint={bounds}", "--format=pylock.toml", f"--output-file={found}", str(asked)]
    subprocess.run([str(Path(sys.executable).with_name("uv")), *words], check=True, env=_environment())
    resolved: list[dict[str, Any]] = tomllib.loads(found.read_text("utf-8"))["packages"]
    return resolved


def _environment() -> dict[str, str]:
    """With the index that pip is configured for: uv does not read pip's files."""
    words = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return ({"UV_DEFAULT_INDEX": said} if said else {}) | os.environ


def tags() -> Iterator[frozenset[Tag]]:
    """What wheels may be tagged with, for each of our releases and machines."""
    for python, glibc_minor in RELEASES:
        for machine in MACHINES:
            old = ("manylinux1", "manylinux2010", "manylinux2014")
            new = tuple(f"manylinux_2_{minor}" for minor in range(OLDEST_GLIBC_MINOR, glibc_minor + 1))
            platforms = [f"{name}_{machine}" for name in (*new, *old, "linux")]
            own = cpython_tags(python, platforms=platforms)
            yield frozenset([*own, *compatible_tags(python, f"cp{python[0]}{python[1]}", platforms)])


def hashes(package: dict[str, Any], usable: Sequence[frozenset[Tag]]) -> list[str]:
    """The SHA-256 digests of the wheels that are of use, or of the source where there are none."""
    wheels = {
        wheel["hashes"]["sha256"]: parse_wheel_filename(wheel.get("name") or wheel["url"].rpartition("/")[2])[3]
        for wheel in package.get("wheels", ())
    }
    if not wheels:
        return [package["sdist"]["hashes"]["sha256"]]
    if not all(any(tagged & fit for tagged in wheels.values()) for fit in usable):
        raise SystemExit(f"{package['name']} {package['version']} has wheels, but not for all releases and machines")
    return sorted(digest for digest, tagged in wheels.items() if any(tagged & fit for fit in usable))


def marker(package: dict[str, Any]) -> str | None:
    """When it is needed: "" for always, None for never on our releases."""
    if "marker" not in package:
        return ""
    needed = {
        Marker(package["marker"]).evaluate(
            {
                "implementation_name": "cpython",
                "os_name": "posix",
                "platform_machine": machine,
                "platform_python_implementation": "CPython",
                "platform_system": "Linux",
                "python_full_version": f"{python[0]}.{python[1]}.0",
                "python_version": f"{python[0]}.{python[1]}",
                "sys_platform": "linux",
            }
        )
        for python, _ in RELEASES
        for machine in MACHINES
    }
    if needed == {True}:
        return ""
    return str(package["marker"]) if True in needed else None


def text(packages: list[dict[str, Any]], source: str, what: str, usable: Sequence[frozenset[Tag]]) -> str:
    """A lock file."""
    lines = [HEADER.format(source=source, what=what)]
    for package in sorted(packages, key=lambda one: str(one["name"])):
        when = marker(package)
        if when is not None:
            head = f"{package['name']}=={package['version']}" + f" ; {when}" * bool(when)
            lines.append(" \\\n    ".join([head, *(f"--hash=sha256:{digest}" for digest in hashes(package, usable))]))
    return lines[0] + "\n".join(lines[1:]) + "\n"


def main() -> None:
    """Write all files."""
    usable = list(tags())
    LOCKS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        everything = requirements(tuple({extra for extras in SETS.values() for extra in extras}))
        versions = {one["name"]: one["version"] for one in resolve(everything, {}, folder)}
        for name, extras in SETS.items():
            found = resolve(requirements(extras), versions, folder)
            what = f"What Trimtab needs with {', '.join(f'[{extra}]' for extra in extras)}."
            (LOCKS / f"{name}.txt").write_text(text(found, "setup.cfg", what, usable))
        found = resolve(build_requirements(), {}, folder)
        (LOCKS / "build.txt").write_text(text(found, "pyproject.toml", "What builds Trimtab's wheel.", usable))


if __name__ == "__main__":
    main()
