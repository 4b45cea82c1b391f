"""The Debian packages, built from this tree for a release; and the next version of them, whose store and messages are
one step newer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from daemons.store.schema import SCHEMA
from tests.architecture import locks
from tests.integration import debian
from tests.integration.debian_root import debian_root

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("trimtab", "trimtab-agent", "trimtab-controller", "trimtab-portal")
PYTHON = {"bookworm": "3.11", "trixie": "3.13"}  # the release's own
TOOLS = ("python3", "python3-venv", "python3-dev", "gcc", "libc6-dev", "pkg-config", "libvirt-dev")
BUILD_LIMIT_S = 900.0
NEXT = "99.0.0"
FAST = "-Zxz -z0"  # a package that is thrown away need not be small
PLATFORMS = ("manylinux_2_17_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64")
MIGRATION = """
revision = "{revision}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade():
    from alembic import op
    import sqlalchemy as sa

    op.add_column("nodes", sa.Column("remark", sa.Text))
"""
# What another release builds in: its own files, with this tree, the wheels and the folder for the packages.
ELSEWHERE = """set -e
mount -t tmpfs -o size=4g trimtab-build "$1"
mkdir "$1/upper" "$1/work" "$1/system"
mount -t overlay trimtab-build -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/system"
mkdir "$1/system/source" "$1/system/wheels" "$1/system/made"
mount --bind "$3" "$1/system/source"
mount --bind "$4" "$1/system/wheels"
mount --bind "$5" "$1/system/made"
mount -t proc proc "$1/system/proc"
exec chroot "$1/system" /source/systemd/debian/build /made
"""

Packages = Mapping[str, Path]


def build(folder: Path, suite: str) -> Packages:
    """Build the packages of this tree for a release, as `make deb` does there; returns the files by name. Skips the
    test, or fails it when CI=true, where that is not possible."""
    folder.mkdir(parents=True, exist_ok=True)
    if suite == _own_suite():
        settings = {"WHEELS": str(ROOT / "out/deb/.wheels"), "COMPRESSION": FAST}
        words = [str(ROOT / "systemd/debian/build"), str(folder)]
        _run(words, {**os.environ, **settings})
    else:
        _build_elsewhere(folder, suite)
    return {name: next(iter(folder.glob(f"{name}_*.deb"))) for name in NAMES}


def _own_suite() -> str:
    lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    return next((line.split("=")[1].strip('"') for line in lines if line.startswith("VERSION_CODENAME=")), "")


def _run(words: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        words,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]


def _build_elsewhere(folder: Path, suite: str) -> None:
    root = debian_root(suite, TOOLS)
    wheels = ROOT / "out/deb" / f".wheels-{suite}"
    wheels.mkdir(parents=True, exist_ok=True)
    _fetch(wheels, PYTHON[suite], folder)
    place = folder / "place"
    place.mkdir()
    stamp = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "WHEELS": "/wheels",
        "COMPRESSION": FAST,
        "SOURCE_DATE_EPOCH": stamp,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/wheels",
    }
    script = [*map(str, (place, root, ROOT, wheels, folder))]
    _run([*debian.OWN, "sh", "-c", ELSEWHERE, "sh", *script], environment)
    place.rmdir()


def _fetch(wheels: Path, python: str, folder: Path) -> None:
    """Fetch what the packages hold of others, for another Python: the release's builder has no network."""
    entries = locks.everything()
    source = folder / "source.txt"
    source.write_text(entries.pop("libvirt-python").text)
    wanted = folder / "wheels.txt"
    wanted.write_text("".join(entry.text for entry in entries.values()))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels), "--find-links", str(wheels)]
    pip += ["--no-deps", "--require-hashes"]
    of_python = [f"--python-version={python}", "--implementation=cp", f"--abi=cp{python.replace('.', '')}"]
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    binary = [*of_python, "--abi=abi3", "--abi=none", *platforms, "--only-binary=:all:"]
    _run([*pip, *binary, f"--requirement={wanted}"], os.environ)
    if not list(wheels.glob("libvirt?python-*")):
        debian.need_libvirt_module()  # its source is asked for its requirements, for which it looks at libvirt
        _run([*pip, "--no-binary=:all:", f"--requirement={source}"], os.environ)
    source.unlink()
    wanted.unlink()


def newer(packages: Packages, folder: Path) -> Packages:
    """The packages as their next version: another number, tables of the next version, and results of actions of the
    next version, which still reads those of the one before."""
    return {name: _newer(name, package, folder) for name, package in packages.items()}


def _newer(name: str, package: Path, folder: Path) -> Path:
    tree = folder / f"next-{name}"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(tree)], check=True, timeout=BUILD_LIMIT_S)
    old = package.name.split("_")[1].split("+")[0]
    for script in ("control", "preinst"):
        if (tree / "DEBIAN" / script).exists():
            changed(tree / "DEBIAN" / script, lambda text: text.replace(old, NEXT))
    for site in (tree / "usr/lib" / name / "lib").glob("python3*/site-packages"):
        for info in site.glob("trimtab-*.dist-info"):
            changed(info / "METADATA", lambda text: text.replace(f"\nVersion: {old}\n", f"\nVersion: {NEXT}\n"))
            info.rename(site / f"trimtab-{NEXT}.dist-info")
            changed(site / "shared/protocol/messages.py", _next_result)
        if (site / "daemons").exists():
            tables = site / "daemons/store/schema.py"
            changed(tables, lambda text: text.replace(f"SCHEMA = {SCHEMA}", f"SCHEMA = {SCHEMA + 1}"))
            step = site / f"daemons/store/migrations/versions/v{SCHEMA + 1:04}_next.py"
            step.write_text(MIGRATION.format(revision=SCHEMA + 1, before=SCHEMA))
    made = folder / f"{name}_{NEXT}.deb"
    words = ["dpkg-deb", "--root-owner-group", *FAST.split(), "--build", str(tree), str(made)]
    subprocess.run(words, check=True, timeout=BUILD_LIMIT_S, stdout=subprocess.DEVNULL)
    return made


def _next_result(text: str) -> str:
    """The messages with results of version 2, which may have fields more."""
    head, result, tail = re.split(r"(?m)^(?=class (?:Result|SleepAnswer):)", text, maxsplit=2)
    return head + result.replace("VERSION: ClassVar[int] = 1", "VERSION: ClassVar[int] = 2") + tail


def changed(file: Path, change: Callable[[str], str]) -> None:
    """Change a file; what leaves it as it is was not meant for it."""
    before = file.read_text("utf-8")
    after = change(before)
    assert after != before, f"{file} is not as expected"
    file.write_text(after, "utf-8")
