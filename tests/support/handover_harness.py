"""The hand-over of nodes alone: a cluster, a unit of work, a store in a dictionary, and agents that are asked by
hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from daemons.controller.nodes.handover import Handovers
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import InFlight, Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import NodeRecord
from daemons.values.settings import ControllerSettings
from shared.ports.effects import Effect, Publish
from shared.protocol.messages import Happened, Message, SetUpAnswer, SetUpNode
from shared.values.actions import ActionKind
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import Handover, Node, NodeCondition, SetupStep
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement, environment_record

WIPE = Setup(SetupPolicy.WIPE)
EXEC = Setup(SetupPolicy.EXEC, "prepare", 120.0)
SETUPS = {"noop": Setup(), "wipe": WIPE, "exec": EXEC, "in": Setup(SetupPolicy.WIPE, release=False)}
SETUPS |= {"out": Setup(SetupPolicy.WIPE, acquire=False)}


@dataclass
class Rig:
    """A controller's part that hands nodes over, and what it asks of agents; `settle` ends an instant. Environments are
    named after their setups."""

    nodes: tuple[str, ...] = ("n1",)
    setups: dict[str, Setup] | None = None

    def __post_init__(self) -> None:
        self.now_s = 100.0
        self.store: dict[str, NodeRecord] = {}
        self.asked: list[SetUpNode] = []
        self.events: list[Happened] = []
        self.needed: list[str] = []
        self.boots = dict.fromkeys(self.nodes, "boot-1")
        self.environments = {
            name: EnvironmentEntry.of(environment_record(name, agreement=agreement(name, setup=setup)))
            for name, setup in (self.setups or SETUPS).items()
        }
        self.term = 0
        self.due_s = float("inf")
        self.lead({name: NodeEntry(name) for name in self.nodes})

    # --- controllers ------------------------------------------------------------------------------------------------

    def lead(self, entries: dict[str, NodeEntry]) -> None:
        """A new leader begins with these nodes."""
        self.term += 1
        self.cluster, self.unit_of_work = Cluster(0.0), UnitOfWork()
        self.unit_of_work.term = self.term
        self.cluster.environments = self.environments
        self.cluster.nodes = entries
        self.handovers = Handovers(self.cluster, self.unit_of_work, ControllerSettings(), self._need)
        self.handovers.loaded(self.now_s)
        for name in entries:
            self.up(name)
        self.settle()

    def succeed(self) -> None:
        """The leader dies with all that is not stored; the next one reads the store. VMs stay where they are."""
        kept = {name: dict(node.claimed) for name, node in self.cluster.nodes.items()}
        entries = {}
        for name in self.nodes:
            entries[name] = node = _entry(self.store[name]) if name in self.store else NodeEntry(name)
            node.claimed = kept[name]
        self.lead(entries)

    def _need(self, node: NodeEntry, now_s: float) -> None:
        assert now_s == self.now_s
        self.needed.append(node.name)
        node.wanted = True

    def settle(self, stores: bool = True) -> None:
        """Take every step; what changed is stored, and only then messages go out (unless it dies before)."""
        self.due_s = self.handovers.run(self.now_s)
        self.unit_of_work.deploy = False
        if not stores:
            return
        for node in self.unit_of_work.dirty_nodes.values():
            self.store[node.name] = node.record()
        self.asked += [message for message in _sent(self.unit_of_work.stored) if isinstance(message, SetUpNode)]
        self.events += [message for message in _sent(self.unit_of_work.effects) if isinstance(message, Happened)]
        self.unit_of_work.dirty_nodes, self.unit_of_work.stored, self.unit_of_work.effects = {}, [], []

    # --- what a test does -------------------------------------------------------------------------------------------

    def node(self, name: str = "n1") -> NodeEntry:
        """What is known of a node."""
        return self.cluster.nodes[name]

    def state(self, name: str = "n1") -> tuple[str, Handover]:
        """Whose it is and how far it is."""
        return self.node(name).environment, self.node(name).handover

    def give(self, environment: str, name: str = "n1") -> None:
        """An environment is to have a node."""
        self.handovers.give(self.node(name), environment, self.now_s)
        self.settle()

    def has(self, environment: str, name: str = "n1") -> None:
        """A node has been handed over to an environment."""
        self.give(environment, name)
        while not self.node(name).in_hand:
            self.answer()
        self.asked.clear()
        self.events.clear()

    def wait(self, seconds: float) -> None:
        """Time passes, up to when it is to be looked again."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, max(self.due_s, self.now_s + 0.001))
            self.settle()

    def answer(self, ok: bool = True, output: str = "", asked: SetUpNode | None = None) -> None:
        """The agent's answer to what it was asked last."""
        self.hear(asked or self.asked[-1], ok, output)
        self.settle()

    def hear(self, request: SetUpNode, ok: bool = True, output: str = "") -> None:
        """An answer comes; the instant has not ended."""
        answer = SetUpAnswer(request.node, request.boot_id, 1, self.now_s, request.request, ok, output)
        self.handovers.answer(answer, self.now_s)

    def up(self, name: str = "n1", boot: str = "") -> None:
        """A node reports, perhaps after another boot."""
        self.boots[name] = boot or self.boots[name]
        node = self.node(name)
        node.condition, node.boot_id = NodeCondition.UP, self.boots[name]
        node.inventory = Node(name, 4, 1000.0, memory_mib=4000)
        self.unit_of_work.change_node(node)
        self.unit_of_work.deploy = True

    def silent(self, name: str = "n1") -> None:
        """A node is not heard of."""
        self.node(name).condition = NodeCondition.UNKNOWN
        self.settle()

    def occupy(self, name: str = "n1") -> None:
        """A VM is or may be on a node."""
        self.node(name).claimed["j#0"] = _instance()

    def vacate(self, name: str = "n1") -> None:
        """It is gone."""
        self.node(name).claimed.clear()

    def fly(self, name: str = "n1") -> None:
        """An order for a VM on a node is open."""
        flying = _instance()
        flying.in_flight = InFlight("a1", ActionKind.START, name, "", "boot-1", self.now_s + 60.0)
        self.node(name).flights["a1"] = flying

    def take_events(self) -> list[str]:
        """The kinds of the events since the last call."""
        told, self.events = [event.what for event in self.events], []
        return told

    def steps(self) -> list[tuple[str, SetupStep]]:
        """What the agents were asked for, in order, each request once."""
        once = {asked.request: (asked.environment, asked.step) for asked in self.asked}
        return list(once.values())


def _entry(record: NodeRecord) -> NodeEntry:
    names: Iterable[str] = ("environment", "given", "handover", "setup_request", "boot_id", "detail", "wanted")
    fields: dict[str, Any] = {name: getattr(record, name) for name in names}
    return NodeEntry(record.name, record.service, **fields)


def _instance() -> Instance:
    entry = JobEntry(job("j"), "r", 1, accepted_s=0.0)
    return Instance("j#0", entry, 1000.0)


def _sent(effects: list[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Publish)]
