"""The programs of the package fence-agents themselves, with the methods of docs/how-to/fencing.md.

The devices are a file (`fence_dummy`), a Redfish server and OpenIPMI's simulator.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.config.controller import ControllerConfig, PowerKeys
from daemons.config.fencing import FencingKeys, FencingMethod
from daemons.drivers.fencing import PowerState, check_fencing, make_methods, with_fencing
from daemons.drivers.power import make_driver
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput
from shared.config.toml import parse
from shared.ports.controller import PowerAnswer
from shared.values.nodes import PowerOperation
from tests.architecture.sources import ROOT
from tests.integration.debian import go_without, missing, need_root
from tests.ports import free_port
from tests.support.ipmi_simulator import CIPHER, Bmc, ipmi_simulator
from tests.support.notify_servers import Certificate, make_certificate
from tests.support.redfish_server import FORCE_OFF, RESET, SYSTEM, Redfish, redfish_server

pytestmark = pytest.mark.full

AGENTS = tuple(f"/usr/sbin/fence_{name}" for name in ("apc_snmp", "dummy", "ipmilan", "redfish", "virsh"))
PROGRAMS = (*AGENTS, "/usr/bin/ipmitool", "/usr/bin/ipmi_sim")
PACKAGES = ("fence-agents", "ipmitool", "openipmi")
USERNAME, PASSWORD = "trimtab", "s3'cr$e`t=1#%"  # what a shell or a file of options would take for its own
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"  # those that the machine trusts
CLOCK = SystemClock()
HURRIED = {"power_timeout": "2"}  # s, of the 20 that an agent waits for a machine that stays on
MACHINE = "n1"


@pytest.fixture(scope="module", autouse=True)
def _agents() -> None:
    """The programs are there, else the tests are skipped, on CI they fail."""
    reason = missing(lambda: all(os.access(program, os.X_OK) for program in PROGRAMS), PACKAGES)
    if reason:
        go_without(reason)


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


@pytest.fixture
def redfish(certificate: Certificate) -> Iterator[Redfish]:
    with redfish_server(certificate.context(), USERNAME, PASSWORD) as device:
        yield device


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[Bmc]:
    with ipmi_simulator(tmp_path / "bmc", USERNAME, PASSWORD) as device:
        yield device


def recipes() -> list[FencingKeys]:
    """The examples of the page."""
    blocks = (ROOT / "docs/how-to/fencing.md").read_text("utf-8").split("```toml\n")[1:]
    return [parse(block.split("```", 1)[0], ControllerConfig).fencing for block in blocks]


def recipe(agent: str) -> FencingMethod:
    """The first method of the page with this agent."""
    return next(method for keys in recipes() for method in keys.method.values() if method.agent == agent)


def secret(folder: Path, text: str = PASSWORD) -> str:
    file = folder / f"password-{len(text)}"
    file.write_text(text)
    file.chmod(0o600)
    return str(file)


def by_redfish(
    folder: Path, port: int, options: Mapping[str, str] | None = None, password: str = PASSWORD
) -> FencingMethod:
    """The page's method, for a device of this machine. It accepts any certificate."""
    own = {"ip": "127.0.0.1", "ipport": str(port), "ssl_insecure": "1", **(options or {})}
    return replace(recipe("fence_redfish"), password_file=secret(folder, password), nodes={MACHINE: own})


def by_ipmi(
    folder: Path, port: int, options: Mapping[str, str] | None = None, password: str = PASSWORD
) -> FencingMethod:
    """The page's method, for a device of this machine."""
    own = {"ip": "127.0.0.1", "ipport": str(port), "cipher": CIPHER, **(options or {})}
    return replace(recipe("fence_ipmilan"), password_file=secret(folder, password), nodes={MACHINE: own})


def by_file(folder: Path) -> FencingMethod:
    """A method that always works: the device is a file."""
    (folder / "status").write_text("on")
    return FencingMethod("fence_dummy", options={"status_file": str(folder / "status")})


def fence(attempts: int = 1, **methods: FencingMethod) -> PowerAnswer:
    keys = FencingKeys(tuple(methods), attempts, methods)
    check_fencing(keys)
    return with_fencing(make_driver(PowerKeys()), keys).operate(PowerOperation.FENCE, MACHINE, ())


def power_of(method: FencingMethod) -> PowerState:
    """What `trimtab nodes fence-status` says."""
    (made,) = make_methods(FencingKeys(("it",), 1, {"it": method}))
    return made.read_power(MACHINE, "").state


def command_lines() -> Iterator[list[bytes]]:
    """Those of all processes, in their arguments."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            yield (process / "cmdline").read_bytes().split(b"\0")


# --- what agents say of a configuration -------------------------------------------------------------------------------


def test_the_agents_accept_every_example_of_the_page(tmp_path: Path) -> None:
    for keys in recipes():
        methods = {}
        for name, method in keys.method.items():
            key = {"identity_file": secret(tmp_path)} if "identity_file" in method.options else {}
            password = secret(tmp_path) if method.password_file else ""
            methods[name] = replace(method, options={**method.options, **key}, password_file=password)
        check_fencing(replace(keys, method=methods))


@pytest.mark.parametrize("agent", [Path(path).name for path in AGENTS])
def test_what_is_wrong_is_said_in_an_agents_words(agent: str) -> None:
    with pytest.raises(InvalidInput) as found:
        check_fencing(FencingKeys(("it",), 1, {"it": FencingMethod(agent, options={"power_timeout": "soon"})}))

    said = str(found.value)
    assert f"fencing.method.it.options: {agent} refuses the options: exit status 1: Failed: " in said
    assert "The value you have entered for --power-timeout is not a valid time in seconds" in said
    assert "Please use" not in said


def test_an_option_that_an_agent_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"it\.options\.system_uri: the agent has no such option .*systems_uri"):
        check_fencing(FencingKeys(("it",), 1, {"it": FencingMethod("fence_redfish", options={"system_uri": "/1"})}))


# --- fence_dummy: what all agents have in common ----------------------------------------------------------------------


def test_off_is_proved_by_the_status(tmp_path: Path) -> None:
    method = by_file(tmp_path)
    assert power_of(method) is PowerState.ON

    assert fence(it=method) == PowerAnswer(True, "it: off")

    assert (tmp_path / "status").read_text() == "off"
    assert power_of(method) is PowerState.OFF
    assert fence(it=method) == PowerAnswer(True, "it: off"), "one that is off already"


def test_a_device_that_does_nothing_proves_nothing() -> None:
    method = FencingMethod("fence_dummy", options={"type": "fail", **HURRIED})

    answer = PowerAnswer(False, "it: off: exit status 1: Failed: Timed out waiting to power OFF; status: on")
    assert fence(it=method) == answer


# --- Redfish ----------------------------------------------------------------------------------------------------------


def test_redfish_switches_off_and_reads_the_state(tmp_path: Path, redfish: Redfish) -> None:
    method = by_redfish(tmp_path, redfish.port)
    assert power_of(method) is PowerState.ON
    redfish.lags = 2

    assert fence(bmc=method) == PowerAnswer(True, "bmc: off")

    assert redfish.power == "Off"
    assert [each for each in redfish.asked if each[0] == "POST"] == [("POST", RESET, {"ResetType": FORCE_OFF})]
    assert redfish.asked[-1] == ("GET", SYSTEM, {})
    assert {path for _, path, _ in redfish.asked} == {SYSTEM, RESET}


def test_redfish_is_trusted_by_the_authorities_of_the_machine(
    tmp_path: Path, redfish: Redfish, certificate: Certificate
) -> None:
    """The page's method without `ssl_insecure`: the agent runs where the machine trusts the device's certificate."""
    need_root("a machine that trusts another authority")
    trusting = tmp_path / "fence_redfish"
    runs = f"mount --bind {certificate.certificate} {AUTHORITIES} && exec /usr/sbin/fence_redfish"
    trusting.write_text(f"#!/bin/sh\nexec unshare --mount --propagation private sh -c '{runs}'\n")
    trusting.chmod(0o755)
    own = {"ip": "localhost", "ipport": str(redfish.port)}
    method = replace(by_redfish(tmp_path, redfish.port), agent=str(trusting), nodes={MACHINE: own})

    assert fence(bmc=method) == PowerAnswer(True, "bmc: off")
    assert redfish.power == "Off"


def test_redfish_with_a_certificate_that_nobody_trusts_is_told_no_password(tmp_path: Path, redfish: Redfish) -> None:
    method = by_redfish(tmp_path, redfish.port)
    own = {name: value for name, value in method.nodes[MACHINE].items() if name != "ssl_insecure"}

    answer = fence(bmc=replace(method, nodes={MACHINE: own}), pdu=by_file(tmp_path))

    assert answer.ok
    assert "certificate verify failed: self-signed certificate" in answer.detail
    assert answer.detail.endswith("; pdu: off")
    assert redfish.asked == []


def test_redfish_with_a_wrong_password_fails_and_the_next_method_is_tried(tmp_path: Path, redfish: Redfish) -> None:
    method = by_redfish(tmp_path, redfish.port, password="wrong")
    why = f"exit status 1: Unable to get PowerState: https://127.0.0.1:{redfish.port}{SYSTEM}"

    assert fence(bmc=method, pdu=by_file(tmp_path)) == PowerAnswer(True, f"bmc: off: {why}; status: {why}; pdu: off")
    assert redfish.power == "On"
    assert power_of(method) is PowerState.ERROR


@pytest.mark.parametrize("lacks", ["the right to switch", "obedience"])
def test_redfish_that_leaves_the_machine_on_proves_nothing(tmp_path: Path, redfish: Redfish, lacks: str) -> None:
    redfish.may_reset, redfish.obeys = lacks != "the right to switch", lacks != "obedience"

    assert fence(bmc=by_redfish(tmp_path, redfish.port, HURRIED)) == PowerAnswer(
        False, "bmc: off: exit status 1: Failed: Timed out waiting to power OFF; status: on"
    )


def test_redfish_that_does_not_answer_is_given_up_at_the_limit(tmp_path: Path, redfish: Redfish) -> None:
    redfish.silent = True
    method = replace(by_redfish(tmp_path, redfish.port), limit_s=3.0)
    began_s = CLOCK.monotonic_s()

    answer = fence(bmc=method, pdu=by_file(tmp_path))

    assert answer == PowerAnswer(True, "bmc: off: killed after 3 s; status: killed after 3 s; pdu: off")
    assert CLOCK.monotonic_s() - began_s < 30.0


# --- IPMI -------------------------------------------------------------------------------------------------------------


def test_ipmi_switches_off_and_reads_the_state(tmp_path: Path, bmc: Bmc) -> None:
    method = by_ipmi(tmp_path, bmc.port)
    assert power_of(method) is PowerState.ON

    assert fence(bmc=method) == PowerAnswer(True, "bmc: off")

    assert not bmc.is_on
    assert power_of(method) is PowerState.OFF


def test_ipmi_with_a_wrong_password_fails_and_the_next_method_is_tried(tmp_path: Path, bmc: Bmc) -> None:
    method = by_ipmi(tmp_path, bmc.port, password="wrong")
    why = "exit status 1: Failed: Unable to obtain correct plug status or plug is not available"

    assert fence(2, bmc=method, pdu=by_file(tmp_path)) == PowerAnswer(True, f"bmc: off: {why}; status: {why}; pdu: off")
    assert bmc.is_on
    assert power_of(method) is PowerState.ERROR


@pytest.mark.parametrize("lacks", ["the right to switch", "obedience"])
def test_ipmi_that_leaves_the_machine_on_proves_nothing(tmp_path: Path, bmc: Bmc, lacks: str) -> None:
    rights = {"privlvl": "user"} if lacks == "the right to switch" else {}
    if not rights:
        bmc.ignore()

    assert fence(bmc=by_ipmi(tmp_path, bmc.port, HURRIED | rights)) == PowerAnswer(
        False, "bmc: off: exit status 1: Failed: Timed out waiting to power OFF; status: on"
    )
    assert bmc.is_on


def test_ipmi_that_does_not_answer_is_given_up_by_the_agent(tmp_path: Path, bmc: Bmc) -> None:
    bmc.hang()

    answer = fence(bmc=by_ipmi(tmp_path, bmc.port, HURRIED), pdu=by_file(tmp_path))

    why = "exit status 1: Connection timed out"
    assert answer == PowerAnswer(True, f"bmc: off: {why}; status: {why}; pdu: off")


def test_ipmi_that_does_not_answer_is_given_up_at_the_limit_with_its_ipmitool(tmp_path: Path, bmc: Bmc) -> None:
    bmc.hang()
    method = replace(by_ipmi(tmp_path, bmc.port), limit_s=3.0)

    answer = fence(bmc=method, pdu=by_file(tmp_path))

    assert answer == PowerAnswer(True, "bmc: off: killed after 3 s; status: killed after 3 s; pdu: off")
    assert not any(b"/usr/bin/ipmitool" in each and str(bmc.port).encode() in each for each in command_lines())


# --- all together -----------------------------------------------------------------------------------------------------


def test_methods_are_tried_in_order_until_one_proves_it(tmp_path: Path, redfish: Redfish, bmc: Bmc) -> None:
    bmc.ignore()

    answer = fence(
        2, ipmi=by_ipmi(tmp_path, bmc.port, HURRIED), redfish=by_redfish(tmp_path, redfish.port), pdu=by_file(tmp_path)
    )

    assert answer.ok
    assert answer.detail == (
        "ipmi: off: exit status 1: Failed: Timed out waiting to power OFF; status: on; redfish: off"
    )
    assert redfish.power == "Off"
    assert (tmp_path / "status").read_text() == "on"


def test_without_any_proof_every_method_is_named(tmp_path: Path, redfish: Redfish, bmc: Bmc) -> None:
    redfish.obeys = False
    nobody = free_port()

    answer = fence(
        silent=replace(by_redfish(tmp_path, nobody), limit_s=20.0),
        redfish=by_redfish(tmp_path, redfish.port, HURRIED),
        ipmi=by_ipmi(tmp_path, bmc.port, password="wrong"),
    )

    assert not answer.ok
    assert "silent: off: exit status 1: " in answer.detail
    assert "Connection refused" in answer.detail
    assert "redfish: off: exit status 1: Failed: Timed out waiting to power OFF; status: on; " in answer.detail
    assert "ipmi: off: exit status 1: Failed: Unable to obtain correct plug status" in answer.detail
    assert bmc.is_on
