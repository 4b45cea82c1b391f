"""Every power driver passes the suite, and the suite finds drivers that break their contract."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemons.config.controller import PowerExec, PowerKeys
from daemons.config.fencing import FencingKeys
from daemons.drivers.fencing import with_fencing
from daemons.drivers.power import make_driver
from shared.base.errors import ContractViolation
from shared.ports import plugins
from shared.ports.controller import PowerAnswer
from shared.values.nodes import Node, PowerOperation
from shared.values.operation_costs import COSTS
from sim_backend.conformance.power_checks import CHECKS, Check, PowerHarness
from sim_backend.fakes.hypervisor import FakeCluster
from sim_backend.fakes.power import FakePower, HostPower, PowerTimes
from sim_backend.world.world import World
from tests.support.fence_agent import FakeAgent

NOTHING: frozenset[PowerOperation] = frozenset()


@contextmanager
def fake(tmp_path: Path) -> Iterator[PowerHarness]:
    """The simulator's, with every operation."""
    del tmp_path
    cluster = FakeCluster(World(), COSTS["none"])
    cluster.add_node(Node("n1", 4, 2_000.0, memory_mib=8_000))
    driver = FakePower(cluster, times=PowerTimes(noise=0.0), does=frozenset(PowerOperation))
    states = {
        PowerOperation.WAKE: HostPower.UP,
        PowerOperation.SLEEP: HostPower.OFF,
        PowerOperation.FENCE: HostPower.OFF,
    }

    def done(operation: PowerOperation, node: str) -> bool:
        return operation not in states or driver.state(node) is states[operation]

    yield PowerHarness(driver, unreachable="n9", done=done)


@contextmanager
def none(tmp_path: Path) -> Iterator[PowerHarness]:
    """That of a cluster without any."""
    del tmp_path
    yield PowerHarness(make_driver(PowerKeys()))


@contextmanager
def wake_on_lan(tmp_path: Path) -> Iterator[PowerHarness]:
    """Its packets are caught on the loopback."""
    del tmp_path
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caught:
        caught.bind(("127.0.0.1", 0))
        caught.settimeout(20.0)
        driver = make_driver(PowerKeys(driver="wake-on-lan", broadcast=f"127.0.0.1:{caught.getsockname()[1]}"))

        def done(operation: PowerOperation, node: str) -> bool:
            del operation, node
            return caught.recv(1_000) == b"\xff" * 6 + bytes.fromhex("020000000001") * 16

        yield PowerHarness(driver, done=done)


@contextmanager
def exec_(tmp_path: Path) -> Iterator[PowerHarness]:
    """A script that notes what it was asked, and knows one node only."""
    script, notes = tmp_path / "power", tmp_path / "notes"
    script.write_text(f'#!/bin/sh\necho "$1 $2"\n[ "$2" = n1 ] || exit 3\necho "$1 $2 $3" >> {notes}\n')
    script.chmod(0o755)
    commands: dict[str, Any] = {
        operation.value: (str(script), operation.value, "{node}", "{mac}") for operation in PowerOperation
    }
    driver = make_driver(PowerKeys(driver="exec", exec=PowerExec(**commands)))

    def done(operation: PowerOperation, node: str) -> bool:
        return f"{operation.value} {node} 02:00:00:00:00:01" in notes.read_text().splitlines()

    yield PowerHarness(driver, unreachable="n2", done=done)


@contextmanager
def fencing(tmp_path: Path) -> Iterator[PowerHarness]:
    """Two methods around no driver: the first agent lies, the second wants a password."""
    first, second = FakeAgent.make(tmp_path / "first"), FakeAgent.make(tmp_path / "second")
    first.script(always={"cuts": False})
    second.script(password="secret")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    methods = {"bmc": first.method(), "pdu": second.method(password_file=str(secret))}
    driver = with_fencing(make_driver(PowerKeys()), FencingKeys(("bmc", "pdu"), 1, methods))
    yield PowerHarness(driver, done=lambda _operation, node: second.is_off(node))


@contextmanager
def fencing_out_of_reach(tmp_path: Path) -> Iterator[PowerHarness]:
    """A method of fencing around the programs of another driver: none of them can do anything for n2."""
    with exec_(tmp_path) as inner:
        agent = FakeAgent.make(tmp_path / "agent")
        agent.script(always={"off": 1, "status": 1, "cuts": False})
        keys = FencingKeys(("bmc",), 2, {"bmc": agent.method()})
        yield replace(inner, driver=with_fencing(inner.driver, keys))


HARNESSES = {
    "fake": fake,
    "none": none,
    "wake-on-lan": wake_on_lan,
    "exec": exec_,
    "fencing": fencing,
    "fencing-fails": fencing_out_of_reach,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", HARNESSES)
def test_driver(name: str, check: Check, tmp_path: Path) -> None:
    with HARNESSES[name](tmp_path) as harness:
        check(harness)


def test_every_registered_driver_is_held_to_it() -> None:
    assert set(plugins.names(plugins.POWER)) <= set(HARNESSES)


# --- the suite itself -----------------------------------------------------------------------------------------------


class Faulty:
    """A driver that says it wakes, with one fault."""

    name, does = "faulty", frozenset({PowerOperation.WAKE})

    def __init__(self, operate: Callable[[PowerOperation, str, Sequence[str]], PowerAnswer]) -> None:
        self._operate = operate
        self.calls = 0

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        self.calls += 1
        return self._operate(operation, node, mac_addresses)


def quiet(operation: PowerOperation, node: str, macs: Sequence[str]) -> PowerAnswer:
    """Does nothing and says it did."""
    del operation, node, macs
    return PowerAnswer(True)


def wordy(operation: PowerOperation, node: str, macs: Sequence[str]) -> PowerAnswer:
    del operation, node, macs
    return PowerAnswer(True, "x" * 5_000)


def greedy(operation: PowerOperation, node: str, macs: Sequence[str]) -> PowerAnswer:
    del operation, node
    if isinstance(macs, list):
        macs.clear()
    return PowerAnswer(True)


def grumpy(operation: PowerOperation, node: str, macs: Sequence[str]) -> PowerAnswer:
    del operation, node, macs
    return PowerAnswer(False)


@pytest.mark.parametrize(
    ("operate", "found_by"),
    [
        (quiet, "check_what_it_does_not_do_is_a_contract_violation"),
        (quiet, "check_what_it_does_is_done"),
        (quiet, "check_a_failure_is_told"),
        (wordy, "check_details_are_short_text"),
        (greedy, "check_addresses_are_left_as_they_are"),
        (grumpy, "check_what_it_does_is_done"),
        (grumpy, "check_twice_is_as_good_as_once"),
        (grumpy, "check_a_failure_is_told"),
        (grumpy, "check_a_node_without_addresses_is_no_defect"),
    ],
)
def test_the_suite_finds_faults(
    operate: Callable[[PowerOperation, str, Sequence[str]], PowerAnswer], found_by: str
) -> None:
    checks = {check.__name__: check for check in CHECKS}
    harness = PowerHarness(Faulty(operate), unreachable="n9", done=lambda _operation, _node: False)

    with pytest.raises(ContractViolation):
        checks[found_by](harness)
