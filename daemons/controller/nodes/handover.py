"""The reassignment of nodes from one environment to the next, with the provisioning hooks of both (phoenixcloud.txt
sections 4.2 and 4.3).

The environment that gets a node is desired state. This module converges on it in repeatable steps, from the store and
the answers of agents. A node is evacuated, released by its old environment, and acquired for the new one; until then it
serves none. No hook is skipped: if one fails for good, no environment gets the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from daemons.controller.state.availability import is_empty
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.settings import ControllerSettings
from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import SetUpAnswer, SetUpNode
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import Handover, NodeService, SetupStep

DETAIL_MAX = 4096
LEAST_MHZ = 1e-3  # a sum that VMs come into and leave again may not end at 0
LOOK_S = 30.0  # how often it is looked again at a node that is on its way, whatever is heard of it
_SETTLED, _EMPTYING, _FAILED = Handover.SETTLED, Handover.EMPTYING, Handover.FAILED
_RELEASING, _ACQUIRING = Handover.RELEASING, Handover.ACQUIRING
_AWAY = frozenset({NodeService.OFF, NodeService.WAKING, NodeService.FAILED})


@dataclass(slots=True)
class _Tries:
    """What one controller knows of the setup that a node is in: for which boot of its host it was asked, when it is
    asked next, and how often it has failed."""

    boot_id: str = ""
    next_s: float = -math.inf
    failures: int = 0


class Handovers:
    """Moves every node towards its assigned environment. `need(node)` brings a node into service, independent of
    decisions."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        need: Callable[[NodeEntry, float], None],
    ) -> None:
        self.cluster, self.unit_of_work, self.settings, self._need = cluster, unit_of_work, settings, need
        self._tries: dict[str, _Tries] = {}
        self._occupied: list[NodeEntry] = []
        self._requests = 0
        self._due_s = math.inf

    # --- what is wanted and heard -----------------------------------------------------------------------------------

    def give(self, node: NodeEntry, environment: str, now_s: float) -> None:
        """Assign the node to an environment ("": none)."""
        if node.given == environment:
            return
        node.given = environment
        node.changes += 1
        self.unit_of_work.change_node(node)
        self.unit_of_work.deploy = self.unit_of_work.place = True
        if environment and self.unit_of_work.acting:
            self._need(node, now_s)

    def answer(self, answer: SetUpAnswer, now_s: float) -> None:
        """Handle an agent's answer to `SetUpNode`; one that was not expected changes nothing. After an answer from
        another boot the step is requested again."""
        node = self.cluster.nodes[answer.node]
        if not node.setup_request or answer.request != node.setup_request:
            return
        node.setup_request = ""
        self.unit_of_work.change_node(node)
        self.unit_of_work.deploy = True
        if answer.boot_id != node.boot_id:
            self._tries.pop(node.name, None)
        elif answer.ok:
            self._done(node, answer.output, now_s)
        else:
            self._not_done(node, answer.output, now_s)

    def repair(self, node: NodeEntry, now_s: float) -> None:
        """Retry a node whose provisioning failed, on an operator's request. The failed acquisition may have left
        something on the node: it is always released again."""
        if node.handover is not _FAILED:
            return
        self.unit_of_work.emit(now_s, "node-repaired", node.name, node.detail)
        node.detail = ""
        self._tries.pop(node.name, None)
        self._go(node, _RELEASING)
        self._tell(node)

    def loaded(self, now_s: float) -> None:
        """Start after a new leader has read all records: open requests are sent again, and the attempt counts
        restart."""
        for node in self.cluster.nodes.values():
            if node.setup_request:
                self._tries[node.name] = _Tries(node.boot_id, now_s)
        self.unit_of_work.deploy = True

    def forget(self, name: str) -> None:
        """Drop the state of a node that was removed."""
        self._tries.pop(name, None)

    # --- converging -------------------------------------------------------------------------------------------------

    def emptied(self) -> bool:
        """Return whether a node that had to be empty for its next step is now empty."""
        return any(_is_clear(node) for node in self._occupied)

    def run(self, now_s: float) -> float:
        """Take every step that may be taken now; returns when to look again (inf: when something happens)."""
        self._due_s = math.inf
        self._occupied = []
        if not self.unit_of_work.acting:
            return math.inf
        for node in self.cluster.nodes.values():
            if not node.wanted and (node.given or not node.in_hand):
                self._need(node, now_s)
            if node.in_hand:
                continue
            while self._step(node, now_s):
                pass
            if node.handover not in (_SETTLED, _FAILED):
                self._due_s = min(self._due_s, now_s + LOOK_S)
        return self._due_s

    def _step(self, node: NodeEntry, now_s: float) -> bool:
        """Advance the node's reassignment; return whether its state has changed."""
        match node.handover:
            case Handover.SETTLED:
                return node.given != node.environment and self._begin(node, now_s)
            case Handover.EMPTYING:
                return self._emptying(node, now_s)
            case Handover.RELEASING:
                return self._set_up(node, SetupStep.RELEASE, now_s)
            case Handover.ACQUIRING:
                if node.given != node.environment and not node.setup_request:
                    self._tries.pop(node.name, None)
                    self._go(node, _RELEASING)  # its setup may have put something there
                    return True
                return self._set_up(node, SetupStep.ACQUIRE, now_s)
        return False

    def _begin(self, node: NodeEntry, now_s: float) -> bool:
        self._go(node, _EMPTYING)
        self.unit_of_work.emit(now_s, "node-evacuating", node.name, f"{_who(node.environment)} to {_who(node.given)}")
        return True

    def _emptying(self, node: NodeEntry, now_s: float) -> bool:
        if node.given == node.environment:
            self._go(node, _SETTLED)
            self.unit_of_work.emit(now_s, "node-kept", node.name, _who(node.environment))
        elif _is_clear(node):
            self._go(node, _RELEASING)
        else:
            self._occupied.append(node)
            return False
        return True

    def _go(self, node: NodeEntry, handover: Handover) -> None:
        node.handover = handover
        node.changes += 1
        self.unit_of_work.change_node(node)
        self.unit_of_work.deploy = True
        if handover in (_SETTLED, _EMPTYING):
            self.unit_of_work.place = True

    # --- setups -----------------------------------------------------------------------------------------------------

    def _set_up(self, node: NodeEntry, step: SetupStep, now_s: float) -> bool:
        """Have the setup of this step carried out; true when there is nothing to wait for."""
        environment = self.cluster.environments.get(node.environment)
        if environment is None and node.environment:
            self._fail(node, f"the agreement of environment {node.environment!r} is not known", now_s)
            return True
        if environment is None:
            self._advance(node, now_s)
            return True
        setup = environment.agreement.setup
        if setup.skips(step):
            self._advance(node, now_s)
            return True
        if setup.policy_at(step) is SetupPolicy.NOOP and not setup.brings and not node.setup_request:
            self._done(node, "", now_s)
            return True
        self._ask(node, step, setup, now_s)
        return False

    def _ask(self, node: NodeEntry, step: SetupStep, setup: Setup, now_s: float) -> None:
        """Send the step to the node's agent, unless it is too early or the agent cannot be asked. The same request is
        repeated until it is answered; a request to an earlier boot is replaced by a new one."""
        tries = self._tries.setdefault(node.name, _Tries(node.boot_id))
        if tries.boot_id != node.boot_id:
            self._tries[node.name] = tries = _Tries(node.boot_id)
            node.setup_request = ""
            self.unit_of_work.change_node(node)
        if not node.usable or node.sleeping or node.service in _AWAY:
            return
        if not _is_clear(node):
            self._occupied.append(node)
            return
        if now_s >= tries.next_s:
            if not node.setup_request:
                self._requests += 1
                node.setup_request = f"{self.unit_of_work.term}-setup-{self._requests}"
                self.unit_of_work.change_node(node)
            expires_s = now_s + self.settings.action_ttl_s
            tries.next_s = expires_s
            message = SetUpNode(
                node.setup_request,
                node.name,
                self.unit_of_work.term,
                boot_id=node.boot_id,
                expires_at_s=expires_s,
                environment=node.environment,
                step=step,
                setup=setup,
            )
            self.unit_of_work.stored.append(Publish(topology.ACTIONS, node.name, message))
        self._due_s = min(self._due_s, tries.next_s)

    def _done(self, node: NodeEntry, output: str, now_s: float) -> None:
        """Record that the provisioning hook of this step succeeded."""
        environment = self.cluster.environments.get(node.environment)
        if environment is not None:
            environment.setups += 1
            self.unit_of_work.change_environment(environment)
        self.unit_of_work.emit(now_s, "setup-done", node.name, _detail(self._what(node), output))
        self._advance(node, now_s)

    def _not_done(self, node: NodeEntry, output: str, now_s: float) -> None:
        tries = self._tries.setdefault(node.name, _Tries(node.boot_id))
        tries.failures += 1
        count = f"{self._what(node)}, try {tries.failures} of {self.settings.setup_tries}"
        gives_up = node.handover is _ACQUIRING and node.given != node.environment
        if tries.failures >= self.settings.setup_tries and not gives_up:
            self._fail(node, _detail(count, output), now_s)
            return
        wait_s = min(self.settings.retry_max_s, self.settings.retry_s * 2.0 ** (tries.failures - 1))
        tries.next_s = now_s + wait_s
        self.unit_of_work.emit(now_s, "setup-failed", node.name, _detail(f"{count}, again in {wait_s:g} s", output))

    def _fail(self, node: NodeEntry, why: str, now_s: float) -> None:
        """Out of everybody's hands until an operator says that it is repaired."""
        node.detail, node.setup_request = why[:DETAIL_MAX], ""
        self._tries.pop(node.name, None)
        self._go(node, _FAILED)
        self.unit_of_work.emit(now_s, "setup-failed", node.name, node.detail)
        self._tell(node)

    def _advance(self, node: NodeEntry, now_s: float) -> None:
        """Move on to the next step."""
        self._tries.pop(node.name, None)
        had = node.environment
        if node.handover is _RELEASING:
            node.environment = node.given  # for whom it is acquired from here on
            self._go(node, _ACQUIRING)
            what = "node-released"
        else:
            self._go(node, _SETTLED if node.given == node.environment else _RELEASING)
            what = "node-acquired"
        if had:
            self.unit_of_work.emit(now_s, what, node.name, had)
            self._tell(node)

    def _tell(self, node: NodeEntry) -> None:
        """Coordinate the current and the assigned environment of the node again: they may need other nodes, or have
        what they need."""
        self.unit_of_work.coordinate.update(name for name in (node.environment, node.given) if name)

    def _what(self, node: NodeEntry) -> str:
        environment = self.cluster.environments.get(node.environment)
        setup = environment.agreement.setup if environment is not None else Setup()
        step = SetupStep.RELEASE if node.handover is _RELEASING else SetupStep.ACQUIRE
        command = f" {setup.command}" if setup.command else ""
        return f"{step.value} of {node.environment}: {setup.policy.value}{command}"


def _is_clear(node: NodeEntry) -> bool:
    """Return whether no managed VM is or may be there, and none is wanted there."""
    return is_empty(node) and node.wanted_mib <= 0.0 and node.wanted_mhz < LEAST_MHZ


def _who(environment: str) -> str:
    return environment or "nobody"


def _detail(what: str, output: str) -> str:
    """Return what happened and the end of the output."""
    room = DETAIL_MAX - len(what) - 2
    said = output.strip()[-room:]
    return f"{what}: {said}" if said else what
