"""What a case may touch: its folder and nothing else, and nobody over the network.

A process that has called `Guard.begin` cannot go back: it is for the workers of `tests.fuzz`, never for pytest's.
"""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_FREE = ("/dev/", "/proc/self/")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = frozenset(
    (*("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.truncate", "shutil.rmtree"),)
)
_PROGRAMS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"))


class Guard:
    """Refuses connections, other programs and writes outside `folder`. `outside`: the writes that were tried beyond it
    and beyond what the words of the case name (`named`), which are refused as for want of rights."""

    def __init__(self, folder: Path) -> None:
        self._inside = str(folder.resolve())
        self.outside: list[str] = []
        self.named: tuple[str, ...] = ()

    def forget(self) -> None:
        """Forget what a case has named and tried."""
        self.outside.clear()
        self.named = ()

    def allow(self, words: Iterable[str]) -> None:
        """Take the folders of what words name for places that a command may try to write to."""
        places = (word.removeprefix("sqlite:///") for word in words)
        self.named = tuple(os.path.dirname(os.path.abspath(place)) for place in places)

    def begin(self) -> None:
        """Watch this process from here on. Pools of processes are as large as the machine has processors: it has one,
        so that all work is done here, where it is watched."""
        os.cpu_count = lambda: 1
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(args[2], int) and args[2] & _WRITES:
                self._look(args[0])
        elif event in _CHANGES:
            self._look(args[0])
        elif event == "sqlite3.connect":
            try:
                self._look(str(args[0]).removeprefix("file:").partition("?")[0])
            except PermissionError as problem:
                raise sqlite3.OperationalError("unable to open database file") from problem
        elif event == "socket.connect":
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        elif event == "socket.getaddrinfo":
            if args[0] not in ("localhost", "127.0.0.1", "::1", None):
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        elif event in _PROGRAMS:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(args[0]))

    def _look(self, place: Any) -> None:
        if isinstance(place, int) or place is None or place in (":memory:", ""):
            return
        path = os.path.abspath(os.fsdecode(place))
        if not path.startswith((self._inside, *_FREE)):
            if not path.startswith(self.named):
                self.outside.append(path)
            raise PermissionError(errno.EACCES, "Permission denied", path)
