"""The watchdog device of a host (watchdog-api of the Linux kernel): once armed, it resets the host unless it is petted
in time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from typing import Final

from shared.base.errors import PermanentError

GETSUPPORT: Final = 0x80285700
SETTIMEOUT: Final = 0xC0045706
GETTIMEOUT: Final = 0x80045707
MAGIC_CLOSE: Final = 0x0100  # of the options: the device goes on when it is closed without "V"
FIRES_S = 1  # the shortest timeout that can be asked for
TIMEOUT_MIN_RENEWALS = 3.0  # of a device that takes a shorter timeout than it is asked for
_SUPPORT = struct.Struct("=II32s")  # options, firmware version, identity
_SECONDS = struct.Struct("=i")
_WHY = {
    errno.EBUSY: (
        "another program has it: systemd (RuntimeWatchdogSec= in /etc/systemd/system.conf), the package watchdog, "
        "or another trimtab-lease"
    ),
    errno.ENOENT: "there is no such device: load the driver of this machine's watchdog, or softdog",
    errno.ENXIO: "there is no watchdog behind it: load the driver of this machine's watchdog, or softdog",
}


class Watchdog:
    """A watchdog device. `is_real`: whether it is one; a FIFO or a terminal, in tests and labs, takes pets and resets
    nothing. Other devices are refused."""

    def __init__(self, path: str, ioctl: Callable[[int, int, bytes], bytes] = fcntl.ioctl) -> None:
        self.path = path
        self.is_real = False
        self._ioctl = ioctl
        self._fd = -1
        self._timeout_s = 0.0

    def arm(self, expires_s: float, renew_s: float) -> float:
        """Open the device, which begins to count, and have it fire `expires_s` after the last pet, in whole seconds.
        Return after how many seconds it fires: it may take another timeout than it was asked for. Raises PermanentError
        when it cannot be used; it is disarmed then, if it was opened."""
        self._fd = self._opened()
        try:
            self._timeout_s = self._set(expires_s, renew_s)
            return self._timeout_s
        except BaseException:
            self.disarm()
            raise

    def pet(self) -> None:
        """Have it count from the beginning. Raises OSError."""
        os.write(self._fd, b"\0")

    def fire(self) -> None:
        """Have it reset the host as soon as it can: it counts from the beginning, to the shortest timeout that it
        takes. Raises OSError where it takes none that is shorter than the present one."""
        if not self.is_real:
            return
        asked_s = FIRES_S
        while True:
            try:
                self._ioctl(self._fd, SETTIMEOUT, _SECONDS.pack(asked_s))
            except OSError:
                asked_s *= 2
                if asked_s >= self._timeout_s:
                    raise
            else:
                return

    def disarm(self) -> None:
        """Stop it and close it; a device that cannot be stopped (nowayout) resets the host. Raises OSError."""
        fd, self._fd = self._fd, -1
        try:
            os.write(fd, b"V")
        finally:
            os.close(fd)

    def _opened(self) -> int:
        try:
            # What is no watchdog might be waited for: a FIFO that nobody reads, a terminal that takes no more.
            fd = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            why = _WHY.get(error.errno or 0, error.strerror or str(error))
            raise PermanentError(f"the watchdog {self.path} cannot be opened: {why}") from error
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
            os.close(fd)
            raise PermanentError(f"the watchdog {self.path} is no device")
        return fd

    def _set(self, expires_s: float, renew_s: float) -> float:
        try:
            options = _SUPPORT.unpack(self._ioctl(self._fd, GETSUPPORT, bytes(_SUPPORT.size)))[0]
        except OSError as error:
            if error.errno == errno.ENOTTY and (os.isatty(self._fd) or stat.S_ISFIFO(os.fstat(self._fd).st_mode)):
                return expires_s
            raise PermanentError(f"{self.path} does not answer as a watchdog does: {error.strerror}") from error
        self.is_real = True
        if not options & MAGIC_CLOSE:
            # It would be stopped by the kernel when this process is killed: the lease would expire, the host would not.
            raise PermanentError(
                f"the watchdog {self.path} stops when this process ends (no magic close): use another one, or softdog"
            )
        asked_s = max(1, int(expires_s))
        refused = ""
        try:
            self._ioctl(self._fd, SETTIMEOUT, _SECONDS.pack(asked_s))
        except OSError as error:  # EOPNOTSUPP: it has one timeout; EINVAL: it takes no such one
            refused = error.strerror or str(error)
        try:
            taken_s: int = _SECONDS.unpack(self._ioctl(self._fd, GETTIMEOUT, _SECONDS.pack(0)))[0]
        except OSError as error:
            raise PermanentError(f"the watchdog {self.path} does not say its timeout: {error.strerror}") from error
        if taken_s < min(asked_s, TIMEOUT_MIN_RENEWALS * renew_s):
            because = f" ({refused})" if refused else ""
            raise PermanentError(
                f"the watchdog {self.path} has a timeout of {taken_s} s and does not take {asked_s} s{because}: "
                f"lease.renew_s may be at most {taken_s / TIMEOUT_MIN_RENEWALS:.3g}"
            )
        return float(taken_s)
