"""A controller that leads a cluster of any size, as its metrics see it: no shell, no bus."""

from __future__ import annotations

from benchmarks.wire_load import Load
from daemons.controller.core.controller import Controller
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.web_app import Sample, WebEntry
from daemons.controller.views.context import ViewContext
from daemons.values.settings import ControllerSettings
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import Probe
from shared.values.agreement import EnvironmentState
from shared.values.web_app import Flow, FlowSample, WebApp
from tests.support import parts
from tests.support.environment_cases import agreement

START_S = 1_700_000_000.0


def leading(nodes: int, apps: int = 0, environments: int = 0) -> Controller:
    """A leader of so many nodes that have reported, each with 5 jobs in 8 VMs; web applications that were measured and
    environments that run, without workloads."""
    load = Load(nodes)
    core = Controller("a", ControllerSettings())
    core.start(START_S)
    core.handle(fx.Received(1, topology.CONTROLLER_USER_PREFIX + "a", Probe("a", 1)), START_S)
    core.handle(fx.LeadTaken(1, load.records(START_S)), START_S)
    for report in load.round(1, START_S, 1):
        core.handle(fx.Received(None, topology.agent_user(report.node), report), START_S)
    for number in range(apps):
        core.cluster.web[f"app-{number}"] = _app(f"app-{number}", number)
    for number in range(environments):
        entry = core.cluster.environments[f"env-{number}"] = _environment(f"env-{number}", number)
        parts.admission(core).assurance.entry_of(entry)
    return core


def tables(core: Controller) -> ViewContext:
    """Its tables."""
    return core.queries.tables


def _app(name: str, order: int) -> WebEntry:
    entry = WebEntry(
        WebApp(name, (Flow("all", mean_s=0.5),), 1000, max_mhz=1000.0, min_instances=1, max_instances=3),
        f"submit-{name}",
        order,
        accepted_s=START_S,
    )
    entry.samples.append(Sample(START_S, (FlowSample("all", 10.0, 100, served=90, rejected=5, queued=2, mean_s=0.4),)))
    return entry


def _environment(name: str, order: int) -> EnvironmentEntry:
    running = EnvironmentState.RUNNING
    return EnvironmentEntry(
        agreement(name), f"create-{name}", order, created_s=START_S, state=running, wanted=running, size=1
    )
