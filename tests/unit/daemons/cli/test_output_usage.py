"""Command lines that cannot be carried out: with JSON exactly one object on standard output, whoever finds it."""

from __future__ import annotations

import json

import pytest

from tests.support.operator_harness import Rig


@pytest.fixture(scope="module")
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    return made


@pytest.mark.parametrize("asked", [("-o", "json"), ("--output", "json"), ("--output=json",), ("-ojson",)])
@pytest.mark.parametrize(
    ("words", "where", "message"),
    [
        (("vms", "adopt"), "vms adopt", "give --all, --match or --node"),
        (("vms", "adopt", "--match", "x*"), "vms adopt", "--match 'x*' matches none"),
        (("vms", "set", "db-1"), "vms set", "Nothing to change"),
        (("decide", "--now", "--dry-run"), "decide", "--dry-run or --now"),
        (("jobs", "set", "a", "--goal-at", "soon"), "--goal-at", "'soon': expected a time"),
        (("web", "set", "a", "--goal", "b"), "--goal", "expected FLOW=VALUE"),
        (("vms", "list", "--limit", "0"), "--limit", "expected a whole number"),
        (("vms", "list", "--nope"), "--nope", "No such option"),
        (("nodes", "fit"), "--vcpus", "Missing option"),
        (("jobs", "set"), "JOB...", "Missing argument"),
        (("jobs", "nope"), "jobs", "No such command"),
    ],
)
def test_an_error_is_one_object(
    rig: Rig, words: tuple[str, ...], where: str, message: str, asked: tuple[str, ...]
) -> None:
    outcome = rig.trimtab(*words, *asked)

    assert outcome.exit_code == 2
    error = json.loads(outcome.stdout)["error"]
    assert error["code"] == "invalid-input"
    assert message in error["message"]
    assert error["message"] in outcome.stderr
    (problem,) = error["problems"]
    assert problem["where"].endswith(where)
    assert problem["what"]


@pytest.mark.parametrize(
    "words",
    [
        ("vms", "set", "db-1"),
        ("vms", "set", "db-1", "-o", "text"),
        ("vms", "list", "--nope", "--", "-o", "json"),
        ("vms", "list", "-o", "yaml"),
        ("vms",),
    ],
)
def test_without_json_nothing_is_printed_there(rig: Rig, words: tuple[str, ...]) -> None:
    outcome = rig.trimtab(*words)
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert outcome.stderr
