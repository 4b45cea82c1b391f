"""What `trimtab-agent --check` says of a driver's own keys, and which clock a driver goes by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.collectors.clock import base_clock_mhz
from agents.hypervisors.libvirt.build import with_clock
from agents.service.main import main
from shared.config.agent import AgentConfig, HypervisorChoice, LibvirtKeys


def checked(folder: Path, text: str) -> int:
    file = folder / "agent.toml"
    file.write_text(text)
    return main(["--check", "--config", str(file)])


@pytest.mark.usefixtures("libvirt_installed")
def test_every_template_that_cannot_be_used_is_told_without_libvirt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.xml").write_text("<network/>")
    keys = "".join(f'[libvirt.templates.{name}]\nfile = "{tmp_path}/{name}.xml"\n' for name in ("a", "b"))
    driver = '[hypervisor]\ndriver = "libvirt"\nuri = "qemu+unix:///system?socket=/nowhere"\n'
    assert checked(tmp_path, driver + keys) == 2
    told = capsys.readouterr().err
    assert "libvirt.templates.a.file" in told
    assert "begins with <network>" in told
    (tmp_path / "a.xml").write_text("<domain type='kvm'/>")
    (tmp_path / "b.xml").write_text("<domain type='kvm'/>")
    assert checked(tmp_path, driver + keys) == 0


@pytest.mark.usefixtures("libvirt_installed")
def test_shared_disks_are_not_to_be_copied_onto_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driver = '[hypervisor]\ndriver = "libvirt"\nuri = "qemu+unix:///system?socket=/nowhere"\n'
    broken = f'[libvirt.templates.a]\nfile = "{tmp_path}/a.xml"\n'

    def told(shared: str, copied: str, more: str = "") -> tuple[int, str]:
        keys = f'[libvirt]\nshared_pools = [{shared}]\n[libvirt.migration]\ncopy_storage = "{copied}"\n'
        return checked(tmp_path, driver + keys + more), capsys.readouterr().err

    status, said = told('"default", "trimtab-saved"', "always", broken)
    assert status == 2
    assert "libvirt.migration.copy_storage: is 'always': a disk in default, which all nodes share" in said
    assert "auto, or no such pool in libvirt.shared_pools" in said
    assert "libvirt.templates.a.file" in said  # all that is wrong at once
    assert told('"default"', "auto")[0] == told('"default"', "never")[0] == 0
    assert told('"trimtab-saved"', "always")[0] == told("", "always")[0] == 0  # images are no disks


def test_every_program_that_cannot_be_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    driver = '[hypervisor]\ndriver = "process"\n[process]\ncore_mhz = 1000\n'
    programs = '[process.programs.a]\nrun = ["sleep"]\n[process.programs.b]\nrun = ["/bin/sleep", "{jobs}"]\n'
    assert checked(tmp_path, driver + programs) == 2
    told = capsys.readouterr().err
    assert "process.programs.a.run" in told
    assert "{jobs}" in told
    assert checked(tmp_path, driver + '[process.programs.a]\nrun = ["/bin/sleep"]\n') == 0


def test_a_driver_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, '[hypervisor]\ndriver = "zen"\n') == 2
    assert "there is no 'zen'" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "mhz"), [("2100000\n", 2100.0), ("0\n", None), ("fast\n", None)])
def test_the_clock_of_a_machine_is_its_base_clock(tmp_path: Path, text: str, mhz: float | None) -> None:
    assert base_clock_mhz(tmp_path) is None
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "base_frequency").write_text(text)
    assert base_clock_mhz(tmp_path) == mhz
    (folder / "cpuinfo_max_freq").write_text("3400000\n")
    assert base_clock_mhz(tmp_path) == (mhz or 3400.0)


@pytest.mark.parametrize(
    ("uri", "said", "goes_by"),
    [
        ("qemu:///system", None, 2100.0),
        ("qemu+unix:///system?socket=/run/x", None, 2100.0),
        ("qemu:///system", 1500.0, 1500.0),
        ("qemu+tls://n9/system", None, None),
        ("test:///default", None, None),
    ],
)
def test_libvirt_goes_by_the_clock_of_this_machine_only_where_it_is_its_own(
    uri: str, said: float | None, goes_by: float | None
) -> None:
    """None: by what libvirt tells."""
    config = replace(AgentConfig(), hypervisor=HypervisorChoice("libvirt", uri), libvirt=LibvirtKeys(core_mhz=said))
    assert with_clock(config, lambda: 2100.0).libvirt.core_mhz == goes_by
    assert with_clock(config, lambda: None).libvirt.core_mhz == said
