"""`trimtab demo` with real processes: what it starts, what it survives, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.base.clock import SystemClock
from tests.integration.harness import need_driver, wait_for
from tests.integration.scene import TRIMTAB, Said
from tests.ports import free_port

LIMIT_S = 60.0
CLOCK = SystemClock()


class Demo:
    """A demo's folder and port, and the command `trimtab` about it."""

    def __init__(self, home: Path) -> None:
        self.folder, self.port = home / "demo", free_port()

    def run(self, *words: str) -> Said:
        """Run `trimtab`, with the demo's files named in its environment."""
        env = {
            **os.environ,
            "TRIMTAB_DEMO_FOLDER": str(self.folder),
            "TRIMTAB_DEMO_PORT": str(self.port),
            "TRIMTAB_CONFIG": str(self.folder / "operator.toml"),
            "TRIMTAB_STORE_URL": f"sqlite:///{self.folder}/state/controller.db",
        }
        done = subprocess.run([TRIMTAB, *words], env=env, capture_output=True, text=True, timeout=120, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    def data(self, *words: str) -> Any:
        """What a command that must succeed says in JSON."""
        said = self.run(*words, "--output", "json")
        assert said.status == 0, said
        return said.data

    def pids(self) -> list[int]:
        """Every process of it, by its folder in their command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue  # it has just ended
                if str(self.folder).encode() in words:
                    found.append(int(entry.name))
        return sorted(found)

    def nothing_is_left(self) -> None:
        """AssertionError where a process or a file of it is there."""
        wait_for(lambda: not self.pids(), LIMIT_S, "the end of every process")
        assert not self.folder.exists()


@pytest.fixture
def demo() -> Iterator[Demo]:
    need_driver()
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:  # short: the path of a socket has 107 bytes
        made = Demo(Path(folder))
        yield made
        made.run("demo", "stop")


def submit(demo: Demo, folder: Path, name: str) -> None:
    """Submit a job that runs for long."""
    file = folder / "job.toml"
    file.write_text(
        'name = "job"\ntemplate = "fake:work=9e9;max=2000"\n'
        "[[stages]]\nwork_mcycles = 9e9\nmax_mhz = 2000\nmemory_mib = 512\n"
    )
    demo.data("jobs", "submit", str(file), "--name", name)


def node_of(demo: Demo, vm: str) -> str:
    """Where a VM runs ("": nowhere)."""
    rows = demo.data("vms", "list")["vms"]
    return next((row["node"] for row in rows if row["vm"] == vm and row["state"] == "running"), "")


def test_a_host_dies_and_returns(demo: Demo, tmp_path: Path) -> None:
    """The whole story: jobs run, a host is killed, its VM starts elsewhere, the host returns, nothing is left."""
    started = demo.data("demo", "--hosts", "3")
    assert [host["power"] for host in started["hosts"]] == ["on"] * 3
    assert {row["name"] for row in demo.data("nodes", "list")["nodes"]} == {"host1", "host2", "host3"}
    submit(demo, tmp_path, "one")
    home = wait_for(lambda: node_of(demo, "one#0"), LIMIT_S, "the start of the VM")

    assert demo.data("demo", "kill-host", home)["vms"] == ["one#0"]

    other = wait_for(lambda: node_of(demo, "one#0").replace(home, ""), LIMIT_S, "its start elsewhere")
    assert other in {"host1", "host2", "host3"} - {home}
    power = {host["host"]: host["power"] for host in demo.data("demo", "status")["hosts"]}
    assert power == {host: "off" if host == home else "on" for host in ("host1", "host2", "host3")}
    assert "is off already" in demo.run("demo", "kill-host", home).err
    demo.data("demo", "start-host", home)
    assert "is on already" in demo.run("demo", "start-host", home).err

    def up() -> bool:
        return all(row["condition"] == "up" for row in demo.data("nodes", "list")["nodes"])

    wait_for(up, LIMIT_S, "its return")
    assert demo.run("demo", "stop").status == 0
    demo.nothing_is_left()


@pytest.mark.full
def test_it_runs_once(demo: Demo) -> None:
    """A second start, with the same folder or the same port, changes nothing."""
    before = demo.data("demo", "start", "--hosts", "1")

    again = demo.run("demo", "start")
    elsewhere = demo.run("demo", "start", "--folder", str(demo.folder.with_name("other")))

    assert (again.status, "already" in again.err) == (1, True)
    assert (elsewhere.status, f":{demo.port} cannot be used" in elsewhere.err) == (2, True)
    assert not demo.folder.with_name("other").exists()
    assert demo.data("demo", "status") == {key: value for key, value in before.items() if key != "started_in_s"}


@pytest.mark.full
def test_a_daemon_that_is_killed_is_started_again(demo: Demo) -> None:
    before = demo.data("demo", "start", "--hosts", "1")["controller_pid"]

    os.kill(before, signal.SIGKILL)

    wait_for(lambda: demo.data("demo", "status")["controller_pid"] not in (before, None), LIMIT_S, "another controller")
    assert demo.data("status")["acting"]


def test_a_demo_that_is_killed_leaves_no_process(demo: Demo) -> None:
    """Its daemons end with it; what it left on disk is removed by `stop`, and is no obstacle to another start."""
    demo.data("demo", "start", "--hosts", "2")
    (supervisor,) = [
        pid for pid in demo.pids() if b"sim_backend.demo\0run" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]

    os.kill(supervisor, signal.SIGKILL)

    wait_for(lambda: not demo.pids(), LIMIT_S, "the end of every process")
    assert demo.run("demo", "status").status == 1
    demo.data("demo", "start", "--hosts", "1")
    assert [host["host"] for host in demo.data("demo", "status")["hosts"]] == ["host1"]
    assert demo.run("demo", "stop").status == 0
    demo.nothing_is_left()


def as_in_a_terminal() -> None:
    """Take SIGINT, which a program started in a shell's background ignores, and all that it starts with it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_start_that_is_interrupted_leaves_nothing(demo: Demo) -> None:
    env = {**os.environ, "TRIMTAB_DEMO_FOLDER": str(demo.folder), "TRIMTAB_DEMO_PORT": str(demo.port)}
    command = [TRIMTAB, "demo", "--hosts", "12"]  # many: it is interrupted before all are up
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, preexec_fn=as_in_a_terminal) as process:
        wait_for(lambda: len(demo.pids()) > 2, LIMIT_S, "its first daemons")

        process.send_signal(signal.SIGINT)

        assert process.wait(LIMIT_S) == 130
    demo.nothing_is_left()


@pytest.mark.full
def test_in_the_foreground_it_ends_with_the_command(demo: Demo) -> None:
    env = {**os.environ, "TRIMTAB_DEMO_FOLDER": str(demo.folder), "TRIMTAB_DEMO_PORT": str(demo.port)}
    command = [TRIMTAB, "demo", "--foreground", "--hosts", "1", "--output", "json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lines = process.stdout
        assert lines is not None
        begun = json.loads(b"".join(iter(lines.readline, b"}\n")) + b"}")
        with socket.create_connection(("127.0.0.1", demo.port), 5.0):
            pass

        process.send_signal(signal.SIGINT)

        assert (process.wait(LIMIT_S), begun["portal"]) == (0, f"http://localhost:{demo.port}")
    demo.nothing_is_left()
