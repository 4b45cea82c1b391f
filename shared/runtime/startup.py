"""What the composition roots of both daemons share: arguments, configuration, logging, and the exit status."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from shared.base import printable, secrets
from shared.base.errors import InvalidInput, InvalidValue, PermanentError, Problem, TransientError
from shared.bus.buses import find_bus
from shared.bus.rabbitmq.addresses import tls_context
from shared.config import toml
from shared.config.broker_url import Tls, check_encryption, parse_url
from shared.config.common import Log, LogFormat
from shared.config.reload import needs_restart
from shared.ports.bus import Bus
from shared.runtime import logs
from shared.runtime.garbage_collection import keep_what_is_there
from shared.runtime.shell import BEGIN_ANEW

DONE = 0
REFUSED = 1
UNREADABLE = 2
DEFECT = 70  # EX_SOFTWARE
EXIT_STATUS = {
    DONE: "Asked to stop, or nothing is wrong with the configuration (`--check`).",
    REFUSED: "Refused; the log has the reason. systemd restarts it.",
    UNREADABLE: "The configuration or another file cannot be used; every problem is printed. systemd leaves it.",
    DEFECT: "A defect, with a traceback in the log. systemd restarts it.",
    BEGIN_ANEW: "systemd restarts it: another process holds what it needs, or what it needs is away or full.",
}
"""What an exit status of a daemon means."""
GARBAGE_AFTER = 10_000
"""So many new objects are looked through for garbage together, instead of 700: what 1,000 nodes are was looked through
every few seconds, for tenths of a second in which nobody was answered."""

URL_FORM = "amqps://USER:PASSWORD@HOST/VHOST"

Connect = Callable[[], Bus]


class HasLog(Protocol):
    """A configuration with a section for the log."""

    @property
    def log(self) -> Log:
        """What is logged and how."""
        ...


C = TypeVar("C", bound=HasLog)


class Daemon(Generic[C]):
    """A daemon's command: `run(path, config)` builds it from its file and runs it; returns the exit status. `check`
    raises InvalidInput for problems that no single key shows.

    Exit status: 0 asked to stop, 1 refused, 2 the configuration or a file is unusable (every problem is printed), 70 a
    defect, 75 restart requested.
    """

    def __init__(
        self,
        name: str,
        kind: type[C],
        default: str,
        run: Callable[[Path, C], int],
        check: Callable[[C], object] = bool,
    ) -> None:
        self.name = name
        self._kind = kind
        self._default = default
        self._run = run
        self._check = check

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Parse the arguments, read the file and run; see the class for what is returned."""
        given = self.parser().parse_args(arguments)
        path = Path(given.config)
        try:
            settings = self.read(path, given.check)
            self._check(settings)
        except InvalidInput as error:
            _tell(path, error)
            return UNREADABLE
        if given.check:
            return DONE
        configure_log(settings.log)
        keep_what_is_there()
        gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])
        with _ending_at_once():
            return self._guarded(path, settings)

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = argparse.ArgumentParser(prog=self.name)
        parser.add_argument("--config", default=self._default, metavar="FILE", help="default: %(default)s")
        parser.add_argument("--version", action="version", version=f"%(prog)s, version {version()}")
        parser.add_argument("--check", action="store_true", help="read the configuration, say what is wrong, and end")
        return parser

    def read(self, path: Path, only_look: bool = False) -> C:
        """Read the configuration with the passwords from their files. Raises InvalidInput with every problem. With
        `only_look`, a process need not have been passed the unit's credentials."""
        return secrets.completed(toml.load(path, self._kind), path, only_look)

    def _guarded(self, path: Path, settings: C) -> int:
        log = logs.get_logger(self.name)
        try:
            return self._run(path, settings)
        except InvalidInput as error:
            _tell(path, error)
            return UNREADABLE
        except TransientError as error:
            log.error("to be started again", code=error.code, error=str(error))
            return BEGIN_ANEW
        except PermanentError as error:
            log.error("refused", code=error.code, error=str(error))
            return REFUSED
        except Exception as error:  # the last frame: what nobody expected is logged before the end
            log.error("defect", error=f"{type(error).__name__}: {error}", exc_info=error)
            return DEFECT


def _tell(path: Path, error: InvalidInput) -> None:
    """Print each problem on a line, with the file if a problem names only a key."""
    for problem in error.problems:
        named = problem.where.startswith(("/", str(path)))
        print(printable.one_line(f"{problem}" if named else f"{path}: {problem}"), file=sys.stderr)


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """End at once, with status 0, on a signal that arrives before the shell handles signals itself: nothing has begun
    until then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        os._exit(DONE)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)


def configure_log(section: Log) -> None:
    """Log as the section says."""
    logs.configure(section.level.value, section.format is LogFormat.JSON)


def relog(read: Callable[[], HasLog], running: HasLog) -> None:
    """Read the configuration again and log as it says now; say which other keys differ from those that the process is
    `running` with, and so need a restart. An unusable file changes nothing, and is logged."""
    log = logs.get_logger("reload")
    try:
        found = read()
    except InvalidInput as error:
        log.error("configuration not reloaded", problems=[str(it) for it in error.problems])
        return
    configure_log(found.log)
    waiting = [key for key in _differing(running, found) if needs_restart(key)]
    if waiting:
        log.warning("these keys need a restart", keys=waiting)
    else:
        log.info("configuration reloaded")


def _differing(before: object, after: object, where: str = "") -> list[str]:
    """Return the keys that differ between two configurations of one kind: `section.key`."""
    if before == after:
        return []
    if not is_dataclass(before) or isinstance(before, type) or type(before) is not type(after):
        return [where]
    names = (each.name for each in fields(before))
    prefix = f"{where}." if where else ""
    return [key for name in names for key in _differing(getattr(before, name), getattr(after, name), prefix + name)]


def host_name() -> str:
    """Return the host's own name without its domain."""
    return socket.gethostname().split(".", 1)[0]


def boot_id(path: str = "/proc/sys/kernel/random/boot_id") -> str:
    """Return the id of this boot of the machine."""
    return Path(path).read_text("ascii").strip()


def bus_user(url: str) -> str:
    """Return the user that a broker's URL names ("": there is no URL). Raises InvalidInput for an invalid URL."""
    if not url:
        return ""
    try:
        return parse_url(url).user
    except InvalidValue as error:
        expected = f"{error.expected}, the password there or in bus.password_file"
        raise InvalidInput(Problem("bus.url", "cannot be used", expected)) from error


def broker_host(url: str) -> str:
    """Return the host that a broker's URL names ("": there is no URL). Raises as `bus_user` does."""
    return parse_url(url).host if bus_user(url) else ""


def broker(url: str, tls: Tls | None = None, plain: bool = False) -> Connect:
    """Connects to the broker of a URL; `amqps://` is verified as `tls` says, `amqp://` leads to another machine only
    where that is wanted (`plain`). Raises InvalidInput when there is no usable URL (processes need a broker), when it
    leads where it must not, or when `tls` cannot be used or would not be heeded."""
    if not bus_user(url):
        raise InvalidInput(Problem("bus.url", "is empty", URL_FORM))
    verified = tls or Tls()
    check_encryption(url, plain)
    _check_tls(url, verified)
    connect = find_bus(url)
    return lambda: connect(url, verified)


def _check_tls(url: str, tls: Tls) -> None:
    address = parse_url(url)
    if tls != Tls() and not address.encrypted:
        raise InvalidInput(Problem("bus.tls", "is given, but bus.url is not encrypted", "amqps://..."))
    if tls.key_file and not tls.cert_file:
        raise InvalidInput(Problem("bus.tls.cert_file", "is missing", "the certificate of bus.tls.key_file"))
    if not address.encrypted:
        return
    try:
        tls_context(address, tls)
    except InvalidValue as error:
        raise InvalidInput(Problem("bus.tls", f"names {error.got!r}", error.expected)) from error


def version() -> str:
    """Return the version of this installation ("": not installed, only sources)."""
    try:
        return metadata.version("trimtab")
    except metadata.PackageNotFoundError:
        return ""


def seed() -> int:
    """Return a random number that no other process has, for values that must differ between processes."""
    return int.from_bytes(os.urandom(8))
