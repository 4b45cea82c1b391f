"""A deadline window in the closed loop beside what is not its own: jobs with goals, a web application, gangs."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.controller.state.web_app import utility_of
from daemons.values.calendar import weekly
from daemons.values.settings import ControllerSettings, PolicyChoice, WindowSettings
from shared.ports.effects import Effect, Publish
from shared.protocol.messages import Happened
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from shared.values.web_app import Flow, WebApp
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.demand import steps
from sim_backend.world.web_site import TrueFlow, TrueWeb
from tests.extent import first

HOUR_S, CYCLE_S = 3_600.0, 900.0
CLOSES_S, DEADLINE_S, OPENS_AGAIN_S = 2 * HOUR_S, 6 * HOUR_S, 24 * HOUR_S
QUEUED = 160
REQUEST_MCYCLES = 40.0
ALARMS = ("deadline-at-risk", "deadline-missed")


class Loop(ClosedLoop):
    """Nodes of four slots and a window from midnight on; notes its alarms, and the nodes wanted after every cycle."""

    def __init__(self, nodes: int, placement: str = "apc", provisioning: str = "threshold") -> None:
        window = WindowSettings(
            "night",
            "night",
            weekly("UTC", "00:00", "02:00", "06:00", range(7)),
            confidence=0.95,
            service_s=900.0,
            arrivals_per_day=float(QUEUED),
        )
        settings = ControllerSettings(
            report_s=60.0,
            reconcile_s=60.0,
            unreachable_after_s=180.0,
            placement=PolicyChoice(placement),
            provisioning=PolicyChoice(provisioning),
            windows=(window,),
        )
        made = [Node(f"n{index}", 4, 1_000.0, memory_mib=8_000) for index in range(nodes)]
        super().__init__(made, LoopSettings(settings, AgentSettings(report_s=60.0)))
        self.alarms: list[str] = []
        self.sizes: list[int] = []
        for controller in self.controllers.values():
            controller.on_effect = self.note

    def note(self, _shell: object, effect: Effect) -> None:
        message = effect.message if isinstance(effect, Publish) else None
        if isinstance(message, Happened) and message.what in ALARMS:
            self.alarms.append(message.what)

    @property
    def core(self) -> Controller:
        core = self.controllers["a"].core
        assert isinstance(core, Controller)
        return core

    def fill(self, factor: float = 1.0) -> None:
        """Jobs of a quarter of an hour for the window; `factor`: true work / declared."""
        rng = random.Random(3)
        for index in range(QUEUED):
            work = 1_000.0 * min(2_700.0, rng.expovariate(1 / 900.0) + 1.0)
            stage = Stage(work, 1_000.0, 0.0, 1_500)
            job = Job(f"q{index:03}", (stage,), submit_s=rng.uniform(60.0, CLOSES_S - 60.0), queue="night")
            self.submit(job, [(work * factor, 1_000.0)])

    def goals(self, count: int) -> list[Job]:
        """Jobs of an hour and a half that may take two, within the first hour."""
        rng = random.Random(4)
        starts_s = [rng.uniform(1_000.0, 3_000.0) for _ in range(count)]
        stage = Stage(5_400_000.0, 1_000.0, 0.0, 1_500)
        made = [
            Job(f"g{index}", (stage,), submit_s=at_s, desired_start_s=at_s, goal_s=at_s + 2 * HOUR_S)
            for index, at_s in enumerate(starts_s)
        ]
        for job in made:
            self.submit(job)
        return made

    def cycles(self, until_s: float) -> None:
        """Run, and look after every cycle."""
        while self.engine.now_s < until_s:
            self.run_until(self.engine.now_s + CYCLE_S)
            self.sizes.append(sum(node.wanted for node in self.core.cluster.nodes.values()))

    def ends_s(self, jobs: list[Job]) -> list[float | None]:
        return [self.truth.run_of(job).end_s for job in jobs]

    def late(self) -> list[str]:
        """Jobs that were not done by their goal or deadline."""
        found = []
        for name, job in self.jobs.items():
            by_s = DEADLINE_S if job.queue else job.goal_s
            end_s = self.truth.run_of(job).end_s
            if by_s is not None and (end_s is None or end_s > by_s):
                found.append(name)
        return found


def turns(sizes: list[int]) -> int:
    """How often the number of nodes stops to grow and shrinks, or the reverse."""
    steps_made = [after - before for before, after in pairwise(sizes) if after != before]
    return sum(one * other < 0 for one, other in pairwise(steps_made))


@pytest.mark.accept
@pytest.mark.parametrize(("provisioning", "turns_max"), [("threshold", 2), ("cost-aware", 3)])
def test_goals_and_a_deadline_are_both_kept(provisioning: str, turns_max: int) -> None:
    """Given jobs with goals that hold a node and a half, then there are more nodes for the window's, without any that
    come and go, and as few as before when those are done. A policy that is guarded may add one while the last jobs of
    the window take longer than was expected."""
    loop = Loop(8, provisioning=provisioning)
    loop.fill()
    loop.goals(6)
    loop.cycles(DEADLINE_S + CYCLE_S)
    assert loop.late() == []
    assert loop.alarms == []
    assert max(loop.sizes) < 8
    assert turns(loop.sizes) <= turns_max
    assert loop.sizes[-1] == 1


@pytest.mark.accept
def test_a_window_beside_a_web_application() -> None:
    """Given an application whose instances can use all that four nodes have, then both keep what they promise. It
    leaves what it does not need to the window's jobs, so that five nodes are enough, and few are woken in vain."""
    loop = Loop(10)
    loop.fill()
    loop.goals(4)
    flow = Flow("browse", mean_s=0.2, work_mcycles=REQUEST_MCYCLES, t_min_s=0.01)
    demand = steps([(0.0, 20.0), (3_000.0, 100.0)])
    truth = TrueWeb((TrueFlow("browse", demand, REQUEST_MCYCLES, 0.01),))
    loop.submit_web(WebApp("shop", (flow,), 1_000, max_mhz=4_000.0, min_instances=1, max_instances=4, vcpus=4), truth)
    loop.cycles(DEADLINE_S)
    assert loop.late() == []
    assert loop.alarms == []
    assert max(loop.sizes) < 10
    settled = loop.sizes[2:-1]
    assert all(abs(after - before) <= 1 for before, after in pairwise(settled))
    assert sum(settled) / len(settled) <= 5.2
    utility = utility_of(loop.core.cluster.web["shop"])
    assert utility is not None
    assert utility > 0.3


@pytest.mark.accept
@pytest.mark.parametrize("placement", first(["first-fit", "apc"]))
def test_gangs_without_a_goal_beside_a_window(placement: str) -> None:
    """Given a gang that needs three nodes while the window's are full, then it runs within two cycles, and the nodes go
    when it is done."""
    loop = Loop(10, placement)
    loop.fill()
    gang = Job("gang", (Stage(1_800_000.0, 1_000.0, 0.0, 1_500),), submit_s=2_000.0, instances=10)
    loop.submit(gang)
    loop.cycles(DEADLINE_S)
    run = loop.truth.run_of(gang)
    assert run.begin_s is not None
    assert run.begin_s < 2_000.0 + 2 * CYCLE_S
    assert loop.late() == []
    assert loop.sizes[1] == 3
    assert max(loop.sizes) in (5, 6)  # apc has a fifth job on a node
    assert loop.sizes[-1] == 1


@pytest.mark.accept
@pytest.mark.parametrize("placement", ["first-fit", "apc"])
def test_jobs_that_missed_their_deadline_are_done_before_the_next_period(placement: str) -> None:
    """Given jobs with four times the work that was declared, when the deadline has passed with some left, then nodes
    are in service for these until they are done."""
    loop = Loop(3, placement)
    loop.fill(4.0)
    loop.cycles(OPENS_AGAIN_S - HOUR_S)
    left = loop.late()
    assert "deadline-missed" in loop.alarms
    assert len(left) > 20
    ends_s = loop.ends_s([loop.jobs[name] for name in left])
    assert all(end_s is not None and end_s < OPENS_AGAIN_S - 8 * HOUR_S for end_s in ends_s)
    assert max(loop.sizes[int(DEADLINE_S / CYCLE_S) :]) == 3
    assert loop.sizes[-1] == 1
