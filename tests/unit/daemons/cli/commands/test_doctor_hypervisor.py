"""`trimtab doctor` looks whether what a hypervisor's driver needs can be imported."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from daemons.cli.commands import doctor
from shared.ports import plugins

AGENT = '[hypervisor]\ndriver = "{driver}"\n'


def libvirt() -> metadata.EntryPoint:
    """The driver as it is registered."""
    (point,) = (point for point in metadata.entry_points(group=plugins.HYPERVISORS) if point.name == "libvirt")
    return point


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the library is not installed."""
    monkeypatch.setitem(sys.modules, "libvirt", None)


def named(tmp_path: Path, driver: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(AGENT.format(driver=driver), "utf-8")
    (tmp_path / doctor.AGENT).touch()
    return path


@pytest.mark.usefixtures("without_library")
def test_a_driver_whose_library_is_missing_is_a_warning() -> None:
    found = doctor.plugin(libvirt())
    assert (found.ok, found.warning) == (True, True)
    assert "needs the Python module libvirt" in found.detail
    assert "trimtab[libvirt]" in found.fix


@pytest.mark.usefixtures("without_library")
def test_it_is_an_error_where_this_machines_agent_is_to_use_it() -> None:
    found = doctor.plugin(libvirt(), "libvirt")
    assert (found.ok, found.warning) == (False, False)


@pytest.mark.parametrize("driver", ["process", "libvirt"])
def test_the_driver_is_read_from_the_agents_file(driver: str, tmp_path: Path) -> None:
    assert doctor.driver_of_agent(named(tmp_path, driver), tmp_path) == driver


def test_a_machine_without_an_agent_or_with_a_broken_file_has_no_driver(tmp_path: Path) -> None:
    assert doctor.driver_of_agent(tmp_path / "agent.toml", tmp_path) == ""
    broken = named(tmp_path, "libvirt")
    broken.write_text("[hypervisor\n", "utf-8")
    assert doctor.driver_of_agent(broken, tmp_path) == ""


def test_an_agent_with_an_environment_of_its_own_is_not_judged_by_this_one(tmp_path: Path) -> None:
    """As the packages install it: its libraries are not in the command's environment."""
    assert doctor.driver_of_agent(named(tmp_path, "libvirt"), tmp_path / "elsewhere") == ""
