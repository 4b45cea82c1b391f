"""Both types in a simulated cluster of eight nodes, with the real controller: units follow their managers, and nothing
else of the provision service is any different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daemons.controller.core.controller import Controller
from daemons.controller.state.cluster import Cluster
from daemons.environment_types.registry import distribution_of
from daemons.manifests.agreement import read_agreement
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from shared.values.web_app import Distribution, WebApp
from sim_backend.faults.invariants.checker import Checker
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.demand import steps
from sim_backend.world.web_site import TrueFlow, TrueWeb

FOLDER = Path(__file__).resolve().parents[1]
NODES = [Node(f"n{index}", 4, 1_000.0, memory_mib=4_000) for index in range(8)]
FULL_PER_S = 100.0  # what one instance of 4,000 MHz answers at most
RUN_S = 2_400.0  # of a job alone on a node


class Farm:
    """The farm (2 to 6) and its partner, web applications with sessions (2 to 4); leases of 600 s."""

    def __init__(self) -> None:
        settings = ControllerSettings(decide_s=300.0, placement=PolicyChoice("first-fit"))
        self.loop = ClosedLoop(NODES, LoopSettings(settings))
        self.checker = Checker(self.loop)
        for file in ("env-session.toml", "env-render.toml"):
            agreement = read_agreement(FOLDER / file)
            self.at(1.0, CreateEnvironment(f"create-{agreement.name}", agreement))
            self.at(2.0, ActivateEnvironment(f"activate-{agreement.name}", agreement.name))
        demand = steps([(0.0, 0.3 * FULL_PER_S), (3_000.0, 1.3 * FULL_PER_S), (4_500.0, 0.2 * FULL_PER_S)])
        truth = TrueWeb((TrueFlow("browse", demand, 40.0, 0.01),), noise_frac=0.0, chance=False)
        self.loop.submit_web(
            WebApp("site", (), 500, max_mhz=4_000.0, min_instances=1, max_instances=4, vcpus=4, environment="front"),
            truth,
            3.0,
        )
        for index in range(5):
            stage = Stage(RUN_S * 4_000.0, 4_000.0, memory_mib=3_000)
            self.loop.submit(Job(f"frame{index}", (stage,), 100.0 + index, vcpus=4, environment="farm"))

    def at(self, at_s: float, request: Any) -> None:
        """The operator asks for this then."""
        self.loop.engine.at(at_s, 0, lambda: self.loop.operator.send(request))

    def cluster(self, at_s: float) -> Cluster:
        """What the controller knows at a time."""
        self.loop.run_until(at_s)
        (core,) = (shell.core for shell in self.loop.controllers.values())
        assert isinstance(core, Controller)
        return core.cluster

    def sizes(self, at_s: float) -> tuple[int, int]:
        """How many units the two have at a time: of the farm, of the web applications."""
        environments = self.cluster(at_s).environments
        return environments["farm"].size, environments["front"].size


def test_units_follow_their_managers() -> None:
    """While its jobs are patient the farm has what the lower bounds of both left it at the start, four units for five
    jobs; then one for the fifth; its lower bound when it has been quiet for long enough. Sessions always have a unit
    to spare."""
    farm = Farm()

    assert farm.sizes(1_150.0) == (4, 2)  # its manager was asked at 600 s: the fifth job had not waited for long enough
    assert farm.sizes(1_250.0) == (5, 2)
    assert farm.sizes(3_550.0) == (5, 3)  # a second instance, above 60 %, for which there was a unit already
    assert farm.sizes(5_300.0) == (5, 2)  # all jobs are done, but not for long enough
    assert farm.sizes(6_000.0) == (2, 2)

    found = farm.cluster(6_000.0)
    assert all(farm.loop.world.completions.get(f"frame{index}") for index in range(5))
    assert found.environments["farm"].agreement.scheduling.policy == "edf"
    assert distribution_of(found.web["site"].app, found.environments["front"].agreement) is Distribution.SOURCE
    assert farm.checker.violations == []
