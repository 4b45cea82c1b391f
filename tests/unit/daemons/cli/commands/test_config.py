"""`trimtab config reference`."""

from __future__ import annotations

import json
import tomllib

import pytest
from click.testing import CliRunner, Result

from daemons.cli.main import main
from daemons.cli.reference.example import uncommented
from daemons.cli.reference.files import FILES


def reference(*words: str) -> Result:
    return CliRunner().invoke(main, ["config", "reference", *words])


def test_without_a_file_it_is_the_controllers() -> None:
    assert reference().stdout == reference("controller", "-o", "text").stdout


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_printed_in_every_form(name: str) -> None:
    file = FILES[name]

    assert reference(name).stdout.startswith(file.title)
    assert json.loads(reference(name, "--output", "json").stdout)["file"] == name
    assert reference(name, "-o", "markdown").stdout.startswith(f"# {file.title}\n")
    assert reference(name, "-o", "man").stdout.startswith('.TH "TRIMTAB')
    assert tomllib.loads(uncommented(reference(name, "-o", "toml").stdout)) != {}


def test_an_unknown_file_is_wrong_usage() -> None:
    assert reference("none").exit_code == 2
