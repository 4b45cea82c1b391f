"""Manual pages and completion of the `trimtab` command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from daemons.cli.manual import SHELLS, completion, pages, write


@click.group()
def tool() -> None:
    """Does things.

    Two of them.
    """


@tool.group()
def box() -> None:
    """Boxes."""


@box.command()
@click.argument("file")
@click.option("--deep-down", help="How deep\\far it goes.")
def fill(file: str, deep_down: str) -> None:
    """Fill a box.

    \b
    one
    .two

    'Three' four.
    """


@tool.command(hidden=True)
def secret() -> None:
    """Nobody is told of."""


def test_every_command_has_its_page_and_every_leaf_its_part() -> None:
    made = pages(tool, "1.2")

    assert sorted(made) == ["trimtab-box.1", "trimtab.1"]
    assert '.TH "TRIMTAB" 1 "" "trimtab 1.2" "Trimtab"' in made["trimtab.1"]
    assert ".BR trimtab\\-box (1)\nBoxes." in made["trimtab.1"]
    box_page = made["trimtab-box.1"]
    assert ".B trimtab box fill\n[OPTIONS] FILE" in box_page
    assert ".B \\-\\-deep\\-down TEXT\nHow deep\\efar it goes." in box_page
    assert ".nf\none\n\\&.two\n.fi\n.PP\n\\&'Three' four." in box_page
    assert not [page for page in made.values() if "secret" in page or "\\-\\-help" in page]


def test_every_command_of_ours_has_a_page() -> None:
    listed = main.list_commands(click.Context(main))

    assert sorted(pages(main, "1")) == sorted(["trimtab.1", *(f"trimtab-{name}.1" for name in listed)])


def test_pages_of_commands_and_files_are_written_by_their_section(tmp_path: Path) -> None:
    assert CliRunner().invoke(write, [str(tmp_path)]).exit_code == 0

    assert (tmp_path / "man1/trimtab-jobs.1").read_text("utf-8").startswith('.TH "TRIMTAB\\-JOBS" 1 ')
    assert (tmp_path / "man5/trimtab-job.toml.5").read_text("utf-8").startswith('.TH "TRIMTAB\\-JOB.TOML" 5 ')


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_our_words(shell: str) -> None:
    assert "_TRIMTAB_COMPLETE" in completion(main, shell)


def test_another_shell_is_not_known() -> None:
    with pytest.raises(KeyError):
        completion(main, "tcsh")


def test_the_program_prints_completion() -> None:
    words = [sys.executable, "-m", "daemons.cli.manual", "--completion", "fish"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60.0).stdout

    assert "complete --no-files --command trimtab" in said
