"""A harness whose nodes can be put to sleep and woken by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from daemons.values.settings import PolicyChoice, PowerSettings
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import GoToSleep, SleepAnswer
from shared.protocol.operator_messages import SubmitJob
from shared.values.nodes import NodeService, PowerOperation
from sim_backend.fakes.store import MemoryStore
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

WAKES = frozenset({PowerOperation.WAKE})
LINKS = WAKES | {PowerOperation.LINK, PowerOperation.DELINK}


def power(**fields: Any) -> PowerSettings:
    """Nodes sleep through their agents; short limits."""
    given: dict[str, Any] = {
        "driver": "test",
        "does": WAKES,
        "through_agents": True,
        "standby_s": 60.0,
        "wake_limit_s": 300.0,
        "drain_limit_s": 600.0,
        "wake_test_days": 0.0,
    }
    return PowerSettings(**(given | fields))


class PowerHarness(ControllerHarness):
    """Keeps what agents were asked to do to their hosts; `up` are the nodes that report while time passes."""

    def __init__(
        self,
        nodes: Iterable[str] = ("n1", "n2", "n3"),
        store: MemoryStore | None = None,
        settings: PowerSettings | None = None,
        **more: Any,
    ) -> None:
        more.setdefault("decide_s", 100_000.0)  # a test says itself what is wanted
        more.setdefault("provisioning", PolicyChoice("static"))
        super().__init__(nodes, store, power=settings or power(), **more)
        self.sleeps: list[GoToSleep] = []
        self.up = list(self.nodes)

    def _publish(self, effect: fx.Publish) -> None:
        if isinstance(effect.message, GoToSleep):
            self.sleeps.append(effect.message)
        super()._publish(effect)

    def want(self, *names: str) -> None:
        """A decision that these and no others are to be in service is carried out."""
        deployment = parts.lifecycle(self.controller)
        change = deployment.change_to(names, deployment.seen(self.now_s), self.now_s)
        deployment.apply(change, self.now_s)
        self.feed(fx.TimerFired("deploy"))

    def go(self, seconds: float) -> None:
        """Let time pass; nodes that are up report."""
        self.wait(seconds, self.up)

    def service(self, name: str) -> NodeService:
        """Where a node is."""
        return self.controller.cluster.nodes[name].service

    def agree(self, name: str, ok: bool = True, detail: str = "") -> None:
        """The agent's answer to the last `GoToSleep`; if ok the node is silent from then on."""
        asked = self.sleeps[-1]
        assert asked.node == name
        answer = SleepAnswer(name, self.boots[name], self.next_seq(name), self.now_s, asked.request, ok, detail)
        self.say(answer, topology.agent_user(name))
        if ok:
            self.up.remove(name)

    def powered(self, ok: bool = True, detail: str = "") -> fx.Power:
        """The driver's answer to what it was asked last."""
        asked = self.powers[-1]
        self.feed(fx.PowerDone(asked.node, asked.operation, ok, detail))
        return asked

    def asked(self, operation: PowerOperation) -> list[str]:
        """Nodes that the driver was asked to do this to."""
        return [effect.node for effect in self.powers if effect.operation is operation]

    def put_to_sleep(self, name: str) -> None:
        """Out of service and asleep."""
        self.want(*(n for n in self.nodes if n != name))
        self.go(70.0)
        self.agree(name)
        self.go(30.0)
        assert self.service(name) is NodeService.OFF

    def comes_back(self, name: str, boot: str = "") -> None:
        """The host is up again and reports."""
        self.boots[name] = boot or self.boots[name]
        self.up.append(name)
        self.go(10.0)

    def succeeded(self) -> PowerHarness:
        """The next leader over the same store and nodes."""
        settings = self.controller.settings
        after = PowerHarness(
            self.nodes, self.store, settings.power, placement=settings.placement, windows=settings.windows
        )
        after.boots, after.seqs, after.vms, after.up = self.boots, self.seqs, self.vms, self.up
        after.now_s = self.now_s
        after.carry(after.controller.start(after.now_s))
        after.settle()
        return after


def running(harness: PowerHarness, name: str = "j") -> str:
    """A job that runs; returns its node."""
    harness.ask(SubmitJob(f"submit-{name}", job(name)))
    (start,) = harness.obey()
    return start.node


def details(harness: PowerHarness, what: str) -> list[tuple[str, str]]:
    """Whom events of a kind were about, and what they said."""
    return [(event.subject, event.detail) for event in harness.happenings(what)]
