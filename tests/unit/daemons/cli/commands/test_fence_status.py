"""`trimtab nodes fence-status`: the configuration is verified without cutting power."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daemons.cli.commands.nodes import nodes
from daemons.cli.output import CommandGroup
from tests.support.fence_agent import FakeAgent


class Rig:
    """Two agents and a file that names them."""

    def __init__(self, folder: Path) -> None:
        self.bmc, self.pdu = FakeAgent.make(folder / "bmc"), FakeAgent.make(folder / "pdu")
        self.path = folder / "controller.toml"
        self.write('options = {plug = "{node}"}', 'options = {plug = "{node}"}')

    def write(self, bmc: str, pdu: str) -> None:
        """Write the file with these lines of the methods."""
        self.path.write_text(
            '[fencing]\nmethods = ["bmc", "pdu"]\n'
            f'[fencing.method.pdu]\nagent = "{self.pdu.program}"\n{pdu}\n'
            f'[fencing.method.bmc]\nagent = "{self.bmc.program}"\n{bmc}\n'
        )

    def run(self, *arguments: str) -> Result:
        """Run the command; it is asked for by itself."""
        return CliRunner().invoke(nodes, ["fence-status", *arguments, "--config", str(self.path)])

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Its rows as JSON."""
        rows: list[dict[str, Any]] = json.loads(self.run(*arguments, "-o", "json").stdout)["nodes"]
        return rows


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_each_method_says_what_it_knows_of_each_node(rig: Rig) -> None:
    (rig.bmc.folder / "off-n2").touch()
    (rig.pdu.folder / "off-n2").touch()

    outcome = rig.run("n1", "n2")

    assert outcome.exit_code == 0
    assert [line.split() for line in outcome.stdout.splitlines()[-4:]] == [
        ["n1", "bmc", "on", "-"],
        ["n1", "pdu", "on", "-"],
        ["n2", "bmc", "off", "-"],
        ["n2", "pdu", "off", "-"],
    ]


def test_nothing_is_switched(rig: Rig) -> None:
    assert rig.run("n1", "n2", "n1").exit_code == 0

    assert sorted(rig.bmc.asked()) == [("status", "n1"), ("status", "n2")]
    assert not rig.bmc.is_off("n1")


def test_a_failure_is_an_error_and_the_exit_status_1(rig: Rig) -> None:
    rig.bmc.script(always={"status": 1, "prints": "Connection timed out"})

    outcome = rig.run("n1", "-o", "json")

    assert outcome.exit_code == 1
    bmc, pdu = json.loads(outcome.stdout)["nodes"]
    assert bmc == {
        "node": "n1",
        "method": "bmc",
        "power": "error",
        "detail": "exit status 1: Connection timed out Status: ON",
    }
    assert pdu == {"node": "n1", "method": "pdu", "power": "on", "detail": ""}


def test_a_password_is_not_shown(rig: Rig, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wr0ng")
    secret.chmod(0o600)
    rig.bmc.script(password="r1ght")
    rig.write(f'password_file = "{secret}"', "")

    (bmc, _) = rig.rows("n1")

    assert bmc["power"] == "error"
    assert bmc["detail"].endswith("password was ***")


def test_a_credential_of_the_unit_is_read_where_systemd_finds_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    rig.write('password_file = "credential:trimtab-test-none"', "")

    outcome = rig.run("n1")

    assert outcome.exit_code == 2
    assert "fencing.method.bmc.password_file: /etc/credstore/trimtab-test-none" in outcome.stderr


def test_an_address_may_be_given(rig: Rig) -> None:
    rig.write('options = {plug = "{mac}"}', "")

    bmc, _ = rig.rows("n1", "--mac", "02:00:00:00:00:01")
    lacking, _ = rig.rows("n1")

    assert (bmc["power"], rig.bmc.asked()) == ("on", [("status", "02:00:00:00:00:01")])
    assert "no hardware address is known" in lacking["detail"]


@pytest.mark.parametrize("arguments", [("n1", "n2", "--mac", "02:00:00:00:00:01"), ("n1", "--mac", "x"), ("n.1",)])
def test_arguments_that_cannot_be(rig: Rig, arguments: tuple[str, ...]) -> None:
    outcome = rig.run(*arguments)

    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("error: ") or "Error" in outcome.stderr
    assert rig.bmc.runs() == []


def test_a_file_without_methods_is_refused(rig: Rig) -> None:
    rig.path.write_text("")

    outcome = rig.run("n1")

    assert outcome.exit_code == 2
    assert f"{rig.path}: fencing.methods: is empty" in outcome.stderr


def test_it_is_a_command_of_the_group() -> None:
    assert isinstance(nodes, CommandGroup)
    assert "fence-status" in nodes.commands
