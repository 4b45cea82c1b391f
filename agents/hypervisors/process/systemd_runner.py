"""Runs programs as instances of the template unit trimtab-job@.service, which says as whom and in which sandbox."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

from agents.drivers.systemd import Changes, NoSuchUnit, NotSupported, SystemdBus
from agents.hypervisors.process import launch
from agents.hypervisors.process.cgroups import MIB, stalled_s, weight_of
from agents.hypervisors.process.record import Usage, write_json
from agents.hypervisors.process.runner import Cpu, Exit, Launch
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, PermanentError, Problem, TransientError
from shared.config.agent import ProcessKeys

T = TypeVar("T")
_HEAD, _TAIL = "trimtab-job@", ".service"
START_LIMIT_S = 20.0
STOP_LIMIT_S = 10.0
STOPPED_LIMIT_S = 5.0
LOOK_S = 0.01
SLICE_S = 0.5  # so long until `wake` is heeded
_GROUPS = "/sys/fs/cgroup"
_UNKNOWN = (1 << 64) - 1
_EXITED = 1  # of ExecMainCode, as wait(2) has it; else a signal
_OVER = ("inactive", "failed")


def unit_name(name: str) -> str:
    """Return the unit name of a program."""
    return f"{_HEAD}{name}{_TAIL}"


class SystemdRunner:
    """Implements `Runner`; weights are relative to `all_mhz`. Raises InvalidInput for keys that only the other runner
    supports."""

    def __init__(self, keys: ProcessKeys, bus: SystemdBus, all_mhz: float) -> None:
        for key, given in (("cpus", bool(keys.cpus)), ("confine", keys.confine), ("core_frac", keys.core_frac < 1.0)):
            if given:
                raise InvalidInput(Problem(f"process.{key}", "is for the runner 'cgroup'", "a setting of the slice"))
        self._bus, self._all_mhz = bus, all_mhz
        self._state, self._output = Path(keys.state), Path(keys.output)
        self._clock = SystemClock()
        self._woken = threading.Event()
        self._changes: Changes | None = None
        self._hearing: AbstractContextManager[Changes] | None = None

    def names(self) -> frozenset[str]:
        """Return the programs with a launch file."""
        return frozenset(file.parent.name for file in self._state.glob(f"*/{launch.FILE}"))

    def output(self, name: str) -> str:
        """Return the state folder of the unit."""
        return str(self._output / name)

    def start(self, name: str, wanted: Launch) -> None:
        """Returns when it executes, or has stopped itself."""
        unit = unit_name(name)
        said = {
            "words": wanted.words,
            "environment": dict(wanted.environment),
            "output": self.output(name),
            "paused": wanted.paused,
        }
        try:
            write_json(self._state / name / launch.FILE, said)
            memory = {"MemoryMax": wanted.memory_mib * MIB if wanted.memory_mib else _UNKNOWN}
            self._do(lambda: self._bus.set_properties(unit, {**self._cpu(wanted.cpu), **memory}))
            self._do(lambda: self._bus.start(unit, START_LIMIT_S))
            if wanted.paused:
                self._wait_until_stopped(unit)
        except TransientError:
            self.remove(name)
            raise

    def ended(self, name: str) -> Exit | None:
        """Return the end as recorded by systemd: the unit stays until it is forgotten."""
        seen = self._seen(name, "ActiveState", "SubState", "ExecMainCode", "ExecMainStatus")
        over = seen["ActiveState"] in _OVER
        if not over and seen["SubState"] != "exited":
            return None
        code, status = int(seen["ExecMainCode"]), int(seen["ExecMainStatus"])
        if code == 0 or seen["ActiveState"] == "inactive":
            return Exit(None)  # somebody else has stopped it, or it never ran
        return Exit(status if code == _EXITED else -status)

    def terminate(self, name: str) -> None:
        """SIGTERM to all processes of the unit."""
        self._signal(name, signal.SIGTERM)

    def freeze(self, name: str, frozen: bool) -> None:
        """Freeze or thaw the program with the freezer of cgroups version 2; without one, send signals to stop and
        continue it."""
        unit = unit_name(name)
        try:
            if frozen:
                self._do(lambda: self._bus.freeze(unit))
            elif self._is_frozen(name):
                self._do(lambda: self._bus.thaw(unit))
        except _NoFreezer:
            self._signal(name, signal.SIGSTOP)
        if not frozen:
            self._signal(name, signal.SIGCONT)  # one that was started paused has stopped itself

    def set_cpu(self, name: str, cpu: Cpu) -> None:
        """Weight and quota of the unit."""
        self._do(lambda: self._bus.set_properties(unit_name(name), self._cpu(cpu)))

    def usage(self, name: str) -> Usage:
        """Return the usage counted by systemd, and by the unit's group if it is of version 2."""
        seen = self._seen(name, "CPUUsageNSec", "IOReadBytes", "IOWriteBytes", "ControlGroup")
        group = str(seen.pop("ControlGroup"))
        cpu_ns, read, written = (0 if value == _UNKNOWN else int(value) for value in seen.values())
        waited_s = stalled_s(Path(_GROUPS, group.lstrip("/"), "io.pressure")) if group else None
        return Usage(cpu_ns / 1e9, read, written, waited_s or 0.0)

    def remove(self, name: str) -> None:
        """SIGKILL to all processes of the unit, which is then stopped and forgotten."""
        unit = unit_name(name)
        if self._seen(name, "ActiveState")["ActiveState"] not in _OVER:
            self._signal(name, signal.SIGKILL)
            if self._is_frozen(name):
                with suppress(TransientError):  # it may be dead already, and then there is nothing to thaw
                    self._do(lambda: self._bus.thaw(unit))
            self._do(lambda: self._bus.stop(unit, STOP_LIMIT_S))
        self._do(lambda: self._bus.reset_failed(unit))
        (self._state / name / launch.FILE).unlink(missing_ok=True)

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Wait for systemd's notifications about its units. Return at once if they are received only from now on:
        earlier ends are not notified, and a check finds them."""
        if self._changes is None:
            self._listen()
            return frozenset()
        until_s = self._clock.monotonic_s() + timeout_s
        found: frozenset[str] = frozenset()
        while not found and not self._woken.is_set() and self._clock.monotonic_s() < until_s:
            changed = self._heard()
            units = (unit for unit in changed if unit.startswith(_HEAD) and unit.endswith(_TAIL))
            found = frozenset(unit[len(_HEAD) : -len(_TAIL)] for unit in units)
        self._woken.clear()
        return found

    def wake(self) -> None:
        """Let `wait` return soon."""
        self._woken.set()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            self._hearing = self._bus.changes()
            self._changes = self._hearing.__enter__()
        except (TransientError, PermanentError) as error:
            self._hearing = None
            raise TransientError(str(error)) from error

    def _heard(self) -> frozenset[str]:
        """Return the units that have changed; a lost connection is dropped and reopened later."""
        assert self._changes is not None
        try:
            return self._changes.wait(SLICE_S)
        except (TransientError, PermanentError) as error:
            hearing, self._hearing, self._changes = self._hearing, None, None
            if hearing is not None:
                hearing.__exit__(None, None, None)
            raise TransientError(str(error)) from error

    def _cpu(self, cpu: Cpu) -> dict[str, int | str]:
        weight = weight_of(cpu.weight_mhz, self._all_mhz)
        return {"CPUWeight": weight, "CPUQuotaPerSecUSec": max(1_000, round(cpu.cores * 1e6))}

    def _seen(self, name: str, *properties: str) -> dict[str, Any]:
        return self._do(lambda: self._bus.properties(unit_name(name), properties))

    def _is_frozen(self, name: str) -> bool:
        return bool(self._seen(name, "FreezerState")["FreezerState"] in ("frozen", "freezing"))

    def _signal(self, name: str, number: int) -> None:
        try:
            self._do(lambda: self._bus.kill(unit_name(name), number))
        except _Gone:
            return

    def _wait_until_stopped(self, unit: str) -> None:
        """Wait until the launcher has stopped itself: before that it cannot be continued."""
        pid = int(self._do(lambda: self._bus.properties(unit, ["MainPID"]))["MainPID"])
        until_s = self._clock.monotonic_s() + STOPPED_LIMIT_S
        while self._clock.monotonic_s() < until_s:
            try:
                text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
            except OSError as error:
                raise TransientError("it ended before it could be paused") from error
            if text.rpartition(")")[2].split()[:1] in (["T"], ["t"]):
                return
            self._clock.sleep(LOOK_S)
        raise TransientError(f"it has not paused itself within {STOPPED_LIMIT_S:g} s")

    def _do(self, call: Callable[[], T]) -> T:
        """Make a call, and convert systemd's refusal to a transient error; the driver can do no more about it."""
        try:
            return call()
        except NotSupported as error:
            raise _NoFreezer(str(error)) from error
        except NoSuchUnit as error:
            raise _Gone(str(error)) from error
        except PermanentError as error:
            raise TransientError(str(error)) from error


class _NoFreezer(TransientError):
    """Units cannot be frozen on this host."""


class _Gone(TransientError):
    """The unit has no processes."""
