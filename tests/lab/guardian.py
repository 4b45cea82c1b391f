"""The guardian of a lab: the process that its hosts hang on.

It lives in the network namespace of the lab's switch, in a session of its own, so that Ctrl-C does not reach it, and
does what it is asked to over a socket in the lab's folder. When the runner closes its input or is gone, or it is told
to end, it takes everything away: processes, namespaces, cgroups, files. Should it be killed itself, the kernel ends
every host with it, and `remains` has the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

from shared.base.clock import SystemClock
from tests.lab import network, plan
from tests.lab.errors import LabError
from tests.lab.namespaces import HostProcess, first_process, inside, only_child, wake_wrappers
from tests.lab.partitions import Partitions, find_partitions

ERRORS = "first.err"
FIRST = Path(__file__).with_name("first.py")
READY_LIMIT_S = 20.0
STOP_LIMIT_S = 15.0
LOOK_S = 0.05
REQUEST_BYTES_MAX = 65_536
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MIB = 2**20
CLOCK = SystemClock()


class Power:
    """A host that has power: its first process with its namespaces, and its libvirtd while that runs."""

    def __init__(self, host: plan.HostPlan, folder: Path, partitions: Partitions) -> None:
        self.host = host
        self.folder = folder
        self.first = 0
        self.libvirtd: HostProcess | None = None
        shutil.rmtree(folder / plan.LOST, ignore_errors=True)
        (folder / plan.LOST).mkdir()
        partitions.make(host.partition, host.cpus)
        with (folder / ERRORS).open("wb") as errors:
            self._process = subprocess.Popen(
                first_process([sys.executable, "-I", "-S", str(FIRST), host.name, str(folder)]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def boot(self) -> None:
        """Wait until the namespaces are made, and lay the cable."""
        self.first = only_child(self._process)
        if not self._says_ready():
            said = (self.folder / ERRORS).read_text("utf-8", "replace")
            raise LabError(f"{self.host.name} has not come up: {said}")
        network.plug_host(self.host.name, self.host.address, self.first)
        (self.folder / plan.FIRST).write_text(str(self.first), "ascii")

    def _says_ready(self) -> bool:
        output = self._process.stdout
        return bool(output and select.select([output], [], [], READY_LIMIT_S)[0] and output.readline())

    def start_libvirtd(self, address_space_mib: int | None = None) -> None:
        """Start it without waiting; what it starts may use at most so much address space each."""
        if self.libvirtd and self.libvirtd.poll() is None:
            raise LabError(f"libvirtd of {self.host.name} runs already")
        limit = ["prlimit", f"--as={address_space_mib * MIB}", "--"] if address_space_mib else []
        with (self.folder / "var/log/libvirt/libvirtd.out").open("ab") as log:
            self.libvirtd = HostProcess(
                inside(self.first, [*limit, "libvirtd", *self.host.arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # few arenas: they count as address space
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            )
        (self.folder / plan.LIBVIRTD).write_text(str(self.libvirtd.inner_pid), "ascii")

    def end_libvirtd(self, how: signal.Signals) -> None:
        """Guests live on. Fine when it does not run."""
        if self.libvirtd:
            self.libvirtd.send_signal(how)
            self.libvirtd.wait(STOP_LIMIT_S)
            self.libvirtd = None
        (self.folder / plan.LIBVIRTD).unlink(missing_ok=True)

    def cut(self) -> None:
        """All processes of the host die at once; returns when the last one has."""
        (self.folder / plan.FIRST).unlink(missing_ok=True)
        (self.folder / plan.LIBVIRTD).unlink(missing_ok=True)
        with suppress(ProcessLookupError):
            os.kill(self.first or self._process.pid, signal.SIGKILL)
        self._await_end()
        if self._process.stdout:
            self._process.stdout.close()
        if self.libvirtd:
            self.libvirtd.send_signal(signal.SIGKILL)
            self.libvirtd.wait(STOP_LIMIT_S)
        with suppress(LabError):  # it goes with the namespace, but not at once
            network.unplug_host(self.host.name)

    def _await_end(self) -> None:
        """The kernel lets the first process of a namespace end when all others have."""
        until_s = CLOCK.monotonic_s() + STOP_LIMIT_S
        while True:
            wake_wrappers(self.first)
            try:
                self._process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                if CLOCK.monotonic_s() > until_s:
                    raise
            else:
                return


class Guardian:
    """Does what it is asked to, one thing after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._partitions = find_partitions()
        self._powers: dict[str, Power] = {}
        self._hosts: dict[str, plan.HostPlan] = {}
        self._lab = ""

    def open(self) -> None:
        """The runner has laid the cable and written the plan."""
        lab = plan.read(self._folder)
        self._lab = f"/{lab.name}"
        self._hosts = {host.name: host for host in lab.hosts}
        network.plug_machine()

    def power_on(self, names: Sequence[str]) -> None:
        """Of those that have power nothing is done."""
        wanted = [self._host(name) for name in names if name not in self._powers]
        for host in wanted:
            self._powers[host.name] = Power(host, self._folder / host.name, self._partitions)
        for host in wanted:
            self._powers[host.name].boot()
            self._powers[host.name].start_libvirtd()

    def power_off(self, names: Sequence[str]) -> None:
        """Of those that have no power nothing is done."""
        for name in names:
            host = self._host(name)
            if power := self._powers.get(name):
                power.cut()
                self._partitions.remove(host.partition)
                del self._powers[name]

    def start_libvirtd(self, names: Sequence[str], address_space_mib: int | None = None) -> None:
        """Of hosts that have power."""
        for name in names:
            self._power(name).start_libvirtd(address_space_mib)

    def stop_libvirtd(self, names: Sequence[str]) -> None:
        """In order."""
        for name in names:
            self._power(name).end_libvirtd(signal.SIGTERM)

    def kill_libvirtd(self, names: Sequence[str]) -> None:
        """Without a chance to put anything in order."""
        for name in names:
            self._power(name).end_libvirtd(signal.SIGKILL)

    def cut_network(self, names: Sequence[str]) -> None:
        """Of hosts that have power."""
        for name in names:
            network.cut(self._power(name).host.name)

    def restore_network(self, names: Sequence[str]) -> None:
        """End a cut."""
        for name in names:
            network.restore(self._power(name).host.name)

    def end(self) -> None:
        """Take everything away, the folder last; as much as can be, then the first error."""
        errors: list[LabError | OSError | subprocess.SubprocessError] = []
        steps: list[Callable[[], None]] = [partial(self.power_off, [name]) for name in tuple(self._powers)]
        if self._lab:
            steps.append(partial(self._partitions.remove, self._lab))
        steps += [_unplug_machine, partial(shutil.rmtree, self._folder)]
        for step in steps:
            try:
                step()
            except (LabError, OSError, subprocess.SubprocessError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _host(self, name: str) -> plan.HostPlan:
        if name not in self._hosts:
            raise LabError(f"the lab has no host {name}")
        return self._hosts[name]

    def _power(self, name: str) -> Power:
        if self._host(name).name not in self._powers:
            raise LabError(f"{name} has no power")
        return self._powers[name]


def _unplug_machine() -> None:
    with suppress(LabError):  # it was never laid
        network.unplug_host(network.TO_MACHINE)


DOES: dict[str, Callable[..., None]] = {
    done.__name__: done
    for done in (
        Guardian.open,
        Guardian.power_on,
        Guardian.power_off,
        Guardian.start_libvirtd,
        Guardian.stop_libvirtd,
        Guardian.kill_libvirtd,
        Guardian.cut_network,
        Guardian.restore_network,
    )
}


def answer(guardian: Guardian, listener: socket.socket) -> None:
    """One request of one line: {"do": NAME, and its arguments}; the answer is the error, or "" when it is done."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as stream:
        connection.settimeout(READY_LIMIT_S)
        try:
            request = json.loads(stream.readline(REQUEST_BYTES_MAX))
            DOES[request.pop("do")](guardian, **request)
            said = ""
        except (LabError, OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            said = f"{type(error).__name__}: {error}"
        with suppress(OSError):  # who asked may be gone
            stream.write(json.dumps(said).encode() + b"\n")
            stream.flush()


def serve(guardian: Guardian, listener: socket.socket, runner: int) -> None:
    """Until the runner has closed its input, or is gone."""
    while True:
        readable, _, _ = select.select([listener, sys.stdin, runner], [], [])
        if runner in readable or sys.stdin in readable:
            return
        answer(guardian, listener)


def _told_to_end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(number)


def main() -> None:
    """Guard the lab in the folder that is the first argument, for the parent process."""
    folder = Path(sys.argv[1])
    for number in ENDING:
        signal.signal(number, _told_to_end)
    try:
        runner = os.pidfd_open(os.getppid())
        guardian = Guardian(folder)
    except (OSError, LabError) as error:
        raise SystemExit(f"no lab can be made: {error}") from error
    with (folder / plan.LOCK).open("w") as lock, socket.socket(socket.AF_UNIX) as listener:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            network.make_switch()
            listener.bind(str(folder / plan.SOCKET))
            listener.listen()
            print("ready", flush=True)
            serve(guardian, listener, runner)
        finally:
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
            guardian.end()


if __name__ == "__main__":
    main()
