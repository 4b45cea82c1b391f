"""What a command says after a refusal: the next step, on standard error."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from daemons.cli.connection import NoAnswer, Refused
from daemons.cli.output import CommandGroup, output_option
from shared.base.errors import Infeasible, InvalidInput, Problem, TrimtabError

ERRORS: dict[str, TrimtabError] = {
    "refused": Refused("node-not-empty", "n1 has 2 VMs"),
    "of-a-newer-controller": Refused("no-such-code", "x"),
    "no-answer": NoAnswer("no controller answered"),
    "infeasible": Infeasible("3 nodes are missing"),
    "refused-as-infeasible": Refused("infeasible", "3 nodes are missing"),
    "input": InvalidInput(Problem("--x", "is wrong")),
}


@click.group(cls=CommandGroup)
def sample() -> None:
    """Stand in for any group."""


@sample.command()
@click.argument("which")
@output_option
def fail(which: str) -> None:
    """End with an error."""
    raise ERRORS[which]


def hints(*words: str) -> list[str]:
    """The lines that hint."""
    return [line for line in CliRunner().invoke(sample, ["fail", *words]).stderr.splitlines() if "hint" in line]


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("refused", ["hint: Drain the node first. Run: trimtab nodes drain NODE"]),
        ("of-a-newer-controller", []),
        ("infeasible", []),
        ("refused-as-infeasible", ["hint: Add nodes, or lower guaranteed units. Run: trimtab env list"]),
        ("input", []),
    ],
)
def test_a_refusal_is_followed_by_one_hint(which: str, said: list[str]) -> None:
    assert hints(which) == said


def test_without_an_answer_the_controller_is_to_be_looked_at() -> None:
    (line,) = hints("no-answer")

    assert "disk is not full" in line
    assert line.endswith("Run: systemctl status trimtab-controller")


def test_hints_are_not_on_standard_output() -> None:
    outcome = CliRunner().invoke(sample, ["fail", "refused", "-o", "json"])

    assert json.loads(outcome.stdout)["error"]["code"] == "node-not-empty"
    assert outcome.stderr.splitlines()[-1].startswith("hint: ")
