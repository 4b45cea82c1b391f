"""Debian packages of agreements: asked of the root helper (`agents.helper`), which has an allow-list of its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase

from shared.base.clock import SystemClock
from shared.base.deadline import Deadline
from shared.base.errors import PermanentError, TransientError
from shared.values.host_setup import Package

ANSWER_BYTES_MAX = 65_536
CONNECT_LIMIT_S = 5.0
BUSY_LIMIT_S = 20.0  # for how long it is asked again when it turns the agent away
BUSY_LOOK_S = 0.1
_CLOCK = SystemClock()


class Packages:
    """Has packages installed whose names match one of the patterns, by the helper that listens on the socket `helper`.
    Nothing is ever removed: others may use it."""

    def __init__(self, patterns: Sequence[str], helper: str) -> None:
        self._patterns, self._helper = tuple(patterns), helper

    def objections(self, packages: Sequence[Package]) -> list[str]:
        """Return why some of the packages may not be installed."""
        allowed = ", ".join(self._patterns) or "none"
        return [
            f"package {package.name} matches none of setup.packages: {allowed}"
            for package in packages
            if not any(fnmatchcase(package.name, pattern) for pattern in self._patterns)
        ]

    def install(self, packages: Sequence[Package], deadline: Deadline) -> list[str]:
        """Have them installed; returns NAME=VERSION of those that were not. Raises PermanentError with what the helper
        says where it refuses or fails, TransientError where it cannot be reached."""
        wanted = [{"name": it.name, "version": it.version, "sha256": it.sha256} for it in packages]
        answer = self._ask({"install": wanted, "limit_s": deadline.left_s()}, deadline)
        if answer.get("ok") is not True:
            raise PermanentError(f"packages: {answer.get('reason', 'the helper gave no reason')}")
        installed = answer.get("installed")
        return [str(name) for name in installed] if isinstance(installed, list) else []

    def _ask(self, request: object, deadline: Deadline) -> dict[str, object]:
        """Ask until there is an answer: one that is busy, or has not quite ended, turns others away."""
        turned_away = Deadline(BUSY_LIMIT_S)
        while True:
            try:
                return _read(self._answer(request, deadline))
            except TimeoutError as error:
                raise TransientError(f"the helper has not answered within {deadline.limit_s:g} s") from error
            except ConnectionError as error:
                if isinstance(error, ConnectionRefusedError) or not turned_away.is_ahead:
                    raise TransientError(f"the helper ({self._helper}): {error.strerror or error}") from error
                _CLOCK.sleep(min(BUSY_LOOK_S, deadline.left_s()))
            except OSError as error:
                raise TransientError(f"the helper ({self._helper}): {error.strerror or error}") from error

    def _answer(self, request: object, deadline: Deadline) -> bytes:
        """Make one attempt and return the answer. Raises OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(min(CONNECT_LIMIT_S, deadline.left_s()))
            channel.connect(self._helper)
            channel.sendall(json.dumps(request).encode() + b"\n")
            channel.shutdown(socket.SHUT_WR)
            return _line(channel, deadline)


def _line(channel: socket.socket, deadline: Deadline) -> bytes:
    """Return the helper's answer, one line."""
    said = b""
    while not said.endswith(b"\n"):
        channel.settimeout(deadline.left_s())
        some = channel.recv(ANSWER_BYTES_MAX)
        said += some
        if not some:
            raise ConnectionResetError("it ended without an answer: its journal says why")
        if len(said) > ANSWER_BYTES_MAX:
            raise TransientError("the helper's answer is too long")
    return said


def _read(said: bytes) -> dict[str, object]:
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise TransientError("the helper's answer cannot be read") from error
    if not isinstance(answer, dict):
        raise TransientError("the helper's answer cannot be read")
    return answer
