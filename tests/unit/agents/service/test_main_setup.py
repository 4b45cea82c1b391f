"""A real agent's shell sets its host up in a lane of its own; killed half-way, the next process does it again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.ports.effects import HostSetUp
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import SetUpNode
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import SetupStep
from tests.support.shell_harness import RealRig, wait_for

WIPE = Setup(SetupPolicy.WIPE)


class Wiper:
    """A host that is wiped until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.asked: list[tuple[str, str, SetupStep, Setup]] = []

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        self.asked.append((request, environment, step, setup))
        self.begun.release()
        self.go_on.wait(30.0)
        return HostSetUp(request, True, "wiped")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=1)
    yield made
    made.end()


def ask(rig: RealRig) -> None:
    """What a leader sends the agent of the one node."""
    name = rig.nodes[0].name
    message = SetUpNode(
        "u1",
        name,
        1,
        boot_id="boot-1",
        expires_at_s=rig.clock.now_s() + 60.0,
        environment="batch",
        step=SetupStep.RELEASE,
        setup=WIPE,
    )
    rig.connection(topology.CONTROLLER_USER_PREFIX + "a").publish(topology.ACTIONS, name, encode(message))


def test_the_loop_goes_on_while_the_host_is_set_up(rig: RealRig) -> None:
    wiper = rig.setups[rig.nodes[0].name] = Wiper()
    rig.start()

    ask(rig)
    assert wiper.begun.acquire(timeout=20.0)
    ask(rig)
    wait_for(lambda: len(rig.lines("set up received")) == 2)
    assert not rig.lines("set up answer sent")
    wiper.go_on.set()

    wait_for(lambda: rig.lines("set up answer sent"))
    assert rig.lines("set up answer sent")[0]["output"] == "wiped"
    assert rig.lines("setup begun")[0]["environment"] == "batch"
    assert wiper.asked == [("u1", "batch", SetupStep.RELEASE, WIPE)]


def test_what_a_killed_process_had_begun_is_done_again_by_the_next(rig: RealRig) -> None:
    name = rig.nodes[0].name
    wiper = rig.setups[name] = Wiper()
    rig.controller()
    agent = rig.agent(name)
    wait_for(lambda: rig.lines("lead taken"))
    ask(rig)
    assert wiper.begun.acquire(timeout=20.0)

    threading.Timer(0.3, wiper.go_on.set).start()  # nobody hears of it any more
    agent.kill()
    again = rig.setups[name] = Wiper()
    again.go_on.set()
    rig.agent(name)

    wait_for(lambda: rig.lines("set up answer sent"))
    assert again.asked == wiper.asked


def test_without_a_host_of_its_own_an_agent_refuses(rig: RealRig) -> None:
    rig.start()

    ask(rig)

    wait_for(lambda: rig.lines("set up answer sent"))
    assert rig.lines("set up answer sent")[0]["ok"] is False
    assert "not this machine" in rig.lines("setup failed")[0]["output"]
