"""The closed loop: real controllers and real agents on the in-process bus, fake hypervisors and the world, in virtual
time. What it measures is the truth: when operations really began and work really ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agents.core.agent import Agent
from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.decision.admitting import compute
from daemons.decision.tables.memory import MemoryTables
from daemons.values.records.cluster import Deleted
from daemons.values.settings import ControllerSettings, Limits, PolicyChoice
from shared.base.clock import perf_s
from shared.base.errors import Infeasible, TransientError
from shared.policy_api.policies import TableCache
from shared.ports.effects import Scrape
from shared.protocol import topology
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import AddNode, RemoveWeb, Request, SubmitJob, SubmitWeb
from shared.protocol.permissions import grant_of
from shared.values.jobs import Job
from shared.values.load_vector import IO
from shared.values.nodes import Node, PowerOperation, SleepMode
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.web_app import FlowSample, WebApp
from sim_backend.bus.faults import BusFaults
from sim_backend.bus.memory import MemoryBroker
from sim_backend.engine import Engine, Rank
from sim_backend.fakes.health_monitor import FakeMonitor
from sim_backend.fakes.host_setup import FakeSetups, SetupTimes
from sim_backend.fakes.hypervisor import FakeCluster, FakeHypervisor
from sim_backend.fakes.journal import MemoryJournal
from sim_backend.fakes.leases import FakeLeases, LeaseTimes
from sim_backend.fakes.load_balancer import FakeBalancer
from sim_backend.fakes.power import DOES, Down, FakePower, PowerTimes
from sim_backend.fakes.store import MemoryStore
from sim_backend.loop.agent_shell import AgentShell
from sim_backend.loop.operator import OperatorClient
from sim_backend.loop.shells import ControllerShell, Shell, StartableCore
from sim_backend.loop.truth import Truth
from sim_backend.world.entry_router import Balancer
from sim_backend.world.figures import ReplayFigures, figures
from sim_backend.world.web_site import TrueWeb, WebSite
from sim_backend.world.world import World

OPERATOR = "operator.sim"
SCRIPT_PRIORITY = 0
REPLAY_PERIOD_S = 900.0
WEB_PERIOD_S = 20.0
REPLAY_PROBE_S = 86_400.0
Stages = Sequence[tuple[float, float]]
Actor = Shell | OperatorClient | Balancer
MakeAgent = Callable[[str, str, Sequence[Any], AgentSettings], StartableCore]
MakeController = Callable[[str, ControllerSettings], StartableCore]


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What a closed loop is made of. `make_agent`, `make_controller` and `make_hypervisor` may be replaced by faulty
    variants.

    `controllers`: names, the first connects first. `power_does`: what the power driver can be asked for; `power_times`,
    `setup_times` and `seed`: how long hosts truly take. `table_cache`: of the tables for sizes; loops may share one.
    `disk_servers`: by node, how many requests its disk serves at a time (1). `epoch_s`: what clocks show when the run
    begins. `leases`: hosts have storage leases with these times (None: they have none).
    """

    controller: ControllerSettings = field(default_factory=ControllerSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    controllers: tuple[str, ...] = ("a",)
    power_times: PowerTimes = field(default_factory=PowerTimes)
    setup_times: SetupTimes = field(default_factory=SetupTimes)
    power_does: frozenset[PowerOperation] = DOES
    seed: int = 0
    costs: OperationCosts = COSTS["none"]
    faults: BusFaults | None = None
    speed_factors: Mapping[str, float] = field(default_factory=dict)
    disk_servers: Mapping[str, int] = field(default_factory=dict)
    make_agent: MakeAgent = Agent
    make_controller: MakeController = Controller
    make_hypervisor: type[FakeHypervisor] = FakeHypervisor
    epoch_s: float = 0.0
    make_store: Callable[[], MemoryStore] = lambda: MemoryStore(Deleted)
    table_cache: TableCache = field(default_factory=MemoryTables)
    leases: LeaseTimes | None = None


class BusSource:
    """Hands each event of the broker to the actor whose connection it is."""

    def __init__(self, broker: MemoryBroker, actors: Mapping[str, Actor]) -> None:
        self._broker = broker
        self._actors = actors
        self.next_due_s = broker.next_due_s

    def step(self, now_s: float) -> bool:
        """Deliver one event."""
        handed = self._broker.step(now_s)
        if handed is None:
            return False
        connection, event = handed
        self._actors[connection.user].handle_bus(connection, event)
        return True


class ClusterSource:
    """Moves the cluster on and lets each agent hear its hypervisor."""

    def __init__(self, cluster: FakeCluster, agents: Mapping[str, AgentShell]) -> None:
        self._cluster = cluster
        self._agents = agents
        self.next_due_s = cluster.next_due_s
        self.on_change: Callable[[], None] | None = None

    def step(self, now_s: float) -> bool:
        """Let what is due happen; every agent whose hypervisor has something hears it. `on_change` is called before."""
        if self.on_change is not None:
            due_s = self.next_due_s()
            if due_s is not None and due_s <= now_s:
                self.on_change()
        ready = self._cluster.advance(now_s)
        for name in ready:
            self._agents[name].poll_hypervisor()
        return bool(ready)


class ClosedLoop:
    """A whole system in virtual time.

    Nodes are added through requests of the operator at time 0; agents and controllers start then too.
    """

    def __init__(self, nodes: Sequence[Node], settings: LoopSettings) -> None:
        self.settings = settings
        self.engine = Engine(epoch_s=settings.epoch_s)
        self.broker = MemoryBroker(0.0, settings.faults, grant_of)
        self.world = World()
        self.cluster = FakeCluster(self.world, settings.costs, make=settings.make_hypervisor)
        self.store = settings.make_store()
        self.fake_power = self._make_power()
        self.fake_setups = self._make_setups()
        self.leases = self._make_leases()
        self.fake_monitor = FakeMonitor(self.cluster)
        self.agents: dict[str, AgentShell] = {}
        self.controllers: dict[str, ControllerShell] = {}
        self.jobs: dict[str, Job] = {}
        self.true_mcycles: dict[str, float] = {}  # work of one instance of each job, as it really is
        self.apps: dict[str, WebApp] = {}
        self.balancers: dict[str, Balancer] = {}
        self.fake_balancer = FakeBalancer(self.balancers, lambda: self.engine.now_s)
        self.on_host_death: Callable[[str], None] | None = None
        self.truth = Truth(self.world.completions, self.apps)
        self._decide = partial(compute, table_cache=settings.table_cache)
        self._actors: dict[str, Actor] = {}
        self.cluster_source = ClusterSource(self.cluster, self.agents)
        self.engine.clocks.append(self.broker.advance)
        self.engine.add_source(Rank.WORLD, self.cluster_source)
        self.engine.add_source(Rank.ANSWERS, BusSource(self.broker, self._actors))
        self._set_up_bus(nodes)
        for node in nodes:
            self._add_agent(node)
        for name in settings.controllers:
            self._add_controller(name)
        self.operator = OperatorClient(OPERATOR, self.engine, self.broker)
        self._actors[OPERATOR] = self.operator
        self.engine.at(0.0, SCRIPT_PRIORITY, self._begin)

    # --- building -------------------------------------------------------------------------------------------------

    def _set_up_bus(self, nodes: Sequence[Node]) -> None:
        setup = self.broker.connect(topology.CONTROLLER_USER_PREFIX + "setup")
        setup.declare(topology.CONTROLLER)
        for node in nodes:
            setup.declare(topology.agent_queue(node.name))
        setup.close()

    def _make_power(self) -> FakePower:
        settings, engine = self.settings, self.engine

        def later(at_s: float, call: Callable[[], None]) -> None:
            engine.at(at_s, SCRIPT_PRIORITY, call)

        power = FakePower(
            self.cluster, lambda: engine.now_s, later, settings.power_times, settings.seed, settings.power_does
        )
        power.on_down, power.on_up = self._host_down, self._host_up
        return power

    def _make_leases(self) -> FakeLeases | None:
        times, engine = self.settings.leases, self.engine
        if times is None:
            return None
        return FakeLeases(
            self.cluster, lambda at_s, call: engine.at(at_s, SCRIPT_PRIORITY, call), self.host_dies, times
        )

    def _make_setups(self) -> FakeSetups:
        settings, engine = self.settings, self.engine

        def later(at_s: float, call: Callable[[], None]) -> None:
            engine.at(at_s, SCRIPT_PRIORITY, call)

        return FakeSetups(self.cluster, lambda: engine.now_s, later, settings.setup_times, settings.seed)

    def _add_agent(self, node: Node) -> None:
        name = node.name
        servers = self.settings.disk_servers.get(name, 1)
        self.cluster.add_node(node, self.settings.speed_factors.get(name, 1.0), servers)
        shell = AgentShell(
            name, self.engine, self.broker, self.cluster.hypervisor(name), MemoryJournal(), self._make_agent
        )
        self.agents[name] = self._actors[shell.user] = shell
        shell.on_effect, shell.on_input = self.truth.on_effect, self.truth.on_input
        shell.sleep_host = partial(self._sleep_host, name)
        shell.set_up_host = partial(self.fake_setups.begin, name)
        shell.monitor, shell.leases = self.fake_monitor, self.leases
        shell.end_setup = partial(self.fake_setups.interrupt, name)

    def _make_agent(self, node: str, boot_id: str, records: Sequence[Any]) -> StartableCore:
        return self.settings.make_agent(node, boot_id, records, self.settings.agent)

    def _add_controller(self, name: str) -> None:
        shell = ControllerShell(
            name, self.engine, self.broker, self.store, self.fake_power, self._make_controller, self._decide
        )
        shell.scrape = self._scrape
        shell.balance, shell.measure = self.fake_balancer.set_backends, self.fake_balancer.measure
        self.controllers[name] = self._actors[shell.user] = shell

    def _make_controller(self, name: str) -> StartableCore:
        return self.settings.make_controller(name, self.settings.controller)

    def _begin(self) -> None:
        for controller in self.controllers.values():
            controller.restart()
        for name, agent in self.agents.items():
            agent.restart()
            self.operator.send(AddNode(f"add-{name}", name))

    # --- driving --------------------------------------------------------------------------------------------------

    def submit(self, job: Job, true_stages: Stages | None = None, true_io: float | None = None) -> None:
        """Have the operator submit a job at `job.submit_s`; `true_stages`: its real (work, speed) if they differ,
        `true_io`: the part of its time alone that it really is at the disk, if not as declared.

        The times of the job count from the beginning of the run; the controller gets them by the world's clocks.
        """
        stages = true_stages or [(stage.work_mcycles, stage.max_mhz) for stage in job.stages]
        io = job.resource_profile.part(IO) if true_io is None else true_io
        self.world.add_task(job.name, stages, job.instances, job.checkpoint_mcycles, io)
        self.jobs[job.name] = job
        self.true_mcycles[job.name] = sum(work for work, _ in stages)
        request = SubmitJob(f"submit-{job.name}", _by_clock(job, self.engine.epoch_s))
        self.engine.at(job.submit_s, SCRIPT_PRIORITY, lambda: self.operator.send(request))

    def submit_web(self, app: WebApp, truth: TrueWeb, at_s: float = 0.0, period_s: float = WEB_PERIOD_S) -> None:
        """Have the operator submit a web application at `at_s`; what it really is shows from then on, see
        `measure_web`."""
        self.apps[app.name] = app
        request = SubmitWeb(f"submit-{app.name}", app)
        balancer = self._balancer(app.name, truth, period_s)

        def begin() -> None:
            self.operator.send(request)
            balancer.start()

        self.engine.at(at_s, SCRIPT_PRIORITY, begin)

    def measure_web(self, name: str, truth: TrueWeb, period_s: float = WEB_PERIOD_S) -> None:
        """Let requests come to an application from now on. What is measured of it every `period_s` is pushed, or read
        when it was submitted with a URL for that, or is served by a balancer that is asked."""
        self._balancer(name, truth, period_s).start()

    def _balancer(self, name: str, truth: TrueWeb, period_s: float) -> Balancer:
        app = self.apps.get(name)
        asked = self.settings.controller.balancer.measures and app is not None and app.serving is not None
        push = app is None or not (app.metrics_url or asked)
        site = WebSite(name, truth, self.world)
        site.is_ill = self.fake_monitor.is_ill
        balancer = Balancer(site, self.engine, self.broker, self.cluster.catch_up, period_s, push)
        self.balancers[name] = self._actors[balancer.user] = balancer
        return balancer

    def change_web(self, app: WebApp, at_s: float) -> None:
        """Have the operator submit an application again, changed, at `at_s`."""

        def begin() -> None:
            self.apps[app.name] = app
            self.operator.send(SubmitWeb(f"change-{app.name}", app))

        self.engine.at(at_s, SCRIPT_PRIORITY, begin)

    def remove_web(self, name: str, at_s: float) -> None:
        """Have the operator remove a web application at `at_s`; nobody asks anything of it from then on."""
        request = RemoveWeb(f"remove-{name}", name)

        def end() -> None:
            self.operator.send(request)
            self.balancers[name].stop()

        self.engine.at(at_s, SCRIPT_PRIORITY, end)

    def _scrape(self, effect: Scrape, now_s: float) -> tuple[FlowSample, ...]:
        del now_s
        balancer = self.balancers.get(effect.app)
        if balancer is None or balancer.push:
            raise TransientError(f"nothing answers at {effect.url}")
        return balancer.scrape()

    def run_until(self, time_s: float) -> None:
        """Let everything up to and including `time_s` happen."""
        self.engine.run_until(time_s)

    def host_dies(self, name: str) -> None:
        """Stop a host with everything on it, including its agent."""
        self.cluster.hypervisor(name).host_dies(self.engine.now_s)
        self.fake_power.died(name)
        self.host_died(name)

    def host_died(self, name: str) -> None:
        """Note that a host has just stopped."""
        self.agents[name].kill()
        if self.leases is not None:
            self.leases.host_died(name, self.engine.now_s)
        if self.on_host_death is not None:
            self.on_host_death(name)
        self.truth.host_died(name, self.engine.now_s)

    def _sleep_host(self, name: str, mode: SleepMode, fails: Callable[[str], None]) -> None:
        self.fake_power.sleep(name, mode, fails)

    def _host_down(self, name: str, how: Down) -> None:
        if how is Down.CUT:
            self.host_died(name)
        elif how is Down.SUSPENDED:
            self.agents[name].host_sleeps()
        else:
            self.agents[name].kill()

    def _host_up(self, name: str, boot_id: str, resumed: bool) -> None:
        agent = self.agents[name]
        if resumed:
            agent.host_wakes()
        else:
            agent.boot_id = boot_id
            agent.restart()

    def host_returns(self, name: str, boot_id: str) -> None:
        """Bring a dead host up again, empty except for saved images, and start its agent."""
        agent = self.agents[name]
        agent.hypervisor.host_returns(boot_id)
        self.fake_power.returned(name)
        if self.leases is not None:
            self.leases.host_returned(name)
        agent.boot_id = boot_id
        agent.restart()

    def figures(self, window_s: float, wall_s: float = 0.0) -> ReplayFigures:
        """Return the figures of the true events in [0, window_s]. The run must not have gone beyond window_s."""
        runs = [self.truth.run_of(job) for job in self.jobs.values()]
        return figures(
            runs,
            self.truth.busy,
            nodes=len(self.agents),
            window_s=window_s,
            wall_s=wall_s,
            operations=self.truth.operations,
        )


def _by_clock(job: Job, epoch_s: float) -> Job:
    """Return the job with its times on clocks that show `epoch_s` when the run begins."""
    if not epoch_s:
        return job
    goal_s = None if job.goal_s is None else job.goal_s + epoch_s
    return replace(job, submit_s=job.submit_s + epoch_s, desired_start_s=job.desired_start_s + epoch_s, goal_s=goal_s)


def replay(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    *,
    true_stages: Mapping[str, Stages] | None = None,
    policy: str,
    costs: OperationCosts,
    window_s: float,
    cycle_s: float = 900.0,
    report_s: float = REPLAY_PERIOD_S,
    params: Mapping[str, Any] | None = None,
) -> ReplayFigures:
    """Replay `jobs` on `nodes` through controller, bus and agents; the figures are the world's truth in [0, window_s].

    `true_stages` by job name where the truth differs from what is declared. An infinite window ends with the last job.
    Without faults nothing is lost, so that periods are long: nothing wakes without need. Raises `Infeasible` for a job
    that the controller refuses.
    """
    begun_s = perf_s()
    loop = ClosedLoop(nodes, replay_settings(policy, costs, cycle_s, report_s, params))
    truth = true_stages or {}
    for job in sorted(jobs, key=lambda job: (job.submit_s, job.name)):
        loop.submit(job, truth.get(job.name))
    loop.operator.on_reply = _refuse
    if math.isfinite(window_s):
        loop.run_until(window_s)
    else:
        loop.engine.run_until(window_s, stop=partial(_all_over, loop, [job.name for job in jobs]))
    return loop.figures(loop.engine.now_s, perf_s() - begun_s)


def _all_over(loop: ClosedLoop, open_jobs: list[str]) -> bool:
    """Return whether every job has ended. Removes ended jobs from the end of `open_jobs` to keep the check cheap."""
    while open_jobs and loop.world.completions.get(open_jobs[-1]):
        open_jobs.pop()
    return not open_jobs


def _refuse(request: Request, reply: Reply) -> None:
    if not reply.done:
        raise Infeasible(f"{request.request}: {reply.detail}")


def replay_settings(
    policy: str, costs: OperationCosts, cycle_s: float, report_s: float, params: Mapping[str, Any] | None = None
) -> LoopSettings:
    """Settings under which agents report every `report_s` and nothing else happens but on account of something."""
    controller = ControllerSettings(
        report_s=report_s,
        reconcile_s=report_s,
        decide_s=cycle_s,
        unreachable_after_s=3 * report_s,
        probe_s=REPLAY_PROBE_S,
        stall_after_s=float("inf"),
        limits=Limits(0, 0, 0, 0),
        placement=PolicyChoice(policy, params or {}),
    )
    return LoopSettings(controller, AgentSettings(report_s=report_s), costs=costs)
