"""The folder of a demo: what it holds, who may use it, and that nothing of others is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agents.service.main import check_config
from daemons.config.controller import ControllerConfig
from daemons.config.portal import PortalConfig
from daemons.portal.config import problems_of
from daemons.service.main import check
from shared.base.errors import InvalidInput, PermanentError
from shared.config import toml
from shared.config.agent import AgentConfig
from sim_backend.demo.layout import Layout, toml_text


def test_every_daemon_can_use_its_file(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "demo", 2, 8440)
    os.close(layout.take())

    layout.write()

    check(toml.load(layout.controller_file, ControllerConfig))
    assert problems_of(toml.load(layout.portal_file, PortalConfig)) == []
    for host in ("host1", "host2"):
        check_config(toml.load(layout.agent_file(host), AgentConfig))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in layout.config.iterdir()}
    assert (modes, stat.S_IMODE(layout.folder.stat().st_mode)) == ({0o600}, 0o700)


def test_the_environment_names_what_the_command_reads(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    os.close(layout.take())

    layout.write()

    assert layout.env_file.read_text().splitlines() == [
        f"export TRIMTAB_CONFIG={tmp_path}/operator.toml",
        f"export TRIMTAB_STORE_URL=sqlite:///{tmp_path}/state/controller.db",
    ]


def test_a_folder_is_one_demos_at_a_time(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    lock = layout.take()

    assert not layout.is_left_behind()
    with pytest.raises(PermanentError, match=r"a demo runs in .* already"):
        layout.take()

    os.close(lock)
    assert layout.is_left_behind()
    os.close(layout.take())


def test_what_a_killed_demo_has_left_is_removed(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    os.close(layout.take())
    layout.write()
    (layout.state / "controller.db").touch()
    layout.bus_socket.touch()

    os.close(layout.take())

    found = sorted(path.name for path in tmp_path.rglob("*"))
    assert found == ["config", "demo.lock", "logs", "state"]


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "demo")
    os.close(layout.take())
    layout.write()

    layout.remove()

    assert list(tmp_path.iterdir()) == []


def test_removing_leaves_the_files_of_others(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    os.close(layout.take())
    (tmp_path / "job.toml").touch()

    layout.remove()

    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


def test_a_folder_with_other_files_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()

    with pytest.raises(InvalidInput, match="has other files"):
        Layout(tmp_path).take()

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["a b", "a?b", "a#b", "a%20b", "x" * 100])
def test_a_path_that_no_url_or_socket_takes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="--folder: is"):
        Layout(tmp_path / name).take()

    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "demo").touch()

    with pytest.raises(InvalidInput, match="is no folder"):
        Layout(tmp_path / "demo").take()


def test_toml_text_has_tables_in_tables() -> None:
    text = toml_text({"a": 1, "b": {"c": ["x", 'y"'], "d": {"e": 0.5}}, "f": {"g": True}})

    assert text == 'a = 1\n\n[b]\nc = ["x", "y\\""]\n\n[b.d]\ne = 0.5\n\n[f]\ng = true\n'
