"""The keeper as a process: `trimtab-lease` renews this host's lease and pets its watchdog."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from agents.lease import keeper as kp
from agents.lease.checks import check_host
from agents.lease.folder import FolderUnusable, LeaseFile
from agents.lease.watchdog import Watchdog
from shared.base import clock as clocks
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config import toml
from shared.config.agent import AgentConfig
from shared.runtime import logs, startup
from shared.runtime.lanes import Lane
from shared.runtime.systemd_notify import Notifier
from shared.values.lease import Lease
from shared.values.scalars import check_name

DEFAULT_CONFIG = "/etc/trimtab/agent.toml"


class File(Protocol):
    """Where the lease is."""

    def look(self) -> Lease | None:
        """Return the lease that is there. May block; raises FolderUnusable."""
        ...

    def write(self, lease: Lease) -> None:
        """Write the lease. May block; raises FolderUnusable."""
        ...


class Device(Protocol):
    """What resets the host."""

    is_real: bool

    def arm(self, expires_s: float, renew_s: float) -> float:
        """Begin to count; return after how many seconds it fires. Raises PermanentError."""
        ...

    def pet(self) -> None:
        """Count from the beginning. Raises OSError."""
        ...

    def fire(self) -> None:
        """Reset the host as soon as possible. Raises OSError."""
        ...

    def disarm(self) -> None:
        """Stop counting. Raises OSError."""
        ...


def boot_time_s() -> float:
    """Return the seconds since the boot, with the time in which the host was suspended."""
    return clocks.SystemClock.monotonic_s() + clocks.suspended_s()


class LeaseShell:
    """Carries out what a keeper decides. The storage is used in a thread of its own: it may hang for ever, and while it
    does nothing pets the watchdog. `stop` from any thread, and from a signal's handler."""

    def __init__(
        self,
        terms: kp.Terms,
        file: File,
        watchdog: Device,
        notifier: Notifier | None = None,
        now_s: Callable[[], float] = boot_time_s,
    ) -> None:
        self._terms, self._file, self._watchdog = terms, file, watchdog
        self._keeper = kp.Keeper(terms)
        self._notifier = Notifier({}) if notifier is None else notifier
        self._now_s = now_s
        self._log = logs.get_logger("lease").bind(node=terms.node)
        self._events: SimpleQueue[kp.Event | BaseException] = SimpleQueue()
        self._storage = Lane("lease storage", self._events.put)
        self._status: int | None = None
        self._pet_failed = False
        self._carry: dict[type, Callable[[Any], None]] = {
            kp.Look: lambda _: self._storage.do(self._look),
            kp.Write: lambda effect: self._storage.do(partial(self._write, effect.lease)),
            kp.Arm: lambda _: self._arm(),
            kp.Ready: lambda _: self._notifier.ready(),
            kp.Pet: lambda _: self._pet(),
            kp.Fire: lambda _: self._fire(),
            kp.Disarm: lambda _: self._disarm(),
            kp.Note: lambda note: getattr(self._log, note.level)(note.event, **note.fields),
            kp.End: self._end,
        }

    def stop(self) -> None:
        """Release the lease, then stop the watchdog and let `run` return."""
        self._events.put(kp.Stop())

    def run(self) -> int:
        """Keep the lease until stopped; returns the exit status. Raises PermanentError when the watchdog cannot be
        used, and what the thread for the storage raised."""
        self._take(self._keeper.start(self._now_s()))
        while self._status is None:
            event = self._next()
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, kp.Stop):
                self._notifier.stopping()
            self._take(self._keeper.handle(event, self._now_s()))
            self._notifier.status(self._keeper.status)
        return self._status

    def _next(self) -> kp.Event | BaseException:
        due_s = self._keeper.next_due_s
        try:
            return self._events.get(timeout=None if due_s is None else max(0.0, due_s - self._now_s()))
        except Empty:
            return kp.Due()

    def _take(self, effects: Sequence[kp.Effect]) -> None:
        for effect in effects:
            self._carry[type(effect)](effect)

    # --- in the thread for the storage -------------------------------------------------------------------------------

    def _look(self) -> None:
        try:
            self._events.put(kp.Looked(self._file.look()))
        except FolderUnusable as error:
            self._events.put(kp.Failed(str(error)))

    def _write(self, lease: Lease) -> None:
        try:
            self._file.write(lease)
        except FolderUnusable as error:
            self._events.put(kp.Failed(str(error)))
        else:
            self._events.put(kp.Wrote())

    # --- the device ---------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        timeout_s = self._watchdog.arm(self._terms.expires_s, self._terms.renew_s)
        if not self._watchdog.is_real:
            self._log.warning("the watchdog is no watchdog: nothing resets this host, its lease proves nothing")
        self._take(self._keeper.handle(kp.Armed(timeout_s), self._now_s()))

    def _pet(self) -> None:
        try:
            self._watchdog.pet()
        except OSError as error:
            if not self._pet_failed:
                self._log.error("the watchdog takes no pet: it resets this host", error=error.strerror or str(error))
            self._pet_failed = True
        else:
            self._pet_failed = False

    def _fire(self) -> None:
        try:
            self._watchdog.fire()
        except OSError as error:
            self._log.error("the watchdog fires when its timeout is over", error=error.strerror or str(error))

    def _disarm(self) -> None:
        try:
            self._watchdog.disarm()
        except OSError as error:
            self._log.error("the watchdog cannot be stopped: it resets this host", error=error.strerror or str(error))

    def _end(self, end: kp.End) -> None:
        self._status = end.status


# --- the composition root ------------------------------------------------------------------------------------------


def terms_of(config: AgentConfig) -> kp.Terms:
    """Return whose lease it is, and its times. Raises InvalidInput when there is none to keep."""
    if not config.lease.folder:
        raise InvalidInput(Problem("lease.folder", "is empty", "the folder of the leases on shared storage"))
    node = config.node.name or startup.host_name()
    try:
        check_name("node.name", node)
    except InvalidValue as error:
        raise InvalidInput(Problem("node.name", f"is {node!r}", error.expected)) from error
    return kp.Terms(node, startup.boot_id(), config.lease.renew_s, config.lease.expires_s)


def build(config: AgentConfig) -> LeaseShell:
    """Build the keeper of this host. Raises InvalidInput."""
    terms = terms_of(config)
    return LeaseShell(terms, LeaseFile(config.lease.folder, terms.node), Watchdog(config.lease.watchdog), Notifier())


def _run(_path: Path, config: AgentConfig) -> int:
    shell = build(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: shell.stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its end without a release would reset the host
    return shell.run()


class LeaseDaemon(startup.Daemon[AgentConfig]):
    """The command `trimtab-lease`. It reads the agent's file, and none of the secrets that it names."""

    def read(self, path: Path, only_look: bool = False) -> AgentConfig:
        """Read the configuration; with `only_look`, check the host as well. Raises InvalidInput with every problem."""
        config = toml.load(path, AgentConfig)
        if only_look:
            check_host(config.lease)
        return config


DAEMON = LeaseDaemon("trimtab-lease", AgentConfig, DEFAULT_CONFIG, _run, terms_of)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `trimtab-lease` command; return its exit status."""
    return DAEMON.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
