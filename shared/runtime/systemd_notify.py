"""Reports a service's state to systemd (sd_notify(3)); without systemd every call does nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends notifications to the socket that the environment names.

    `watchdog_s`: how often `watchdog` must be called, half of what systemd waits; None when it does not watch this
    process.
    """

    __slots__ = ("_address", "_last_status", "watchdog_s")

    def __init__(self, environment: Mapping[str, str] | None = None, pid: int | None = None) -> None:
        env = os.environ if environment is None else environment
        self._address = _address(env.get("NOTIFY_SOCKET", ""))
        self._last_status = ""
        self.watchdog_s = _watchdog_s(env, os.getpid() if pid is None else pid)

    def ready(self) -> None:
        """Report that the service has started."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """Report that the service is alive."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Set the line for `systemctl status`; the same line twice is sent once."""
        if text != self._last_status:
            self._last_status = text
            self._send("STATUS=" + " ".join(text.split()))

    def _send(self, line: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(line.encode(), self._address)
        except OSError:
            return  # a supervisor that does not listen must not stop the service; its watchdog sees the silence


def _address(name: str) -> str:
    """Return the socket's address: a path, or an abstract name (written with @, on the wire with a zero byte)."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _watchdog_s(env: Mapping[str, str], pid: int) -> float | None:
    period_us, for_pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not period_us.isascii() or not period_us.isdigit() or int(period_us) == 0:
        return None
    if for_pid and for_pid != str(pid):
        return None
    return int(period_us) / 2e6
