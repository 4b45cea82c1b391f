"""A real agent's shell puts its host to sleep in a lane of its own, and tells the controller before and after."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.ports.effects import SleepEnded
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import GoToSleep
from shared.values.nodes import SleepMode
from tests.support.shell_harness import RealRig, wait_for


class Sleeper:
    """A host that sleeps until it is let go, and then ends as it was told to."""

    def __init__(self, ended: SleepEnded) -> None:
        self.ended = ended
        self.asleep = threading.Event()
        self.go_on = threading.Event()
        self.modes: list[SleepMode] = []

    def sleep(self, mode: SleepMode) -> SleepEnded:
        self.modes.append(mode)
        self.asleep.set()
        self.go_on.wait(30.0)
        return self.ended


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=1)
    yield made
    made.end()


def request(rig: RealRig) -> GoToSleep:
    """What a leader sends the agent of the one node."""
    return GoToSleep("s1", rig.nodes[0].name, 1, "boot-1", rig.clock.now_s() + 60.0, SleepMode.SUSPEND)


def ask(rig: RealRig, message: GoToSleep) -> None:
    """Send it."""
    connection = rig.connection(topology.CONTROLLER_USER_PREFIX + "a")
    connection.publish(topology.ACTIONS, message.node, encode(message))


@pytest.mark.parametrize("ended", [SleepEnded(True), SleepEnded(False, "an inhibitor")])
def test_the_loop_goes_on_while_the_host_is_asked(rig: RealRig, ended: SleepEnded) -> None:
    host = rig.hosts[rig.nodes[0].name] = Sleeper(ended)
    rig.start()

    ask(rig, request(rig))
    assert host.asleep.wait(20.0)
    wait_for(lambda: rig.lines("sleep answer sent"))
    (answer,) = rig.lines("sleep answer sent")
    assert answer["ok"] is True
    heard = len(rig.lines("go to sleep received"))
    ask(rig, request(rig))
    wait_for(lambda: len(rig.lines("go to sleep received")) > heard)

    host.go_on.set()

    if ended.ok:
        wait_for(lambda: rig.lines("awake again"))
    else:
        wait_for(lambda: len(rig.lines("sleep answer sent")) == 2)
        assert rig.lines("sleep answer sent")[1]["detail"] == "an inhibitor"
    assert host.modes == [SleepMode.SUSPEND]
    assert rig.lines("the host goes to sleep")[0]["mode"] == "suspend"


def test_without_a_host_of_its_own_an_agent_refuses(rig: RealRig) -> None:
    rig.start()

    ask(rig, request(rig))

    wait_for(lambda: len(rig.lines("sleep answer sent")) == 2)
    assert "not this machine" in rig.lines("sleep answer sent")[1]["detail"]


def test_a_request_for_another_boot_does_nothing(rig: RealRig) -> None:
    host = rig.hosts[rig.nodes[0].name] = Sleeper(SleepEnded(True))
    rig.start()

    ask(rig, replace(request(rig), boot_id="boot-0"))

    wait_for(lambda: rig.lines("sleep answer sent"))
    assert rig.lines("sleep answer sent")[0]["ok"] is False
    assert host.modes == []
