"""The watchdog device: what it is asked when it is armed, and what is refused. A FIFO stands in for the file."""

from __future__ import annotations

import errno
import os
import pty
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.lease.watchdog import GETSUPPORT, GETTIMEOUT, MAGIC_CLOSE, SETTIMEOUT, Watchdog
from shared.base.errors import PermanentError


class Driver:
    """What a driver answers. `takes_s`: its timeout when it is asked for another one; None: the one it is asked for, if
    that is at least `shortest_s`."""

    def __init__(
        self, takes_s: int | None = None, refuses: int = 0, options: int = MAGIC_CLOSE, shortest_s: int = 1
    ) -> None:
        self.takes_s, self.refuses, self.options, self.shortest_s = takes_s, refuses, options, shortest_s
        self.asked: list[int] = []

    def ioctl(self, _fd: int, request: int, data: bytes) -> bytes:
        if request == GETSUPPORT:
            return struct.pack("=II32s", self.options, 0, b"driver")
        (value,) = struct.unpack("=i", data)
        if request == SETTIMEOUT:
            self.asked.append(value)
            refuses = self.refuses or (errno.EINVAL if value < self.shortest_s else 0)
            if refuses:
                raise OSError(refuses, os.strerror(refuses))
            self.takes_s = value if self.takes_s is None else self.takes_s
            return data
        assert request == GETTIMEOUT
        return struct.pack("=i", self.takes_s or 0)


class Pipe:
    """The file of a device, and what is written to it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def heard(self) -> bytes:
        try:
            return os.read(self.fd, 100)
        except BlockingIOError:
            return b"(open)"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "watchdog")
    yield made
    os.close(made.fd)


def test_it_is_armed_with_whole_seconds_petted_and_stopped(pipe: Pipe) -> None:
    driver = Driver()
    watchdog = Watchdog(pipe.path, driver.ioctl)

    assert watchdog.arm(30.9, 5.0) == 30.0
    assert watchdog.is_real
    assert driver.asked == [30]
    assert pipe.heard() == b"(open)"
    watchdog.pet()
    assert pipe.heard() == b"\0"
    watchdog.disarm()
    assert pipe.heard() == b"V"
    assert pipe.heard() == b""  # closed


@pytest.mark.parametrize(
    ("driver", "fires_s"),
    [
        (Driver(takes_s=60), 60.0),
        (Driver(takes_s=16), 16.0),
        (Driver(takes_s=120, refuses=errno.EOPNOTSUPP), 120.0),
        (Driver(takes_s=25, refuses=errno.EINVAL), 25.0),
    ],
)
def test_what_the_device_takes_counts(pipe: Pipe, driver: Driver, fires_s: float) -> None:
    assert Watchdog(pipe.path, driver.ioctl).arm(30.0, 5.0) == fires_s


@pytest.mark.parametrize(("shortest_s", "asked"), [(1, [30, 1]), (3, [30, 1, 2, 4])])
def test_it_fires_as_soon_as_it_can(pipe: Pipe, shortest_s: int, asked: list[int]) -> None:
    """The kernel pets at each call that it takes: there is one of them, with the shortest timeout."""
    driver = Driver(shortest_s=shortest_s)
    watchdog = Watchdog(pipe.path, driver.ioctl)
    watchdog.arm(30.0, 5.0)
    watchdog.fire()
    assert driver.asked == asked
    assert pipe.heard() == b"(open)"


def test_one_that_takes_no_shorter_timeout_fires_when_its_own_is_over(pipe: Pipe) -> None:
    watchdog = Watchdog(pipe.path, Driver(takes_s=30, refuses=errno.EOPNOTSUPP).ioctl)
    watchdog.arm(30.0, 5.0)
    with pytest.raises(OSError, match="not supported"):
        watchdog.fire()


def test_a_timeout_of_less_than_three_renewals_is_refused_in_words(pipe: Pipe) -> None:
    driver = Driver(takes_s=10, refuses=errno.EINVAL)
    with pytest.raises(
        PermanentError, match=r"timeout of 10 s.*30 s \(Invalid argument\).*renew_s may be at most 3.33"
    ):
        Watchdog(pipe.path, driver.ioctl).arm(30.0, 5.0)
    assert pipe.heard() == b"V"


def test_a_device_that_stops_with_its_process_is_refused(pipe: Pipe) -> None:
    with pytest.raises(PermanentError, match="no magic close"):
        Watchdog(pipe.path, Driver(options=0).ioctl).arm(30.0, 5.0)


def test_a_fifo_takes_pets_and_is_not_real(pipe: Pipe) -> None:
    watchdog = Watchdog(pipe.path)
    assert watchdog.arm(30.5, 5.0) == 30.5
    assert not watchdog.is_real
    watchdog.pet()
    assert pipe.heard() == b"\0"
    watchdog.fire()
    assert pipe.heard() == b"(open)"


def test_a_terminal_takes_pets() -> None:
    mine, other = pty.openpty()
    try:
        watchdog = Watchdog(os.ttyname(other))
        assert watchdog.arm(30.0, 5.0) == 30.0
        watchdog.pet()
        watchdog.disarm()
    finally:
        os.close(mine)
        os.close(other)


def test_other_devices_and_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermanentError, match="is no device"):
        Watchdog(str(tmp_path / "file")).arm(30.0, 5.0)
    with pytest.raises(PermanentError, match="/dev/null does not answer as a watchdog does"):
        Watchdog("/dev/null").arm(30.0, 5.0)


def test_a_device_that_cannot_be_opened_is_explained(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="no such device: load the driver"):
        Watchdog(str(tmp_path / "none")).arm(30.0, 5.0)
    os.mkfifo(tmp_path / "unread")
    with pytest.raises(PermanentError, match="no watchdog behind it"):
        Watchdog(str(tmp_path / "unread")).arm(30.0, 5.0)
