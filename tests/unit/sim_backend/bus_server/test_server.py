"""What the bus server does beside `tests/conformance/test_socket_bus.py`: accounts, noise, its own end."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.base.errors import BusUnavailable, InvalidInput
from shared.bus.buses import find_bus
from shared.ports.bus import Bus, Delivery, Lost
from shared.protocol.topology import CONTROLLER, CONTROLLER_QUEUE, REPORTS, RESULTS, agent_queue, report_key
from sim_backend.bus_server.server import BusServer
from sim_backend.bus_server.wire import HEAD, SERVER_DECODER, Answered, Ended, Frames, Hello, Publish, to_frame
from tests.conformance.socket_bus_rig import ServerThread, SocketHarness


@pytest.fixture
def rig() -> Iterator[SocketHarness]:
    made = SocketHarness()
    yield made
    made.close()


def polled(bus: Bus) -> list[object]:
    """The first events that come."""
    for _ in range(100):
        events = bus.poll(0.1)
        if events:
            return list(events)
    return []


def talk(path: Path, *frames: bytes) -> list[object]:
    """What the server says to these frames until it closes the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(10.0)
        link.connect(str(path))
        link.sendall(b"".join(frames))
        link.shutdown(socket.SHUT_WR)
        said = b""
        while part := link.recv(65_536):
            said += part
    return list(Frames(SERVER_DECODER).feed(said))


def test_only_its_owner_can_connect(rig: SocketHarness) -> None:
    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("user", ["nobody", "agent", ""])
def test_an_account_without_rights_is_refused(rig: SocketHarness, user: str) -> None:
    (answer,) = talk(rig.path, to_frame(Hello(user)))

    assert answer == Answered(0, f"there is no account {user!r}")


def test_the_client_says_which_account_there_is_not(rig: SocketHarness) -> None:
    with pytest.raises(BusUnavailable, match="there is no account 'guest'"):
        rig.connect("guest")


@pytest.mark.parametrize(
    "frames",
    [
        (to_frame(Publish(RESULTS, CONTROLLER_QUEUE, b"", None, "")),),
        (to_frame(Hello("agent.n1")), to_frame(Hello("agent.n2"))),
        (to_frame(Hello("agent.n1")), HEAD.pack(2**32 - 1)),
        (to_frame(Hello("agent.n1")), HEAD.pack(3) + b"abc"),
        (to_frame(Hello("agent.n1")), to_frame(Publish(REPORTS, report_key("n2"), b"", None, ""))),
    ],
    ids=["no account", "two accounts", "too long", "no frame", "not permitted"],
)
def test_noise_ends_its_own_connection_alone(rig: SocketHarness, frames: tuple[bytes, ...]) -> None:
    controller = rig.connect("controller.a")
    controller.declare(CONTROLLER)

    *_, last = talk(rig.path, *frames)

    assert isinstance(last, Ended)
    rig.connect("agent.n1").publish(RESULTS, CONTROLLER_QUEUE, b"after")
    controller.consume(CONTROLLER_QUEUE, 1)
    (delivery,) = polled(controller)
    assert isinstance(delivery, Delivery)
    assert (delivery.sender, delivery.body) == ("agent.n1", b"after")


def test_the_end_of_the_server_is_a_lost_connection(rig: SocketHarness) -> None:
    bus = rig.connect("controller.a")
    bus.declare(agent_queue("n1"))

    rig.close_server()

    (event,) = polled(bus)
    assert isinstance(event, Lost)
    assert "has closed the connection" in event.reason
    with pytest.raises(BusUnavailable, match="has closed the connection"):
        bus.declare(agent_queue("n1"))
    assert not rig.path.exists()


def test_nobody_listens(tmp_path: Path) -> None:
    url = f"unix://agent.n1@{tmp_path}/bus.socket"

    with pytest.raises(BusUnavailable, match=r"no bus server listens at .*/bus\.socket: No such file"):
        find_bus(url)(url)


@pytest.mark.parametrize(("name", "problem"), [("x" * 108, "too long for a socket"), ("none/bus", "cannot listen")])
def test_a_path_that_cannot_be_used(tmp_path: Path, name: str, problem: str) -> None:
    thread = ServerThread(tmp_path / name)

    with pytest.raises(InvalidInput, match=problem):
        thread.start()

    thread.stop()
    assert isinstance(thread.server, BusServer)
