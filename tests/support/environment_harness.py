"""A harness with environments: their owner's requests, and agents that carry setups out when a test says so."""

from __future__ import annotations

from typing import Any

from daemons.controller.state.environment import EnvironmentEntry
from shared.ports.effects import Publish
from shared.protocol import topology
from shared.protocol.messages import Reply, SetUpAnswer, SetUpNode
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    Query,
    ResizeEnvironment,
)
from shared.values.agreement import EnvironmentState
from shared.values.web_app import WebApp
from sim_backend.fakes.store import MemoryStore
from tests.support.controller_harness import ControllerHarness
from tests.support.environment_cases import agreement

CREATED, RUNNING = EnvironmentState.CREATED, EnvironmentState.RUNNING
DEACTIVATED, DESTROYED = EnvironmentState.DEACTIVATED, EnvironmentState.DESTROYED


class EnvironmentHarness(ControllerHarness):
    """Four nodes unless told otherwise. `asked`: setups that agents were asked for and have not answered."""

    def __init__(self, count: int = 4, store: MemoryStore | None = None, **settings: Any) -> None:
        self.asked: list[SetUpNode] = []
        self._asks = 0
        super().__init__([f"n{index}" for index in range(1, count + 1)], store, **settings)

    def _publish(self, effect: Publish) -> None:
        if isinstance(effect.message, SetUpNode):
            self.asked = [each for each in self.asked if each.request != effect.message.request] + [effect.message]
        super()._publish(effect)

    def successor(self, **settings: Any) -> EnvironmentHarness:
        """The controller dies and another leads, over the same store and hosts."""
        other = EnvironmentHarness(len(self.nodes), self.store, **settings)
        other.now_s, other.nodes, other.boots = self.now_s, self.nodes, self.boots
        other.seqs, other.vms, other._asks = self.seqs, self.vms, self._asks
        other.carry(other.controller.start(other.now_s))
        for _ in range(2):  # once greeted, they are believed
            other.hear()
        return other

    def hear(self) -> None:
        """Every node reports."""
        for name in self.nodes:
            self.report(name)

    def set_up(self, count: int = 1_000, *, ok: bool = True) -> None:
        """Agents answer so many setups, those that follow among them."""
        while self.asked and count:
            one, count = self.asked.pop(0), count - 1
            boot_id, output = self.boots[one.node], "" if ok else "no room"
            seq = self.next_seq(one.node)
            answer = SetUpAnswer(one.node, boot_id, seq, self.now_s, one.request, ok, output)
            self.say(answer, topology.agent_user(one.node))

    def finish(self) -> None:
        """All that was ordered is done, setups too."""
        while self.orders or self.asked:
            self.obey()
            self.set_up()

    # --- requests ---------------------------------------------------------------------------------------------------

    def _id(self) -> str:
        self._asks += 1
        return f"env-{self._asks}"

    def create(self, name: str = "hpc", workload: str = "batch", lower: int = 1, **fields: Any) -> Reply:
        return self.ask(CreateEnvironment(self._id(), agreement(name, workload, lower, **fields)))

    def activate(self, name: str = "hpc") -> Reply:
        return self.ask(ActivateEnvironment(self._id(), name))

    def deactivate(self, name: str = "hpc") -> Reply:
        return self.ask(DeactivateEnvironment(self._id(), name))

    def destroy(self, name: str = "hpc") -> Reply:
        return self.ask(DestroyEnvironment(self._id(), name))

    def resize(self, name: str, lower: int, upper: int | None = None) -> Reply:
        return self.ask(ResizeEnvironment(self._id(), name, lower, upper))

    def consent(self, name: str, partner: str, *, on: bool = True) -> Reply:
        return self.ask(ConsentEnvironment(self._id(), name, partner, on))

    def open(self, name: str = "hpc", workload: str = "batch", lower: int = 1, **fields: Any) -> EnvironmentEntry:
        """An environment that runs."""
        assert self.create(name, workload, lower, **fields).done, self.replies[-1]
        assert self.activate(name).done, self.replies[-1]
        self.finish()
        assert self.entry(name).running, self.entry(name)
        return self.entry(name)

    # --- what is seen -----------------------------------------------------------------------------------------------

    def entry(self, name: str = "hpc") -> EnvironmentEntry:
        return self.controller.cluster.environments[name]

    def states(self) -> dict[str, str]:
        return {name: entry.state.value for name, entry in self.controller.cluster.environments.items()}

    def partners(self) -> dict[str, str]:
        return {name: entry.partner for name, entry in self.controller.cluster.environments.items()}

    def held_by(self, name: str = "hpc") -> list[str]:
        """The nodes that it has, or is to have."""
        nodes = self.controller.cluster.nodes.values()
        return [node.name for node in nodes if name in (node.given, node.environment)]

    def whats(self, subject: str = "hpc") -> list[str]:
        """The events of its life."""
        return [
            event.what for event in self.events if event.subject == subject and event.what.startswith("environment-")
        ]

    def shown(self, what: str, subject: str = "") -> Any:
        """The data of a view."""
        reply = self.ask(Query(self._id(), what, subject))
        assert reply.done, reply
        return reply.data


def app(name: str = "shop", environment: str = "web", least: int = 1, most: int = 2) -> WebApp:
    """An application without a goal."""
    return WebApp(name, (), 1_000, max_mhz=1_000.0, min_instances=least, max_instances=most, environment=environment)
