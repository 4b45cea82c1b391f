"""Fencing by methods in order: real programs are asked, and only a status that says off is proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from daemons.config.controller import PowerExec, PowerKeys
from daemons.config.fencing import FencingKeys, FencingMethod
from daemons.drivers.fencing import FencingPower, with_fencing
from daemons.drivers.fencing.driver import DETAIL_BYTES_MAX
from daemons.drivers.power import make_driver
from shared.base.errors import ContractViolation, TransientError
from shared.ports.controller import PowerAnswer, PowerDriver
from shared.values.nodes import PowerOperation
from tests.support.fence_agent import FakeAgent

FENCE, WAKE, SLEEP = PowerOperation.FENCE, PowerOperation.WAKE, PowerOperation.SLEEP
MAC = "02:00:00:00:00:01"
ON: dict[str, Any] = {"cuts": False}  # says that it is done and does nothing
FAILS: dict[str, Any] = {"off": 1, "cuts": False, "prints": "Connection timed out"}
LOGGED = """ERROR:root:Failed: Timed out  waiting to power OFF

2026-11-29 22:43:31,920 WARNING: Beware

2026-11-29 22:43:31,920 ERROR: Failed: Timed out waiting to power OFF


2026-11-29 22:43:31,921 ERROR: Please use '-h' for usage

"""  # as real agents write it
HANGS: dict[str, Any] = {"off_s": 30.0, "cuts": False}


@dataclass
class Inner:
    """The power driver around which the methods are."""

    does: frozenset[PowerOperation] = frozenset({WAKE, FENCE})
    ok: bool = True
    name: str = "inner"
    calls: list[tuple[PowerOperation, str, tuple[str, ...]]] = field(default_factory=list)
    raises: Exception | None = None

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        self.calls.append((operation, node, tuple(mac_addresses)))
        if self.raises is not None:
            raise self.raises
        if operation not in self.does:
            raise ContractViolation(f"inner does not {operation}")
        return PowerAnswer(self.ok, "" if self.ok else "no answer")


def none() -> PowerDriver:
    return make_driver(PowerKeys())


def driver(inner: PowerDriver, attempts: int = 2, **methods: FencingMethod) -> PowerDriver:
    return with_fencing(inner, FencingKeys(tuple(methods), attempts, methods))


def test_without_methods_it_is_the_driver_itself() -> None:
    inner = Inner()

    assert with_fencing(inner, FencingKeys()) is inner


def test_a_node_is_off_once_its_status_says_so(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)

    answer = driver(none(), bmc=agent.method()).operate(FENCE, "n1", (MAC,))

    assert answer == PowerAnswer(True, "bmc: off")
    assert agent.asked() == [("off", "n1"), ("status", "n1")]
    assert agent.is_off("n1")


def test_no_option_is_an_argument(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    options = {"plug": "{node}", "ip": "{node}-bmc.example=x", "username": "{mac}"}
    secret = tmp_path / "secret"
    secret.write_text("pass word=1\n")
    secret.chmod(0o600)

    assert driver(none(), bmc=agent.method(options=options, password_file=str(secret))).operate(FENCE, "n1", (MAC,)).ok

    for run in agent.runs():
        assert run["argv"] == []
        assert {key: run["options"][key] for key in ("plug", "ip", "username", "password")} == {
            "plug": "n1",
            "ip": "n1-bmc.example=x",
            "username": MAC,
            "password": "pass word=1",
        }
        assert "CREDENTIALS_DIRECTORY" not in run["variables"]
        assert {"PATH", "LC_ALL"} <= {*run["variables"]}


def test_options_of_a_node_replace_those_of_all(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    method = agent.method(options={"plug": "1", "ip": "pdu-a"}, nodes={"n2": {"plug": "7"}})
    made = driver(none(), pdu=method)

    assert made.operate(FENCE, "n1", ()).ok
    assert made.operate(FENCE, "n2", ()).ok

    assert agent.asked() == [("off", "1"), ("status", "1"), ("off", "7"), ("status", "7")]
    assert {run["options"]["ip"] for run in agent.runs()} == {"pdu-a"}


def test_an_agent_that_lies_proves_nothing(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(always=ON)

    answer = driver(none(), bmc=agent.method()).operate(FENCE, "n1", ())

    assert answer == PowerAnswer(False, "bmc: status: on")
    assert [action for action, _ in agent.asked()] == ["off", "status", "off", "status"]


def test_an_off_that_fails_is_no_failure_if_the_node_is_off(tmp_path: Path) -> None:
    """Given an agent that gave up waiting, when the power goes all the same, then the status is the proof."""
    agent = FakeAgent.make(tmp_path)
    agent.script(always={"off": 1, "prints": "Timed out waiting to power OFF"})

    assert driver(none(), bmc=agent.method()).operate(FENCE, "n1", ()).ok


def test_a_status_of_a_program_that_is_no_agent_is_no_proof(tmp_path: Path) -> None:
    """A script with a syntax error ends with status 2, whatever it is asked."""
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nif\n")
    broken.chmod(0o755)

    answer = driver(none(), bmc=FencingMethod(str(broken))).operate(FENCE, "n1", ())

    assert not answer.ok
    assert answer.detail.startswith("bmc: off: exit status 2: ")


def test_methods_are_tried_in_order_and_each_failure_is_named(tmp_path: Path) -> None:
    first, second, third = (FakeAgent.make(tmp_path / name) for name in ("a", "b", "c"))
    first.script(always=FAILS)
    second.script(always={"off": 0, "status": 1, "cuts": False, "prints": "Status unknown"})
    made = with_fencing(
        none(),
        FencingKeys(("bmc", "os", "pdu"), 3, {"pdu": third.method(), "os": second.method(), "bmc": first.method()}),
    )

    answer = made.operate(FENCE, "n1", ())

    assert answer.ok
    assert answer.detail == (
        "bmc: off: exit status 1: Connection timed out; status: on; "
        "os: status: exit status 1: Status unknown Status: ON; pdu: off"
    )
    assert [len(agent.asked()) for agent in (first, second, third)] == [6, 6, 2]


def test_a_second_attempt_may_work(tmp_path: Path) -> None:
    agent, other = FakeAgent.make(tmp_path / "a"), FakeAgent.make(tmp_path / "b")
    agent.script(FAILS)

    answer = driver(none(), bmc=agent.method(), pdu=other.method()).operate(FENCE, "n1", ())

    assert answer == PowerAnswer(True, "bmc: off")
    assert other.runs() == []


def test_one_attempt_is_one(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(FAILS)

    assert not driver(none(), 1, bmc=agent.method()).operate(FENCE, "n1", ()).ok


def test_an_agent_that_hangs_is_killed_and_the_next_is_asked(tmp_path: Path) -> None:
    slow, other = FakeAgent.make(tmp_path / "a"), FakeAgent.make(tmp_path / "b")
    slow.script(always=HANGS)

    answer = driver(none(), 1, bmc=slow.method(limit_s=1.0), pdu=other.method()).operate(FENCE, "n1", ())

    assert answer.ok
    assert answer.detail == "bmc: off: killed after 1 s; status: on; pdu: off"


def test_of_what_an_agent_logs_only_the_messages_are_repeated(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(always={"off": 1, "cuts": False, "status": 1, "prints": LOGGED})

    answer = driver(none(), 1, bmc=agent.method()).operate(FENCE, "n1", ())

    why = "exit status 1: Failed: Timed out waiting to power OFF Beware"
    assert answer == PowerAnswer(False, f"bmc: off: {why}; status: {why} Status: ON")


def test_an_agent_that_has_gone_is_a_failure(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    made = driver(none(), bmc=agent.method())
    agent.program.unlink()

    answer = made.operate(FENCE, "n1", ())

    assert not answer.ok
    assert answer.detail == f"bmc: {agent.program} cannot be run: No such file or directory"


def test_without_an_address_an_option_that_needs_one_is_a_failure(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)

    answer = driver(none(), bmc=agent.method(options={"plug": "{mac}"})).operate(FENCE, "n1", ("ff:ff:ff:ff:ff:ff",))

    assert not answer.ok
    assert answer.detail.startswith("bmc: n1: no hardware address is known")
    assert agent.runs() == []


def test_a_password_is_read_at_each_run_and_shown_nowhere(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(password="n3w")
    secret = tmp_path / "secret"
    secret.write_text("0ld")
    secret.chmod(0o600)
    made = driver(none(), bmc=agent.method(password_file=str(secret)))

    failed = made.operate(FENCE, "n1", ())
    secret.write_text("n3w")
    done = made.operate(FENCE, "n1", ())
    secret.unlink()
    gone = made.operate(FENCE, "n1", ())

    assert not failed.ok
    assert "password was ***" in failed.detail
    assert "0ld" not in failed.detail + repr(made)
    assert done.ok
    assert not gone.ok
    assert "fencing.method.bmc.password_file" in gone.detail


# --- the driver around which they are -------------------------------------------------------------------------------


def test_everything_else_is_the_drivers(tmp_path: Path) -> None:
    inner = Inner(frozenset({WAKE}))
    made = driver(inner, bmc=FakeAgent.make(tmp_path).method())

    assert (made.name, made.does) == ("inner", frozenset({WAKE, FENCE}))
    assert made.operate(WAKE, "n1", (MAC,)) == PowerAnswer(True)
    with pytest.raises(ContractViolation):
        made.operate(SLEEP, "n1", ())
    assert inner.calls == [(WAKE, "n1", (MAC,)), (SLEEP, "n1", ())]


def test_the_drivers_own_fence_comes_last(tmp_path: Path) -> None:
    agent, inner = FakeAgent.make(tmp_path), Inner()
    made = driver(inner, bmc=agent.method())

    assert made.operate(FENCE, "n1", (MAC,)).ok
    assert inner.calls == []

    agent.script(always=FAILS)
    answer = made.operate(FENCE, "n2", (MAC,))
    assert answer.ok
    assert answer.detail.startswith("bmc: off: exit status 1")
    assert answer.detail.endswith("power driver inner: off")
    assert inner.calls == [(FENCE, "n2", (MAC,))]


@pytest.mark.parametrize("inner", [Inner(ok=False), Inner(raises=TransientError("no answer"))])
def test_when_all_fail_each_is_named(tmp_path: Path, inner: Inner) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(always=ON)

    answer = driver(inner, bmc=agent.method(), pdu=agent.method()).operate(FENCE, "n1", ())

    assert answer == PowerAnswer(False, "bmc: status: on; pdu: status: on; power driver inner: no answer")


def test_a_program_of_the_exec_driver_is_one_more_method(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(always=ON)
    inner = make_driver(PowerKeys(driver="exec", exec=PowerExec(fence=("/bin/echo", "{node} is off"))))

    answer = driver(inner, 1, bmc=agent.method()).operate(FENCE, "n1", ())

    assert answer == PowerAnswer(True, "bmc: status: on; power driver exec: n1 is off")


def test_the_detail_is_bounded_and_names_every_method(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(always={"off": 1, "status": 1, "cuts": False, "prints": "ü" * 5_000})
    methods = {f"method-{index}": agent.method() for index in range(8)}

    made = with_fencing(Inner(ok=False), FencingKeys(tuple(methods), 1, methods))

    answer = made.operate(FENCE, "n1", ())

    assert isinstance(made, FencingPower)
    assert not answer.ok
    assert len(answer.detail.encode()) <= DETAIL_BYTES_MAX
    assert all(f"{name}: off: exit status 1" in answer.detail for name in methods)
    assert answer.detail.endswith("power driver inner: no answer")
