"""The lab's own promises, without a broker: processes of every kind are started, killed, frozen, and ended with it."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemons.config.controller import ControllerConfig
from shared.config.agent import AgentConfig
from shared.config.toml import parse
from tests.integration.harness import CLOCK, Lab, Process, lab, merged, need_driver, toml, user_url, wait_for

NOWHERE = "amqp://x:secret@127.0.0.1:1/%2F"  # nobody listens on port 1
LIMIT_S = 30.0
FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read() or child.wait()
"""


@pytest.fixture
def two() -> Iterator[Lab]:
    """Two nodes, of which nothing has been started."""
    with lab(NOWHERE, "n1:4x1000:16000,n2:4x1000:16000") as made:
        yield made


def gone(pid: int) -> bool:
    """Whether there is no such process any more, but for one that waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_configuration_is_accepted(two: Lab) -> None:
    for node in two.nodes:
        agent = parse((two.folder / f"agent-{node}.toml").read_text(), AgentConfig)
        assert (agent.node.name, agent.hypervisor.driver) == (node, "fake")
    controller = parse((two.folder / "controller-c1.toml").read_text(), ControllerConfig)
    assert controller.bus.url == "amqp://controller.c1:secret@127.0.0.1:1/%2F"
    assert two.users == ("agent.n1", "agent.n2", "controller.c1", "operator.lab")


def test_toml() -> None:
    inner = {"c": {"d": [1]}, "words": ['"', "\\"]}
    sections = merged({"a": {"x": 1, "y": 2.5}, "name": "n"}, {"a": {"x": True}, "b": inner})
    assert tomllib.loads(toml(sections)) == sections
    assert sections["a"] == {"x": True, "y": 2.5}
    assert user_url("amqps://a:p@host/v", "agent.n1") == "amqps://agent.n1:p@host/v"


def test_everything_ends_with_the_lab(tmp_path: Path) -> None:
    """Also what a process has started, after the process itself was killed, and when the test fails."""
    process = Process("family", [sys.executable, "-c", FAMILY], tmp_path)
    process.start()
    wait_for(lambda: len(process.tail().splitlines()) == 2, LIMIT_S)
    parent, child = process.pid, int(process.tail().split()[-1])
    process.kill()
    assert process.exit_status == -9
    assert not process.alive
    process.end()
    wait_for(lambda: gone(child), LIMIT_S)
    assert gone(parent)
    pid = 0

    def fail() -> None:
        nonlocal pid
        with lab(NOWHERE, "n1:1x1:1") as made:
            made.start_server()
            pid = made.server.pid
            made.wait_for(lambda: False, 0.1, "a miracle")

    with pytest.raises(AssertionError, match="a miracle did not come about") as caught:
        fail()
    assert "=== fake-server" in str(caught.value)
    wait_for(lambda: gone(pid), LIMIT_S)


def test_the_server_is_frozen_and_thawed(two: Lab) -> None:
    two.start_server()
    two.server.freeze()
    stat = Path(f"/proc/{two.server.pid}/stat")
    wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", LIMIT_S)
    assert two.server.alive
    two.server.thaw()
    assert two.fake.state()["parted"] == []
    assert two.server.stop() == 0
    assert not two.socket.exists()


def test_a_process_that_asks_for_it_is_started_again(two: Lab) -> None:
    """Exit status 75, as systemd would; any other status is left alone."""
    two.agents["n1"] = Process("again", [sys.executable, "-c", "raise SystemExit(75)"], two.folder)
    two.agents["n2"] = Process("over", [sys.executable, "-c", "raise SystemExit(2)"], two.folder)
    for agent in two.agents.values():
        agent.start()
    two.wait_for(lambda: two.agents["n1"].lives >= 3, LIMIT_S)
    assert two.agents["n2"].wait(LIMIT_S) == 2
    two.tend()
    assert two.agents["n2"].lives == 1


def test_agents_attach_to_the_server_and_are_killed(two: Lab) -> None:
    """Real agents, without a broker to talk to: kill -9 lets go of the node, a new life takes it again."""
    need_driver()
    two.start_server()
    for agent in two.agents.values():
        agent.start()
    two.wait_for(lambda: all(two.truth(node)["attached"] for node in two.nodes), LIMIT_S, "both agents")
    boot_id = two.truth("n2")["boot_id"]
    two.agents["n1"].kill()
    two.wait_for(lambda: not two.truth("n1")["attached"], LIMIT_S, "the end of n1's agent")
    two.agents["n1"].start()
    two.power_off("n2")
    assert not two.agents["n2"].alive
    two.power_on("n2")
    two.wait_for(lambda: all(two.truth(node)["attached"] for node in two.nodes), LIMIT_S, "both agents again")
    assert two.truth("n2")["boot_id"] != boot_id
    assert two.agents["n1"].stop() == 0
    assert two.homes() == {}


def test_waiting_costs_little(two: Lab) -> None:
    """The lab looks at most every 50 ms."""
    looks = []
    began_s = CLOCK.monotonic_s()
    with pytest.raises(AssertionError):
        two.wait_for(lambda: looks.append(os.getpid()), 0.3)
    assert len(looks) <= (CLOCK.monotonic_s() - began_s) / 0.05 + 2
