"""Documents name commands that exist, and docs/policies has a page for every policy."""

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

POLICY_HEADINGS = ["Summary", "When to use it", "How it decides", "Parameters", "Example", "Limits", "Source"]
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
    text = (ROOT / "docs/policies/README.md").read_text("utf-8")

    assert differences([f"{role} {name}" for name, role in POLICY_ROW.findall(text)], registered) == []


def headings(text: str) -> list[str]:
    """Return the headings of the second level."""
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("name", sorted({name for role in POLICY_ROLES for name in names(policy_group(role))}))
def test_every_policy_has_a_page_of_fixed_headings(name: str) -> None:
    text = (ROOT / f"docs/policies/{name}.md").read_text("utf-8")

    assert headings(text) == POLICY_HEADINGS
