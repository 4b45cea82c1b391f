"""Processes in the namespaces of a host: network, host name, mounts, IPC and processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from shared.base.clock import SystemClock
from tests.lab.errors import LabError

WRAPPER_LIMIT_S = 10.0
LOOK_S = 0.002
_CLOCK = SystemClock()


def first_process(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` as the first process of new namespaces. All of them end with it, and it ends with
    the thread that runs the command."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private"),
        *("--pid", "--fork", "--kill-child=KILL", "--", *argv),
    ]


def inside(pid: int, argv: Sequence[str], folder: Path | None = None) -> list[str]:
    """The command that runs `argv` in the namespaces of process `pid`, in a folder as seen there ("/" without one).

    `ip netns exec` would not do: it mounts a fresh /sys, without the cgroups.
    """
    return [
        *("nsenter", "--target", str(pid), "--net", "--uts", "--ipc", "--mount", "--pid"),
        *("--", "env", f"--chdir={folder or '/'}", *argv),
    ]


def children(pid: int) -> tuple[int, ...]:
    """The processes that one has started and that are not waited for yet; none of a process that is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()))
    return ()


def only_child(process: subprocess.Popen[bytes]) -> int:
    """The one process that a wrapper (unshare, nsenter) starts, as soon as it has. Raises LabError where it ends
    without."""
    until_s = _CLOCK.monotonic_s() + WRAPPER_LIMIT_S
    while not (found := children(process.pid)):
        if process.poll() is not None or _CLOCK.monotonic_s() > until_s:
            raise LabError(f"{process.args!r} has started nothing: status {process.returncode}")
        _CLOCK.sleep(LOOK_S)
    return found[0]


def wake_wrappers(pid: int) -> None:
    """Have those that entered the namespaces of process `pid` for a program see that it has died: one that stopped with
    its program does not, and the kernel keeps the namespaces until each has."""
    for wrapper in processes_with("nsenter", str(pid)):
        with suppress(ProcessLookupError):
            os.kill(wrapper, signal.SIGCONT)


class HostProcess(subprocess.Popen[bytes]):
    """A program that runs in a host's namespaces. Signals reach the program, not the wrapper that entered for it;
    `pid` is the wrapper, `inner_pid` the program as the machine sees it; it ends as the program ends."""

    @property
    def inner_pid(self) -> int:
        """Raises LabError when the program has ended."""
        return only_child(self)

    def send_signal(self, sig: int) -> None:
        """Send a signal to the program; nothing when it has ended. Raises LabError if the wrapper does not follow."""
        if self.poll() is not None:
            return
        with suppress(ProcessLookupError, LabError):
            os.kill(self.inner_pid, sig)
        # the wrapper stops itself some time after the program is stopped; then it does not see it go on or die
        if sig == signal.SIGSTOP:
            self._await_wrapper(psutil.STATUS_STOPPED)
        elif sig in (signal.SIGCONT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
        if sig == signal.SIGCONT:  # when it goes on it has the program go on, too: that must be over before a stop
            self._await_wrapper(psutil.STATUS_SLEEPING)

    def _await_wrapper(self, status: str) -> None:
        until_s = _CLOCK.monotonic_s() + WRAPPER_LIMIT_S
        while self.poll() is None and psutil.Process(self.pid).status() != status:
            if _CLOCK.monotonic_s() > until_s:
                raise LabError(f"the wrapper of {self.args!r} is not {status} within {WRAPPER_LIMIT_S} s")
            _CLOCK.sleep(LOOK_S)


def processes_with(*arguments: str) -> Iterator[int]:
    """The processes that have these very texts among their arguments."""
    wanted = {argument.encode() for argument in arguments}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if wanted <= set((folder / "cmdline").read_bytes().split(b"\0")):
                    yield int(folder.name)
