"""systemd over D-Bus, with the other end of the connection answering as it is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from jeepney import (  # type: ignore[import-untyped]
    DBusAddress,
    HeaderFields,
    Message,
    Parser,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import DBusConnection  # type: ignore[import-untyped]
from jeepney.wrappers import DBusErrorResponse  # type: ignore[import-untyped]

from agents.drivers.systemd import (
    JobFailed,
    NoSuchUnit,
    NotAllowed,
    NotSupported,
    Refused,
    SystemdBus,
    Unit,
    path_of,
    unit_of,
)
from agents.hypervisors.process.systemd_runner import SystemdRunner
from shared.base.errors import PermanentError, TransientError
from shared.config.agent import ProcessKeys

PATH = "/org/freedesktop/systemd1"
SYSTEMD = DBusAddress(PATH, "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager")
NAME = ":1.0"
Answer = Callable[["Daemon", Message], None]


class Daemon:
    """A bus with systemd on it, for one connection: `answers` by method, and every call that came."""

    def __init__(self, sock: socket.socket, answers: dict[str, Answer]) -> None:
        self._sock, self._answers = sock, answers
        self._parser = Parser()
        self._serial = 0
        self.calls: list[tuple[str, Any]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        """Send something, as systemd."""
        self._serial += 1
        message.header.fields[HeaderFields.sender] = NAME
        self._sock.sendall(message.serialise(serial=self._serial))

    def reply(self, call: Message, signature: str | None = None, body: tuple[Any, ...] = ()) -> None:
        """Answer a call."""
        self.send(new_method_return(call, signature, body))

    def tell(self, member: str, signature: str, body: tuple[Any, ...]) -> None:
        """Send a signal of systemd's manager."""
        self.send(new_signal(SYSTEMD, member, signature, body))

    def hang_up(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End the connection, and wait until nothing is served any more."""
        self.hang_up()
        self._thread.join(5.0)
        self._sock.close()

    def _serve(self) -> None:
        with suppress(OSError):  # the client has gone while it was told something
            while content := self._sock.recv(4096):
                self._parser.add_data(content)
                while (call := self._parser.get_next_message()) is not None:
                    member = call.header.fields[HeaderFields.member]
                    self.calls.append((member, call.body))
                    self._answers.get(member, Daemon.reply)(self, call)


class Bench:
    """A client and the daemons that it has been connected to."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {
            "Hello": lambda daemon, call: daemon.reply(call, "s", (":1.9",)),
            "GetNameOwner": lambda daemon, call: daemon.reply(call, "s", (NAME,)),
        }
        self.daemons: list[Daemon] = []
        self.bus = SystemdBus(self.connect, call_limit_s=0.3)

    def connect(self) -> DBusConnection:
        """A new connection to a new daemon."""
        here, there = socket.socketpair()
        self.daemons.append(Daemon(there, self.answers))
        try:
            return DBusConnection(here)
        except DBusErrorResponse:
            here.close()
            raise

    def calls(self, member: str) -> list[Any]:
        """What came with each call of a method."""
        return [body for daemon in self.daemons for called, body in daemon.calls if called == member]

    def jobs(self, result: str, told: str = "/job/1") -> None:
        """Every start and stop is job 1; job `told` ends so at once."""

        def begun(daemon: Daemon, call: Message) -> None:
            daemon.reply(call, "o", ("/job/1",))
            daemon.tell("JobRemoved", "uoss", (1, told, "x.service", result))

        self.answers |= dict.fromkeys(("StartUnit", "StopUnit", "RestartUnit"), begun)

    def fails(self, member: str, error: str, text: str = "no") -> None:
        """A method answers with an error."""
        self.answers[member] = lambda daemon, call: daemon.send(new_error(call, error, "s", (text,)))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.bus.close()
    for daemon in made.daemons:
        daemon.end()


@pytest.mark.parametrize(
    ("unit", "label"),
    [
        ("shop.service", "shop_2eservice"),
        ("trimtab-job@j0.service", "trimtab_2djob_40j0_2eservice"),
        ("1_a", "_31_5fa"),
        ("é.service", "_c3_a9_2eservice"),
    ],
)
def test_a_unit_has_its_object(unit: str, label: str) -> None:
    assert path_of(unit) == f"{PATH}/unit/{label}"
    assert unit_of(path_of(unit)) == unit


def test_what_is_no_units_object_names_none() -> None:
    assert unit_of("/org/freedesktop/systemd1/job/7") == ""
    assert unit_of(PATH) == ""
    assert unit_of(f"{PATH}/unit/a_zz") == ""


def test_a_start_waits_until_systemd_says_that_it_is_done(bench: Bench) -> None:
    bench.jobs("done")

    bench.bus.start("x.service", 5.0)

    assert bench.calls("StartUnit") == [("x.service", "replace")]
    assert len(bench.calls("AddMatch")) == len(bench.calls("RemoveMatch")) == 1


def test_a_start_that_is_not_waited_for_asks_and_goes_on(bench: Bench) -> None:
    bench.jobs("failed")

    bench.bus.start("x.service")

    assert bench.calls("AddMatch") == []


def test_a_start_that_fails_says_what_systemd_knows(bench: Bench) -> None:
    bench.jobs("failed")
    values = {"Result": ("s", "exit-code"), "ExecMainCode": ("i", 1), "ExecMainStatus": ("i", 3)}
    bench.answers["Get"] = lambda daemon, call: daemon.reply(call, "v", (values[call.body[1]],))

    with pytest.raises(JobFailed, match=r"start of x\.service: failed \(exit-code, status 3\)") as caught:
        bench.bus.start("x.service", 5.0)
    assert caught.value.result == "failed"


def test_another_ones_job_does_not_end_the_wait(bench: Bench) -> None:
    bench.jobs("done", told="/job/2")

    with pytest.raises(TransientError, match=r"still in progress after 0\.2 s"):
        bench.bus.stop("x.service", 0.2)


def test_somebody_else_cannot_say_that_a_job_is_done(bench: Bench) -> None:
    """Given a signal of another sender on the bus, when waited for the job, then it is not believed."""
    bench.jobs("done")
    bench.answers["GetNameOwner"] = lambda daemon, call: daemon.reply(call, "s", (":1.66",))

    with pytest.raises(TransientError, match="still in progress"):
        bench.bus.start("x.service", 0.2)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        ("org.freedesktop.DBus.Error.AccessDenied", NotAllowed),
        ("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", NotAllowed),
        ("org.freedesktop.systemd1.NoSuchUnit", NoSuchUnit),
        ("org.freedesktop.systemd1.NoSuchProcess", NoSuchUnit),
        ("org.freedesktop.DBus.Error.NotSupported", NotSupported),
        ("org.freedesktop.systemd1.UnitMasked", Refused),
        ("org.freedesktop.DBus.Error.NoReply", TransientError),
        ("org.freedesktop.systemd1.ShuttingDown", TransientError),
    ],
)
def test_every_error_is_one_of_ours(bench: Bench, error: str, raised: type[Exception]) -> None:
    bench.fails("FreezeUnit", error)

    with pytest.raises((PermanentError, TransientError)) as caught:
        bench.bus.freeze("x.service")

    assert type(caught.value) is raised
    assert "freeze of x.service" in str(caught.value)
    assert getattr(caught.value, "name", error) == error


def test_a_denial_names_the_rule_that_is_missing(bench: Bench) -> None:
    bench.fails("KillUnit", "org.freedesktop.DBus.Error.AccessDenied")

    with pytest.raises(NotAllowed, match=r"unit x\.service, verb kill; 60-trimtab-units\.rules"):
        bench.bus.kill("x.service", 9)
    bench.fails(
        "KillUnit", "org.freedesktop.DBus.Error.AccessDenied", 'Rejected send message, 2 matched rules; type="x"'
    )
    with pytest.raises(NotAllowed, match=r"the bus's policy does not let this user \(trimtab\.dbus\)"):
        bench.bus.kill("x.service", 9)


def test_what_is_not_there_is_stopped_and_has_not_failed(bench: Bench) -> None:
    bench.fails("StopUnit", "org.freedesktop.systemd1.NoSuchUnit")
    bench.fails("ResetFailedUnit", "org.freedesktop.systemd1.NoSuchUnit")

    bench.bus.stop("x.service", 1.0)
    bench.bus.reset_failed("x.service")


def test_properties_are_typed(bench: Bench) -> None:
    bench.bus.set_properties("x.service", {"CPUWeight": 300, "CPUQuotaPerSecUSec": 500_000})

    changed = [("CPUWeight", ("t", 300)), ("CPUQuotaPerSecUSec", ("t", 500_000))]
    assert bench.calls("SetUnitProperties") == [("x.service", True, changed)]


def test_properties_are_asked_of_who_has_them(bench: Bench) -> None:
    bench.answers["Get"] = lambda daemon, call: daemon.reply(call, "v", (("s", call.body[0].rpartition(".")[2]),))

    seen = bench.bus.properties("x.service", ("ActiveState", "MainPID"))

    assert seen == {"ActiveState": "Unit", "MainPID": "Service"}


def test_units_are_listed(bench: Bench) -> None:
    row = ("a.service", "A", "loaded", "active", "running", "", "/u/a", 0, "", "/")
    bench.answers["ListUnitsByPatterns"] = lambda daemon, call: daemon.reply(call, "a(ssssssouso)", ([row],))

    assert bench.bus.units(["a*"]) == (Unit("a.service", "loaded", "active", "running"),)
    assert bench.calls("ListUnitsByPatterns") == [([], ["a*"])]


def test_a_bus_that_is_silent_is_given_up(bench: Bench) -> None:
    bench.answers["ThawUnit"] = lambda _daemon, _call: None

    with pytest.raises(TransientError, match="does not answer"):
        bench.bus.thaw("x.service")
    bench.bus.freeze("x.service")
    assert len(bench.daemons) == 2


def test_a_connection_that_has_ended_is_replaced(bench: Bench) -> None:
    bench.bus.freeze("x.service")
    bench.daemons.pop().end()

    bench.bus.freeze("x.service")

    assert len(bench.calls("FreezeUnit")) == 1


def test_a_connection_that_ends_in_the_middle_is_told(bench: Bench) -> None:
    bench.answers["ThawUnit"] = lambda daemon, _call: daemon.hang_up()

    with pytest.raises(TransientError, match="the system's bus: Connection reset"):
        bench.bus.thaw("x.service")


def test_no_bus_at_all_is_told() -> None:
    def none() -> DBusConnection:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(TransientError, match="there is no system bus: No such file"):
        SystemdBus(none).start("x.service")


def test_a_bus_that_refuses_a_connection_is_told(bench: Bench) -> None:
    bench.fails("Hello", "org.freedesktop.DBus.Error.LimitsExceeded", "too many")

    with pytest.raises(TransientError, match="too many"):
        bench.bus.start("x.service")


def test_a_bus_that_is_silent_to_who_would_listen_is_told(bench: Bench) -> None:
    bench.answers["Subscribe"] = lambda _daemon, _call: None

    with pytest.raises(TransientError, match="does not answer"), bench.bus.changes():
        pass


def test_what_somebody_else_makes_up_is_borne(bench: Bench) -> None:
    with bench.bus.changes() as changes:
        odd = DBusAddress(f"{PATH}/unit/a_zz", interface="org.freedesktop.DBus.Properties")
        bench.daemons[-1].send(new_signal(odd, "PropertiesChanged"))
        bench.daemons[-1].send(new_signal(odd, "UnitRemoved"))
        bench.daemons[-1].tell("UnitRemoved", "so", ("b.service", path_of("b.service")))

        assert changes.wait(5.0) == {"b.service"}


def test_changes_are_heard(bench: Bench) -> None:
    with bench.bus.changes() as changes:
        daemon = bench.daemons[-1]
        assert len(bench.calls("AddMatch")) == 2
        assert len(bench.calls("Subscribe")) == 1
        assert changes.wait(0.05) == frozenset()
        unit = DBusAddress(path_of("a.service"), interface="org.freedesktop.DBus.Properties")
        daemon.send(new_signal(unit, "PropertiesChanged", "sa{sv}as", ("x", [], [])))
        daemon.tell("UnitRemoved", "so", ("b.service", path_of("b.service")))
        heard: frozenset[str] = frozenset()
        while len(heard) < 2:
            heard |= changes.wait(5.0)
        assert heard == {"a.service", "b.service"}
        daemon.hang_up()
        with pytest.raises(TransientError, match="the system's bus"):
            changes.wait(5.0)


def test_ends_of_programs_are_to_be_looked_for_whenever_they_are_heard_of_only_from_now_on(
    bench: Bench, tmp_path: Path
) -> None:
    runner = SystemdRunner(ProcessKeys(state=str(tmp_path)), bench.bus, 1_000.0)

    assert runner.wait(60.0) == frozenset()
    bench.daemons[-1].tell("UnitRemoved", "so", ("trimtab-job@a:230.service", path_of("trimtab-job@a:230.service")))
    assert runner.wait(60.0) == {"a:230"}
    bench.daemons[-1].hang_up()
    with pytest.raises(TransientError):
        runner.wait(60.0)
    assert runner.wait(60.0) == frozenset()
    assert len(bench.calls("Subscribe")) == 2
