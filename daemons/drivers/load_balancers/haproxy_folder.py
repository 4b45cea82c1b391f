"""The folder from which HAProxy reads its configuration of web applications, one file each."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.base.errors import TransientError

PREFIX, SUFFIX = "trimtab-", ".cfg"
MODE = 0o644
BIND = re.compile(r"^ +bind \S*:(\d+)$", re.MULTILINE)


@dataclass(slots=True, eq=False)
class Change:
    """A file to replace or remove with a reload, and the result: `refusal` ("": done), or `error`."""

    app: str
    text: str | None
    done: bool = False
    refusal: str = ""
    error: TransientError | None = None


class Folder:
    """Writes files so that HAProxy always finds complete ones. `reload` has HAProxy read them again and returns whether
    it accepts them.

    Changes that arrive during a reload are carried out together by the next one. If HAProxy does not accept those, the
    files are restored and each half is tried separately: one application never blocks another.
    """

    def __init__(self, path: str, reload: Callable[[], bool]) -> None:
        self._path, self._reload = Path(path), reload
        self._ports: dict[str, int] | None = None
        self._waiting: list[Change] = []
        self._lock, self._reloading = threading.Lock(), threading.Lock()

    def claim(self, app: str, port: int) -> str:
        """Have a port for an application: whose it is already ("": now it is the application's)."""
        with self._lock:
            ports = self._known_ports()
            for other, taken in ports.items():
                if taken == port and other != app:
                    return other
            ports[app] = port
            return ""

    def release(self, app: str) -> None:
        """Reset the application's port to the one in its file, or to none."""
        with self._lock:
            self._known_ports().pop(app, None)
            if port := self.port(app):
                self._known_ports()[app] = port

    def port(self, app: str) -> int:
        """Return the port in the file of an application, 0 when there is none."""
        return _port(self.text(app) or "")

    def text(self, app: str) -> str | None:
        """Return the configuration of an application, None when there is none. Raises TransientError when it cannot be
        read."""
        return self._read(self._file(app))

    def write(self, app: str, text: str | None) -> None:
        """Replace the configuration of an application, or remove it (None); HAProxy reads it when it next begins.
        Raises TransientError when that cannot be done."""
        file = self._file(app)
        beside = file.with_name(f".{file.name}.new")
        try:
            if text is None:
                file.unlink(missing_ok=True)
                return
            with beside.open("w") as written:
                os.fchmod(written.fileno(), MODE)
                written.write(text)
                written.flush()
                os.fsync(written.fileno())
            beside.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise TransientError(f"{file} cannot be written: {error.strerror or error}") from error

    def change(self, app: str, text: str | None) -> bool:
        """Replace or remove the configuration of an application and have HAProxy reload; false when it cannot work with
        that, and nothing has changed. Raises TransientError when it cannot be reached or a file cannot be written:
        nothing has changed either."""
        mine = Change(app, text)
        with self._lock:
            self._waiting.append(mine)
        with self._reloading:
            if not mine.done:
                with self._lock:
                    batch, self._waiting = self._waiting, []
                self._carry_out(batch)
        if mine.error is not None:
            raise mine.error
        return not mine.refusal

    def _carry_out(self, batch: Sequence[Change]) -> None:
        error, good = None, False
        before: list[tuple[str, str | None]] = []
        try:
            for change in batch:
                before.append((change.app, self.text(change.app)))
                self.write(change.app, change.text)
            good = self._reload()
        except TransientError as failure:
            error = failure
        if not good:
            self._put_back(before)
        if not good and error is None and len(batch) > 1:
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                self._carry_out(half)
            return
        for change in batch:
            change.done, change.error, change.refusal = True, error, "" if good else "refused"

    def _put_back(self, before: Sequence[tuple[str, str | None]]) -> None:
        for app, text in reversed(before):
            with contextlib.suppress(TransientError):  # the disk that could not be written is the error told
                self.write(app, text)

    def _file(self, app: str) -> Path:
        return self._path / f"{PREFIX}{app}{SUFFIX}"

    def _known_ports(self) -> dict[str, int]:
        """Ports by application; at first those in the files."""
        if self._ports is None:
            found = {}
            try:
                files = sorted(self._path.glob(f"{PREFIX}*{SUFFIX}"))
            except OSError as error:
                raise TransientError(f"{self._path} cannot be read: {error.strerror or error}") from error
            for file in files:
                if port := _port(self._read(file) or ""):
                    found[file.name.removeprefix(PREFIX).removesuffix(SUFFIX)] = port
            self._ports = found
        return self._ports

    @staticmethod
    def _read(file: Path) -> str | None:
        try:
            return file.read_text(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransientError(f"{file} cannot be read: {error.strerror or error}") from error


def _port(text: str) -> int:
    found = BIND.search(text)
    return int(found[1]) if found else 0
