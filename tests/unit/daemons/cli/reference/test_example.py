"""The reference as an example file."""

from __future__ import annotations

import pytest

from daemons.cli.reference.example import example_of, uncommented
from daemons.cli.reference.files import FILES
from daemons.config.controller import ControllerConfig
from shared.config import toml
from shared.config.agent import AgentConfig


@pytest.mark.parametrize(("name", "cls"), [("controller", ControllerConfig), ("agent", AgentConfig)])
def test_as_it_is_the_file_says_nothing(name: str, cls: type[object]) -> None:
    assert toml.parse(example_of(FILES[name]), cls) == cls()


def test_a_key_stands_in_a_comment_below_what_it_means() -> None:
    text = example_of(FILES["controller"])

    assert "\n# Intervals of recurring work.\n[periods]\n" in text
    assert "\n\n# Time without a report after which a node is unreachable.\n# number: 1 to 604800 s; restart\n" in text
    assert "\n#unreachable_after_s = 15\n" in text


def test_a_table_that_may_be_left_out_stands_in_a_comment_too() -> None:
    agreement = example_of(FILES["agreement"])

    assert "\n#[windows.NAME]\n" in example_of(FILES["controller"])
    assert "\n#[notify.channels.WEBHOOK]\n" in example_of(FILES["controller"])
    assert "\n#[assurance]\n" in agreement
    assert "\n#[[assurance.share]]\n" in agreement


def test_a_key_without_a_default_has_an_example() -> None:
    text = example_of(FILES["job"])

    assert '; required\n#name = "render-42"\n' in text
    assert "\n#factor = 2.5\n" in text


def test_without_its_comments_every_key_is_given() -> None:
    assert uncommented("# text\n#key = 1\n[table]\n#[[other]]\n") == "# text\nkey = 1\n[table]\n[[other]]\n"
