"""`trimtab doctor --config`: what the configured power driver needs of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.cli.commands.doctor import Check, configuration, doctor
from tests.support.fence_agent import FakeAgent


def checks(tmp_path: Path, text: str) -> dict[str, Check]:
    """The checks of a configuration, by name."""
    path = tmp_path / "controller.toml"
    path.write_text(text)
    return {check.name: check for check in configuration(path)}


def test_without_a_driver_there_is_nothing_to_need(tmp_path: Path) -> None:
    found = checks(tmp_path, '[metrics]\nlisten = ""\n')

    assert [check.ok for check in found.values()] == [True, True]
    assert found["power driver"].detail == "none does nothing"
    assert not found["power driver"].warning


def test_programs_that_are_missing_are_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    text = (
        f'[power]\ndriver = "exec"\n[power.exec]\nwake = ["/bin/sh", "x"]\nfence = ["{plain}"]\nlink = ["no-such-x"]\n'
    )

    found = checks(tmp_path, text)

    assert found["power driver"].detail == "exec does fence, link, wake"
    assert {
        name: check.ok for name, check in found.items() if name.startswith("power ") and name != "power driver"
    } == {
        "power wake": True,
        "power fence": False,
        "power link": False,
    }


def test_a_driver_that_proves_nothing_off_is_a_warning(tmp_path: Path) -> None:
    found = checks(tmp_path, '[power]\ndriver = "wake-on-lan"\n')

    assert found["power driver"].warning
    assert "confirm-off" in found["power driver"].fix


def test_methods_of_fencing_prove_nodes_off_with_any_driver(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    text = (
        '[power]\ndriver = "wake-on-lan"\n[fencing]\nmethods = ["bmc"]\n'
        f'[fencing.method.bmc]\nagent = "{agent.program}"\n'
    )

    found = checks(tmp_path, text)
    assert found["power driver"].detail == "wake-on-lan does fence, wake"
    assert not found["power driver"].warning
    assert found["fencing"].ok
    assert found["fencing"].detail.startswith("bmc; ")

    agent.script(needs=("ip",))
    failed = checks(tmp_path, text)["fencing"]
    assert not failed.ok
    assert "fencing.method.bmc.options" in failed.detail

    agent.program.unlink()
    assert "fencing.method.bmc.agent" in checks(tmp_path, text)["configuration"].detail


def test_a_file_of_prices_with_a_gap_fails(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("hour,price\n2026-01-01T00:00,1\n2026-01-01T01:00,1\n2026-01-01T03:00,1\n")
    text = f'[prices]\nshape = "series"\nfile = "{file}"\n'

    check = checks(tmp_path, text)["prices"]
    assert not check.ok
    assert str(file) in check.detail
    assert "forecasts" in check.fix

    file.write_text(file.read_text().replace("T03", "T02"))
    assert checks(tmp_path, text)["prices"].ok


@pytest.mark.parametrize(
    "text",
    [
        '[power]\ndriver = "ipmi"\n',
        '[power]\ndriver = "exec"\n',
        "[power]\nbroadcast = 5\n",
        "[power",
        "[pwoer]\nx = 1\n",
    ],
)
def test_a_configuration_that_cannot_work_fails(tmp_path: Path, text: str) -> None:
    (check,) = checks(tmp_path, text).values()

    assert not check.ok
    assert check.detail


def test_the_command_ends_with_1_when_a_check_fails(tmp_path: Path) -> None:
    path = tmp_path / "controller.toml"
    path.write_text('[power]\ndriver = "ipmi"\n')

    result = CliRunner().invoke(doctor, ["--config", str(path), "--output", "json"])

    assert result.exit_code == 1
    assert "ipmi" in result.output
