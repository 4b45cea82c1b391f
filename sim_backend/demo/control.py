"""Orders to the process of a demo: one line of JSON each way, over the control socket."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from shared.base.errors import PermanentError, TransientError

ANSWER_S = 60.0
LINE_BYTES_MAX = 1 << 20


class NoDemo(PermanentError):
    """No demo runs in this folder."""

    code = "no-demo"


class DemoRefusal(PermanentError):
    """The demo does not carry out an order."""

    code = "demo-refused"


def ask(path: Path, order: str, host: str = "", limit_s: float = ANSWER_S) -> dict[str, Any]:
    """Send an order, about `host` if it is about one, and return the answer. Raises NoDemo when no demo listens,
    DemoRefusal with its reason, TransientError when there is no answer within the limit."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(limit_s)
        try:
            link.connect(str(path))
        except OSError as error:
            raise NoDemo(f"no demo runs in {path.parent}") from error
        try:
            link.sendall(json.dumps({"order": order, "host": host}).encode() + b"\n")
            answer = _line(link)
        except OSError as error:
            raise TransientError(f"the demo in {path.parent} does not answer: {error}") from error
    if "error" in answer:
        raise DemoRefusal(str(answer["error"]))
    return answer


def await_end(path: Path, limit_s: float = ANSWER_S) -> None:
    """Have the demo stop and wait until its process has ended. Raises as `ask` does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(limit_s)
        try:
            link.connect(str(path))
            link.sendall(b'{"order": "stop"}\n')
            with suppress(ConnectionResetError):
                while link.recv(LINE_BYTES_MAX):
                    pass
        except TimeoutError as error:
            raise TransientError(f"the demo in {path.parent} has not ended within {limit_s:g} s") from error
        except OSError as error:
            raise NoDemo(f"no demo runs in {path.parent}") from error


def _line(link: socket.socket) -> dict[str, Any]:
    received = b""
    while not received.endswith(b"\n"):
        part = link.recv(LINE_BYTES_MAX)
        if not part:
            raise ConnectionError("it has closed the connection")
        received += part
    found: dict[str, Any] = json.loads(received)
    return found
