"""The agent as a process: `trimtab-agent` runs the core of one node on its hypervisor, journal and broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from agents.collectors.network import mac_addresses
from agents.collectors.node import NodeSampler
from agents.collectors.system import os_of
from agents.core.agent import OBSERVES_MAX, Agent
from agents.core.settings import OUTCOME_KEEP_S, AgentSettings
from agents.disk_journal import DiskJournal
from agents.lease.checks import check_host
from agents.lease.reader import LeaseReader
from agents.power.host import OtherHost, OwnHost
from agents.probes.lanes import ProbeLanes
from agents.probes.probes import Monitor
from agents.service.metrics import AgentFacts, AgentMeter
from agents.setups.host import OtherSetups, OwnSetups
from agents.standard_jobs.running import NoStandardJobs, OwnStandardJobs
from shared.base.errors import InvalidInput, Problem, StoreUnavailable, TransientError
from shared.config.agent import AgentConfig, HealthCheckKeys
from shared.metrics import exposition
from shared.ports import effects as fx
from shared.ports import plugins
from shared.ports.agent import Hypervisor, Journal, Sampler, SetupDriver
from shared.ports.bus import Bus
from shared.protocol import topology
from shared.runtime import startup
from shared.runtime.connection_thread import ConnectionSpec
from shared.runtime.shell import BEGIN_ANEW, Shell, StartableCore, Times
from shared.runtime.systemd_notify import Notifier
from shared.values.nodes import Node, NodeSample, SleepMode

PREFETCH = 100
DUE_WAIT_S = 0.01  # at least so long between two looks at a driver that says when it is due
DEFAULT_CONFIG = "/etc/trimtab/agent.toml"
IMAGES = "/var/lib/libvirt/images"

MakeHypervisor = Callable[[AgentConfig, Callable[[], None]], Hypervisor]


class GroupJournal(Journal, Protocol):
    """A journal that makes several records durable at once."""

    def append_all(self, records: Sequence[Any]) -> None:
        """Make all or none durable before returning. Raises StoreUnavailable when the disk is full."""
        ...


class Host(Protocol):
    """The machine that the VMs are on."""

    def sleep(self, mode: SleepMode) -> fx.SleepEnded:
        """Go to sleep; returns when it is awake again, or why it does not sleep."""
        ...


class StandardRunner(Protocol):
    """The machine whose sharing is measured."""

    def run(self, effect: fx.RunStandard) -> fx.StandardRan:
        """Run the copies of a standard job; returns when they have ended. Never raises."""
        ...


@runtime_checkable
class Boots(Protocol):
    """A hypervisor whose host is not this machine and has boots of its own."""

    @property
    def boot_id(self) -> str:
        """Names the present boot of the host."""
        ...


class AgentShell(Shell):
    """Runs an agent's core. The hypervisor and the sampler are called in a lane of their own, one call at a time; the
    host is put to sleep in another, set up in a third, measured in a fourth; leases are read in a lane that may hang;
    instances are probed in some of their own.

    `shape` turns the driver's inventory into the node that the agent reports. Call `wake` when the hypervisor has
    something to say.
    """

    def __init__(
        self,
        node: str,
        core: StartableCore,
        link: ConnectionSpec,
        hypervisor: Hypervisor,
        sampler: Sampler,
        journal: GroupJournal,
        *,
        seed: int,
        host: Host | None = None,
        setups: SetupDriver | None = None,
        monitor: Monitor | None = None,
        standard: StandardRunner | None = None,
        leases: LeaseReader | None = None,
        shape: Callable[[Node], Node] = lambda node: node,
        clock: Times | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        super().__init__("agent", core, link, seed, clock, notifier, {"node": node})
        self.node, self.hypervisor = node, hypervisor
        self._sampler = sampler
        self._journal = journal
        self._host: Host = host or OtherHost()
        self._setups: SetupDriver = setups or OtherSetups()
        self._standard: StandardRunner = standard or NoStandardJobs()
        self._leases = leases
        self._shape = shape
        self._owed = 0
        self._sample = NodeSample()
        self._troubles: dict[str, str] = {}
        self._lane = self.lane("hypervisor", self._due_in_s, self._poll)
        self._sleep_lane = self.lane("sleep")
        self._setup_lane = self.lane("setup")
        self._standard_lane = self.lane("standard")
        if leases is not None:
            self.lane("leases", leases.due_in_s, leases.look)
        probes = ProbeLanes(monitor or Monitor(HealthCheckKeys()), self.lane, self.post)
        self._carry |= {
            fx.Operate: lambda effect: self._lane.do(partial(self._begin, effect)),
            fx.Abort: lambda effect: self._lane.do(partial(self._call, self.hypervisor.abort, effect.vm)),
            fx.Forget: lambda effect: self._lane.do(partial(self._call, self.hypervisor.forget, effect.vm)),
            fx.Observe: lambda _effect: self._lane.do(self._observe),
            fx.WriteJournal: lambda effect: self._write_journal([effect]),
            fx.SleepHost: lambda effect: self._sleep_lane.do(lambda: self.post(self._host.sleep(effect.mode))),
            fx.ProbeInstance: probes.begin,
            fx.SetUpHost: lambda effect: self._setup_lane.do(partial(self._set_up, effect)),
            fx.RunStandard: lambda effect: self._standard_lane.do(lambda: self.post(self._standard.run(effect))),
        }

    def facts(self) -> AgentFacts:
        """Return the state of core and journal; call it in the core's thread."""
        core, size_bytes = self.core, getattr(self._journal, "size_bytes", None)
        return AgentFacts(self.node, len(core.outbox) if isinstance(core, Agent) else 0, size_bytes)

    def wake(self) -> None:
        """Schedule a poll, since the hypervisor has events; may be called from any thread."""
        self._lane.do(self._poll)

    def _carry_out(self, effects: Sequence[fx.Effect]) -> None:
        """Carry out effects as every shell does, but make consecutive journal records durable together."""
        at = 0
        while at < len(effects) and self.exit_status is None:
            end = at
            while end < len(effects) and isinstance(effects[end], fx.WriteJournal):
                end += 1
            if end - at > 1:
                self._write_journal(effects[at:end])
            else:
                end = at + 1
                super()._carry_out(effects[at:end])
            at = end

    def _write_journal(self, effects: Sequence[Any]) -> None:
        begun_s = self.clock.monotonic_s()
        try:
            self._journal.append_all([effect.record for effect in effects])
            self.meter.called("write-journal", self.clock.monotonic_s() - begun_s, True)
        except StoreUnavailable as error:
            self.end(BEGIN_ANEW, str(error))  # an agent that cannot remember must not go on

    def _set_up(self, effect: fx.SetUpHost) -> None:
        """Carry out a setup in the lane for setups."""
        self.post(self._setups.set_up(effect.request, effect.environment, effect.step, effect.setup))

    # --- in the hypervisor's lane -----------------------------------------------------------------------------------

    def _begin(self, effect: fx.Operate) -> None:
        begun_s = self.clock.monotonic_s()
        self.hypervisor.begin(effect.action, self.clock.now_s())
        self.meter.called("begin", self.clock.monotonic_s() - begun_s, True)
        self._poll()

    def _call(self, method: Callable[[str, float], None], vm: str) -> None:
        if self._tried(method.__name__, lambda: method(vm, self.clock.now_s())):
            self._poll()

    def _poll(self) -> None:
        events: list[fx.Input] = []
        self._tried("poll", lambda: events.extend(self.hypervisor.poll(self.clock.now_s())))
        for event in events:
            self.post(event)

    def _observe(self) -> None:
        """Answer every reading that was asked for and not given; what cannot be read now is owed."""
        self._owed = min(self._owed + 1, OBSERVES_MAX)
        self._poll()  # what happened before the reading is heard before it
        self._tried("sample", self._take_sample)
        if self._tried("read", self._read):
            self._owed = 0
        else:
            self.post(fx.Unobserved(self._troubles["read"]))

    def _take_sample(self) -> None:
        self._sample = self._sampler.sample(self.clock.now_s())

    def _read(self) -> None:
        vms = self.hypervisor.vms(self.clock.now_s())
        inventory = self._shape(self.hypervisor.inventory())
        leases = () if self._leases is None else self._leases.read(self.clock.monotonic_s())
        for _ in range(self._owed):
            self.post(fx.Observed(self._sample, vms, inventory, leases))

    def _due_in_s(self) -> float | None:
        due_s = self.hypervisor.next_due_s()
        return None if due_s is None else max(DUE_WAIT_S, due_s - self.clock.now_s())

    def _tried(self, what: str, call: Callable[[], None]) -> bool:
        """Make a call that may fail for a while; return false when it did. Log when it begins to fail and when it works
        again."""
        begun_s = self.clock.monotonic_s()
        try:
            call()
        except TransientError as error:
            self.meter.called(what, self.clock.monotonic_s() - begun_s, False)
            if self._troubles.get(what) != str(error):
                self._troubles[what] = str(error)
                self.log.warning("the hypervisor does not answer", call=what, error=str(error))
            return False
        self.meter.called(what, self.clock.monotonic_s() - begun_s, True)
        if self._troubles.pop(what, None) is not None:
            self.log.info("the hypervisor answers again", call=what)
        return True


# --- the composition root ------------------------------------------------------------------------------------------


def link_of(node: str, connect: startup.Connect) -> ConnectionSpec:
    """Return an agent's link: it reads its own queue, which `trimtab nodes add` creates."""
    return ConnectionSpec(connect, lambda bus: _set_up(bus, node))


def _set_up(bus: Bus, node: str) -> None:
    bus.consume(topology.agent_queue(node).name, PREFETCH)


def shape_of(
    config: AgentConfig, node: str, macs: tuple[str, ...] = (), system: tuple[str, str] = ("", "")
) -> Callable[[Node], Node]:
    """Return a function that turns the hypervisor's inventory into this node. It adds the name, the type with its
    clock, the reserve, labels, the addresses of the network cards, and the operating system's type and version, and
    bounds its migrations by the agent's own time limit."""

    def shape(found: Node) -> Node:
        labels = tuple(dict.fromkeys((*found.labels, *config.node.labels)))
        reserve_mib = min(config.reserve_mib, found.memory_mib)
        core_mhz = found.core_mhz * config.core_mhz_factor
        bounds = found.migration_bounds
        bounds = replace(bounds, limit_s=min(bounds.limit_s, config.timeouts.operation_timeout_s))
        return replace(
            found,
            name=node,
            core_mhz=core_mhz,
            reserve_mib=reserve_mib,
            labels=labels,
            node_type=config.node.type or found.node_type,
            mac_addresses=macs or found.mac_addresses,
            os_type=system[0] or found.os_type,
            os_version=system[1] if system[0] else found.os_version,
            migration_bounds=bounds,
        )

    return shape


def find_hypervisor(name: str) -> MakeHypervisor:
    """Return the driver registered as `name`. It is called with the agent's configuration and with the function to call
    when it has events. Raises InvalidInput naming the available drivers."""
    make: MakeHypervisor = plugins.find_driver(plugins.HYPERVISORS, "hypervisor.driver", name)
    return make


def check_config(config: AgentConfig, only_look: bool = False) -> None:
    """Raise InvalidInput with every problem: an account at the broker that is another node's, an address that is none,
    a driver that is not there, and all that the driver says of its own keys: what is called `check_config` beside what
    makes it, if there is such a thing, is called with the configuration. `only_look`: nothing is to be started, and
    what else the host lacks is a problem too."""
    problems: list[Problem] = []
    for check in (own_name, _check_bus, _check_metrics, _check_driver, *([_check_lease] if only_look else [])):
        try:
            check(config)
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(*problems)


def _check_bus(config: AgentConfig) -> None:
    if config.bus.url:
        startup.broker(config.bus.url, config.bus.tls, config.bus.plain)


def _check_metrics(config: AgentConfig) -> None:
    exposition.check(config.metrics)


def _check_lease(config: AgentConfig) -> None:
    check_host(config.lease)


def _check_driver(config: AgentConfig) -> None:
    make = find_hypervisor(config.hypervisor.driver)
    check: Callable[[AgentConfig], object] = getattr(sys.modules[make.__module__], "check_config", bool)
    check(config)


def own_name(config: AgentConfig) -> str:
    """Return the node's name. Raises InvalidInput where the account at the broker is another node's."""
    node = config.node.name or startup.host_name()
    user = startup.bus_user(config.bus.url)
    if user and user != topology.agent_user(node):
        raise InvalidInput(Problem("bus.url", f"has the user {user!r}", f"{topology.agent_user(node)!r}"))
    return node


def is_here(hypervisor: object, uri: str) -> bool:
    """Return whether a hypervisor's host is this machine."""
    return not isinstance(hypervisor, Boots) and not urlsplit(uri).netloc


class _Wake:
    """Passes a driver's call on to the shell, which is made after the driver."""

    def __init__(self) -> None:
        self.target: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self.target is not None:
            self.target()


def build(
    config: AgentConfig,
    connect: startup.Connect,
    make: MakeHypervisor,
    seed: int,
    outcome_keep_s: float = OUTCOME_KEEP_S,
) -> AgentShell:
    """Build an agent's shell from its configuration. outcome_keep_s: see `AgentSettings`. Raises InvalidInput, or
    TransientError when it may work later."""
    node = own_name(config)
    monitor = Monitor(config.health_checks)
    own = OwnSetups(node, config.setup, f"{config.journal.path}.setup.lock")
    journal = DiskJournal(config.journal.path)
    wake = _Wake()
    hypervisor = make(config, wake)
    boot_id = hypervisor.boot_id if isinstance(hypervisor, Boots) else startup.boot_id()
    here = is_here(hypervisor, config.hypervisor.uri)
    lease = config.lease
    settings = AgentSettings(
        report_s=config.periods.report_s,
        operation_timeout_s=config.timeouts.operation_timeout_s,
        outcome_keep_s=outcome_keep_s,
        address=config.node.address,
    )
    shell = AgentShell(
        node,
        Agent(node, boot_id, journal.records(), settings),
        link_of(node, connect),
        hypervisor,
        NodeSampler(IMAGES if Path(IMAGES).is_dir() else str(journal.path.parent)),
        journal,
        seed=seed,
        host=OwnHost() if here else OtherHost(),
        setups=own if here or isinstance(hypervisor, Boots) else OtherSetups(),
        monitor=monitor,
        standard=OwnStandardJobs(config.standard_jobs) if here or isinstance(hypervisor, Boots) else NoStandardJobs(),
        leases=LeaseReader(lease.folder, node, lease.renew_s) if lease.folder else None,
        shape=shape_of(config, node, mac_addresses(), os_of()) if here else shape_of(config, node),
        notifier=Notifier(),
    )
    wake.target = shell.wake
    shell.wake()
    if journal.dropped_bytes:
        shell.log.warning("the end of the journal was torn", dropped_bytes=journal.dropped_bytes)
    return shell


def _run(path: Path, config: AgentConfig) -> int:
    connect = startup.broker(config.bus.url, config.bus.tls, config.bus.plain)
    shell = build(config, connect, find_hypervisor(config.hypervisor.driver), startup.seed())
    meter = AgentMeter(config.hypervisor.driver, startup.version(), shell.clock.monotonic_s, shell.facts)
    metrics = exposition.serve(shell, meter, config.metrics)
    shell.on_reload = lambda: exposition.reload(lambda: DAEMON.read(path), config, metrics)
    shell.heed_signals()
    return shell.run()


class AgentDaemon(startup.Daemon[AgentConfig]):
    """The command `trimtab-agent`."""

    def read(self, path: Path, only_look: bool = False) -> AgentConfig:
        """Read the configuration; with `only_look`, check this host as well: an agent that is to run must not wait for
        its storage, nor end because that is away. Raises InvalidInput with every problem."""
        config = super().read(path, only_look)
        if only_look:
            check_config(config, only_look)
        return config


DAEMON = AgentDaemon("trimtab-agent", AgentConfig, DEFAULT_CONFIG, _run, check_config)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `trimtab-agent` command; return its exit status."""
    return DAEMON.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
