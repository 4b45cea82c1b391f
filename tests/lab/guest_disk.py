"""The disk that the readers of one host share: a server of NBD that serves one request at a time, in order of arrival,
and takes a stated time for each, as a disk does.

A limit on a cgroup or in QEMU is not that: what a guest did not use while it computed it has saved up, so that its
reads then take no time. Reads give zeros and writes are forgotten.

    python -m tests.lab.guest_disk /run/trimtab-disk --service-ms 5
"""

from __future__ import annotations

import argparse
import queue
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from shared.base.clock import SystemClock

DISK_BYTES = 64 * 1024 * 1024
SERVICE_MS = 5.0
LOOK_S = 0.02
START_LIMIT_S = 30.0

# The protocol: NetworkBlockDevice/nbd, doc/proto.md, fixed newstyle negotiation and simple replies.
GREETING = b"NBDMAGICIHAVEOPT" + struct.pack(">H", 0b11)  # fixed newstyle, no zeroes
OPTION = struct.Struct(">8sII")
OPTION_REPLY = struct.Struct(">QIII")
OPTION_MAGIC = 0x3E889045565A9
ABORT, GO = 2, 7
ACKNOWLEDGED, INFORMATION, UNSUPPORTED = 1, 3, 0x80000001
EXPORT = struct.Struct(">HQH")
CAN_FLUSH = 0b101  # flags are there; flush is understood
REQUEST = struct.Struct(">IHHQQI")
REPLY = struct.Struct(">IIQ")
REPLY_MAGIC = 0x67446698
READ, WRITE, DISCONNECT = 0, 1, 2
_CLOCK = SystemClock()


class Asked(NamedTuple):
    """A request that waits for the disk."""

    connection: socket.socket
    handle: int
    kind: int
    length: int


class Disk:
    """`service_s`: what a read or write takes; with a `seed` it is the mean of exponentially distributed times."""

    def __init__(self, service_s: float, seed: int | None = None) -> None:
        self._service_s = service_s
        self._random = None if seed is None else random.Random(seed)
        self._waiting: queue.SimpleQueue[Asked] = queue.SimpleQueue()

    def listen(self, path: Path) -> None:
        """Serve at a socket, for ever."""
        threading.Thread(target=self._serve, daemon=True).start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(path))
            listening.listen()
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=self._take, args=(connection,), daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        """Read the requests of one guest into the queue."""
        with connection, suppress(ConnectionError, EOFError):
            connection.sendall(GREETING)
            _exactly(connection, 4)  # the client's flags
            if not _agree(connection):
                return
            while True:
                _, _, kind, handle, _, length = REQUEST.unpack(_exactly(connection, REQUEST.size))
                if kind == DISCONNECT:
                    return
                if kind == WRITE:
                    _exactly(connection, length)
                self._waiting.put(Asked(connection, handle, kind, length))

    def _serve(self) -> None:
        """Answer the requests one after the other. Late wake-ups do not make the disk slower."""
        free_s = 0.0
        while True:
            asked = self._waiting.get()
            if asked.kind in (READ, WRITE):
                now_s = _CLOCK.monotonic_s()
                free_s = max(free_s, now_s) + self._time_s()
                _CLOCK.sleep(max(0.0, free_s - now_s))
            content = bytes(asked.length) if asked.kind == READ else b""
            with suppress(OSError):  # the guest has gone
                asked.connection.sendall(REPLY.pack(REPLY_MAGIC, 0, asked.handle) + content)

    def _time_s(self) -> float:
        return self._service_s if self._random is None else self._random.expovariate(1 / self._service_s)


def _agree(connection: socket.socket) -> bool:
    """Negotiate; whether the guest wants the disk."""
    while True:
        option: int
        _, option, length = OPTION.unpack(_exactly(connection, OPTION.size))
        _exactly(connection, length)
        if option == GO:
            export = EXPORT.pack(0, DISK_BYTES, CAN_FLUSH)
            connection.sendall(OPTION_REPLY.pack(OPTION_MAGIC, option, INFORMATION, len(export)) + export)
        known = option in (ABORT, GO)
        connection.sendall(OPTION_REPLY.pack(OPTION_MAGIC, option, ACKNOWLEDGED if known else UNSUPPORTED, 0))
        if known:
            return option == GO


def _exactly(connection: socket.socket, length: int) -> bytes:
    """The next bytes. Raises EOFError where the connection ends before them."""
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def command(path: Path, service_ms: float = SERVICE_MS, seed: int | None = None) -> list[str]:
    """What serves a disk at a socket until it is killed."""
    drawn = [] if seed is None else ["--seed", str(seed)]
    return [sys.executable, "-m", "tests.lab.guest_disk", str(path), "--service-ms", str(service_ms), *drawn]


def wait_for(path: Path, process: subprocess.Popen[Any]) -> None:
    """Until the disk's socket is there. Raises AssertionError where its process ends before that or takes too long."""
    until_s = _CLOCK.monotonic_s() + START_LIMIT_S
    while not path.exists():
        assert process.poll() is None, f"the disk has ended with status {process.returncode}"
        assert _CLOCK.monotonic_s() < until_s, "the disk takes too long to start"
        _CLOCK.sleep(LOOK_S)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A disk that guests share.")
    parser.add_argument("path", type=Path, help="its socket")
    parser.add_argument("--service-ms", type=float, default=SERVICE_MS, help="what each request takes")
    parser.add_argument("--seed", type=int, help="draw the times from an exponential distribution")
    asked = parser.parse_args(arguments)
    Disk(asked.service_ms / 1000, asked.seed).listen(asked.path)


if __name__ == "__main__":
    main()
