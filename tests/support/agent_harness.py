"""An agent with its journal in a list, and short names for what tests send it."""

from __future__ import annotations

from typing import Any, TypeVar

from agents.core.agent import Agent
from agents.core.settings import AgentSettings
from shared.ports.effects import Effect, GuestChanged, Input, Observed, Operated, Published, Received, WriteJournal
from shared.ports.effects import Publish as Publish
from shared.protocol import topology
from shared.protocol.messages import GuestEvent, Message, Order, Report, Result
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.nodes import Node, NodeSample
from shared.values.vms import VmSpec, VmState, VmStatus

NODE = Node("n1", 4, 2000.0, memory_mib=16_000)
LEADER = topology.CONTROLLER_USER_PREFIX + "a"
SETTINGS = AgentSettings(report_s=5.0, operation_timeout_s=600.0, publish_retry_s=5.0, outcome_keep_s=3600.0)

T = TypeVar("T")


class Rig:
    """One node's agent across its restarts. What a real journal would hold is in `records`."""

    def __init__(self, *records: Any, boot_id: str = "boot-1", settings: AgentSettings = SETTINGS) -> None:
        self.records: list[Any] = list(records)
        self.boot_id, self.settings = boot_id, settings
        self.now_s = 100.0
        self.delivery = 0
        self.restart()

    def restart(self, boot_id: str = "") -> list[Effect]:
        """Begin a new process on the records written so far."""
        self.boot_id = boot_id or self.boot_id
        self.agent = Agent("n1", self.boot_id, tuple(self.records), self.settings)
        return self._journal(self.agent.start(self.now_s))

    def handle(self, event: Input) -> list[Effect]:
        """Hand an input in and keep what it journals."""
        return self._journal(self.agent.handle(event, self.now_s))

    def send(self, message: Message, sender: str = LEADER) -> list[Effect]:
        """Deliver a message, each time as a new delivery."""
        self.delivery += 1
        return self.handle(Received(self.delivery, sender, message))

    def order(self, action: Action, events_seen: int = 0) -> list[Effect]:
        """Deliver an order."""
        return self.send(Order(action, events_seen))

    def operated(
        self, action: Action, outcome: Outcome = Outcome.OK, status: VmStatus | None = None, **rest: Any
    ) -> list[Effect]:
        """Let the hypervisor answer an action."""
        return self.handle(Operated(action.id, outcome, status, **rest))

    def observed(self, *vms: VmStatus, inventory: Node = NODE) -> list[Effect]:
        """Answer the oldest open reading."""
        return self.handle(Observed(NodeSample(cpu_frac=0.5), vms, inventory))

    def guest(self, change: GuestChange, status: VmStatus, detail: str = "") -> list[Effect]:
        """Let the hypervisor tell of a guest."""
        return self.handle(GuestChanged(change, status, detail))

    def confirm(self, effects: list[Effect], ok: bool = True) -> list[Effect]:
        """Let the broker answer every publishing among the effects."""
        answers: list[Effect] = []
        for publish in only(effects, Publish):
            if publish.publish_id is not None:
                answers += self.handle(Published(publish.publish_id, ok))
        return answers

    def _journal(self, effects: list[Effect]) -> list[Effect]:
        self.records += [effect.record for effect in only(effects, WriteJournal)]
        return effects


def only(effects: list[Effect], kind: type[T]) -> list[T]:
    """The effects of one kind, in order."""
    return [effect for effect in effects if isinstance(effect, kind)]


def messages(effects: list[Effect], kind: type[T]) -> list[T]:
    """The published messages of one kind, in order."""
    return [effect.message for effect in only(effects, Publish) if isinstance(effect.message, kind)]


def report(effects: list[Effect]) -> Report:
    """The one report among the effects."""
    (found,) = messages(effects, Report)
    return found


def result(effects: list[Effect]) -> Result:
    """The one result among the effects."""
    (found,) = messages(effects, Result)
    return found


def guest_event(effects: list[Effect]) -> GuestEvent:
    """The one guest event among the effects."""
    (found,) = messages(effects, GuestEvent)
    return found


def action(
    number: int = 1, kind: ActionKind = ActionKind.START, vm: str = "j#0", expects: int = 0, **changes: Any
) -> Action:
    """An action that the agent of `Rig` accepts."""
    generation = changes.pop("generation", expects + 1 if kind in (ActionKind.START, ActionKind.RESUME) else expects)
    spec = (
        VmSpec(vm, generation, 1, memory_mib=1000, vcpus=1, cpu_mhz=2000.0)
        if kind in (ActionKind.START, ActionKind.RESUME)
        else None
    )
    values: dict[str, Any] = {"node": "n1", "term": 1, "boot_id": "boot-1", "expires_at_s": 160.0, "spec": spec}
    values.update(changes)
    return Action(id=f"a{number}", kind=kind, vm=vm, expects=expects, generation=generation, **values)


def vm(name: str = "j#0", state: VmState = VmState.RUNNING, generation: int = 1, **changes: Any) -> VmStatus:
    """A VM of ours."""
    return VmStatus(name, state, generation, attempt=1, memory_mib=1000, vcpus=1, **changes)
