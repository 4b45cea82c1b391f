"""Real probes against real servers on loopback: what is healthy, what is not, and how long that may take."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest

from agents.probes.lanes import ProbeLanes
from agents.probes.probes import HEAD_BYTES_MAX, Monitor
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, InvalidValue
from shared.config.agent import AgentConfig, HealthCheckKeys, MonitorCommand
from shared.config.toml import load
from shared.ports.effects import Probed, ProbeInstance
from shared.runtime.lanes import Lane
from shared.values.health import NO_ADDRESS, UNKNOWN_COMMAND, Probe, ProbeKind, Target
from tests.ports import free_port
from tests.support.tcp_server import LOOPBACK, Serve, server

LIMIT_S = 0.3
CLOCK = SystemClock()


def says(*parts: bytes) -> Serve:
    """Read the request, then say this."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        for part in parts:
            connection.sendall(part)

    return serve


def probed(probe: Probe, address: str = LOOPBACK, keys: HealthCheckKeys | None = None) -> Probed:
    answer = Monitor(keys or HealthCheckKeys()).probe(Target("shop#0", 3, probe), address)
    assert (answer.vm, answer.generation) == ("shop#0", 3)
    return answer


def http(port: int, path: str = "/", limit_s: float = LIMIT_S) -> Probe:
    return Probe(ProbeKind.HTTP, port, path, limit_s=limit_s)


def told(probe: Probe, address: str = LOOPBACK) -> tuple[bool, str]:
    answer = probed(probe, address)
    return answer.ok, answer.detail


# --- HTTP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [b"200 OK", b"204 No Content", b"301 Moved Permanently", b"399 x"])
def test_answers_up_to_399_are_good_and_redirects_are_not_followed(status: bytes) -> None:
    answer = b"HTTP/1.1 " + status + b"\r\nLocation: http://192.0.2.1/\r\n\r\n"
    with server(says(answer)) as port:
        assert told(http(port)) == (True, "")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 500 Oops\r\n\r\n", "HTTP 500"),
        (b"HTTP/1.0 404\r\n\r\n", "HTTP 404"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "HTTP 100"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 \xb2\xb3\r\n\r\n", "the answer is not HTTP"),
        (b"\r\n\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nServer: x\r\n", "the head of the answer has no end"),
        (b"", "the connection was closed without an answer"),
    ],
)
def test_other_answers_are_not(answer: bytes, why: str) -> None:
    with server(says(answer)) as port:
        assert told(http(port)) == (False, why)


def test_what_is_asked() -> None:
    heard: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        heard.append(connection.recv(65_536))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with server(serve) as port:
        assert told(http(port, "/healthz?deep=1")) == (True, "")
    assert heard[0].split(b"\r\n")[:2] == [b"GET /healthz?deep=1 HTTP/1.1", f"Host: 127.0.0.1:{port}".encode()]


def test_an_endless_body_is_not_read() -> None:
    """Given a body without an end, then the head is enough."""
    sent: list[int] = []

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent.append(connection.send(b"x" * 65_536))

    with server(serve) as port:
        begun_s = CLOCK.monotonic_s()
        assert told(http(port, limit_s=5.0)) == (True, "")
    assert CLOCK.monotonic_s() - begun_s < 4.0


def test_an_endless_head_is_given_up() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-More: " + b"x" * (HEAD_BYTES_MAX // 8) + b"\r\n")

    with server(serve) as port:
        assert told(http(port, limit_s=5.0)) == (False, "the head of the answer has no end")


@pytest.mark.parametrize("drips", [False, True])
def test_silence_and_drips_end_at_the_limit(drips: bool) -> None:
    """Given a server that says nothing, or a byte now and then, then the limit holds for the whole of it."""

    def serve(connection: socket.socket) -> None:
        for _ in range(16):
            if drips:
                connection.sendall(b"H")
            CLOCK.sleep(0.05)

    with server(serve) as port:
        begun_s = CLOCK.monotonic_s()
        assert told(http(port)) == (False, "no answer within 0.3 s")
        assert LIMIT_S * 0.9 <= CLOCK.monotonic_s() - begun_s < 4 * LIMIT_S


def test_nobody_there() -> None:
    port = free_port()
    assert told(http(port)) == (False, "connection refused")
    assert told(Probe(ProbeKind.TCP, port)) == (False, "connection refused")


# --- TCP and addresses -----------------------------------------------------------------------------------------------


def test_a_connection_is_enough() -> None:
    with server(lambda _connection: None) as port:
        assert told(Probe(ProbeKind.TCP, port)) == (True, "")


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6")
    with server(says(b"HTTP/1.1 200 OK\r\n\r\n"), "::1") as port:
        assert told(http(port), "::1") == (True, "")


@pytest.mark.parametrize("address", ["", "localhost", "example.org", "127.1", "127.0.0.1 "])
def test_what_is_no_ip_address_is_not_asked(address: str) -> None:
    assert told(Probe(ProbeKind.TCP, 1), address) == (True, NO_ADDRESS)


@pytest.mark.parametrize("key", ["period_s", "limit_s", "grace_s"])
def test_no_probe_waits_longer_than_a_host_can(key: str) -> None:
    """A socket raises OverflowError for such a limit: an agent that was sent one would end."""
    with pytest.raises(InvalidValue, match=key):
        Probe(ProbeKind.TCP, 1, **{key: 1e300})  # type: ignore[arg-type]


# --- commands --------------------------------------------------------------------------------------------------------


def command(code: str, limit_s: float = 5.0) -> HealthCheckKeys:
    return HealthCheckKeys({"check": MonitorCommand((sys.executable, "-I", "-c", code), limit_s)})


def check(limit_s: float = 5.0, name: str = "check") -> Probe:
    return Probe(ProbeKind.COMMAND, 8080, command=name, limit_s=limit_s)


def test_a_command_is_told_whom_to_probe(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    words = "' '.join(os.environ['TRIMTAB_' + name] for name in ('VM', 'ADDRESS', 'PORT'))"
    code = f"import os, pathlib; pathlib.Path({str(seen)!r}).write_text({words})"
    assert probed(check(), keys=command(code)).ok
    assert seen.read_text() == "shop#0 127.0.0.1 8080"


def test_a_command_that_fails_says_why() -> None:
    answer = probed(check(), keys=command("print('queue is full'); raise SystemExit(3)"))
    assert (answer.ok, "check: " in answer.detail, "queue is full" in answer.detail) == (False, True, True)


@pytest.mark.parametrize(("own_s", "probe_s"), [(0.2, 5.0), (5.0, 0.2)])
def test_a_command_that_hangs_is_killed(own_s: float, probe_s: float) -> None:
    answer = probed(check(probe_s), keys=command("import time; time.sleep(30)", own_s))
    assert (answer.ok, "killed after 0.2 s" in answer.detail) == (False, True)


def test_a_command_that_cannot_be_run_is_a_mistake_of_the_configuration() -> None:
    keys = HealthCheckKeys({"check": MonitorCommand(("/nowhere/check",))})
    answer = probed(check(), keys=keys)
    assert answer.ok
    assert answer.detail == f"{UNKNOWN_COMMAND} 'check': /nowhere/check cannot be run: No such file or directory"


def test_a_command_of_another_name_is_a_mistake_of_the_configuration() -> None:
    answer = probed(check(name="other"), keys=command("pass"))
    assert (answer.ok, answer.detail) == (True, f"{UNKNOWN_COMMAND} 'other'; there are: check")
    assert probed(check(name="other")).detail == f"{UNKNOWN_COMMAND} 'other'; there are: none"


def test_a_command_without_a_program_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"health_checks\.commands\.check\.run"):
        Monitor(HealthCheckKeys({"check": MonitorCommand(())}))


# --- threads ---------------------------------------------------------------------------------------------------------


def test_probes_run_side_by_side_and_threads_are_used_again() -> None:
    """Given four probes at a time, then each has a thread of its own, and the next needs no new one."""
    lanes: list[Lane] = []
    failures: list[BaseException] = []
    answers: list[Probed] = []
    done = threading.Semaphore(0)

    def make(name: str) -> Lane:
        lanes.append(Lane(name, failures.append))
        return lanes[-1]

    def take(answer: Probed) -> None:
        answers.append(answer)
        done.release()

    probes = ProbeLanes(Monitor(HealthCheckKeys()), make, take)
    begun = threading.Event()

    def hold(_: socket.socket) -> None:
        begun.wait(10.0)

    with server(hold) as port:
        for index in range(4):
            probes.begin(check_nothing(index, port))
        begun.set()
        assert all(done.acquire(timeout=10.0) for _ in range(4))
        probes.begin(check_nothing(4, port))
        assert done.acquire(timeout=10.0)
    assert [lane.close(5.0) for lane in lanes] == [True] * 4
    assert (failures, len(answers)) == ([], 5)


def check_nothing(index: int, port: int) -> ProbeInstance:
    """A probe of a server that closes without a word."""
    return ProbeInstance(Target(f"shop#{index}", 1, http(port, limit_s=5.0)), LOOPBACK)


# --- the file --------------------------------------------------------------------------------------------------------


def test_commands_of_the_agents_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        '[health_checks.commands.check]\nrun = ["/bin/true"]\nlimit_s = 2\n'
        '[health_checks.commands.other]\nrun = ["x"]\n'
    )
    commands = load(path, AgentConfig).health_checks.commands
    assert commands == {"check": MonitorCommand(("/bin/true",), 2.0), "other": MonitorCommand(("x",), 10.0)}
