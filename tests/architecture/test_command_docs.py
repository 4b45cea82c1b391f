"""docs/cli.md has every command and option, docs/policies.md every policy, and neither has more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import click
import pytest

from daemons.cli.main import main
from shared.ports.plugins import POLICY_ROLES, names, policy_group
from tests.architecture.sources import ROOT
from tests.architecture.test_documents import differences, documents

HEADING = re.compile(r"^#{2,4} +`?(trimtab(?: [a-z][a-z-]*)+)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
EVERYWHERE = {"--help"}
POLICY_ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (\w+) \|", re.MULTILINE)


def leaves(command: click.Command, path: str = "trimtab") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its path."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, f"{path} {name}")
    else:
        yield path, command


@cache
def commands() -> dict[str, click.Command]:
    """Every command by its path."""
    return dict(leaves(main))


def options(command: click.Command) -> set[str]:
    """The long options of a command."""
    return {name for parameter in command.params for name in parameter.opts if name.startswith("--")}


def sections(text: str) -> dict[str, str]:
    """What docs/cli.md says under the heading of each command, up to the next command's heading."""
    parts = HEADING.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def cli_page() -> dict[str, str]:
    """The sections of the page as it is."""
    return sections((ROOT / "docs/cli.md").read_text("utf-8"))


def option_differences(text: str, existing: set[str]) -> list[str]:
    """Options that only the section or only the command knows."""
    return differences(sorted(set(OPTION.findall(text)) - EVERYWHERE), existing - EVERYWHERE)


def test_every_command_has_its_section() -> None:
    """And every section its command."""
    assert differences(cli_page(), commands()) == []


@pytest.mark.parametrize("path", sorted(commands()))
def test_every_option_is_documented(path: str) -> None:
    """The section of a command names its options and no others."""
    assert option_differences(cli_page()[path], options(commands()[path])) == []


def test_option_differences_are_found() -> None:
    """Given a section that forgets one option and invents one, then both are named."""
    page = "## `trimtab sim x LOG`\n\n`--nodes N`, `--wrong`\n\n### Output\n\n--help\n\n## trimtab sim y\n\n--other\n"

    found = option_differences(sections(page)["trimtab sim x"], {"--nodes", "--seed"})

    assert found == ["not documented: --seed", "documented, does not exist: --wrong"]


def unknown_commands(text: str) -> list[str]:
    """Commands that a text names in code (`.venv/bin/trimtab sim replay ...`) and that do not exist."""
    named = re.findall(r"(?:^|[`/])(trimtab(?: [a-z][a-z-]*)+)", text, re.MULTILINE)
    known = {" ".join(path.split()[:count]) for path in commands() for count in range(1, len(path.split()) + 1)}
    return [
        name for name in named if name not in known and not name.startswith(tuple(f"{path} " for path in commands()))
    ]


def test_commands_named_in_documents_exist() -> None:
    """In every document."""
    found = {path.name: unknown_commands(path.read_text("utf-8")) for path in documents()}

    assert {name: unknown for name, unknown in found.items() if unknown} == {}


def test_an_unknown_command_is_found() -> None:
    """Given a page with a command that is there and one that is not, then the second is named."""
    assert unknown_commands("`trimtab sim replay`, `trimtab doctor --output json`, `trimtab fly`") == ["trimtab fly"]


def test_every_policy_is_documented() -> None:
    """The table of policies (name, role) lists exactly those that are registered."""
    registered = {f"{role} {name}" for role in POLICY_ROLES for name in names(policy_group(role))}
    text = (ROOT / "docs/policies.md").read_text("utf-8")

    assert differences([f"{role} {name}" for name, role in POLICY_ROW.findall(text)], registered) == []
