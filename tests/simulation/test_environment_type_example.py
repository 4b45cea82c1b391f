"""The package of examples/environment-type, installed into a folder of its own, passes its own tests: the conformance
suite, the commands, and a simulated cluster in which units follow its managers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

PACKAGE = ROOT / "examples" / "environment-type"


def install(folder: Path) -> None:
    """What pip would do with its pyproject.toml, without a network."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))["project"]
    shutil.copytree(PACKAGE / "render_farm", folder / "render_farm", ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    named = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(named, "utf-8")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")


def run(folder: Path | None, *words: str) -> subprocess.CompletedProcess[str]:
    """A Python process, with what is installed in a folder."""
    paths = [str(ROOT), *([] if folder is None else [str(folder)])]
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300.0,
    )


@pytest.mark.full
def test_a_third_type_is_brought_by_a_package(tmp_path: Path) -> None:
    """Given that it is installed, then its tests pass."""
    install(tmp_path)

    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PACKAGE / "tests"))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_an_agreement_of_a_type_that_is_not_installed_is_refused() -> None:
    """Given that the package is not installed, then the command names the types that there are."""
    file = str(PACKAGE / "env-render.toml")

    done = run(None, "-c", "from daemons.cli.main import main; main()", "env", "create", file, "--dry-run")

    assert done.returncode == 2
    assert "workload: is 'render' (expected one of batch, web)" in " ".join(done.stderr.split())
