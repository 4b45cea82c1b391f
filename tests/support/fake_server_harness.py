"""A fake server in the test's own process, and the short forms that its tests are written in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shared.base.clock import SystemClock
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.nodes import Node
from shared.values.operation_costs import OperationCosts
from shared.values.vms import VmSpec
from sim_backend.fake_server.client import RemoteHypervisor
from sim_backend.fake_server.control import FakeControl
from sim_backend.fake_server.server import FakeServer

NODES = [Node("n1", 4, 1_000.0, memory_mib=16_000), Node("n2", 4, 1_000.0, memory_mib=16_000)]
LIMIT_S = 20.0
CLOCK = SystemClock()


class Lab:
    """A server in this process whose time moves only by `control.advance`."""

    def __init__(self, path: Path, costs: OperationCosts, factor: float = 0.0) -> None:
        self.path = path
        self.server = FakeServer(path, NODES, costs, time_factor=factor)
        self.server.start()
        self.control = FakeControl(path)
        self.remotes: list[RemoteHypervisor] = []

    def agent(self, node: str = "n1", wake: Callable[[], None] | None = None) -> RemoteHypervisor:
        """A driver as an agent would have it."""
        self.remotes.append(RemoteHypervisor(f"unix://{self.path}?node={node}", wake))
        return self.remotes[-1]

    def node(self, name: str = "n1") -> dict[str, Any]:
        """What is true of a node."""
        (found,) = [node for node in self.control.state()["nodes"] if node["node"] == name]
        return dict(found)

    def close(self) -> None:
        """End everything."""
        for remote in self.remotes:
            remote.close()
        self.control.close()
        self.server.stop()


@contextmanager
def serving(path: Path, costs: OperationCosts, factor: float = 0.0) -> Iterator[Lab]:
    """A lab that is closed at the end."""
    made = Lab(path, costs, factor)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def short_path() -> Iterator[Path]:
    """Where a server may listen; short, as addresses of sockets must be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "fake"


def start(vm: str = "job#0", template: str = "", node: str = "n1", **fields: Any) -> Action:
    """A start."""
    spec = VmSpec(vm, 1, fields.pop("attempt", 1), memory_mib=1_000, vcpus=1, cpu_mhz=500.0, template=template)
    return Action(
        f"start {vm}",
        ActionKind.START,
        node,
        vm=vm,
        term=1,
        boot_id="boot",
        expires_at_s=1e12,
        generation=1,
        spec=spec,
        **fields,
    )


def act(kind: ActionKind, vm: str = "job#0", node: str = "n1", **fields: Any) -> Action:
    """Anything but a start, of generation 1."""
    return Action(
        f"{kind.value} {vm}",
        kind,
        node,
        vm=vm,
        term=1,
        boot_id="boot",
        expires_at_s=1e12,
        expects=1,
        generation=1,
        **fields,
    )


def news(remote: RemoteHypervisor) -> list[Operated | GuestChanged]:
    """What the driver has been told by now."""
    remote.inventory()
    return list(remote.poll(0.0))


def outcomes(remote: RemoteHypervisor) -> list[Outcome]:
    """How the operations ended of which the driver has been told by now."""
    return [event.outcome for event in news(remote) if isinstance(event, Operated)]


def wait_for(ready: Callable[[], bool]) -> None:
    """Until it is so; fails after LIMIT_S."""
    until_s = CLOCK.monotonic_s() + LIMIT_S
    while not ready():
        assert CLOCK.monotonic_s() < until_s, "it never came about"
        CLOCK.sleep(0.005)


def running(lab: Lab, vm: str = "job#0") -> RemoteHypervisor:
    """An agent on n1 with a running VM."""
    remote = lab.agent()
    remote.begin(start(vm), 0.0)
    remote.inventory()
    lab.control.advance(3.6)
    assert outcomes(remote) == [Outcome.OK]
    return remote
