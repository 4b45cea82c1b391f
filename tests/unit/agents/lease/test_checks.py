"""What `--check` says of a lease on this host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.lease.checks import check_host
from agents.lease.folder import MARK
from shared.base.errors import InvalidInput
from shared.config.agent import LeaseKeys


def problems(keys: LeaseKeys, devices: Path) -> list[str]:
    """Each problem in words ([]: none)."""
    try:
        check_host(keys, devices=str(devices))
    except InvalidInput as error:
        return [str(problem) for problem in error.problems]
    return []


def test_a_host_that_lacks_everything_is_told_all_of_it(tmp_path: Path) -> None:
    keys = LeaseKeys(str(tmp_path / "none"), watchdog=str(tmp_path / "watchdog"))

    folder, device = problems(keys, tmp_path)

    assert folder.startswith(f"lease.folder: {tmp_path}/none: No such file or directory")
    assert device.startswith(f"lease.watchdog: {tmp_path}/watchdog is not there")
    assert "softdog" in device


def test_a_host_that_has_all_is_good(tmp_path: Path) -> None:
    keys = LeaseKeys(str(tmp_path), watchdog=str(tmp_path / "watchdog"))
    os.mkfifo(tmp_path / "watchdog")
    assert f"touch {tmp_path}/{MARK}" in problems(keys, tmp_path)[0]
    (tmp_path / MARK).touch()
    assert problems(keys, tmp_path) == []


@pytest.mark.parametrize("name", ["watchdog", "watchdog7"])
def test_a_device_that_a_sandbox_hides_is_there_by_the_kernels_list(tmp_path: Path, name: str) -> None:
    (tmp_path / MARK).touch()
    keys = LeaseKeys(str(tmp_path), watchdog=f"/dev/{name}")
    assert os.path.exists(keys.watchdog) or len(problems(keys, tmp_path / "class")) == 1
    (tmp_path / "class" / {"watchdog": "watchdog0"}.get(name, name)).mkdir(parents=True)
    assert problems(keys, tmp_path / "class") == []


def test_without_a_folder_nothing_is_checked(tmp_path: Path) -> None:
    assert problems(LeaseKeys(watchdog="/none"), tmp_path) == []
