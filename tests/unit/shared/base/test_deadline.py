"""A moment by which something must be done, and connections that keep to it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from shared.base.clock import SystemClock
from shared.base.deadline import Deadline, connected, received, send_all
from shared.base.errors import TransientError

CLOCK = SystemClock()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_is_left_and_when_it_is_over() -> None:
    ahead, over = Deadline(60.0), Deadline(0.0)

    assert ahead.is_ahead
    assert 50.0 < ahead.left_s() <= 60.0
    assert (ahead.wait_s(3.0), ahead.within(2.0).limit_s) == (3.0, 2.0)
    assert ahead.within(1000.0).left_s() <= 60.0
    assert not over.is_ahead
    with pytest.raises(TransientError, match="not done within 0 s"):
        over.left_s()
    with pytest.raises(TimeoutError):
        over.wait_s()


def test_an_address_that_is_silent_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a name with two addresses, of which the first one answers nothing, then the second one is reached."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_server(("127.0.0.1", 0)) as there:
        waiting = [socket.socket() for _ in range(4)]  # nobody takes them: the system drops what comes next
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", each.getsockname()) for each in (full, there)
        ]  # fmt: skip
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        begun_s = CLOCK.monotonic_s()

        with connected("two.example", 80, Deadline(0.6)) as connection:
            assert connection.getpeername() == there.getsockname()

        assert 0.2 < CLOCK.monotonic_s() - begun_s < 0.6
        for each in waiting:
            each.close()


def test_a_reader_that_takes_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(TimeoutError):
        send_all(pair[0], b"x" * (8 << 20), Deadline(0.2))


def test_what_is_sent_arrives_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    send_all(pair[0], b"some words\n", Deadline(5.0))
    pair[0].close()
    assert received(pair[1], Deadline(5.0)).read() == b"some words\n"


def test_silence_ends_a_read_before_the_deadline(pair: tuple[socket.socket, socket.socket]) -> None:
    deadline = Deadline(30.0)
    with pytest.raises(TimeoutError):
        received(pair[0], deadline, 0.05).read1(1)
    assert deadline.is_ahead
