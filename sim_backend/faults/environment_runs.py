"""Carries out the part of a fault script about environments, and brings them to their end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from shared.protocol.operator_messages import (
    ActivateEnvironment,
    ConsentEnvironment,
    DestroyEnvironment,
    RepairNode,
    Request,
    ResizeEnvironment,
)
from shared.values.agreement import EnvironmentState
from shared.values.nodes import Handover, NodeService
from sim_backend.faults.environments import BATCH, SETUP_TRIES, WEB, FaultEnvironments, HandoverFault, HandoverIncident
from sim_backend.faults.invariants.environments import EnvironmentChecks, stored, unsettled_environments
from sim_backend.faults.invariants.guests import GuestChecks
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.shells import ControllerShell

LOOK_S = 2.0
PRIORITY = 5
MEND_S = 50.0
BACK_S = 25.0
WANTED_AT_LAST = 1  # units of the web environment


def with_environments(settings: LoopSettings, seed: int) -> LoopSettings:
    """Return the settings of a loop whose nodes are reassigned between environments."""
    controller = replace(settings.controller, setup_tries=SETUP_TRIES, web_adjust_s=20.0)
    return replace(settings, controller=controller, seed=seed)


class EnvironmentFaults:
    """The environments of one script on one loop. `report(invariant, detail)` notes what does not hold, `done` counts
    what has happened."""

    def __init__(
        self,
        loop: ClosedLoop,
        script: FaultEnvironments,
        guests: GuestChecks,
        report: Callable[[str, str], None],
        done: Counter[str],
        leader: Callable[[], ControllerShell],
    ) -> None:
        self.loop, self.script = loop, script
        self.names = [agreement.name for agreement in script.agreements]
        self.over = {script.destroyed} - {""}
        self._done, self._leader = done, leader
        self.checks = EnvironmentChecks(loop, script.agreements, report)
        guests.on_change, guests.on_loss = self.checks.look, self.checks.blame
        for ask in script.asks:
            self._ask_at(ask.at_s, ask.request)
        for incident in script.incidents:
            self._at(incident.at_s, incident)

    def exempt(self, job: str) -> bool:
        """Return whether a job may have been refused because its environment was destroyed."""
        return self.loop.jobs[job].environment in self.over

    def repair(self) -> None:
        """Setups do not fail any more, and operators bring everything back to what was agreed."""
        for name in self.loop.agents:
            self.loop.fake_setups.fail_next(name, 0)
            self.loop.fake_setups.hang_next(name, 0)
        self._mend()

    def end(self) -> None:
        """Destroy all environments."""
        self.over |= set(self.names)
        for name in self.names:
            self.loop.operator.send(DestroyEnvironment(f"end-{name}", name))

    def unsettled(self) -> list[str]:
        """Return why environments have not converged."""
        return unsettled_environments(self.loop, self.names, frozenset(self.over), WANTED_AT_LAST)

    def _ask_at(self, at_s: float, request: Request) -> None:
        self.loop.engine.at(at_s, PRIORITY, lambda: self.loop.operator.send(request))

    def _mend(self) -> None:
        """Request the repair of all deviations from the specifications, now and whenever one is found later."""
        loop = self.loop
        tag = f"{loop.engine.now_s:.0f}"
        for name, node in stored(loop, "node", loop.agents).items():
            if node.service is NodeService.FAILED or node.handover is Handover.FAILED:
                loop.operator.send(RepairNode(f"repair-{name}-{tag}", name))
        found = stored(loop, "environment", self.names)
        for agreement in self.script.agreements:
            name, record = agreement.name, found.get(agreement.name)
            if record is None or name in self.over:
                continue
            if record.wanted is not EnvironmentState.RUNNING:
                loop.operator.send(ActivateEnvironment(f"activate-{name}-{tag}", name))
            if (record.agreement.lower, record.agreement.upper) != (agreement.lower, agreement.upper):
                loop.operator.send(ResizeEnvironment(f"resize-{name}-{tag}", name, agreement.lower, agreement.upper))
            if name == BATCH and WEB in record.declined:
                loop.operator.send(ConsentEnvironment(f"consent-{tag}", BATCH, WEB, True))
        loop.engine.at(loop.engine.now_s + MEND_S, PRIORITY, self._mend)

    # --- incidents --------------------------------------------------------------------------------------------------

    def _at(self, at_s: float, incident: HandoverIncident) -> None:
        self.loop.engine.at(at_s, PRIORITY, lambda: self._begin(incident))

    def _begin(self, incident: HandoverIncident) -> None:
        setups = self.loop.fake_setups
        names = sorted(self.loop.agents)
        node = names[incident.number % len(names)]
        match incident.kind:
            case HandoverFault.SETUP_FAILS:
                setups.fail_next(node, 1 + incident.number % (SETUP_TRIES - 1))
            case HandoverFault.SETUP_FAILS_FOR_GOOD:
                setups.fail_next(node, SETUP_TRIES)
            case HandoverFault.SETUP_HANGS:
                setups.hang_next(node)
            case _:
                self._when_handed_over(incident)
                return
        self._done[incident.kind.value] += 1

    def _when_handed_over(self, incident: HandoverIncident) -> None:
        """Apply the incident as soon as a node has reached the required state, if that is before the incident's end."""
        if self._hit(incident):
            self._done[incident.kind.value] += 1
            return
        later_s = self.loop.engine.now_s + LOOK_S
        if later_s < incident.until_s:
            self._at(later_s, incident)

    def _hit(self, incident: HandoverIncident) -> bool:
        loop = self.loop
        if incident.kind is HandoverFault.CONTROLLER_KILLED_IN_HANDOVER:
            return self._kill_leader()
        setting_up = [name for name in sorted(loop.agents) if loop.fake_setups.in_progress(name) is not None]
        if not setting_up:
            return False
        name = setting_up[incident.number % len(setting_up)]
        if incident.kind is HandoverFault.HOST_DIES_IN_SETUP:
            loop.host_dies(name)
            return True
        agent = loop.agents[name]
        agent.kill()
        self._later(lambda: agent.restart() if agent.hypervisor.up and not agent.alive else None)
        return True

    def _kill_leader(self) -> bool:
        nodes = stored(self.loop, "node", self.loop.agents).values()
        controller = self._leader()
        if not controller.alive or all(node.handover in (Handover.SETTLED, Handover.FAILED) for node in nodes):
            return False
        controller.kill()
        self._later(lambda: None if controller.alive else controller.restart())
        return True

    def _later(self, call: Callable[[], None]) -> None:
        self.loop.engine.at(self.loop.engine.now_s + BACK_S, PRIORITY, call)
