"""The fence agents and watchdogs of a lab's hosts, without a lab: a guardian that is played cuts the power."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from daemons.config.controller import ControllerConfig
from daemons.drivers.fencing import check_fencing, with_fencing
from daemons.drivers.power import make_driver
from shared.base.clock import SystemClock
from shared.config.toml import parse
from shared.ports.controller import PowerAnswer
from shared.values.nodes import PowerOperation
from tests.integration.harness import toml
from tests.lab import fencing, plan
from tests.lab.watchdogs import DEVICE, DISARM, Watchdog

CLOCK = SystemClock()
LIMIT_S = 20.0


class Guardian:
    """Answers requests as the guardian of a lab with the hosts h1 and h2 does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, list[dict[str, object]]()
        for name in ("h1", "h2"):
            (folder / name / "etc/libvirt").mkdir(parents=True)
            (folder / name / plan.FIRST).touch()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / plan.SOCKET))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                request = json.loads(stream.readline())
                self.asked.append(request)
                (self.folder / request["names"][0] / plan.FIRST).unlink(missing_ok=True)
                stream.write(b'""\n')

    def close(self) -> None:
        with suppress(OSError):  # it was closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LIMIT_S)


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    with TemporaryDirectory(prefix="l-", dir="/tmp") as folder:  # short: a socket is in it
        made = Guardian(Path(folder))
        yield made
        made.close()


def config(section: dict[str, object]) -> ControllerConfig:
    """The controller's configuration as the lab writes it."""
    return parse(toml({"power": {"driver": "none"}, "fencing": section}), ControllerConfig, "c.toml")


def fence(section: dict[str, object], node: str) -> PowerAnswer:
    """What a controller is answered that fences a node by these methods."""
    whole = config(section)
    driver = with_fencing(make_driver(whole.power), whole.fencing)
    return driver.operate(PowerOperation.FENCE, node, ())


def test_the_second_method_cuts_the_power_where_the_first_cannot_be_reached(guardian: Guardian, tmp_path: Path) -> None:
    agent = tmp_path / "fence_lab"
    fencing.write_agent(agent, guardian.folder)
    section = fencing.section(LIMIT_S, bmc=fencing.refusing(tmp_path / "bmc"), pdu=agent)
    check_fencing(config(section).fencing)
    answer = fence(section, "h1")
    assert answer.ok
    assert answer.detail.startswith(f"bmc: off: exit status 1: {fencing.SAYS}")
    assert answer.detail.endswith("; pdu: off")
    assert guardian.asked == [{"do": "power_off", "names": ["h1"]}]
    assert fence(section, "h1").ok, "it is off already"


def test_a_fence_without_a_lab_or_such_a_host_proves_nothing(guardian: Guardian, tmp_path: Path) -> None:
    agent = tmp_path / "fence_lab"
    fencing.write_agent(agent, tmp_path)
    section = {"attempts": 1, **fencing.section(LIMIT_S, pdu=agent)}
    answer = fence(section, "h1")
    assert (answer.ok, "no lab answers" in answer.detail) == (False, True)
    fencing.write_agent(agent, guardian.folder)
    guardian.close()
    answer = fence(section, "h1")
    assert (answer.ok, "status: on" in answer.detail) == (False, True)


def test_a_device_that_hangs_is_given_up(tmp_path: Path) -> None:
    section = {"attempts": 1, **fencing.section(1.0, dead=fencing.hanging(tmp_path / "dead", 2.0))}
    answer = fence(section, "h1")
    assert (answer.ok, answer.detail) == (False, "dead: off: killed after 1 s; status: killed after 1 s")


# --- watchdogs --------------------------------------------------------------------------------------------------------


def soon(holds: Callable[[], bool]) -> bool:
    until_s = CLOCK.monotonic_s() + LIMIT_S
    while not holds() and CLOCK.monotonic_s() < until_s:
        CLOCK.sleep(0.01)
    return holds()


def pet(folder: Path, text: bytes) -> None:
    fd = os.open(folder / DEVICE, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, text)
    os.close(fd)


def test_a_watchdog_looks_after_the_next_boot_too(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    resets: list[str] = []
    dog = Watchdog(tmp_path, 0.3, lambda: resets.append("h1"))
    try:
        pet(tmp_path, b"\0")
        assert soon(lambda: dog.resets == 1)
        (tmp_path / DEVICE).unlink()  # /run is new at each boot
        dog.boot()
        pet(tmp_path, DISARM)
        CLOCK.sleep(0.6)
        assert dog.resets == 1
        pet(tmp_path, b"\0")
        assert soon(lambda: dog.resets == 2)
    finally:
        dog.close()
    assert len(resets) == 2
