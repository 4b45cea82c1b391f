"""Answers one request, on the socket that systemd has accepted, and ends: `python -I -m agents.helper`.

Nothing is taken from the command line or the environment. The answer is one line of JSON: {"ok": true, "installed":
[NAME=VERSION, ...], "present": [...]} or {"ok": false, "refused": whether nothing was changed, "reason": "..."}.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from agents.helper import apt, policy, request
from agents.helper.errors import Failure, Refusal

CONFIG = "/etc/trimtab/helper.toml"
FOLDER = "/var/cache/trimtab-helper"
CHANNEL = 0  # StandardInput=socket
ANSWER_LIMIT_S = 5.0


def _limit(limit_s: float, error: Exception) -> None:
    """Raise the error in so many seconds, unless another limit is set until then."""

    def too_late(_signal: int, _frame: FrameType | None) -> None:
        raise error

    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def answer(
    channel: socket.socket, config: str = CONFIG, folder: str = FOLDER, limit_s: float = request.REQUEST_LIMIT_S
) -> dict[str, Any]:
    """Carry out the request that arrives on a channel within `limit_s`; return the answer."""
    try:
        allowed = policy.read(config)
        policy.check_peer(channel, allowed.user)
        _limit(limit_s, request.too_late(limit_s))  # whole, however it drips
        wanted = request.parsed(request.received(channel, limit_s))
        allowed.check(wanted)
        _limit(wanted.limit_s, Failure("not done in time"))
        done = apt.install(wanted.install, allowed, Path(folder))
        return {"ok": True, "installed": list(done.installed), "present": list(done.present)}
    except (Refusal, Failure) as error:
        return {"ok": False, "refused": isinstance(error, Refusal), "reason": str(error)}
    except OSError as error:
        return {"ok": False, "refused": False, "reason": f"{error.filename or 'the helper'}: {error.strerror or error}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def main() -> int:
    """Answer, and say the same on standard error, which is the journal."""
    os.umask(0o077)
    with socket.socket(fileno=CHANNEL) as channel:
        said = json.dumps(answer(channel))
        print(said, file=sys.stderr)
        channel.settimeout(ANSWER_LIMIT_S)
        try:
            channel.sendall(said.encode() + b"\n")
        except OSError as error:
            print(f"nobody waits for the answer: {error.strerror or error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
