"""`make clean` takes away what interrupted labs have left, where it may, and never fails for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.debian import need_programs

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def cleaned(folder: Path, uid: int, python: str = "") -> tuple[int, str]:
    """Exit status of `make clean`, and what the environment's Python was called with; `python`: what that does."""
    need_programs(("make",), ("make",))
    shutil.copy(MAKEFILE, folder)
    (folder / "out").mkdir(exist_ok=True)
    program(folder / "bin/id", f"echo {uid}")
    if python:
        program(folder / ".venv/bin/python", f'echo "$@" >>called; {python}')
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["make", "clean"], cwd=folder, env=environment, check=False, capture_output=True, timeout=60)
    assert not (folder / "out").exists()
    assert not (folder / ".venv").exists()
    called = folder / "called"
    return done.returncode, called.read_text() if called.exists() else ""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("python", ["exit 0", "exit 1"])
def test_as_root_it_asks_for_the_remains_of_labs(python: str, tmp_path: Path) -> None:
    assert cleaned(tmp_path, 0, python) == (0, "-m tests.lab.remains\n")


def test_it_does_not_without_an_environment_nor_as_somebody_else(tmp_path: Path) -> None:
    assert cleaned(tmp_path, 0) == (0, "")
    assert cleaned(tmp_path, 1000, "exit 0") == (0, "")
