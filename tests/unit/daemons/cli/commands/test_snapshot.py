"""`trimtab snapshot`: from a live cluster into a file, and the decision from it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daemons.cli.main import main
from daemons.decision.request_codec import header_bytes, to_bytes
from daemons.values.settings import PolicyChoice
from tests.support.operator_harness import Rig
from tests.unit.daemons.controller.views.test_nodes_operator import submit
from tests.unit.daemons.decision.test_request_codec import HEADER, example, request


def trimtab(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


def decided(*words: object) -> dict[str, Any]:
    outcome = trimtab("snapshot", "decide", *words, "--output", "json")
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    return dict(json.loads(outcome.stdout))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A saved request for edf; apart from the header as a controller makes it."""
    path = tmp_path / "saved"
    path.write_bytes(header_bytes(HEADER) + to_bytes(request(example(), placement=PolicyChoice("edf"))))
    return path


@pytest.mark.parametrize("policy", ["first-fit", "edf"])
def test_what_is_saved_is_decided_like_a_dry_run(tmp_path: Path, policy: str) -> None:
    """Given a cluster with a job that finds no room, then the file leads to what the controller says."""
    rig = Rig(placement=PolicyChoice(policy))
    rig.run(30.0)
    for name in ("one", "two", "three"):
        submit(rig, tmp_path, name, memory_mib=2_500)
    path = tmp_path / "saved"
    saved = rig.asked("snapshot", "save", path)
    assert (saved["file"], saved["bytes"], saved["term"]) == (str(path), path.stat().st_size, 1)
    live = rig.asked("decide", "--dry-run")
    found = decided(path)
    assert found["saved"] == {key: saved[key] for key in ("program", "term", "at_s")}
    for key in ("skipped", "in_service", "evaluations", "predicted_utility"):
        assert found[key] == live[key]
    for key in ("policy", "changes"):
        assert found["decision"][key] == live["decision"][key]
    named = [(each["workload"], each["reason"]["code"]) for each in found["decision"]["refusals"]]
    assert named == [("three", "no-memory")]
    assert named == [(each["workload"], each["reason"]["code"]) for each in live["decision"]["refusals"]]


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    rig = Rig()
    rig.run(30.0)
    path = tmp_path / "saved"
    path.write_text("mine")
    assert "is there already" in rig.refused("snapshot", "save", path, status=2)["message"]
    assert path.read_text() == "mine"
    assert "No such file" in rig.refused("snapshot", "save", tmp_path / "none" / "saved", status=2)["message"]


def test_the_file_can_be_read_with_common_tools(file: Path) -> None:
    header, plain = (json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines())
    assert header == HEADER
    assert plain["snapshot"]["nodes"]["names"] == ["n1", "n2", "n3"]


def test_another_policy_can_be_asked(file: Path) -> None:
    assert decided(file)["decision"]["policy"] == "edf"
    assert decided(file, "--policy", "first-fit")["decision"]["policy"] == "first-fit"
    outcome = trimtab("snapshot", "decide", file, "--policy", "none")
    assert (outcome.exit_code, "there is no 'none'" in outcome.stderr) == (2, True)


def test_another_version_of_the_program_is_told(file: Path) -> None:
    assert "note: saved by version 1.2.3 of the program" in trimtab("snapshot", "decide", file).stderr


def test_rows_are_limited(file: Path) -> None:
    found = decided(file, "--limit", 1)["decision"]
    assert len(found["changes"]) == 1
    assert found["counts"]["changes"] > 1


def test_for_people(file: Path) -> None:
    words = trimtab("snapshot", "decide", file).stdout
    for said in ("edf", "earlier-goal", "utilit", "report"):
        assert said in words


@pytest.mark.parametrize("content", [b"", b"x", None])
def test_what_cannot_be_read_is_status_2(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "saved"
    if content is not None:
        path.write_bytes(content)
    outcome = trimtab("snapshot", "decide", path, "--output", "json")
    assert outcome.exit_code == 2
    assert str(path) in json.loads(outcome.stdout)["error"]["message"]
