"""What a fake server answers: one fake cluster, the agents that are attached to its hosts, and orders to the world.

Without I/O: the server (`sim_backend/fake_server/`) hands in calls and the time and carries answers away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shared.base.errors import Infeasible, InvalidValue, TrimtabError
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, Outcome
from shared.values.jobs import INSTANCE_SEPARATOR
from shared.values.nodes import Node
from shared.values.operation_costs import OperationCosts
from shared.values.scalars import check_name
from sim_backend.fake_server.guests import Guests
from sim_backend.fake_server.wire import Answer, Call, Control, Order, What
from sim_backend.fakes.host import Domain, Operation
from sim_backend.fakes.hypervisor import FakeCluster, FakeHypervisor
from sim_backend.fakes.power import FakePower
from sim_backend.world.world import World

Carrier = Callable[[Control, float], Any]


class FakeServerCore:
    """`boot` begins the boot ids of the hosts, so that they differ from one server to the next.

    Raises ContractViolation when two nodes have one name.
    """

    def __init__(self, nodes: Sequence[Node], costs: OperationCosts, boot: str) -> None:
        self.cluster = FakeCluster(World(), costs)
        self._power = FakePower(self.cluster)
        self._guests = Guests(self.cluster.world)
        self._boot, self._boots = boot, 0
        self._attached: set[str] = set()
        self._parted: set[frozenset[str]] = set()
        self._loads_mhz: dict[str, float] = {}
        self.cluster.reachable = self._reachable
        for node in nodes:
            self.cluster.add_node(node).boot_id = self._next_boot()
        self._orders: dict[Order, Carrier] = {
            Order.STATE: self._state,
            Order.WORK: self._work,
            Order.LOAD: self._load,
            Order.FAIL_NEXT: self._fail_next,
            Order.CLEAR_FAILURES: self._clear_failures,
            Order.LOSE_VM: self._lose_vm,
            Order.CRASH_VM: self._crash_vm,
            Order.HOST_DIES: self._host_dies,
            Order.HOST_RETURNS: self._host_returns,
            Order.FENCE: self._fence,
            Order.PART: self._part,
            Order.HEAL: self._heal,
        }

    # --- agents --------------------------------------------------------------------------------------------------

    def is_up(self, node: str) -> bool:
        """Return whether the host exists and has power."""
        hypervisor = self.cluster.hypervisors.get(node)
        return hypervisor is not None and hypervisor.up

    def attach(self, call: Call) -> Answer:
        """Attach an agent to a node. The previous one must have been detached."""
        if not self.is_up(call.node):
            known = call.node in self.cluster.hypervisors
            return Answer(call.call, error=f"{call.node} is down" if known else f"there is no node {call.node!r}")
        self._attached.add(call.node)
        return self._inventory(call, call.node)

    def detach(self, node: str) -> None:
        """Detach the agent of a node and drop its pending answers. VMs and operations continue."""
        self._attached.discard(node)
        self.cluster.hypervisor(node).forget_answers()

    def handle(self, call: Call, node: str, now_s: float) -> Answer | None:
        """Take a call of the agent on `node` ("": of nobody's agent); None when it has no reply."""
        if call.what is What.CONTROL:
            return self._control(call, now_s)
        if not node:
            return Answer(call.call, error=f"{call.what.value} before hello")
        hypervisor = self.cluster.hypervisor(node)
        if call.what is What.INVENTORY:
            return self._inventory(call, node)
        if call.what is What.VMS:
            return Answer(call.call, vms=hypervisor.vms(now_s))
        if call.what is What.BEGIN and call.action is not None:
            self._begin(hypervisor, call.action, call.refused, now_s)
        elif call.what is What.ABORT:
            hypervisor.abort(call.vm, now_s)
        elif call.what is What.FORGET:
            hypervisor.forget(call.vm, now_s)
        else:
            return Answer(call.call, error=f"{call.what.value} without what it needs, or twice")
        return None

    def happened(self, now_s: float) -> list[tuple[str, Answer]]:
        """Process everything due by `now_s`. Return the messages for the agents, (node, answer), in order; for a node
        without an agent they are lost."""
        told: list[tuple[str, Answer]] = []
        for name in self.cluster.advance(now_s):
            told.extend((name, _telling(event)) for event in self.cluster.hypervisor(name).poll(now_s))
        self._share_loads(now_s)
        return told

    def next_due_s(self) -> float | None:
        """Return the time at which `happened` next has something to do; None when nothing is in progress."""
        return self.cluster.next_due_s()

    def _begin(self, hypervisor: FakeHypervisor, action: Action, refused: str, now_s: float) -> None:
        problem = refused or self._guests.prepare(action)
        if problem:
            hypervisor.answer(action, Outcome.REFUSED, now_s, detail=problem)
        else:
            hypervisor.begin(action, now_s)

    def _inventory(self, call: Call, node: str) -> Answer:
        hypervisor = self.cluster.hypervisor(node)
        return Answer(call.call, node=hypervisor.node, boot_id=hypervisor.boot_id)

    # --- orders --------------------------------------------------------------------------------------------------

    def _control(self, call: Call, now_s: float) -> Answer:
        control = call.control
        carry = None if control is None else self._orders.get(control.order)
        if control is None or carry is None:
            return Answer(call.call, error="no such order here")
        self.cluster.catch_up(now_s)
        try:
            return Answer(call.call, data=carry(control, now_s))
        except TrimtabError as error:
            return Answer(call.call, error=str(error))

    def _hypervisor(self, name: str) -> FakeHypervisor:
        hypervisor = self.cluster.hypervisors.get(name)
        if hypervisor is None:
            raise InvalidValue("node", name, "one of " + ", ".join(list(self.cluster.hypervisors)[:8]))
        return hypervisor

    def _next_boot(self) -> str:
        self._boots += 1
        return f"{self._boot}-{self._boots}"

    def _work(self, control: Control, _now_s: float) -> None:
        self._guests.work(control.job, control.template)

    def _load(self, control: Control, _now_s: float) -> None:
        check_name("job", control.job)
        if not 0.0 <= control.mhz < math.inf:
            raise InvalidValue("mhz", control.mhz, "a finite number, 0 or above")
        if control.job in self.cluster.world.completions:
            raise InvalidValue("job", control.job, "one whose guests have no template")
        self._loads_mhz[control.job] = control.mhz

    def _share_loads(self, now_s: float) -> None:
        """Divide each load equally among the guests that execute now."""
        world = self.cluster.world
        for job, mhz in self._loads_mhz.items():
            vms = [] if job in world.completions else world.executing(job + INSTANCE_SEPARATOR)
            for vm in vms:
                world.ask(vm, mhz / len(vms), now_s)

    def _fail_next(self, control: Control, _now_s: float) -> None:
        self._hypervisor(control.node).fail_next(control.kind, control.how.value, control.vm or None)

    def _clear_failures(self, control: Control, _now_s: float) -> None:
        self._hypervisor(control.node).clear_failures()

    def _lose_vm(self, control: Control, now_s: float) -> None:
        if not self._hypervisor(control.node).lose_vm(control.vm, now_s):
            raise Infeasible(f"no live VM {control.vm!r} on {control.node}")

    def _crash_vm(self, control: Control, now_s: float) -> None:
        if not self._hypervisor(control.node).crash_vm(control.vm, now_s):
            raise Infeasible(f"no live VM {control.vm!r} on {control.node}")

    def _host_dies(self, control: Control, now_s: float) -> dict[str, Any]:
        return {"gone": self._hypervisor(control.node).host_dies(now_s)}

    def _host_returns(self, control: Control, _now_s: float) -> dict[str, Any]:
        hypervisor = self._hypervisor(control.node)
        if not hypervisor.up:
            hypervisor.host_returns(self._next_boot())
        return {"boot_id": hypervisor.boot_id}

    def _fence(self, control: Control, _now_s: float) -> dict[str, Any]:
        self._hypervisor(control.node)
        return {"off": self._power.fence(control.node)}

    def _part(self, control: Control, _now_s: float) -> None:
        self._parted.add(self._pair(control))

    def _heal(self, control: Control, _now_s: float) -> None:
        if control.node or control.peer:
            self._parted.discard(self._pair(control))
        else:
            self._parted.clear()

    def _pair(self, control: Control) -> frozenset[str]:
        pair = frozenset({self._hypervisor(control.node).node.name, self._hypervisor(control.peer).node.name})
        if len(pair) != 2:
            raise InvalidValue("peer", control.peer, "another node")
        return pair

    def _reachable(self, a: str, b: str) -> bool:
        return not self._parted or frozenset({a, b}) not in self._parted

    # --- what is true --------------------------------------------------------------------------------------------

    def _state(self, _control: Control, now_s: float) -> dict[str, Any]:
        world, cluster = self.cluster.world, self.cluster
        tasks = [
            {
                "job": job,
                "done_mcycles": world.done_mcycles(job, now_s),
                "completions": [{"attempt": attempt, "at_s": at_s} for attempt, at_s in times],
            }
            for job, times in world.completions.items()
        ]
        return {
            "now_s": now_s,
            "next_due_s": self.next_due_s(),
            "nodes": [self._node(hypervisor, now_s) for hypervisor in cluster.hypervisors.values()],
            "tasks": tasks,
            "parted": sorted(sorted(pair) for pair in self._parted),
            "doubles": [{"at_s": at_s, "vm": vm, "node": node} for at_s, vm, node in cluster.doubles],
        }

    def _node(self, hypervisor: FakeHypervisor, now_s: float) -> dict[str, Any]:
        return {
            "node": hypervisor.node.name,
            "up": hypervisor.up,
            "boot_id": hypervisor.boot_id,
            "attached": hypervisor.node.name in self._attached,
            "memory_used_mib": hypervisor.memory_used_mib(),
            "domains": [self._vm(hypervisor, domain, now_s) for domain in hypervisor.domains.values()],
            "images": [self._vm(hypervisor, image, now_s) for image in hypervisor.images.values()],
            "operations": [_operation(op) for op in hypervisor.operations.values()],
        }

    def _vm(self, hypervisor: FakeHypervisor, domain: Domain, now_s: float) -> dict[str, Any]:
        status = hypervisor.status_of(domain, now_s)
        return {
            "vm": status.vm,
            "state": status.state.value,
            "generation": status.generation,
            "attempt": status.attempt,
            "memory_mib": status.memory_mib,
            "cpu_mhz": status.cpu_mhz,
            "cpu_time_s": status.cpu_time_s,
            "busy": status.busy,
        }


def _operation(op: Operation) -> dict[str, Any]:
    """Return an operation as a dict; a `due_s` of None means that it hangs."""
    due_s = op.due_s if op.due_s < float("inf") else None
    return {"id": op.action.id, "kind": op.action.kind.value, "vm": op.action.vm, "due_s": due_s}


def _telling(event: Operated | GuestChanged) -> Answer:
    return Answer(operated=event) if isinstance(event, Operated) else Answer(changed=event)
