"""Hand-overs with real agents while owners change their minds, messages are lost and come twice, setups fail, hosts
reboot, agents and controllers die. Who looks only at what agents do sees that no setup was left out, that no VM began
before its environment had acquired the node, and none beside a setup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agents.core.agent import Agent
from agents.core.settings import AgentSettings
from shared.ports.effects import (
    Effect,
    HostSetUp,
    Input,
    Observe,
    Observed,
    Operate,
    Operated,
    Publish,
    Published,
    Received,
    SetUpHost,
    WriteJournal,
)
from shared.protocol import topology
from shared.protocol.messages import Message, Order, SetUpAnswer
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.host_setup import SetupPolicy
from shared.values.nodes import Handover, Node, NodeSample, SetupStep
from shared.values.vms import VmSpec, VmState, VmStatus
from tests.extent import examples
from tests.support.handover_harness import SETUPS, Rig

NAMES = ("n1", "n2")
LEADER = topology.CONTROLLER_USER_PREFIX + "a"
RELEASE, ACQUIRE = SetupStep.RELEASE, SetupStep.ACQUIRE


class Dies(Exception):
    """The agent's process is killed before its next effect."""


class Machine:
    """One host with its agent. `history`: the VMs that began on it and the setups that were begun and carried out."""

    def __init__(self, name: str, rig: Rig) -> None:
        self.name, self.rig = name, rig
        self.boot = "boot-1"
        self.records: list[Any] = []
        self.vm = ""  # the environment of the VM that is alive
        self.doing: SetUpHost | None = None
        self.history: list[tuple[str, str]] = []
        self.said: list[SetUpAnswer] = []
        self.effects_left: int | None = None
        self.restart()

    def restart(self) -> None:
        """A new process of the agent; what the last one ran died with it."""
        self.doing = self.effects_left = None
        self.agent = Agent(self.name, self.boot, tuple(self.records), AgentSettings())
        self.carry(self.agent.start(self.rig.now_s))

    def reboot(self, boot: str) -> None:
        self.boot, self.vm = boot, ""
        self.restart()

    def hear(self, message: Message) -> None:
        self.feed(Received(1, LEADER, message))

    def feed(self, event: Input) -> None:
        """An input, and all that follows until the process dies of it."""
        try:
            self.carry(self.agent.handle(event, self.rig.now_s))
        except Dies:
            self.restart()

    def end(self, ok: bool) -> None:
        """The setup that runs ends."""
        if self.doing is not None:
            done, self.doing = self.doing, None
            assert not self.vm, "a VM came to life while the host was set up"
            if ok:
                self.history.append((done.environment, done.step.value))
            self.feed(HostSetUp(done.request, ok, "said so"))

    def carry(self, effects: list[Effect]) -> None:
        now_s = self.rig.now_s
        for effect in effects:
            if self.effects_left == 0:
                raise Dies
            if self.effects_left is not None:
                self.effects_left -= 1
            match effect:
                case WriteJournal():
                    self.records.append(effect.record)
                case Observe():
                    alive = (VmStatus("j#0", VmState.RUNNING, 1),) if self.vm else ()
                    seen = Observed(NodeSample(), alive, Node(self.name, 4, 1000.0, memory_mib=4000))
                    self.carry(self.agent.handle(seen, now_s))
                case SetUpHost():
                    assert self.doing is None, "two setups at once"
                    assert not self.vm, "a setup beside a VM"
                    self.doing = effect
                    self.history.append((effect.environment, f"{effect.step.value} begun"))
                case Operate():
                    self.begin(effect.action)
                case Publish() if effect.publish_id is not None:
                    if isinstance(effect.message, SetUpAnswer):
                        self.said.append(effect.message)
                    self.carry(self.agent.handle(Published(effect.publish_id, True), now_s))

    def begin(self, action: Action) -> None:
        assert action.spec is not None
        assert self.doing is None, "a VM beside a setup"
        self.vm = action.spec.template
        self.check(self.vm)
        self.history.append((self.vm, "vm"))
        status = VmStatus("j#0", VmState.RUNNING, 1)
        self.carry(self.agent.handle(Operated(action.id, Outcome.OK, status), self.rig.now_s))

    def stop(self) -> None:
        """The guest is gone; its node's next report says so."""
        self.vm = ""

    def check(self, environment: str) -> None:
        """A VM begins: everybody else who put something there has released the node, and its own environment has
        acquired it after that."""
        came = (environment, ACQUIRE.value)
        others = [at for at, (name, what) in enumerate(self.history) if name != environment]
        if demands(environment, ACQUIRE):
            assert came in self.history, f"{environment} never acquired {self.name}: {self.history}"
            left = self.last(environment, RELEASE.value)
            assert self.last(*came) > max([left, *others]), (
                f"{environment} has not acquired {self.name}: {self.history}"
            )
        for name in {self.history[at][0] for at in others if demands(self.history[at][0], RELEASE)}:
            put = max(self.last(name, "vm"), self.last(name, "acquire begun"))
            assert self.last(name, RELEASE.value) >= put, f"{name} has not released {self.name}: {self.history}"

    def last(self, environment: str, what: str) -> int:
        """When that happened last, -1: never."""
        return max((at for at, one in enumerate(self.history) if one == (environment, what)), default=-1)


def demands(environment: str, step: SetupStep) -> bool:
    """Whether its agreement demands something to be done at that step."""
    setup = SETUPS.get(environment)
    if setup is None or setup.policy is SetupPolicy.NOOP:
        return False
    return setup.release if step is RELEASE else setup.acquire


class Handovers(RuleBasedStateMachine):
    """Two hosts. What is on the way to agents and back may be lost or come twice."""

    @initialize()
    def begin(self) -> None:
        self.rig = Rig(NAMES)
        self.machines = {name: Machine(name, self.rig) for name in NAMES}
        self.orders: dict[str, Order] = {}
        self.told = 0
        self.boots = self.ids = 0

    # --- what happens -----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), environment=st.sampled_from(["", *SETUPS]), stores=st.booleans())
    def give(self, name: str, environment: str, stores: bool) -> None:
        self.rig.handovers.give(self.rig.node(name), environment, self.rig.now_s)
        self._settle(stores)

    def _settle(self, stores: bool) -> None:
        """The instant ends, or the controller dies before anything is stored."""
        self.rig.settle(stores)
        if not stores:
            self.rig.succeed()

    @rule(name=st.sampled_from(NAMES))
    def place(self, name: str) -> None:
        """A decision places a VM of who has the node; the order may take its time."""
        node = self.rig.node(name)
        if not node.schedulable or node.claimed or name in self.orders:
            return
        self.ids += 1
        spec = VmSpec("j#0", 1, 1, memory_mib=100, vcpus=1, cpu_mhz=100.0, template=node.environment)
        expires_s = self.rig.now_s + 60.0
        action = Action(
            f"a{self.ids}",
            ActionKind.START,
            name,
            vm="j#0",
            term=self.rig.term,
            boot_id=node.boot_id,
            expires_at_s=expires_s,
            expects=0,
            generation=1,
            spec=spec,
        )
        self.rig.occupy(name)
        self.orders[name] = Order(action)

    @rule(name=st.sampled_from(NAMES), lost=st.booleans())
    def order(self, name: str, lost: bool) -> None:
        order = self.orders.pop(name, None)
        if order is not None and not lost:
            self.machines[name].hear(order)

    @rule(name=st.sampled_from(NAMES))
    def stop(self, name: str) -> None:
        self.machines[name].stop()

    @rule(name=st.sampled_from(NAMES))
    def report(self, name: str) -> None:
        """What the controller knows is what is so, but for what is on the way."""
        machine = self.machines[name]
        if machine.boot != self.rig.boots[name]:
            self.orders.pop(name, None)  # of the boot before: refused
        self.rig.up(name, machine.boot)
        if not machine.vm and name not in self.orders:
            self.rig.vacate(name)
        self.rig.settle()

    @rule(name=st.sampled_from(NAMES))
    def silent(self, name: str) -> None:
        self.rig.silent(name)

    @rule(back=st.integers(1, 6), stale=st.booleans())
    def ask(self, back: int, stale: bool) -> None:
        """A request arrives, perhaps again, perhaps out of order; the others go on waiting."""
        found = self.rig.asked[-back:][:1] if stale else self.rig.asked[self.told :][:1]
        self.told += not stale and bool(found)
        for request in found:
            self.machines[request.node].hear(request)

    @rule(name=st.sampled_from(NAMES), back=st.integers(1, 3), stores=st.booleans())
    def answer(self, name: str, back: int, stores: bool) -> None:
        """An answer arrives, perhaps an old one again."""
        for answer in self.machines[name].said[-back:][:1]:
            self.rig.handovers.answer(answer, self.rig.now_s)
            self._settle(stores)

    @rule(name=st.sampled_from(NAMES), ok=st.booleans())
    def end(self, name: str, ok: bool) -> None:
        self.machines[name].end(ok)

    @rule(
        name=st.sampled_from(NAMES),
        environment=st.sampled_from([*SETUPS]),
        until=st.integers(1, 14),
        ok=st.sampled_from([True, True, True, False]),
        fault=st.integers(0, 8),
    )
    def go_on(self, name: str, environment: str, until: int, ok: bool, fault: int) -> None:
        """What happens to a node that changes hands, up to some point; and there something goes wrong."""
        steps: tuple[Callable[[], None], ...] = (
            lambda: self.place(name),
            lambda: self.order(name, False),
            lambda: self.give(name, environment, True),
            lambda: self.stop(name),
            lambda: self.report(name),
            lambda: self._ask_last(name),
            lambda: self.end(name, ok),
            lambda: self.answer(name, 1, True),
            lambda: self.rig.wait(31.0),
            lambda: self._ask_last(name),
            lambda: self.end(name, ok),
            lambda: self.answer(name, 1, True),
            lambda: self.place(name),
            lambda: self.order(name, False),
        )
        faults: tuple[Callable[[], None], ...] = (
            lambda: self.agent_dies(name),
            lambda: self.agent_will_die(name, until % 7),
            lambda: self.host_reboots(name),
            self.controller_dies,
            lambda: self.give(name, "", True),
            lambda: self.give(name, "wipe", True),
            lambda: self.ask(2, True),
            lambda: self.answer(name, 2, True),
            lambda: None,
        )
        for step in (*steps[:until], faults[fault]):
            step()

    def _ask_last(self, name: str) -> None:
        for asked in [asked for asked in self.rig.asked if asked.node == name][-1:]:
            self.machines[name].hear(asked)

    @rule(seconds=st.sampled_from([1.0, 20.0, 61.0, 200.0]))
    def time(self, seconds: float) -> None:
        self.rig.wait(seconds)

    @rule(name=st.sampled_from(NAMES))
    def agent_dies(self, name: str) -> None:
        self.machines[name].restart()

    @rule(name=st.sampled_from(NAMES), effects=st.integers(0, 6))
    def agent_will_die(self, name: str, effects: int) -> None:
        """So many effects from now, wherever it is then."""
        self.machines[name].effects_left = effects

    @rule(name=st.sampled_from(NAMES))
    def host_reboots(self, name: str) -> None:
        self.boots += 1
        self.machines[name].reboot(f"boot-{name}-{self.boots}")

    @rule()
    def controller_dies(self) -> None:
        self.rig.succeed()

    @rule(name=st.sampled_from(NAMES))
    def repair(self, name: str) -> None:
        self.rig.handovers.repair(self.rig.node(name), self.rig.now_s)
        self.rig.settle()

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def what_is_settled_is_somebodys(self) -> None:
        for name in NAMES:
            node = self.rig.node(name)
            assert node.in_hand == (node.handover is Handover.SETTLED and node.given == node.environment)
            if node.handover in (Handover.SETTLED, Handover.EMPTYING, Handover.FAILED):
                assert not node.setup_request

    def teardown(self) -> None:
        """Nothing fails any more: every node is soon in hand."""
        if not hasattr(self, "rig"):
            return
        for _ in range(12):
            for name in NAMES:
                self.machines[name].effects_left = None
                self.repair(name)
                self.order(name, True)
                self.stop(name)
                self.report(name)
                for _ in range(3):
                    self.end(name, True)
                    self._ask_last(name)
                    self.end(name, True)
                    self.answer(name, 1, True)
            self.rig.wait(61.0)
        assert all(self.rig.node(name).in_hand for name in NAMES)
        for name in NAMES:  # and may be used
            self.place(name)
            self.order(name, False)
            assert self.machines[name].history[-1] == (self.rig.node(name).given, "vm")


class Bounded(Handovers):
    """The machine, bounded so that it takes seconds."""


TestHandovers: Any = Bounded.TestCase
TestHandovers.settings = settings(max_examples=examples(60), stateful_step_count=40)
