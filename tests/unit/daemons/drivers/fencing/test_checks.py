"""What is wrong with `[fencing]` is said with its key, at `--check` and at the start, before any node is fenced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemons.config.controller import PowerKeys
from daemons.config.fencing import FencingKeys, FencingMethod
from daemons.drivers.fencing import check_fencing, make_methods, with_fencing
from daemons.drivers.fencing.agent import FOLDER, locate, search_path
from daemons.drivers.power.none import NoPower
from shared.base.errors import InvalidInput
from tests.support.fence_agent import ACTIONS, OPTIONS, FakeAgent, metadata_of


def keys(**methods: FencingMethod) -> FencingKeys:
    return FencingKeys(tuple(methods), 2, methods)


def wrong(call: Callable[[FencingKeys], object], given: FencingKeys) -> str:
    with pytest.raises(InvalidInput) as found:
        call(given)
    return str(found.value)


@pytest.fixture
def agent(tmp_path: Path) -> FakeAgent:
    return FakeAgent.make(tmp_path)


# --- without running an agent ---------------------------------------------------------------------------------------


def test_names_of_methods_and_tables_must_agree(agent: FakeAgent) -> None:
    given = FencingKeys(("bmc", "pdu"), 2, {"bmc": agent.method(), "old": agent.method()})

    said = wrong(make_methods, given)

    assert said.splitlines() == [
        "fencing.methods: there is no table [fencing.method.pdu] (expected one of 'bmc', 'old')",
        "fencing.method.old: is not in fencing.methods (expected its name there, or no such table)",
    ]


def test_an_agent_that_is_not_there_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")

    said = wrong(make_methods, keys(a=FencingMethod("fence_nothing"), b=FencingMethod(str(plain))))

    assert "fencing.method.a.agent: 'fence_nothing' is no program that can be executed, on PATH or in /usr/sbin" in said
    assert f"fencing.method.b.agent: '{plain}'" in said


def test_agents_are_looked_up_on_the_path_and_where_the_package_puts_them(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"/nowhere:{agent.folder}")
    assert search_path() == f"/nowhere:{agent.folder}:{FOLDER}"
    assert locate("fence_test") == str(agent.program)
    assert locate(str(agent.program)) == str(agent.program)

    monkeypatch.setenv("PATH", "/nowhere")
    assert locate("fence_test") == ""

    monkeypatch.delenv("PATH")
    assert search_path().endswith(f":{FOLDER}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"action": "on"}, "fencing.method.bmc.options.action: would replace the action (expected no such option)"),
        ({"password": "secret"}, "fencing.method.bmc.options.password: is a secret in a file that others can read"),
        ({"passwd": "secret"}, "(expected password_file)"),
        ({"missing-as-off": "1"}, "missing-as-off: takes a wrong name of a machine for proof that it is off"),
        (
            {"ssl_insecure": "0"},
            "ssl_insecure: is '0'; agents accept any certificate with '0', too (expected '1', or no",
        ),
        ({"ssl-insecure": "false"}, "ssl-insecure: is 'false'; agents accept any certificate"),
        ({"verbose": "1"}, "fencing.method.bmc.options.verbose: writes the password to the log"),
        ({"a b": "1"}, "fencing.method.bmc.options: 'a b' is no name of an option"),
        ({"": "1"}, "fencing.method.bmc.options: '' is no name of an option"),
        ({"ip": "{name}.bmc"}, "fencing.method.bmc.options.ip: {name} stands for nothing (expected {node} or {mac})"),
    ],
)
def test_options_that_nobody_may_set(agent: FakeAgent, options: dict[str, str], said: str) -> None:
    found = wrong(make_methods, keys(bmc=agent.method(options=options)))
    of_a_node = wrong(make_methods, keys(bmc=agent.method(nodes={"n1": options})))

    assert said in found
    assert "secret'" not in found
    assert said.replace("bmc.options", "bmc.nodes.n1") in of_a_node


def test_a_name_that_is_no_nodes_is_refused(agent: FakeAgent) -> None:
    said = wrong(make_methods, keys(bmc=agent.method(nodes={"n 1": {}})))

    assert said.startswith("fencing.method.bmc.nodes: 'n 1' is no name of a node")


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0o600, "No such file"),
        ("secret", 0o644, "every user of this machine can reach"),
        ("", 0o600, "is not a password"),
        (" secret", 0o600, "without its first and last characters"),
        ('"secret"', 0o600, "without its first and last characters"),
    ],
)
def test_a_password_that_cannot_be_used_is_refused(agent: FakeAgent, content: str | None, mode: int, said: str) -> None:
    file = agent.folder / "password"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)

    found = wrong(make_methods, keys(bmc=agent.method(password_file=str(file))))

    assert "fencing.method.bmc.password_file: " in found
    assert said in found
    assert "secret" not in found.replace("holds a secret", "")


def test_a_credential_is_needed_by_the_service_and_not_by_who_looks(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    given = keys(bmc=agent.method(password_file="credential:bmc"))

    check_fencing(given)
    said = wrong(lambda each: with_fencing(NoPower(PowerKeys()), each), given)

    assert said.startswith("fencing.method.bmc.password_file: 'credential:bmc' is not passed to this process")

    (agent.folder / "bmc").write_text("secret")
    (agent.folder / "bmc").chmod(0o600)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(agent.folder))
    assert with_fencing(NoPower(PowerKeys()), given).does


def test_everything_is_said_at_once(agent: FakeAgent) -> None:
    methods = {
        "a": FencingMethod("no"),
        "b": agent.method(options={"action": "on"}),
        "d": agent.method(options={"plugg": "1"}),
    }

    said = wrong(check_fencing, FencingKeys(("a", "b", "c", "d"), 1, methods))

    assert [line.split(": ")[0] for line in said.splitlines()] == [
        "fencing.methods",
        "fencing.method.a.agent",
        "fencing.method.b.options.action",
        "fencing.method.d.options.plugg",
    ]


def test_any_certificate_may_be_accepted_in_so_many_words(agent: FakeAgent) -> None:
    for yes in ("1", "yes", "on", "True"):
        assert make_methods(keys(bmc=agent.method(options={"ssl_insecure": yes})))


# --- what agents say ------------------------------------------------------------------------------------------------


def test_a_good_configuration_is_good_and_no_device_is_asked(agent: FakeAgent) -> None:
    method = agent.method(options={"plug": "{node}", "redfish_uri": "/x"}, nodes={"n1": {"redfish-uri": "/y"}})

    check_fencing(keys(bmc=method))

    assert [action for action, _ in agent.asked()] == ["metadata", "validate-all"]


def test_an_unknown_option_is_refused_with_the_nearest(agent: FakeAgent) -> None:
    method = agent.method(options={"plugg": "1"}, nodes={"n1": {"user_name": "x"}})

    said = wrong(check_fencing, keys(bmc=method))

    assert said.splitlines() == [
        "fencing.method.bmc.options.plugg: the agent has no such option (expected plug)",
        "fencing.method.bmc.nodes.n1.user_name: the agent has no such option (expected username)",
    ]


def test_options_that_are_not_enough_are_refused_with_the_agents_words(agent: FakeAgent) -> None:
    agent.script(needs=("plug", "ip"))

    said = wrong(check_fencing, keys(bmc=agent.method()))
    of_a_node = wrong(check_fencing, keys(bmc=agent.method(nodes={"n7": {"username": "x"}})))

    assert said.startswith("fencing.method.bmc.options: ")
    assert "refuses the options: exit status 1: Failed: You have to enter ip (expected what the agent needs)" in said
    assert of_a_node.startswith("fencing.method.bmc.nodes.n7: ")
    check_fencing(keys(bmc=agent.method(nodes={"n7": {"ip": "bmc-7"}})))


def test_everything_that_an_agent_says_of_options_is_repeated(agent: FakeAgent) -> None:
    agent.script(needs=tuple(f"a_long_name_of_an_option_{index}" for index in range(10)))

    assert "exit status 1: Failed: You have to enter a_long" in wrong(check_fencing, keys(bmc=agent.method()))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({"metadata": "Usage: fence_test"}, "does not answer `metadata` as a fence agent: exit status 0: Usage"),
        ({"metadata": "<resource-agent></broken></resource-agent>"}, "does not answer `metadata`"),
        ({"metadata": metadata_of(), "metadata_status": 1}, "does not answer `metadata` as a fence agent: exit status"),
        ({"metadata": metadata_of(actions=("on", "status", "metadata"))}, "has no action 'off'"),
        ({"metadata": metadata_of(actions=("off", "metadata"))}, "has no action 'status'"),
    ],
)
def test_what_is_no_fence_agent_is_refused(agent: FakeAgent, script: dict[str, Any], said: str) -> None:
    agent.script(**script)

    found = wrong(check_fencing, keys(bmc=agent.method()))

    assert found.startswith("fencing.method.bmc.agent: ")
    assert said in found


def test_warnings_beside_the_metadata_do_no_harm(agent: FakeAgent) -> None:
    agent.script(metadata=f"DeprecationWarning: <pipes>\n{metadata_of()}\n\nmore")

    check_fencing(keys(bmc=agent.method()))


def test_metadata_longer_than_a_pipe_are_read(agent: FakeAgent) -> None:
    agent.script(metadata=metadata_of((*OPTIONS, *(f"option_{index}" for index in range(400)))))

    check_fencing(keys(bmc=agent.method(options={"plug": "1", "option_0": "x", "option_399": "y"})))


def test_an_agent_without_validation_is_not_asked_for_it(agent: FakeAgent) -> None:
    agent.script(metadata=metadata_of(actions=tuple(each for each in ACTIONS if each != "validate-all")), needs=("ip",))

    check_fencing(keys(bmc=agent.method()))

    assert [action for action, _ in agent.asked()] == ["metadata"]


def test_an_agent_that_is_slow_is_not_judged(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 20\n")
    slow.chmod(0o755)

    check_fencing(keys(bmc=FencingMethod(str(slow), limit_s=1.0)))


def test_a_password_for_an_agent_without_one_is_refused(agent: FakeAgent) -> None:
    agent.script(metadata=metadata_of(("action", "plug")))
    file = agent.folder / "password"
    file.write_text("secret")
    file.chmod(0o600)

    said = wrong(check_fencing, keys(bmc=agent.method(password_file=str(file))))

    assert said.startswith("fencing.method.bmc.password_file: ")
    assert "takes no password" in said
