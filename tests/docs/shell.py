"""A shell whose commands print to a terminal of 80 columns, in a home folder of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from types import TracebackType

from shared.base.clock import SystemClock
from tests.ports import free_port

COLUMNS, LINES = 80, 50
LIMIT_S = 120.0
DEMO = ".local/state/trimtab/demo"  # below the home folder
PORTAL_PORT = 8440  # as pages say it, whichever it is
_CLOCK = SystemClock()
_END = re.compile(rb"\x01(\d+)\x02")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Shell:
    """A `bash` that takes one command after the other; what one sets is there for the next. Use as a context manager:
    at its end a demo that was started in it is stopped, and the folder is removed."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="docs-"))  # short: the path of a socket has 107 bytes
        self.port = free_port()
        self._screen, terminal = pty.openpty()
        _set_up(terminal)
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self.home,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (self.home / DEMO).exists():
            trimtab = str(Path(sys.executable).with_name("trimtab"))
            subprocess.run([trimtab, "demo", "stop"], env=self._environment(), capture_output=True, check=False)
        os.killpg(self._bash.pid, signal.SIGKILL)
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait()
        os.close(self._screen)
        shutil.rmtree(self.home)

    def run(self, command: str, limit_s: float = LIMIT_S) -> tuple[int, list[str]]:
        """Return the exit status of a command and the lines that it prints, as a page shows them. Raises TimeoutError
        when it does not end within the limit."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"eval {shlex.quote(command)} </dev/null\nprintf '\\001%d\\002' $?\n".encode())
        self._bash.stdin.flush()
        printed = b""
        until_s = _CLOCK.monotonic_s() + limit_s
        while (end := _END.search(printed)) is None:
            ready, _, _ = select.select([self._screen], [], [], max(0.0, until_s - _CLOCK.monotonic_s()))
            if not ready:
                raise TimeoutError(f"{command!r} has not ended within {limit_s:g} s: {printed[-2000:]!r}")
            printed += os.read(self._screen, 65_536)
        return int(end.group(1)), self._shown(printed[: end.start()])

    def _shown(self, printed: bytes) -> list[str]:
        text = _CONTROL.sub("", printed.decode(errors="replace"))
        text = text.replace(str(self.home), "~").replace(f"localhost:{self.port}", f"localhost:{PORTAL_PORT}")
        return text.splitlines()

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "TERM": "dumb",  # no colours, and nothing that is drawn over
            "COLUMNS": str(COLUMNS),
            "LINES": str(LINES),
            "TRIMTAB_DEMO_PORT": str(self.port),
        }


def _set_up(terminal: int) -> None:
    """Give a terminal its size, and have it pass on what is printed as it is."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    modes = termios.tcgetattr(terminal)
    modes[1] &= ~termios.OPOST
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
