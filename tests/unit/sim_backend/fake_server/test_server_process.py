"""The fake server's socket, frames and process: who may use them, what is refused, and what it costs."""

from __future__ import annotations

import json
import math
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from shared.base.errors import CodecError, InvalidInput
from shared.values.actions import ActionKind
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.vms import VmState
from sim_backend.fake_server.client import RemoteHypervisor
from sim_backend.fake_server.main import main, parse_costs, parse_nodes
from sim_backend.fake_server.server import FakeServer
from sim_backend.fake_server.wire import FRAME_BYTES_MAX, Answer, Call, Frames, What, to_frame
from tests.support.fake_server_harness import CLOCK, LIMIT_S, NODES, Lab, act, running, serving, short_path, start
from tests.support.paths import ROOT


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a server may listen."""
    with short_path() as made:
        yield made


@pytest.fixture
def lab(path: Path) -> Iterator[Lab]:
    """Operations take the times of the paper."""
    with serving(path, COSTS["paper"]) as made:
        yield made


def test_the_socket_is_its_owners_alone_and_goes_with_the_server(lab: Lab) -> None:
    assert stat.S_IMODE(lab.path.stat().st_mode) == 0o600
    lab.server.stop()
    assert not lab.path.exists()


def test_one_server_per_path(lab: Lab) -> None:
    with pytest.raises(InvalidInput, match="another server"):
        FakeServer(lab.path, NODES).open()


def test_what_a_dead_server_left_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(path, COSTS["none"]) as lab:
        assert lab.control.state()["nodes"]


def test_paths_that_cannot_be(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(InvalidInput, match="no socket"):
        FakeServer(path, NODES).open()
    assert path.read_text() == "precious"
    with pytest.raises(InvalidInput, match="too long"):
        FakeServer("/" + "x" * 107, NODES).open()
    with pytest.raises(InvalidInput, match="cannot listen"):
        FakeServer(path.parent / "nowhere" / "fake", NODES).open()


GARBAGE = {
    "no msgpack": b"\x00\x00\x00\x01\xc1",
    "no call": b"\x00\x00\x00\x01\x01",
    "too long": (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
    "unknown": to_frame(Answer()),
}


@pytest.mark.parametrize("bad", GARBAGE)
def test_garbage_ends_one_connection_and_no_other(lab: Lab, bad: str) -> None:
    remote = running(lab)
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(LIMIT_S)
        link.connect(str(lab.path))
        link.sendall(GARBAGE[bad])
        received = b"".join(iter(lambda: link.recv(4_096), b""))
    (answer,) = Frames().feed(received, Answer)
    assert answer.error
    assert len(remote.vms(0.0)) == 1


def test_calls_out_of_place_are_answered_with_an_error(lab: Lab) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(LIMIT_S)
        link.connect(str(lab.path))
        frames = Frames()

        def ask(call: Call) -> str:
            link.sendall(to_frame(call))
            while not (answers := frames.feed(link.recv(4_096), Answer)):
                pass
            return answers[0].error

        assert "before hello" in ask(Call(What.VMS, 1))
        assert "no such order" in ask(Call(What.CONTROL, 2))
        assert ask(Call(What.HELLO, 3, node="n1")) == ""
        assert "twice" in ask(Call(What.HELLO, 4, node="n2"))
        assert "without" in ask(Call(What.BEGIN, 5))
        assert lab.node("n2")["attached"] is False


def test_frames_are_cut_wherever_the_bytes_are() -> None:
    calls = [Call(What.BEGIN, action=start()), Call(What.VMS, 7)]
    stream = b"".join(to_frame(call) for call in calls)
    for step in (1, 3, len(stream)):
        frames = Frames()
        parts = [stream[at : at + step] for at in range(0, len(stream), step)]
        assert [call for part in parts for call in frames.feed(part, Call)] == calls
    with pytest.raises(CodecError):
        to_frame(Call(What.BEGIN, action=act(ActionKind.SET_CPU, cpu_mhz=math.inf)))


def flood(link: socket.socket) -> None:
    """Ask again and again for the VMs of n1 and read nothing."""
    link.sendall(to_frame(Call(What.HELLO, 1, node="n1")))
    link.sendall(b"".join(to_frame(Call(What.BEGIN, action=start(f"many{index}#0"))) for index in range(16)))
    while True:
        link.sendall(to_frame(Call(What.VMS, 2)) * 1_000)


@pytest.mark.full
def test_a_client_that_reads_nothing_is_cut_off(path: Path) -> None:
    """What it leaves unread is bounded, and nobody else waits for it."""
    with serving(path, COSTS["none"]) as lab:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(LIMIT_S)
            link.connect(str(path))
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                flood(link)
        node = lab.node()
        assert (node["attached"], len(node["domains"])) == (False, 16)


# --- the command -------------------------------------------------------------------------------------------------


def test_nodes_and_costs() -> None:
    assert parse_nodes("n1:4x1000:16000,n-2:1x2.5:10:4") == [
        Node("n1", 4, 1_000.0, memory_mib=16_000),
        Node("n-2", 1, 2.5, memory_mib=10, reserve_mib=4),
    ]
    assert parse_costs("paper") == COSTS["paper"]
    assert parse_costs("1,0.5,0,2") == OperationCosts(
        start_s=1.0, suspend_s_per_mib=0.5, resume_s_per_mib=0.0, migrate_s_per_mib=2.0
    )


def test_nodes_and_costs_refused() -> None:
    """Every problem is named."""
    with pytest.raises(InvalidInput) as caught:
        parse_nodes("n1:4x1000:16000,n2:0x1000:1,what,n1:1x1:1")
    assert len(caught.value.problems) == 3
    for text in ("cheap", "1,2,3", "1,2,3,-4", "1,2,3,nan"):
        with pytest.raises(InvalidInput, match="--costs"):
            parse_costs(text)


class Process:
    """The server as a process of its own."""

    def __init__(self, path: Path, *options: str) -> None:
        command = [sys.executable, "-m", "sim_backend.fake_server", "--socket", str(path)]
        self.child = subprocess.Popen(
            [*command, "--nodes", "n1:4x1000:16000,n2:4x1000:16000", *options], stdout=subprocess.PIPE, text=True
        )
        assert self.child.stdout is not None
        self.said = json.loads(self.child.stdout.readline())

    def end(self) -> int:
        """SIGTERM; returns the exit status."""
        self.child.terminate()
        assert self.child.stdout is not None
        self.child.stdout.close()
        return self.child.wait(LIMIT_S)


@pytest.fixture
def process(path: Path) -> Iterator[Process]:
    """A server in real time without costs."""
    made = Process(path)
    yield made
    made.end()


AGENT = """
import sys
from sim_backend.fake_server.client import RemoteHypervisor
from tests.support.fake_server_harness import start
remote = RemoteHypervisor(sys.argv[1])
remote.begin(start(), 0.0)
remote.inventory()
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.full
def test_kill_9_of_an_agent_leaves_its_vms_running(process: Process, path: Path) -> None:
    assert process.said == {"socket": str(path), "pid": process.child.pid}
    uri = f"unix://{path}?node=n1"
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "begun\n"
        agent.send_signal(signal.SIGKILL)
    remote = RemoteHypervisor(uri)
    assert [status.state for status in remote.vms(0.0)] == [VmState.RUNNING]
    assert remote.poll(0.0) == ()
    remote.close()


def test_the_driver_brings_no_numerics_into_an_agent() -> None:
    heavy = "n for n in ('numpy', 'scipy', 'click') if n in sys.modules"
    script = f"import sys, sim_backend.fake_server.driver; print(*({heavy}))"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


def test_a_waiting_server_uses_no_cpu(process: Process, path: Path) -> None:
    """With guests at work whose end is far, a second of waiting costs nearly nothing."""
    remote = RemoteHypervisor(f"unix://{path}?node=n1")
    for index in range(4):
        remote.begin(start(f"job{index}#0", "fake:work=1e18"), 0.0)
    remote.inventory()
    server = psutil.Process(process.child.pid)
    used_s = []
    for _ in range(3):  # what else the machine does may be counted to it: the quietest second counts
        before = server.cpu_times()
        CLOCK.sleep(1.0)
        after = server.cpu_times()
        used_s.append((after.user - before.user) + (after.system - before.system))
    remote.close()
    assert min(used_s) <= 0.02


def test_the_process_ends_on_sigterm(path: Path) -> None:
    process = Process(path, "--costs", "paper", "--time-factor", "100")
    assert process.end() == 0
    assert not path.exists()


def ctl(path: Path, *words: str) -> int:
    """The control command in this process."""
    return main(["ctl", "--socket", str(path), *words])


def test_control_command(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints one JSON object, or a problem and nothing else."""
    running(lab)
    orders = [
        ["work", "late", "fake:work=1"],
        ["load", "shop", "500"],
        ["fail-next", "n2", "--kind", "start", "--how", "hang", "--vm", "late#0"],
        ["clear-failures", "n2"],
        ["lose-vm", "n1", "job#0"],
        ["part", "n1", "n2"],
        ["heal"],
        ["advance", "2.5"],
        ["fence", "n2"],
        ["host-returns", "n2"],
        ["host-dies", "n1"],
        ["state"],
    ]
    for words in orders:
        assert ctl(lab.path, *words) == 0, words
        answer = json.loads(capsys.readouterr().out)
    assert [node["up"] for node in answer["nodes"]] == [False, True]
    for words in (["crash-vm", "n1", "job#0"], ["fence", "n9"], ["load", "late", "1"], ["load", "shop", "inf"]):
        assert ctl(lab.path, *words) == 1
        out, err = capsys.readouterr()
        assert (out, bool(err)) == ("", True)


def test_usage(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl(path, "state") == 1
    assert "no fake server" in capsys.readouterr().err
    assert main(["--socket", str(path), "--nodes", "n1"]) == 2
    assert main(["--socket", str(path), "--nodes", "n1:1x1:1", "--time-factor", "-1"]) == 2
    with pytest.raises(SystemExit) as left:
        main(["--nodes", "n1:1x1:1"])
    assert left.value.code == 2
    assert not path.exists()
