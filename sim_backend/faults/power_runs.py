"""Carries out the part of a fault script about power, and looks at what must hold of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from daemons.values.calendar import DailyPeriods
from daemons.values.settings import PolicyChoice, PowerSettings, PriceSettings, Removal, WindowSettings
from shared.ports import effects as fx
from shared.protocol.messages import Happened
from shared.protocol.operator_messages import RepairNode
from shared.values.nodes import NodeService
from sim_backend.fakes.power import DOES, SleepFault
from sim_backend.faults.power import QUEUE, FaultPower, PowerFault, PowerIncident
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.shells import ControllerShell

LOOK_S = 5.0
PRIORITY = 5
KILLED_S = 20.0
HOUR_S = 3_600.0
PER_KWH = (0.21, 0.35, -0.02, 0.28, 0.31, 0.12)
ALARM_S = 600.0  # so soon after a deadline it must be told that it was missed
MISSED, CLOSED = "deadline-missed", "queue-closed"
DEPLOYING = frozenset({NodeService.DRAINING, NodeService.WAKING, NodeService.STANDBY})


def with_power(settings: LoopSettings, power: FaultPower, seed: int) -> LoopSettings:
    """Return the settings of a loop with a deadline window and nodes that sleep."""
    times = power.window
    periods = DailyPeriods(
        times.zone, times.opens_local_s, times.closes_local_s, times.deadline_local_s, tuple(range(7))
    )
    window = WindowSettings(
        QUEUE,
        QUEUE,
        periods,
        confidence=0.99,
        nodes_max=8,
        service_s=300.0,
        arrivals_per_day=float(len(power.jobs)),
        removal=Removal(power.removal),
    )
    controller = replace(
        settings.controller,
        provisioning=PolicyChoice(power.policy),
        power=PowerSettings(
            "fake",
            DOES,
            through_agents=True,
            sleep=power.sleep,
            standby_s=30.0,
            wake_limit_s=240.0,
            drain_limit_s=900.0,
            keep_nodes=power.keep_nodes,
        ),
        windows=(window,),
        prices=PriceSettings(shape="series", read_every_s=120.0),
    )
    return replace(settings, controller=controller, power_times=power.times, seed=seed, epoch_s=float(times.epoch_s))


class PowerFaults:
    """The incidents of one script on one loop. `report(invariant, detail)` notes what does not hold, `done` counts what
    has happened, `dies(node)` stops a host."""

    def __init__(
        self,
        loop: ClosedLoop,
        power: FaultPower,
        report: Callable[[str, str], None],
        done: Counter[str],
        leader: Callable[[], ControllerShell],
    ) -> None:
        self.loop, self.power = loop, power
        self.alarms_s: list[float] = []  # when it was told that a deadline was missed
        self._report, self._done, self._leader = report, done, leader
        self._prices_stop = self._prices_back = False
        for shell in loop.controllers.values():
            shell.read_prices = self._prices
            shell.on_effect = self._hearing(shell.on_effect)
        for job in power.jobs:
            factor = power.work_factors[job.name]
            loop.submit(job, [(stage.work_mcycles * factor, stage.max_mhz) for stage in job.stages])
        for incident in power.incidents:
            self._at(incident.at_s, incident)
        if power.window.change is not None:
            loop.engine.at(float(power.window.change_s), PRIORITY, self._clocks_changed)

    def _clocks_changed(self) -> None:
        change = self.power.window.change
        if change is not None:
            self._done[change.value] += 1

    def repair(self) -> None:
        """Remove all faults, and repair the failed nodes as an operator does."""
        self._prices_stop = self._prices_back = False
        for name in self.loop.agents:
            self.loop.fake_power.mend(name)
        for controller in self.loop.controllers.values():
            controller.clock_off_s = 0.0
        self._mend_nodes()

    def check(self) -> None:
        """Check at the end that no node slept with a VM on it, that every missed deadline raised an alarm, and that an
        open queue refused no job."""
        self.loop.run_until(max(self.loop.engine.now_s, self.power.window.deadline_s + ALARM_S))
        for at_s, node, vm in self.loop.fake_power.asleep_with:
            self._report("asleep-with-vm", f"{node} with {vm} at {at_s:.1f} s")
        late = [job.name for job in self.power.jobs if self._is_late(job.name)]
        if late and not self._alarmed():
            told = ", ".join(f"at {at_s:.0f} s" for at_s in self.alarms_s) or "never"
            self._report(
                "promise-silent", f"{len(late)} jobs missed the deadline, {late[0]} among them; reported {told}"
            )
        if all(incident.kind is not PowerFault.CLOCK_JUMPS for incident in self.power.incidents):
            self._check_refused()

    def _alarmed(self) -> bool:
        """Return whether the missed deadline raised an alarm in time."""
        return any(at_s <= self.power.window.deadline_s + ALARM_S for at_s in self.alarms_s)

    def _check_refused(self) -> None:
        """Check that no job was refused because its queue had closed. Jobs come some time before the end of submission,
        so only a longer delay can cause this."""
        for job in self.power.jobs:
            reply = self.loop.operator.replies.get(f"submit-{job.name}")
            if reply is not None and reply.code == CLOSED:
                self._report("queue-closed", f"{job.name} was turned away: {reply.detail}")

    def _mend_nodes(self) -> None:
        """Repair failed nodes as an operator does, now and whenever one fails later."""
        loop = self.loop
        for name in loop.agents:
            if self._service(name) is NodeService.FAILED:
                loop.operator.send(RepairNode(f"repair-{name}-{loop.engine.now_s:.0f}", name))
        loop.engine.at(loop.engine.now_s + 10.0 * LOOK_S, PRIORITY, self._mend_nodes)

    def _is_late(self, job: str) -> bool:
        """Return whether an accepted job finished after the deadline or has not finished."""
        record = self.loop.store.get(("job", job))
        if record is None:
            return False
        ends = self.loop.world.completions.get(job)
        return not ends or ends[0][1] > self.power.window.deadline_s

    def _hearing(self, then: Callable[[Any, fx.Effect], None] | None) -> Callable[[Any, fx.Effect], None]:
        def hear(shell: Any, effect: fx.Effect) -> None:
            message = effect.message if isinstance(effect, fx.Publish) else None
            if isinstance(message, Happened) and message.what == MISSED:
                self.alarms_s.append(self.loop.engine.now_s)
            if then is not None:
                then(shell, effect)

        return hear

    def _prices(self, _now_s: float) -> fx.PricesRead:
        if self._prices_stop:
            return fx.PricesRead(error="the file is gone")
        known = 1 if self._prices_back else len(PER_KWH)
        first = self.power.window.epoch_s // HOUR_S
        starts = tuple((first + number) * HOUR_S for number in range(known))
        return fx.PricesRead(starts, PER_KWH[:known], (first + known) * HOUR_S)

    # --- incidents --------------------------------------------------------------------------------------------------

    def _at(self, at_s: float, incident: PowerIncident) -> None:
        self.loop.engine.at(at_s, PRIORITY, lambda: self._begin(incident))

    def _begin(self, incident: PowerIncident) -> None:
        fake, node = self.loop.fake_power, incident.node
        match incident.kind:
            case PowerFault.WAKE_FAILS:
                fake.fail_wake(node, incident.times, incident.told)
            case PowerFault.WAKE_LATE:
                fake.wake_late(node, incident.size_s, incident.times)
            case PowerFault.SLEEP_REFUSED:
                fake.fail_sleep(node, SleepFault.REFUSED, incident.times)
            case PowerFault.SLEEP_HANGS:
                fake.fail_sleep(node, SleepFault.HANGS, incident.times)
            case PowerFault.DIES_DRAINING:
                self._when({NodeService.DRAINING}, incident, self._die)
                return
            case PowerFault.KILLED_DEPLOYING:
                self._when(DEPLOYING, incident, self._kill)
                return
            case PowerFault.CLOCK_JUMPS:
                self._jump(incident)
            case _:
                self._disturb_prices(incident)
        self._done[incident.kind.value] += 1

    def _when(
        self, services: frozenset[NodeService] | set[NodeService], incident: PowerIncident, then: Callable[[str], bool]
    ) -> None:
        """Apply the incident as soon as a node has one of these states, if that is before the incident's end."""
        for name in self.loop.agents:
            if self._service(name) in services and then(name):
                self._done[incident.kind.value] += 1
                return
        later_s = self.loop.engine.now_s + LOOK_S
        if later_s < incident.until_s:
            self._at(later_s, incident)

    def _die(self, node: str) -> bool:
        if not self.loop.cluster.hypervisor(node).up:
            return False
        self.loop.host_dies(node)
        return True

    def _kill(self, node: str) -> bool:
        del node
        controller = self._leader()
        if not controller.alive:
            return False
        controller.kill()
        engine = self.loop.engine
        engine.at(engine.now_s + KILLED_S, PRIORITY, lambda: None if controller.alive else controller.restart())
        return True

    def _jump(self, incident: PowerIncident) -> None:
        """Set the clock of the leader's machine wrong, and right again at the incident's end."""
        controller = self._leader()
        controller.clock_off_s = incident.size_s if incident.told else -incident.size_s

        def right() -> None:
            controller.clock_off_s = 0.0

        self.loop.engine.at(incident.until_s, PRIORITY, right)

    def _disturb_prices(self, incident: PowerIncident) -> None:
        back = incident.kind is PowerFault.PRICES_GO_BACK
        self._prices_back, self._prices_stop = back, not back

        def right() -> None:
            self._prices_back = self._prices_stop = False

        self.loop.engine.at(incident.until_s, PRIORITY, right)

    def _service(self, node: str) -> NodeService | None:
        record = self.loop.store.get(("node", node))
        return None if record is None else record.service
