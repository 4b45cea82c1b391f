"""Supervises one program of the runner `cgroup`: starts it, waits for its end, and records how it ended.

`python -I -m agents.hypervisors.process.supervise FOLDER` returns once the program has been started. It leaves a
supervisor behind that outlives the caller. It needs root: programs run as another account.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from agents.hypervisors.process import launch

RUN, EXIT = "run.json", "exit.json"
STARTED = b"started"
_SET_NO_NEW_PRIVS = 38
_UMASK = 0o022


def start_ticks(pid: int) -> int:
    """Return when a process was started, in the kernel's ticks since boot; with the process id, this identifies the
    process. 0 if there is none, or if it has ended and nobody has waited for it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return 0 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def put(path: Path, value: Any) -> None:
    """Replace a file in one step."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value), encoding="utf-8")
    os.replace(new, path)


def _enter(files: list[str], pid: int) -> None:
    for file in files:
        with open(file, "wb", buffering=0) as group:
            group.write(str(pid).encode("ascii"))


def _program(said: dict[str, Any], go: int) -> NoReturn:
    """Drop all rights in the child once it is in its groups, and execute the program."""
    try:
        if not os.read(go, 1):
            os._exit(launch.UNUSABLE)
        os.setgroups([])
        os.setresgid(said["gid"], said["gid"], said["gid"])
        os.setresuid(said["uid"], said["uid"], said["uid"])
        if ctypes.CDLL(None, use_errno=True).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
        launch.become(said)
    except BaseException as error:  # noqa: BLE001  nobody hears it but the output
        os.write(2, f"not started: {error}\n".encode(errors="replace"))
    os._exit(launch.UNUSABLE)


def _supervise(folder: Path, said: dict[str, Any], told: int) -> NoReturn:
    """Start the program in the supervisor, confirm it, and wait."""
    os.setsid()
    os.umask(_UMASK)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    try:
        _enter(said["supervisors"], os.getpid())
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            _program(said, wait)
        os.close(wait)
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # by this one: the program is to heed them
            signal.signal(ignored, signal.SIG_IGN)
        _enter(said["groups"], child)  # a frozen group holds it where it waits
        os.write(go, b".")
        put(folder / RUN, {"pid": os.getpid(), "ticks": start_ticks(os.getpid()), "program": child})
        os.write(told, STARTED)
    except BaseException as error:  # noqa: BLE001  handed to the parent
        os.write(told, str(error).encode(errors="replace"))
        os._exit(1)
    os.close(told)
    _pid, status = os.waitpid(child, 0)
    put(folder / EXIT, {"status": os.waitstatus_to_exitcode(status)})
    os._exit(0)


def main(arguments: list[str]) -> int:
    """Leave a supervisor behind; returns 0 once its program has been started."""
    folder = Path(arguments[0])
    said = launch.read(folder / launch.FILE)
    heard, told = os.pipe()
    if os.fork() == 0:
        os.close(heard)
        _supervise(folder, said, told)
    os.close(told)
    answer = os.read(heard, 4_096)  # no more comes, and a frozen program holds the other end
    if answer == STARTED:
        return 0
    print(answer.decode(errors="replace") or "the supervisor died", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
