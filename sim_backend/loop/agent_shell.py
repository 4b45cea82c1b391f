"""Runs the core of an agent in virtual time, on a fake hypervisor and a host that may go to sleep under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shared.base.errors import StoreUnavailable, TransientError
from shared.ports import effects as fx
from shared.protocol import topology
from shared.values.nodes import NodeSample, SleepMode
from shared.values.vms import LIVE_STATES, VmStatus
from sim_backend.bus.memory import MemoryBroker, MemoryConnection
from sim_backend.engine import Engine
from sim_backend.fakes.health_monitor import FakeMonitor
from sim_backend.fakes.hypervisor import FakeHypervisor
from sim_backend.fakes.journal import MemoryJournal
from sim_backend.fakes.leases import FakeLeases
from sim_backend.fakes.standard_jobs import paces
from sim_backend.loop.shells import Shell, StartableCore
from sim_backend.world.disks import BYTES_PER_S

AGENT_PREFETCH = 100


class AgentShell(Shell):
    """Runs an agent's core on one fake hypervisor. `boot_id` changes when its host comes back.

    `sleep_host(mode, fails)` puts the host to sleep, or calls `fails(why)`. `set_up_host(setup, done)` sets it up and
    calls `done(answer)`, unless `end_setup()` is called before: that ends with the process. `monitor` answers probes.
    """

    def __init__(
        self,
        node: str,
        engine: Engine,
        broker: MemoryBroker,
        hypervisor: FakeHypervisor,
        journal: MemoryJournal,
        make_core: Callable[[str, str, Sequence[Any]], StartableCore],
        boot_id: str = "boot-1",
    ) -> None:
        super().__init__(topology.agent_user(node), engine, broker)
        self.node = node
        self.boot_id = boot_id
        self.hypervisor = hypervisor
        self.journal = journal
        self.asleep = False
        self.sleep_host: Callable[[SleepMode, Callable[[str], None]], None] = _sleepless
        self.set_up_host: Callable[[fx.SetUpHost, Callable[[fx.HostSetUp], None]], None] = _unset
        self.end_setup: Callable[[], None] = _nothing
        self.monitor = FakeMonitor(hypervisor.cluster)
        self.leases: FakeLeases | None = None
        self._looks_s = 0.0  # since when this process has looked at leases
        self._make_core = make_core
        self._owed = 0  # readings that were asked for and not given
        self._queue = topology.agent_queue(node).name
        self._carry |= {
            fx.Operate: self._operate,
            fx.Abort: self._abort,
            fx.Forget: self._forget,
            fx.Observe: self._observe,
            fx.WriteJournal: self._write_journal,
            fx.SleepHost: self._sleep_host,
            fx.SetUpHost: self._set_up_host,
            fx.ProbeInstance: self._probe,
            fx.RunStandard: self._run_standard,
        }

    def poll_hypervisor(self) -> None:
        """Feed what the hypervisor has to say; while the agent is dead nobody hears it."""
        if self.frozen:
            self._held.append(self.poll_hypervisor)
            return
        for event in self.hypervisor.poll(self.engine.now_s):
            self.feed(event)

    def kill(self) -> None:
        """End the process; operations in progress continue without it."""
        self.asleep = False
        super().kill()
        self.end_setup()
        self.hypervisor.forget_answers()

    def thaw(self) -> None:
        """Let a frozen process go on, unless its host sleeps."""
        if not self.asleep:
            super().thaw()

    def host_sleeps(self) -> None:
        """Suspend the host and with it the process, which does not notice. Its connection breaks."""
        if self.core is None:
            return
        self.asleep = self.frozen = True
        if self.connection is not None:
            self.connection.kill()

    def host_wakes(self) -> None:
        """Resume the host: the process continues, late, and reconnects. A process that did not run is started."""
        if self.core is None:
            self.restart()
            return
        if not self.asleep:
            return
        self.asleep = False
        self.connection = None
        connected = self._connect()
        self.thaw()
        if connected:
            self.feed(fx.Reconnected())
        self.feed(fx.SleepEnded(True))

    def _new_core(self) -> StartableCore:
        self._owed, self._looks_s = 0, self.engine.now_s
        self.hypervisor.forget_answers()
        return self._make_core(self.node, self.boot_id, self.journal.records())

    def _set_up(self, connection: MemoryConnection) -> None:
        connection.consume(self._queue, AGENT_PREFETCH)

    def _operate(self, effect: fx.Operate) -> None:
        self.hypervisor.begin(effect.action, self.engine.now_s)

    def _abort(self, effect: fx.Abort) -> None:
        self.hypervisor.abort(effect.vm, self.engine.now_s)

    def _forget(self, effect: fx.Forget) -> None:
        self.hypervisor.forget(effect.vm, self.engine.now_s)

    def _observe(self, effect: fx.Observe) -> None:
        del effect
        self._owed += 1
        try:
            vms, world = self.hypervisor.vms(self.engine.now_s), self.hypervisor.cluster.world
        except TransientError as error:  # as in production, what cannot be read now is owed
            self._answer(fx.Unobserved(str(error)))
            return
        sample = node_sample(vms, world.used_frac(self.node), *world.host_disk_s(self.node, self.engine.now_s))
        leases = () if self.leases is None else self.leases.seen_by(self.node, self._looks_s, self.engine.now_s)
        owed, self._owed = self._owed, 0
        for _ in range(owed):
            self._answer(fx.Observed(sample, vms, self.hypervisor.inventory(), leases))

    def _sleep_host(self, effect: fx.SleepHost) -> None:
        life = self.lives

        def fails(why: str) -> None:
            if self.lives == life:
                self.feed(fx.SleepEnded(False, why))

        self.sleep_host(effect.mode, fails)

    def _set_up_host(self, effect: fx.SetUpHost) -> None:
        life = self.lives

        def done(answer: fx.HostSetUp) -> None:
            if self.lives == life:
                self.feed(answer)

        self.set_up_host(effect, done)

    def _probe(self, effect: fx.ProbeInstance) -> None:
        self._answer(*self.monitor.probe(self.node, effect.target, effect.address))

    def _run_standard(self, effect: fx.RunStandard) -> None:
        done = paces(self.hypervisor.cluster.world, self.node, effect.run)
        self._answer(fx.StandardRan(effect.request, True, done), effect.run.run_s)

    def _write_journal(self, effect: fx.WriteJournal) -> None:
        try:
            self.journal.append(effect.record)
        except StoreUnavailable:
            self.kill()  # an agent that cannot remember must not go on


def _sleepless(mode: SleepMode, fails: Callable[[str], None]) -> None:
    fails(f"nothing can {mode.value} this host")


def _unset(effect: fx.SetUpHost, done: Callable[[fx.HostSetUp], None]) -> None:
    done(fx.HostSetUp(effect.request, False, "nothing can set this host up"))


def _nothing() -> None:
    """There is no setup to end."""


def node_sample(vms: Sequence[VmStatus], used_frac: float, busy_s: float, served_s: float) -> NodeSample:
    """Return the sample of a node that holds only these VMs and gives them this fraction of its CPU, with these seconds
    of busy and serving time of its disk."""
    memory_mib = float(sum(vm.memory_mib for vm in vms if vm.state in LIVE_STATES))
    read_bytes = round(BYTES_PER_S * served_s)
    return NodeSample(
        cpu_frac=used_frac if vms else 0.0,
        memory_used_mib=memory_mib,
        disk_busy_s=busy_s,
        disk_read_bytes=read_bytes,
    )
