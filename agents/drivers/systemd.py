"""Asks systemd over the system's D-Bus: units are started, stopped, killed, frozen and looked at as polkit allows.

Blocks its thread, never longer than the time limits say. Raises TransientError where the bus or systemd does not answer
or may answer otherwise later, and `Refused`, a PermanentError, where somebody must change something.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from jeepney import (  # type: ignore[import-untyped]
    DBusAddress,
    HeaderFields,
    MatchRule,
    Message,
    MessageType,
    new_method_call,
)
from jeepney.auth import AuthenticationError  # type: ignore[import-untyped]
from jeepney.bus_messages import message_bus  # type: ignore[import-untyped]
from jeepney.io.blocking import DBusConnection, open_dbus_connection  # type: ignore[import-untyped]
from jeepney.wrappers import DBusErrorResponse  # type: ignore[import-untyped]

from shared.base.clock import SystemClock
from shared.base.errors import PermanentError, TransientError

CALL_LIMIT_S = 25.0
CONNECT_LIMIT_S = 5.0
RULES_FILE = "60-trimtab-units.rules"
DBUS_FILE = "trimtab.dbus"
ACTION = "org.freedesktop.systemd1.manage-units"

_SERVICE = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_UNITS = f"{_PATH}/unit"
_MANAGER = f"{_SERVICE}.Manager"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_ERROR = "org.freedesktop.DBus.Error."
_DENIED = (f"{_ERROR}AccessDenied", f"{_ERROR}InteractiveAuthorizationRequired", f"{_ERROR}AuthFailed")
_TRANSIENT = (
    *(f"{_ERROR}{name}" for name in ("NoReply", "Timeout", "TimedOut", "Disconnected", "ServiceUnknown")),
    *(f"{_ERROR}{name}" for name in ("NoServer", "NameHasNoOwner", "LimitsExceeded", "NoMemory", "NoNetwork")),
    *(f"{_SERVICE}.{name}" for name in ("TransactionIsDestructive", "ShuttingDown", "UnitBusy")),
    "System.Error.EBUSY",
)
_UNIT_PROPERTIES = frozenset(
    {
        *("Id", "Names", "Description", "LoadState", "LoadError", "ActiveState", "SubState", "FreezerState", "Job"),
        *("FragmentPath", "DropInPaths", "UnitFileState", "InvocationID", "NeedDaemonReload", "Transient"),
        *("ActiveEnterTimestamp", "ActiveExitTimestamp", "InactiveEnterTimestamp", "InactiveExitTimestamp"),
        *("StateChangeTimestamp", "StateChangeTimestampMonotonic"),
    }
)
_SIGNATURES = {
    **dict.fromkeys(("CPUWeight", "CPUQuotaPerSecUSec", "MemoryMax", "MemoryHigh", "TasksMax", "IOWeight"), "t"),
    "Description": "s",
}

Who = Literal["all", "main", "control"]


class Refused(PermanentError):
    """systemd refused a call; `name` is that of the D-Bus error."""

    code = "systemd-refused"

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


class NotAllowed(Refused):
    """No polkit rule lets this user make the call."""

    code = "systemd-not-allowed"


class NoSuchUnit(Refused):
    """The unit is not loaded, has no file, or has no process left."""

    code = "systemd-no-such-unit"


class NotSupported(Refused):
    """This host or this unit cannot do it, such as freezing without cgroup v2."""

    code = "systemd-not-supported"


class JobFailed(Refused):
    """A unit did not start or stop; `result` is that of the job: failed, dependency, timeout, canceled, skipped ..."""

    code = "systemd-job-failed"

    def __init__(self, text: str, result: str) -> None:
        super().__init__(text)
        self.result = result


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit that systemd has loaded."""

    name: str
    load_state: str
    active_state: str
    sub_state: str


def path_of(unit: str) -> str:
    """Return the path of a unit's D-Bus object."""
    label = [
        char if char.isascii() and (char.isalpha() or (char.isdigit() and at > 0)) else _escaped(char)
        for at, char in enumerate(unit)
    ]
    return f"{_UNITS}/{''.join(label) or '_'}"


def unit_of(path: str) -> str:
    """Return the unit of a D-Bus object; "" if it is not a unit."""
    head, _, label = path.rpartition("/")
    if head != _UNITS or label == "_":
        return ""
    first, *rest = label.split("_")
    try:
        raw = first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest)
    except ValueError:
        return ""
    return raw.decode(errors="replace")


def _escaped(char: str) -> str:
    return "".join(f"_{byte:02x}" for byte in char.encode())


class SystemdBus:
    """systemd as one user may use it; from any thread. `connect` opens a connection to the system's bus.

    A connection that has ended is replaced at the next call. Close it when it is not needed any more.
    """

    def __init__(self, connect: Callable[[], Any] | None = None, call_limit_s: float = CALL_LIMIT_S) -> None:
        self._connect = connect or _system_bus
        self._limit_s = call_limit_s
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._idle: list[Any] = []

    def close(self) -> None:
        """Close the connections that nobody uses just now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def start(self, unit: str, limit_s: float | None = None) -> None:
        """Start a unit; one that is active stays so. limit_s: wait for it so long (None: not at all), and raise
        JobFailed when it does not become active, TransientError when it is still on its way then."""
        self._job("StartUnit", "start", unit, limit_s)

    def stop(self, unit: str, limit_s: float | None = None) -> None:
        """Stop a unit; as `start`. One that is not loaded is stopped."""
        try:
            self._job("StopUnit", "stop", unit, limit_s)
        except NoSuchUnit:
            return

    def restart(self, unit: str, limit_s: float | None = None) -> None:
        """Stop and start a unit; as `start`."""
        self._job("RestartUnit", "restart", unit, limit_s)

    def kill(self, unit: str, signal: int, who: Who = "all") -> None:
        """Send a signal to the processes of a unit. Raises NoSuchUnit when there are none."""
        self._manager("KillUnit", "kill", unit, "ssi", (unit, who, int(signal)))

    def freeze(self, unit: str) -> None:
        """Freeze the processes of a unit. Raises NotSupported without cgroup v2."""
        self._manager("FreezeUnit", "freeze", unit, "s", (unit,))

    def thaw(self, unit: str) -> None:
        """Let the processes of a frozen unit go on."""
        self._manager("ThawUnit", "thaw", unit, "s", (unit,))

    def reset_failed(self, unit: str) -> None:
        """Forget how a unit failed; one that is not loaded has none."""
        try:
            self._manager("ResetFailedUnit", "reset-failed", unit, "s", (unit,))
        except NoSuchUnit:
            return

    def set_properties(self, unit: str, values: Mapping[str, int | str], runtime: bool = True) -> None:
        """Change properties such as CPUWeight (1 to 10000) and CPUQuotaPerSecUSec (microseconds of CPU time in each
        second; 2**64-1: no limit) while it runs. runtime: until the next boot."""
        typed = [(name, (_SIGNATURES[name], value)) for name, value in values.items()]
        self._manager("SetUnitProperties", "set-property", unit, "sba(sv)", (unit, runtime, typed))

    def properties(self, unit: str, names: Sequence[str]) -> dict[str, Any]:
        """Properties by name, such as LoadState, ActiveState, SubState, Result, ExecMainStatus, ExecMainCode, MainPID,
        ControlGroup, FreezerState, CPUUsageNSec. A unit that there is no file of has the LoadState not-found."""
        path = path_of(unit)
        found: dict[str, Any] = {}
        with self._connection() as connection:
            for name in names:
                owner = f"{_SERVICE}.{'Unit' if name in _UNIT_PROPERTIES else 'Service'}"
                address = DBusAddress(path, _SERVICE, _PROPERTIES)
                call = new_method_call(address, "Get", "ss", (owner, name))
                ((_, found[name]),) = self._ask(connection, call, "look at", unit)
        return found

    def units(self, patterns: Sequence[str]) -> tuple[Unit, ...]:
        """Return the units in memory whose names match one of the patterns (as in a shell)."""
        with self._connection() as connection:
            call = new_method_call(_manager(), "ListUnitsByPatterns", "asas", ([], list(patterns)))
            (rows,) = self._ask(connection, call, "list", " ".join(patterns))
        return tuple(Unit(row[0], row[2], row[3], row[4]) for row in rows)

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        """Hear of every unit that changes from now on, on a connection of its own."""
        connection = self._opened()
        try:
            rules = (
                MatchRule(type="signal", sender=_SERVICE, interface=_PROPERTIES, path_namespace=_UNITS),
                MatchRule(type="signal", sender=_SERVICE, interface=_MANAGER, member="UnitRemoved", path=_PATH),
            )
            with _told():
                for rule in rules:
                    self._ask(connection, message_bus.AddMatch(rule), "watch", "units")
                self._ask(connection, new_method_call(_manager(), "Subscribe"), "watch", "units")
            yield Changes(connection, self._clock)
        finally:
            connection.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _manager(self, method: str, verb: str, unit: str, signature: str, body: tuple[Any, ...]) -> None:
        with self._connection() as connection:
            self._ask(connection, new_method_call(_manager(), method, signature, body), verb, unit)

    def _job(self, method: str, verb: str, unit: str, limit_s: float | None) -> None:
        call = new_method_call(_manager(), method, "ss", (unit, "replace"))
        if limit_s is None:
            with self._connection() as connection:
                self._ask(connection, call, verb, unit)
            return
        until_s = self._clock.monotonic_s() + limit_s
        told = MatchRule(type="signal", sender=_SERVICE, interface=_MANAGER, member="JobRemoved", path=_PATH)
        removed: deque[Any] = deque()
        with self._connection() as connection:
            self._ask(connection, message_bus.AddMatch(told), verb, unit)
            (systemd,) = self._ask(connection, message_bus.GetNameOwner(_SERVICE), verb, unit)
            heard = MatchRule(type="signal", sender=systemd, interface=_MANAGER, member="JobRemoved", path=_PATH)
            with connection.filter(heard, queue=removed):  # nobody else can say how it ended
                (job,) = self._ask(connection, call, verb, unit)
                result = self._result(connection, removed, job, until_s)
            self._ask(connection, message_bus.RemoveMatch(told), verb, unit)
        if not result:
            raise TransientError(f"{verb} of {unit} is still in progress after {limit_s:g} s")
        if result != "done":
            raise JobFailed(f"{verb} of {unit}: {result}{self._why(unit)}", result)

    def _result(self, connection: Any, removed: deque[Any], job: str, until_s: float) -> str:
        """Return how a job ended; "" if it did not end in time."""
        while (left_s := until_s - self._clock.monotonic_s()) > 0.0:
            try:
                ended = connection.recv_until_filtered(removed, timeout=left_s)
            except TimeoutError:
                return ""
            if ended.body[1] == job:
                return str(ended.body[3])
        return ""

    def _why(self, unit: str) -> str:
        """Return systemd's description of a unit's failure."""
        seen = self.properties(unit, ("Result", "ExecMainCode", "ExecMainStatus"))
        status = f", status {seen['ExecMainStatus']}" if seen["ExecMainCode"] else ""
        return f" ({seen['Result']}{status})"

    def _ask(self, connection: Any, call: Message, verb: str, unit: str) -> tuple[Any, ...]:
        reply = connection.send_and_get_reply(call, timeout=self._limit_s)
        if reply.header.message_type is MessageType.error:
            name = reply.header.fields.get(HeaderFields.error_name, "")
            raise _error(name, str(reply.body[0]) if reply.body else name, verb, unit)
        body: tuple[Any, ...] = reply.body
        return body

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Yield a connection that no one else uses meanwhile; keep it unless something went wrong."""
        connection = self._taken() or self._opened()
        good = False
        try:
            with _told():
                yield connection
            good = True
        finally:
            if good:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _taken(self) -> Any:
        """Take an idle connection that has not ended; None when there is none."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _ended(connection.sock):
                return connection
            connection.close()

    def _opened(self) -> Any:
        try:
            return self._connect()
        except TimeoutError as error:
            raise TransientError("the system's bus does not answer") from error
        except OSError as error:
            raise TransientError(f"there is no system bus: {error.strerror or error}") from error
        except (AuthenticationError, DBusErrorResponse) as error:
            raise TransientError(f"the system's bus takes no more of us: {error}") from error


class Changes:
    """What has changed among the units; made by `SystemdBus.changes`."""

    def __init__(self, connection: Any, clock: SystemClock) -> None:
        self._connection, self._clock = connection, clock

    def wait(self, limit_s: float) -> frozenset[str]:
        """Return the units that have changed, as soon as there are any; empty after `limit_s`. Raises TransientError
        when the bus has ended: start over with a new object."""
        until_s = self._clock.monotonic_s() + limit_s
        names: set[str] = set()
        while True:
            left_s = 0.0 if names else max(until_s - self._clock.monotonic_s(), 0.0)
            try:
                heard = self._connection.receive(timeout=left_s)
            except TimeoutError:
                return frozenset(names)
            except OSError as error:
                raise TransientError(f"the system's bus: {error.strerror or error}") from error
            names |= _changed(heard)
            if not names and self._clock.monotonic_s() >= until_s:
                return frozenset()


@contextmanager
def _told() -> Iterator[None]:
    """Convert errors of a connection to TransientError."""
    try:
        yield
    except TimeoutError as error:
        raise TransientError("systemd does not answer on the system's bus") from error
    except OSError as error:
        raise TransientError(f"the system's bus: {error.strerror or error}") from error


def _changed(heard: Message) -> set[str]:
    """Return the unit that a signal names. Any process on the bus may send a signal that systemd never would: a unit is
    then looked up in vain."""
    fields = heard.header.fields
    if fields.get(HeaderFields.member) == "UnitRemoved":
        return {str(name) for name in heard.body[:1]}
    unit = unit_of(fields.get(HeaderFields.path, ""))
    return {unit} if unit else set()


def _manager() -> DBusAddress:
    return DBusAddress(_PATH, _SERVICE, _MANAGER)


def _ended(sock: socket.socket) -> bool:
    """Return whether the other side has closed the connection."""
    readable, _, _ = select.select([sock], [], [], 0.0)
    return bool(readable) and not sock.recv(1, socket.MSG_PEEK)


def _system_bus() -> DBusConnection:
    return open_dbus_connection("SYSTEM", auth_timeout=CONNECT_LIMIT_S)


def _error(name: str, text: str, verb: str, unit: str) -> PermanentError | TransientError:
    if name == _DENIED[0] and text.startswith("Rejected send message"):
        return NotAllowed(f"{verb} of {unit}: the bus's policy does not let this user ({DBUS_FILE}): {text}", name)
    if name in _DENIED:
        missing = f"no polkit rule lets this user ({ACTION}, unit {unit}, verb {verb}; {RULES_FILE})"
        return NotAllowed(f"{verb} of {unit} is not allowed: {missing}", name)
    said = f"{verb} of {unit}: {text}"
    if name in _TRANSIENT:
        return TransientError(said)
    if name.endswith((".NoSuchUnit", ".NoSuchProcess", ".UnknownObject", ".UnitInactive")):
        return NoSuchUnit(said, name)
    if name.endswith((".NotSupported", ".UnknownMethod")):
        return NotSupported(said, name)
    return Refused(said, name)
