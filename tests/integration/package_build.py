"""The Debian package, built from this tree; and the next version of it, whose store and messages are one step newer."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from daemons.store.schema import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
BUILD_LIMIT_S = 600.0
NEXT = "99.0.0"
FAST = "-Zzstd -z1"  # a package that is thrown away need not be small
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


def build(folder: Path) -> Path:
    """The package of this tree, built as `make deb` does."""
    kept = {"WHEELS": str(ROOT / "out/deb/.wheels"), "COMPRESSION": FAST}
    words = [str(ROOT / "systemd/debian/build"), str(folder)]
    done = subprocess.run(
        words, env={**os.environ, **kept}, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.deb")
    return made


def newer(package: Path, folder: Path) -> Path:
    """The package as its next version: another number, tables of the next version, and results of actions of the next
    version, which still reads those of the one before."""
    tree = folder / "next"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(tree)], check=True, timeout=BUILD_LIMIT_S)
    (site,) = (tree / "opt/trimtab/lib").glob("python3*/site-packages")
    (info,) = site.glob("trimtab-*.dist-info")
    old = info.name.removeprefix("trimtab-").removesuffix(".dist-info")
    changed(info / "METADATA", lambda text: text.replace(f"\nVersion: {old}\n", f"\nVersion: {NEXT}\n"))
    info.rename(site / f"trimtab-{NEXT}.dist-info")
    for name in ("control", "preinst"):
        changed(tree / "DEBIAN" / name, lambda text: text.replace(old, NEXT))
    changed(site / "daemons/store/schema.py", lambda text: text.replace(f"SCHEMA = {SCHEMA}", f"SCHEMA = {SCHEMA + 1}"))
    step = site / f"daemons/store_migrations/versions/v{SCHEMA + 1:04}_next.py"
    step.write_text(MIGRATION.format(revision=SCHEMA + 1, before=SCHEMA))
    changed(site / "shared/messages.py", _next_result)
    made = folder / f"trimtab_{NEXT}.deb"
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
