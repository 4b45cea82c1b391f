"""The generated reference on disk is what the source says; `make reference` writes it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.service.main import DEFAULT_CONFIG as AGENT
from daemons.cli.reference.files import FILES
from daemons.portal.main import DEFAULT_CONFIG as PORTAL
from daemons.service.main import DEFAULT_CONFIG as CONTROLLER
from tests.architecture.sources import ROOT
from tests.support.reference_pages import COMMANDS, examples, pages, write

PAGES = ROOT / "docs/reference"
EXAMPLES = ROOT / "examples/reference"


def outdated(folder: Path, files: dict[str, str]) -> list[str]:
    """Files that are not there, or say something else."""
    return [name for name, text in files.items() if not (folder / name).is_file() or _text(folder / name) != text]


def _text(path: Path) -> str:
    return path.read_text("utf-8")


def test_pages_are_what_is_generated() -> None:
    made = pages()
    there = {f"{COMMANDS}/{path.name}" for path in (PAGES / COMMANDS).glob("*.md")}

    assert outdated(PAGES, made) == [], "run `make reference`"
    assert sorted(there - {*made}) == []


def test_example_files_are_what_is_generated() -> None:
    made = examples()

    assert outdated(EXAMPLES, made) == [], "run `make reference`"
    assert sorted({path.name for path in EXAMPLES.iterdir()} - {*made}) == []


@pytest.mark.parametrize(("name", "place"), [("controller", CONTROLLER), ("agent", AGENT), ("portal", PORTAL)])
def test_files_of_daemons_are_where_the_daemons_look_for_them(name: str, place: str) -> None:
    assert FILES[name].place == place


def test_outdated_files_are_found(tmp_path: Path) -> None:
    """Given a file that says something else and one that is missing, then both are named, until they are written."""
    (tmp_path / "a.md").write_text("old")
    made = {"a.md": "new", f"{COMMANDS}/b.md": "b"}

    assert outdated(tmp_path, made) == ["a.md", f"{COMMANDS}/b.md"]
    write(tmp_path, made)
    assert outdated(tmp_path, made) == []


def test_pages_of_commands_that_are_gone_are_removed(tmp_path: Path) -> None:
    write(tmp_path, {f"{COMMANDS}/gone.md": ""})
    write(tmp_path, {})

    assert list((tmp_path / COMMANDS).iterdir()) == []
