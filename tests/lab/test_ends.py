"""Nothing is left of a lab, however it ends, and labs do not meet one another."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.base.clock import SystemClock
from tests.lab import network, plan
from tests.lab.errors import LabError
from tests.lab.hosts import ROOT, Host, lab_hosts
from tests.lab.namespaces import children
from tests.lab.partitions import find_partitions
from tests.lab.remains import remove_remains

pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.usefixtures("lab_tools")]

START_S = 60.0
END_S = 20.0
LOOK_S = 0.05
GUEST = """<domain type="qemu"><name>idle</name><memory unit="MiB">16</memory>
<resource><partition>{partition}</partition></resource><os><type arch="x86_64" machine="pc">hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>
"""
# A process that makes a lab with a guest on it, another program and a storage pool, and says which lab it is.
RUNNER = """
import signal, sys, time
from pathlib import Path
from tests.lab.hosts import lab_hosts
from tests.lab.test_ends import start_guest

signal.signal(signal.SIGINT, signal.default_int_handler)  # who is started in the background may ignore it
with lab_hosts(1) as lab:
    (host,) = lab.hosts
    start_guest(host)
    host.make_pools()
    host.popen(["sleep", "1000"])
    print(lab.name, lab.number, flush=True)
    if sys.argv[1:]:
        sys.stdin.readline()
        raise ValueError("as asked")
    time.sleep(1000)
"""
CLOCK = SystemClock()


def start_guest(host: Host) -> None:
    """One that waits for something to boot from."""
    file = host.folder / "idle.xml"
    file.write_text(GUEST.format(partition=host.partition))
    host.virsh("create", str(file))


@dataclass(frozen=True, slots=True)
class Made:
    """A lab of another process: the runner, and what there is of the lab."""

    process: subprocess.Popen[str]
    name: str
    number: int
    networks: frozenset[str]

    @property
    def guardian(self) -> int:
        """The process of that name."""
        (found,) = (pid for pid in children(self.process.pid) if b"tests.lab.guardian" in command_line(pid))
        return found

    def kill(self, *pids: int) -> None:
        """All of them at once."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def command_line(pid: int) -> bytes:
    """Empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def network_of(pid: int) -> str:
    """The network namespace of a process; "" when the process is gone or not to be looked at."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def left(name: str, number: int, networks: frozenset[str]) -> list[str]:
    """What there is of a lab on this machine."""
    partitions = find_partitions()
    pids = [pid for pid in processes() if name.encode() in command_line(pid) or network_of(pid) in networks]
    folders = [plan.folder_of(name), *(root / f"{name}.partition" for root in partitions.roots)]
    folders.append(Path("/sys/class/net", network.interface(number)))
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    return [
        *(f"{pid}: {command_line(pid)!r}" for pid in pids),
        *(str(file) for file in folders if file.exists()),
        *mounts,
    ]


def left_soon(made: Made) -> list[str]:
    """What is left after as long as the end may take."""
    until_s = CLOCK.monotonic_s() + END_S
    while (found := left(made.name, made.number, made.networks)) and CLOCK.monotonic_s() < until_s:
        CLOCK.sleep(LOOK_S)
    return found


def make(home: Path, *arguments: str) -> Made:
    """Have another process, of somebody at `home`, make a lab, in a group of its own, as a terminal would."""
    process = run(home, *arguments)
    try:
        return look(process)
    except BaseException:
        with process:
            process.kill()
        raise


def run(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home)},
        start_new_session=True,
    )


def look(process: subprocess.Popen[str]) -> Made:
    """The lab that the process says it has made."""
    assert process.stdout is not None
    said = process.stdout.readline().split()
    assert len(said) == 2, process.communicate(timeout=START_S)
    firsts = [int(file.read_text()) for file in plan.folder_of(said[0]).glob(f"*/{plan.FIRST}")]
    guardians = [pid for pid in processes() if said[0].encode() in command_line(pid)]
    networks = {network_of(pid) for pid in (*firsts, *guardians)} - {network_of(os.getpid()), ""}
    return Made(process, said[0], int(said[1]), frozenset(networks))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """A lab of another process, which is gone at the end whatever the test finds."""
    running = make(tmp_path)
    yield running
    with running.process as process:
        process.kill()
    left_soon(running)
    remove_remains()


def interrupt_twice(made: Made) -> None:
    """As people do."""
    os.killpg(made.process.pid, signal.SIGINT)
    CLOCK.sleep(LOOK_S)
    if made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGINT)


ENDS: dict[str, Callable[[Made], None]] = {
    "Ctrl-C": lambda made: os.killpg(made.process.pid, signal.SIGINT),
    "Ctrl-C twice": interrupt_twice,
    "SIGTERM": lambda made: made.process.terminate(),
    "kill -9": lambda made: made.kill(made.process.pid),
    "kill -9 of the group": lambda made: os.killpg(made.process.pid, signal.SIGKILL),
    "SIGTERM to the guardian": lambda made: os.kill(made.guardian, signal.SIGTERM),
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_of_a_lab(made: Made, end: str) -> None:
    assert len(left(made.name, made.number, made.networks)) > 5

    ENDS[end](made)

    assert left_soon(made) == []


def test_nothing_is_left_after_an_exception(tmp_path: Path) -> None:
    made = make(tmp_path, "raise")

    with made.process as process:
        assert "ValueError: as asked" in process.communicate("\n", timeout=END_S)[1]
        # the lab has ended by the time that its `with` has
        assert left(made.name, made.number, made.networks) == []
    assert list(tmp_path.iterdir()) == []


def test_a_runner_ends_in_order_when_its_guardian_was_killed(made: Made) -> None:
    made.kill(made.guardian)
    made.process.send_signal(signal.SIGINT)

    assert "guardian has not ended well: status -9" in made.process.communicate(timeout=END_S)[1]
    assert left_soon(made) == []


def test_what_is_left_when_all_are_killed_is_removed_by_the_next_lab(made: Made) -> None:
    made.kill(made.guardian, made.process.pid)
    made.process.wait(END_S)
    until_s = CLOCK.monotonic_s() + END_S
    while any(made.name.encode() in command_line(pid) for pid in processes()):
        assert CLOCK.monotonic_s() < until_s
        CLOCK.sleep(LOOK_S)
    assert plan.folder_of(made.name).exists()

    removed = remove_remains()

    assert made.name in removed
    assert left_soon(made) == []


def test_a_lab_that_lives_is_no_remains(made: Made) -> None:
    assert made.name not in remove_remains()
    assert made.process.poll() is None
    assert len(left(made.name, made.number, made.networks)) > 5


def test_two_labs_do_not_meet() -> None:
    with lab_hosts(1) as one:
        with lab_hosts(1) as other:
            (here,), (there,) = one.hosts, other.hosts
            assert here.name == there.name
            assert here.address != there.address
            assert here.virsh("-c", f"qemu+tcp://{here.address}/system", "hostname") == "h1"
            look = f"import socket; socket.create_connection(('{there.address}', 16509), 0.5)"
            assert here.run(["python3", "-c", look], check=False).returncode
        assert here.virsh("uri") == "qemu:///system"


def test_a_lab_that_cannot_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    with pytest.raises(LabError, match="too long a name"), lab_hosts(1):
        pass

    assert list(long.glob(f"{plan.PREFIX}*")) == []


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for tool in ("unshare", "nsenter", "ip"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(LabError, match="libvirtd"), lab_hosts(1):
        pass
