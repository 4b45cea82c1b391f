"""The reference of the commands as pages of the documentation."""

from __future__ import annotations

import argparse

import click
import pytest

from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.output import output_option
from daemons.cli.reference.command_pages import daemon_page, pages_of


@click.group()
def tool() -> None:
    """Do things."""


@tool.group()
def box() -> None:
    """Boxes of `all * kinds` * and more."""


@box.command(epilog="\b\n$ tool box fill x\nfull")
@click.argument("file")
@click.option("--deep", help="How deep | it goes.")
@bus_options
@output_option
def fill(line: ControllerConnection, file: str, deep: str) -> None:
    """Fill a box."""


@tool.command()
def look() -> None:
    """Look around."""


PAGES = pages_of(tool, {"toold": "Does more."})


def test_every_command_has_its_page_and_the_index_its_name() -> None:
    assert sorted(PAGES) == ["README.md", "box.md", "look.md"]
    assert "| [trimtab box](box.md) | Boxes of `all * kinds` \\* and more. |" in PAGES["README.md"]
    assert "| [toold](toold.md) | Does more. |" in PAGES["README.md"]


def test_options_that_many_commands_share_are_said_once() -> None:
    assert "| `--url TEXT` |" in PAGES["README.md"]
    assert "--url" not in PAGES["box.md"]
    assert "It also takes the [common options](README.md#common-options)." in PAGES["box.md"]
    assert "common options" not in PAGES["look.md"]


def test_a_page_has_usage_options_example_and_exit_status() -> None:
    page = PAGES["box.md"]

    assert "\n## trimtab box fill\n\nFill a box.\n\n```sh\ntrimtab box fill [OPTIONS] FILE\n```\n" in page
    assert "\n| `--deep TEXT` | How deep \\| it goes. |\n" in page
    assert "\n### Example\n\n```text\n$ tool box fill x\nfull\n```\n" in page
    assert "\n## Exit status\n" in page


def test_a_command_that_is_no_group_has_its_usage_at_once() -> None:
    assert "\nLook around.\n\n```sh\ntrimtab look [OPTIONS]\n```\n\n## Exit status\n" in PAGES["look.md"]


def test_the_index_has_the_keys_of_the_operators_file() -> None:
    assert "\n## operator.toml\n" in PAGES["README.md"]
    assert "\n| `timeout_s` | number: " in PAGES["README.md"]


def test_a_daemon_has_its_help_commands_and_exit_status() -> None:
    parser = argparse.ArgumentParser(prog="trimtab-agent")
    parser.add_argument("--check", action="store_true", help="look " + "at everything " * 8)

    page = daemon_page(parser, "Does more.", {3: "Bad."}, box)

    assert page.startswith("# trimtab-agent\n")
    assert "Its configuration is [agent.toml](../agent.md), `/etc/trimtab/agent.toml`.\n" in page
    assert "\n## trimtab-agent box fill\n" in page
    assert "\n| 3 | Bad. |\n" in page
    assert max(map(len, page.partition("```text")[2].partition("```")[0].splitlines())) in range(80, 101)


def test_a_program_without_a_file_is_no_daemon() -> None:
    with pytest.raises(KeyError):
        daemon_page(argparse.ArgumentParser(prog="toold"), "", {})
