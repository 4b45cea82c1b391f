"""Environments in the closed loop without faults: a batch and a web environment on equal nodes, the load of a series of
instance counts, and who truly has which node."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.core.settings import AgentSettings
from daemons.values.settings import ControllerSettings, Limits, PolicyChoice
from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment
from shared.values.agreement import Agreement, EnvironmentState, WebTerms, WorkloadType
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node, SetupStep
from shared.values.operation_costs import OperationCosts
from shared.values.vms import VmState
from shared.values.web_app import WebApp
from sim_backend.faults.invariants.apps import vms_of
from sim_backend.faults.invariants.checker import Checker
from sim_backend.faults.invariants.environments import EnvironmentChecks, stored
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.demand import steps
from sim_backend.world.web_site import TrueFlow, TrueWeb

CORES, CORE_MHZ, NODE_MIB = 4, 1_000.0, 4_000
REPORT_S = 20.0
WORK_MCYCLES = 40.0
BATCH, WEB, SITE = "night", "front", "site"
Series = Sequence[tuple[float, int]]  # from when on, how many instances the load asks for


def agreement(name: str, workload: WorkloadType, lower: int, **fields: object) -> Agreement:
    """Batch environments are wiped when nodes come and go, web environments have them prepared by a command."""
    batch = workload is WorkloadType.BATCH
    given: dict[str, object] = {
        "setup": Setup(SetupPolicy.WIPE) if batch else Setup(SetupPolicy.EXEC, "prepare"),
        "web": WebTerms(over_s=2 * REPORT_S),
    }
    return Agreement(name, "kim", workload, lower=lower, **(given | fields))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Observation:
    """What was so at one time: sizes in the store, nodes by whom they were set up for, instances that run."""

    at_s: float
    sizes: dict[str, int]
    holders: Counter[str]
    instances: int


class EnvironmentLoop(ClosedLoop):
    """`count` nodes; the environments are created at once and activated at `begin_s`. `observations`: one every
    `look_s`."""

    def __init__(
        self, count: int, agreements: Sequence[Agreement], begin_s: float, look_s: float, **settings: Any
    ) -> None:
        controller = ControllerSettings(
            report_s=REPORT_S,
            reconcile_s=REPORT_S,
            unreachable_after_s=3 * REPORT_S,
            probe_s=60.0,
            web_adjust_s=2 * REPORT_S,
            limits=Limits(0, 0, 0, 0),
            placement=PolicyChoice("first-fit"),
            **settings,
        )
        nodes = [Node(f"n{index:02}", CORES, CORE_MHZ, memory_mib=NODE_MIB) for index in range(count)]
        super().__init__(nodes, LoopSettings(controller, AgentSettings(report_s=REPORT_S), costs=OperationCosts()))
        self.checker = Checker(self)
        checks = EnvironmentChecks(self, agreements, self.checker.report)
        self.checker.guests.on_change, self.checker.guests.on_loss = checks.look, checks.blame
        self.agreements = {one.name: one for one in agreements}
        self.begin_s, self.look_s = begin_s, look_s
        self.observations: list[Observation] = []
        for one in agreements:
            self._ask(begin_s - 10.0, CreateEnvironment(f"create-{one.name}", one))
        for one in agreements:
            self._ask(begin_s, ActivateEnvironment(f"activate-{one.name}", one.name))
        self.engine.at(look_s, 9, self._look)

    def _ask(self, at_s: float, request: CreateEnvironment | ActivateEnvironment) -> None:
        self.engine.at(at_s, 0, lambda: self.operator.send(request))

    def load(self, series: Series, environment: str = WEB, name: str = SITE) -> None:
        """An application without a goal, one instance of which fills a node, under a load for so many instances."""
        app = WebApp(
            name,
            (),
            500,
            max_mhz=CORES * CORE_MHZ,
            max_instances=max(count for _, count in series),
            vcpus=CORES,
            environment=environment,
        )
        rates = [(at_s, 0.8 * (count - 0.5) * CORES * CORE_MHZ / WORK_MCYCLES) for at_s, count in series]
        truth = TrueWeb((TrueFlow("requests", steps(rates), WORK_MCYCLES, 0.01),), noise_frac=0.0, chance=False)
        self.submit_web(app, truth, self.begin_s - 5.0, REPORT_S)

    def job(self, name: str, environment: str, at_s: float, run_s: float, size: int) -> None:
        """A job that has `size` nodes for itself."""
        stage = Stage(max(run_s, 1.0) * CORES * CORE_MHZ, CORES * CORE_MHZ, memory_mib=500)
        job = Job(
            name,
            (stage,),
            at_s,
            desired_start_s=at_s,
            instances=size,
            vcpus=CORES,
            spread=True,
            environment=environment,
        )
        self.submit(job)

    def _look(self) -> None:
        found = stored(self, "environment", self.agreements)
        running = [vm for vm, _, state in vms_of(self, SITE) if state is VmState.RUNNING] if SITE in self.apps else []
        sizes = {name: record.size for name, record in found.items() if record.state is EnvironmentState.RUNNING}
        self.observations.append(Observation(self.engine.now_s, sizes, self._holders(), len(running)))
        self.engine.at(self.engine.now_s + self.look_s, 9, self._look)

    def _holders(self) -> Counter[str]:
        """Who has each node by what was truly done to it."""
        holders: dict[str, str] = {}
        for run in self.fake_setups.runs:
            if run.ok:
                holders[run.node] = run.environment if run.step is SetupStep.ACQUIRE else ""
        return Counter(holder for holder in holders.values() if holder)

    def check_work(self) -> None:
        """Nothing that must hold was broken; what is done in truth is done in the store; no job has lost any work."""
        assert self.checker.violations == []
        for name, job in self.jobs.items():
            record = self.store.get(("job", name))
            assert record is not None
            done = bool(self.world.completions.get(name))
            assert done is (record.phase == "completed"), name
            assert record.attempt <= 1, f"{name} began {record.attempt} times"
            assert job.environment == record.job.environment
        for record in stored(self, "environment", self.agreements).values():
            assert (record.killed, record.lost_node_hours) == (0, 0.0)


def value_at(series: Series, at_s: float) -> int:
    """The value of a step function."""
    return [count for since_s, count in series if since_s <= at_s][-1]


def steady(series: Series, from_s: float, until_s: float) -> bool:
    """Whether it has one value all the time."""
    inside = [count for since_s, count in series if from_s < since_s <= until_s]
    return all(count == value_at(series, from_s) for count in inside)


def check_fixed_bounds(loop: EnvironmentLoop, series: Series, lower: int, lease_s: float, settle_s: float) -> int:
    """Every look at which the series has been steady for `settle_s`: sizes and nodes are those of FB, restated from the
    series alone: the web environment has what it needs, at every timer the batch environment gets the rest, and gives
    way in between. Where load has grown since the timer, requests that waited may have asked for one instance too many
    for a while. Returns at how many looks that could be said."""
    batch, tick, told = -1, -1, 0
    for observed in loop.observations:
        since_s = observed.at_s - loop.begin_s
        if since_s < settle_s:
            continue
        web = min(value_at(series, observed.at_s), lower)
        last = math.floor(since_s / lease_s)
        batch = lower - web if last != tick else min(batch, lower - web)
        tick = last
        ticked_s = loop.begin_s + last * lease_s
        calm = steady(series, observed.at_s - settle_s, observed.at_s) and observed.at_s - ticked_s >= settle_s
        if not calm or not steady(series, ticked_s - settle_s, ticked_s):
            continue
        told += 1
        grown = value_at(series, ticked_s) < value_at(series, observed.at_s)
        batch -= grown and observed.sizes[BATCH] == batch - 1
        assert observed.sizes == {BATCH: batch, WEB: web}, f"at {observed.at_s:.0f} s"
        assert observed.holders == Counter({BATCH: batch, WEB: web}), f"at {observed.at_s:.0f} s"
        assert observed.instances == web
    return told
