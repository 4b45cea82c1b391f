"""A real agent's shell has standard jobs run in a lane of their own, by real processes, and answers its leader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.standard_jobs.running import OwnStandardJobs
from shared.config.agent import StandardJobKeys
from shared.ports.effects import RunStandard, StandardRan
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import RunStandardJob
from shared.values.load_vector import StandardJob, StandardRun
from tests.support.shell_harness import RealRig, wait_for


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=1)
    yield made
    made.end()


def ask(rig: RealRig, request: str, job: StandardJob = StandardJob.CPU) -> None:
    """What a leader sends the agent of the one node."""
    name = rig.nodes[0].name
    message = RunStandardJob(request, name, 1, "boot-1", rig.clock.now_s() + 60.0, StandardRun(job, 0.1))
    rig.bus.connect(topology.CONTROLLER_USER_PREFIX + "a").publish(topology.ACTIONS, name, encode(message))


class Held:
    """A standard job that lasts until it is let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def run(self, effect: RunStandard) -> StandardRan:
        self.go_on.wait(30.0)
        return StandardRan(effect.request, True)


def test_the_loop_goes_on_while_a_standard_job_runs(rig: RealRig) -> None:
    held = rig.standards[rig.nodes[0].name] = Held()
    rig.agent(rig.nodes[0].name)
    ask(rig, "p1")
    wait_for(lambda: rig.lines("standard job begun"))
    ask(rig, "p2")  # is refused at once, by the same loop
    wait_for(lambda: rig.lines("standard job answer sent"))
    assert rig.lines("standard job answer sent")[0]["detail"] == "p1 is still running"
    held.go_on.set()
    wait_for(lambda: rig.lines("standard job ended"))


def test_real_processes_answer_and_a_node_that_allows_none_says_so(rig: RealRig, tmp_path: Path) -> None:
    name = rig.nodes[0].name
    rig.standards[name] = OwnStandardJobs(StandardJobKeys(True, str(tmp_path / "standard"), 16))
    agent = rig.agent(name)
    ask(rig, "p1", StandardJob.IO)
    wait_for(lambda: rig.lines("standard job ended"))
    assert rig.lines("standard job ended")[0]["copies"] == 1
    agent.stop()
    del rig.standards[name]
    rig.agent(name)
    ask(rig, "p2")
    wait_for(lambda: len(rig.lines("standard job answer sent")) == 2)
    assert "not the agent's own machine" in rig.lines("standard job answer sent")[1]["detail"]
