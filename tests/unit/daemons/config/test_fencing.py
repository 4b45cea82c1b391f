"""`[fencing]` of the controller's file: what may be written there, and what the controller says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.config.controller import ControllerConfig
from daemons.config.fencing import FencingKeys
from daemons.drivers.fencing import with_fencing
from daemons.drivers.power import make_driver
from daemons.service.main import check
from daemons.service.settings_from_config import settings_of
from shared.base.errors import InvalidInput
from shared.config.toml import parse
from tests.architecture.sources import ROOT
from tests.support.fence_agent import FakeAgent


def config(text: str) -> ControllerConfig:
    return parse(text, ControllerConfig, "c.toml")


def refused(text: str) -> str:
    with pytest.raises(InvalidInput) as found:
        config(text)
    return str(found.value)


def test_nothing_is_the_default() -> None:
    assert config("").fencing == FencingKeys()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[fencing]\nmethods = ["a", "a"]\n', "c.toml:2: fencing.methods: has 'a' 2 times"),
        ('[fencing]\nmethods = ["a b"]\n', "c.toml:2: fencing.methods[0]: is 'a b' (expected ASCII letters"),
        ("[fencing]\nattempts = 0\n", "c.toml:2: fencing.attempts: is 0 (expected a whole number from 1 to 10)"),
        ("[fencing.method.a]\n", "fencing.method.a.agent: is missing"),
        ('[fencing.method.a]\nagent = "sbin/fence"\n', "fencing.method.a.agent: is 'sbin/fence' (expected the name of"),
        ('[fencing.method.a]\nagent = "f"\noptions = {x = 1}\n', "fencing.method.a.options.x: is 1"),
        ('[fencing.method.a]\nagent = "f"\noptions = {x = "1\\naction=on"}\n', "fencing.method.a.options.x: is"),
        ('[fencing.method.a]\nagent = "f"\nnodes = {n1 = "x"}\n', "fencing.method.a.nodes.n1: is 'x'"),
        ('[fencing.method.a]\nagent = "f"\npassword_file = "here"\n', "fencing.method.a.password_file: is 'here'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(text: str, said: str) -> None:
    assert said in refused(text)


def test_many_methods_are_refused() -> None:
    names = ", ".join(f'"m{index}"' for index in range(9))

    said = refused(f"[fencing]\nmethods = [{names}]")

    assert "fencing.methods: is an array of 9 (expected an array of 0 to 8" in said


def test_check_says_what_the_agent_says(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    agent.script(needs=("ip",))
    text = f'[fencing]\nmethods = ["bmc"]\n[fencing.method.bmc]\nagent = "{agent.program}"\n'

    with pytest.raises(InvalidInput, match=r"fencing\.method\.bmc\.options: .* You have to enter ip"):
        check(config(text))

    check(config(text + 'options = {ip = "{node}-bmc"}\n'))


def test_with_a_method_nodes_are_fenced(tmp_path: Path) -> None:
    agent = FakeAgent.make(tmp_path)
    keys = config(f'[fencing]\nmethods = ["bmc"]\n[fencing.method.bmc]\nagent = "{agent.program}"\n')

    settings = settings_of(keys, with_fencing(make_driver(keys.power), keys.fencing))

    assert settings.fence_after_s == 60.0
    assert not settings.power.can_sleep
    assert settings_of(config("")).fence_after_s is None


def test_the_examples_of_the_page_can_be_read() -> None:
    page = (ROOT / "docs/how-to/fencing.md").read_text("utf-8")
    found = [config(block.split("```", 1)[0]).fencing for block in page.split("```toml\n")[1:]]

    assert [keys.methods for keys in found] == [("bmc",), ("bmc",), ("virsh",), ("bmc", "pdu")]
    assert all({*keys.methods} == {*keys.method} for keys in found)
    methods = [method for keys in found for method in keys.method.values()]
    assert [method.agent for method in methods] == [
        "fence_ipmilan",
        "fence_redfish",
        "fence_virsh",
        "fence_ipmilan",
        "fence_apc_snmp",
    ]
    # The account may only read and switch the power; by itself the agent asks for an administrator's rights.
    assert {each.options["privlvl"] for each in methods if each.agent == "fence_ipmilan"} == {"operator"}
