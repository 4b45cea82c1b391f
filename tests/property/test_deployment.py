"""Nodes into service and out of it under everything at once: random decisions, operators, hosts that die, refuse to
sleep or come back late, successors, jumping clocks. No node with a VM is put to sleep, and it converges."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shared.ports import effects as fx
from shared.protocol.messages import GoToSleep
from shared.protocol.operator_messages import ConfirmOff, DrainNode, RepairNode, SubmitJob
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.nodes import NodeService, PowerOperation
from shared.values.vms import LIVE_STATES, VmState, VmStatus
from tests.extent import examples
from tests.support import parts
from tests.support.controller_harness import job
from tests.support.node_service_harness import LINKS, PowerHarness, power

NAMES = ("n1", "n2", "n3")
AWAY = (NodeService.OFF, NodeService.WAKING)


class Witness(PowerHarness):
    """A harness that looks at the truth whenever a host is asked to sleep."""

    def _publish(self, effect: fx.Publish) -> None:
        if isinstance(effect.message, GoToSleep):
            self.look(effect.message.node)
        super()._publish(effect)

    def look(self, name: str) -> None:
        """Nothing of ours runs there, or may."""
        node = self.controller.cluster.nodes[name]
        assert not [vm for vm in self.vms[name].values() if vm.state in LIVE_STATES]
        assert not node.claimed
        assert not node.flights
        assert name not in node_names_wanted(self)


def node_names_wanted(harness: PowerHarness) -> set[str]:
    return {name for name, node in harness.controller.cluster.nodes.items() if node.wanted}


class Deployments(RuleBasedStateMachine):
    """Three hosts: `down` are those that do not run; a dead one has lost its VMs."""

    @initialize(links=st.booleans(), seed=st.integers(0, 2**16))
    def begin(self, links: bool, seed: int) -> None:
        self.rng = random.Random(seed)
        does = LINKS if links else frozenset({PowerOperation.WAKE})
        self.harness: PowerHarness = Witness(NAMES, settings=power(does=does, wake_test_days=0.05))
        self.harness.lead()
        self.down: dict[str, bool] = {}  # by host: whether it was suspended, and keeps its boot
        self.boots = 1
        self.jobs = 0
        self.answered = 0
        self.handled = 0

    # --- what happens -----------------------------------------------------------------------------------------------

    @rule(names=st.sets(st.sampled_from(NAMES)))
    def decide(self, names: set[str]) -> None:
        self.harness.want(*sorted(names))

    @rule()
    def submit(self) -> None:
        if self.jobs < 4:
            self.jobs += 1
            self.harness.ask(SubmitJob(f"s{self.jobs}", job(f"j{self.jobs}", work=1e12, memory_mib=1500)))

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0, 70.0, 200.0, 700.0]))
    def time(self, seconds: float) -> None:
        self.harness.go(seconds)

    @rule(seconds=st.sampled_from([40.0, 4000.0]))
    def jump(self, seconds: float) -> None:
        self.harness.now_s += seconds
        self.harness.go(5.0)

    @rule()
    def obey(self) -> None:
        """Agents carry out what is open; what has expired they refuse."""
        for action in self.harness.take_orders():
            if self.harness.now_s >= action.expires_at_s or action.boot_id != self.harness.boots[action.node]:
                continue
            if action.node in self.down:
                self.harness.orders.append(action)
            elif self._can(action):
                self.harness.result(action)
            else:
                self.harness.result(action, Outcome.FAILED)

    def _can(self, action: Action) -> bool:
        if action.kind is ActionKind.MIGRATE and action.to_node in self.down:
            return False
        return action.spec is not None or action.vm in self.harness.vms[action.node]

    @rule(ok=st.booleans(), suspended=st.booleans())
    def sleep(self, ok: bool, suspended: bool) -> None:
        """Agents read what they were asked; one refuses at will, and always with a VM alive."""
        asked, self.handled = self.harness.sleeps[self.handled :], len(self.harness.sleeps)
        for request in asked:
            name = request.node
            late = self.harness.now_s >= request.expires_at_s or request.boot_id != self.harness.boots[name]
            if name in self.down or late:
                continue
            assert not [vm for vm in self.harness.vms[name].values() if vm.state in LIVE_STATES]
            self.harness.sleeps.append(request)  # the answer is to the last
            self.harness.agree(name, ok, "no")
            self.harness.sleeps.pop()
            if ok:
                self.down[name] = suspended

    @rule(ok=st.booleans(), comes=st.booleans())
    def power(self, ok: bool, comes: bool) -> None:
        """The driver answers what it was asked."""
        open_, self.answered = self.harness.powers[self.answered :], len(self.harness.powers)
        for asked in open_:
            if asked.operation is PowerOperation.WAKE and comes:
                self._up(asked.node)
            self.harness.feed(fx.PowerDone(asked.node, asked.operation, ok, "said so"))

    def _up(self, name: str) -> None:
        if name in self.down:
            if not self.down.pop(name):
                self.boots += 1
                self.harness.boots[name] = f"boot-{self.boots}"
            self.harness.up.append(name)

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        if name not in self.down:
            self.down[name] = False
            self.harness.up.remove(name)
            images = {vm: s for vm, s in self.harness.vms[name].items() if s.state is VmState.SUSPENDED}
            self.harness.vms[name] = images

    @rule(name=st.sampled_from(NAMES))
    def come_back(self, name: str) -> None:
        self._up(name)
        self.harness.go(5.0)

    @rule(name=st.sampled_from(NAMES))
    def confirm_off(self, name: str) -> None:
        if name in self.down:
            self.harness.ask(ConfirmOff(self._id(), name))

    @rule(name=st.sampled_from(NAMES), on=st.booleans())
    def drain(self, name: str, on: bool) -> None:
        self.harness.ask(DrainNode(self._id(), name, on))

    @rule(name=st.sampled_from(NAMES))
    def repair(self, name: str) -> None:
        self.harness.ask(RepairNode(self._id(), name))

    @rule(name=st.sampled_from(NAMES))
    def stranger(self, name: str) -> None:
        """A VM that is not ours comes, or goes."""
        gone = name not in self.down and self.harness.vms[name].pop("stranger", None) is not None
        node = self.harness.controller.cluster.nodes[name]
        if not (gone or name in self.down or node.sleeping or node.service in AWAY):
            self.harness.vms[name]["stranger"] = VmStatus("stranger", VmState.RUNNING, memory_mib=100, managed=False)
            self.harness.report(name)

    @rule()
    def crash(self) -> None:
        before = self.harness
        self.harness = before.succeeded()
        self.harness.__class__ = Witness
        self.harness.orders = before.orders
        self.harness.sleeps = before.sleeps[self.handled :]
        self.answered = self.handled = 0
        self.harness._requests = before._requests

    def _id(self) -> str:
        self.harness._requests += 1
        return f"r{self.harness.now_s}-{self.harness._requests}"

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def sleeping_nodes_hold_nothing(self) -> None:
        for name, node in self.harness.controller.cluster.nodes.items():
            if node.service in AWAY:
                assert not node.claimed
            if node.service is NodeService.IN_SERVICE:
                assert not node.sleeping
            if name in self.down and node.service in AWAY:
                assert not [vm for vm in self.harness.vms[name].values() if vm.state in LIVE_STATES]

    def teardown(self) -> None:
        """Faults stop: everything is answered and carried out, what failed is repaired."""
        if not hasattr(self, "harness"):
            return
        for name in NAMES:
            self.harness.vms[name].pop("stranger", None)
            self.harness.ask(DrainNode(self._id(), name, False))
            if name in self.down and self.harness.service(name) not in AWAY:
                self._up(name)
        self.harness.go(60.0)
        self._calm(20)
        for name in NAMES:
            self.harness.ask(RepairNode(self._id(), name))
        for _ in range(4):
            self.harness.want("n1", "n2")  # as every cycle's decision would
            self._calm(30)
        places = {name: self.harness.service(name) for name in NAMES}
        assert (places["n1"], places["n2"]) == (NodeService.IN_SERVICE, NodeService.IN_SERVICE), places
        if "n3" not in parts.lifecycle(self.harness.controller).work.staying():  # it could not be emptied of late
            assert not self.harness.controller.cluster.nodes["n3"].claimed
            assert places["n3"] in (NodeService.STANDBY, NodeService.OFF, NodeService.WAKING), places

    def _calm(self, rounds: int) -> None:
        for _ in range(rounds):
            self.harness.go(30.0)
            self.obey()
            self.sleep(True, True)
            self.power(True, True)


class Machine(Deployments):
    """The machine, bounded so that it takes seconds."""


TestDeployments: Any = Machine.TestCase
TestDeployments.settings = settings(max_examples=examples(15), stateful_step_count=30)
