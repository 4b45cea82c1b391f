"""The control channel of a fake server: what tests and demonstrations do to its world, and what is true in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.base.errors import Infeasible
from shared.values.actions import ActionKind
from sim_backend.fake_server.link import ServerConnection
from sim_backend.fake_server.wire import Call, Control, How, Order, What

REPLY_WITHIN_S = 30.0


class FakeControl:
    """One control connection, for one thread at a time.

    Every method raises Infeasible when the server refuses, and TransientError when the server is gone or does not
    answer within `reply_within_s`. After a TransientError the object is unusable.
    """

    def __init__(self, path: str | Path, reply_within_s: float = REPLY_WITHIN_S) -> None:
        self._link = ServerConnection(path, reply_within_s)
        self._link.receive_within(reply_within_s)
        self._calls = 0

    def do(self, control: Control) -> dict[str, Any]:
        """Carry out an order and return what it answers, {} when that is nothing."""
        self._calls += 1
        self._link.send(Call(What.CONTROL, self._calls, control=control))
        while True:
            for answer in self._link.receive():
                if answer.error:
                    raise Infeasible(answer.error)
                if answer.call == self._calls:
                    return dict(answer.data or {})

    def close(self) -> None:
        """End the connection."""
        self._link.close()

    def state(self) -> dict[str, Any]:
        """Return the true state: all domains and images of all nodes, tasks, partitions
        (docs/reference/fake-server.md)."""
        return self.do(Control(Order.STATE))

    def work(self, job: str, template: str) -> None:
        """Set the true work of a job's guests, before the first of them is started."""
        self.do(Control(Order.WORK, job=job, template=template))

    def load(self, job: str, mhz: float) -> None:
        """Set the total CPU in true MHz that the guests of a job or web application without a template request from now
        on. Guests that execute have equal parts of it."""
        self.do(Control(Order.LOAD, job=job, mhz=mhz))

    def fail_next(self, node: str, kind: ActionKind | None, how: How, vm: str = "") -> None:
        """Let a node's next operation of a kind (None: any) on a VM ("": any) fail."""
        self.do(Control(Order.FAIL_NEXT, node, kind=kind, how=how, vm=vm))

    def clear_failures(self, node: str) -> None:
        """Forget the failures that have not happened yet."""
        self.do(Control(Order.CLEAR_FAILURES, node))

    def lose_vm(self, node: str, vm: str) -> None:
        """Make a live VM disappear."""
        self.do(Control(Order.LOSE_VM, node, vm=vm))

    def crash_vm(self, node: str, vm: str) -> None:
        """Crash a live VM, which stays defined."""
        self.do(Control(Order.CRASH_VM, node, vm=vm))

    def host_dies(self, node: str) -> list[str]:
        """Power is cut: live VMs are gone and the node's agent is cut off. Returns the VMs that were alive."""
        return list(self.do(Control(Order.HOST_DIES, node))["gone"])

    def host_returns(self, node: str) -> str:
        """Bring the host up again and return its boot id."""
        return str(self.do(Control(Order.HOST_RETURNS, node))["boot_id"])

    def fence(self, node: str) -> bool:
        """Cut the node's power; true when it is proven off."""
        return bool(self.do(Control(Order.FENCE, node))["off"])

    def part(self, node: str, peer: str) -> None:
        """Cut the network between two hosts, which prevents migrations and image transfers."""
        self.do(Control(Order.PART, node, peer))

    def heal(self, node: str = "", peer: str = "") -> None:
        """Restore the network between two hosts; without names, between all."""
        self.do(Control(Order.HEAL, node, peer))

    def advance(self, seconds: float) -> float:
        """Move the time of a server whose time stands still. Returns the world's time."""
        return float(self.do(Control(Order.ADVANCE, seconds=seconds))["now_s"])
