"""Runs programs in cgroups of this process's own, each under a small supervisor that outlives the agent."""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from agents.hypervisors.process import launch, supervise
from agents.hypervisors.process.cgroups import ControlGroup, Hierarchies
from agents.hypervisors.process.record import Usage, write_json
from agents.hypervisors.process.runner import Cpu, Exit, Launch
from shared.base.errors import InvalidInput, Problem, TransientError
from shared.config.agent import ProcessKeys

START_LIMIT_S = 20.0
END_LIMIT_S = 5.0
SUPERVISORS = "supervisors"
_PREFIX = "p-"  # no file of a cgroup begins so


def account(keys: ProcessKeys) -> pwd.struct_passwd:
    """Return the account that programs run as. Raises InvalidInput unless it exists and is not root."""
    try:
        found = pwd.getpwnam(keys.user)
    except KeyError:
        raise InvalidInput(Problem("process.user", f"there is no account {keys.user!r}", "an account")) from None
    if found.pw_uid == 0 or found.pw_gid == 0:
        raise InvalidInput(Problem("process.user", f"{keys.user!r} has root's rights", "an account of no rights"))
    return found


class CgroupRunner:
    """Implements `Runner`; `all_mhz` is what weights are set against. Raises InvalidInput where it cannot work."""

    def __init__(
        self, keys: ProcessKeys, hierarchies: Hierarchies, cores: int, memory_mib: int, all_mhz: float
    ) -> None:
        if os.geteuid() != 0:
            raise InvalidInput(Problem("process.runner", "'cgroup' needs an agent that is root", "'systemd'"))
        self._user = account(keys)
        self._hierarchies, self._all_mhz, self._core_frac = hierarchies, all_mhz, keys.core_frac
        self._state, self._output = Path(keys.state), Path(keys.output)
        try:
            self._make_root(keys, cores, memory_mib)
        except TransientError as error:
            problem = Problem("process.cgroup", str(error), "groups that this process may make and change")
            raise InvalidInput(problem) from error
        self._lock = threading.Lock()
        self._watched: dict[int, str] = {}
        self._poll = select.epoll()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake_read, select.EPOLLIN)
        for name in self.names():
            self._watch(name)

    def names(self) -> frozenset[str]:
        """Return the programs with a supervisor, or a trace of one."""
        return frozenset(run.parent.name for run in self._state.glob(f"*/{supervise.RUN}"))

    def output(self, name: str) -> str:
        """Return a folder that belongs to the account."""
        return str(self._output / name)

    def start(self, name: str, wanted: Launch) -> None:
        """Returns when the program is in its group."""
        folder, group = self._state / name, self._group(name)
        try:
            self._make_output(name)
            group.make()
            group.set_cpu(self._quota(wanted.cpu), self._all_mhz)
            if wanted.memory_mib:
                group.set_memory(wanted.memory_mib)
            group.freeze(wanted.paused)
            (folder / supervise.EXIT).unlink(missing_ok=True)
            write_json(folder / launch.FILE, self._said(name, wanted, group))
            self._spawn(folder)
            self._watch(name)
        except (TransientError, OSError) as error:
            self.remove(name)
            raise TransientError(f"not started: {error}") from error

    def ended(self, name: str) -> Exit | None:
        """Return the end that the supervisor has recorded; it is unknown if the supervisor was killed."""
        if (said := self._exit(name)) is not None:
            return said
        if self._supervisor(name):
            return None
        return self._exit(name) or Exit(None)

    def terminate(self, name: str) -> None:
        """SIGTERM to all that is in its group."""
        self._group(name).signal(signal.SIGTERM)

    def freeze(self, name: str, frozen: bool) -> None:
        """Freeze or thaw the program with the cgroup freezer."""
        self._group(name).freeze(frozen)

    def set_cpu(self, name: str, cpu: Cpu) -> None:
        """Weight and quota of its group."""
        self._group(name).set_cpu(self._quota(cpu), self._all_mhz)

    def usage(self, name: str) -> Usage:
        """Return the usage counted by the program's group, in time of the node's cores."""
        used = self._group(name).usage()
        return replace(used, cpu_time_s=used.cpu_time_s / self._core_frac)

    def remove(self, name: str) -> None:
        """Send SIGKILL to everything in the program's group; its supervisor then ends."""
        folder, group = self._state / name, self._group(name)
        group.kill()
        if pid := self._supervisor(name):
            self._end(pid)
        group.remove()
        for file in (supervise.RUN, supervise.EXIT, launch.FILE):
            (folder / file).unlink(missing_ok=True)

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Wait for supervisors to end."""
        found: set[str] = set()
        for descriptor, _ in self._poll.poll(timeout_s):
            with self._lock:
                name = self._watched.pop(descriptor, None)
            if name is None:
                os.read(self._wake_read, 4_096)
                continue
            self._poll.unregister(descriptor)
            os.close(descriptor)
            found.add(name)
        return frozenset(found)

    def wake(self) -> None:
        """Let `wait` return."""
        os.write(self._wake_write, b".")

    # --- inside -----------------------------------------------------------------------------------------------------

    def _make_root(self, keys: ProcessKeys, cores: int, memory_mib: int) -> None:
        root = self._hierarchies.make_root()
        try:
            if keys.cpus and not root.set_cpus(keys.cpus):
                raise InvalidInput(Problem("process.cpus", "no cgroup has cpuset", "nothing"))
        except TransientError as error:
            raise InvalidInput(Problem("process.cpus", str(error), "CPUs of this machine, such as 0-3,6")) from error
        if keys.confine:
            root.set_cpu(self._quota(Cpu(self._all_mhz, cores)), self._all_mhz)
            root.set_memory(memory_mib)
        self._hierarchies.group(SUPERVISORS).make()

    def _group(self, name: str) -> ControlGroup:
        return self._hierarchies.group(_PREFIX + name)

    def _quota(self, cpu: Cpu) -> Cpu:
        """Convert the quota to time of the machine's cores."""
        return replace(cpu, cores=cpu.cores * self._core_frac)

    def _make_output(self, name: str) -> None:
        self._output.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = self._output / name
        folder.mkdir(mode=0o755, exist_ok=True)
        os.chown(folder, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)

    def _said(self, name: str, wanted: Launch, group: ControlGroup) -> dict[str, object]:
        return {
            "words": wanted.words,
            "environment": dict(wanted.environment),
            "uid": self._user.pw_uid,
            "gid": self._user.pw_gid,
            "output": self.output(name),
            "groups": group.entrances,
            "supervisors": self._hierarchies.group(SUPERVISORS).entrances,
        }

    def _spawn(self, folder: Path) -> None:
        command = [sys.executable, "-I", "-m", supervise.__name__, str(folder)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_LIMIT_S, check=False, env={}
            )
        except subprocess.TimeoutExpired:
            raise TransientError(f"no word of its supervisor within {START_LIMIT_S:g} s") from None
        if done.returncode:
            raise TransientError(done.stderr.decode(errors="replace").strip()[-500:])

    def _exit(self, name: str) -> Exit | None:
        try:
            return Exit(int(json.loads((self._state / name / supervise.EXIT).read_text("utf-8"))["status"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _supervisor(self, name: str) -> int:
        """Return the process id of the supervisor; 0 if it no longer exists."""
        try:
            said = json.loads((self._state / name / supervise.RUN).read_text("utf-8"))
            pid, ticks = int(said["pid"]), int(said["ticks"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return 0
        return pid if ticks and supervise.start_ticks(pid) == ticks else 0

    def _watch(self, name: str) -> None:
        """Hear of the end of its supervisor; where it has ended, at once."""
        pid = self._supervisor(name)
        try:
            descriptor = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            descriptor = -1
        if descriptor < 0:
            return  # whoever starts a program, or comes anew, looks at it afterwards
        with self._lock:
            self._watched[descriptor] = name
        self._poll.register(descriptor, select.EPOLLIN)

    def _end(self, pid: int) -> None:
        """Wait for a supervisor whose program is dead."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(END_LIMIT_S * 1_000):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                poll.poll(END_LIMIT_S * 1_000)
        finally:
            os.close(descriptor)
