"""What the deployment engine has asked of power drivers and agents, how often, and since when."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.settings import ControllerSettings
from shared.ports.effects import Power, PowerDone, Publish
from shared.protocol import topology
from shared.protocol.messages import GoToSleep
from shared.values.nodes import PowerOperation

DETAIL_MAX = 4096
JUMP_S = 30.0  # a longer gap than this beyond what was due is a jump of the clock, or a standstill
REPEAT_S = 60.0  # what was done without effect is done again
MINUTE_S = 60.0


@dataclass(slots=True)
class PowerState:
    """A controller's view of a node's power transition; all times count its elapsed seconds.

    from_s: in its present service. asked_s: when a change was last wanted (None: not seen, or learned). woke: it was
    asleep on the way. power: the driver's operation in progress. last: the last request to it, not to be repeated
    before retry_s. detail: the driver's last message. request, expires_s (agent's clock), answered, sleep_asked_s: of
    its transition to sleep. stays_until_s: it could not be evacuated. delinked: other schedulers of the node were
    notified; entering_s: the start of attempts at the opposite.
    """

    from_s: float = 0.0
    asked_s: float | None = None
    woke: bool = False
    power: PowerOperation | None = None
    last: PowerOperation | None = None
    retry_s: float = 0.0
    failures: int = 0
    detail: str = ""
    request: str = ""
    expires_s: float = -math.inf
    answered: bool = False
    sleep_asked_s: float = 0.0
    sleep_failures: int = 0
    drain_failures: int = 0
    stays_until_s: float = 0.0
    delinked: bool = False
    entering_s: float | None = None

    def restart(self, elapsed_s: float) -> None:
        """Reset after a change of the node's service."""
        self.from_s, self.retry_s, self.failures, self.detail = elapsed_s, 0.0, 0, ""
        self.entering_s, self.answered = None, False


class PowerOperations:
    """Asks for power operations, within the rates that are allowed. `elapsed_s`: time without jumps of the clock."""

    def __init__(self, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.unit_of_work, self.settings, self.power = unit_of_work, settings, settings.power
        self.elapsed_s = 0.0
        self._last_s: float | None = None
        self._ways: dict[str, PowerState] = {}
        self._wakes: deque[float] = deque()
        self._sleeps: deque[float] = deque()
        self._requests = 0

    def begin(self, now_s: float) -> None:
        """Start counting time now."""
        self._last_s = now_s

    def pass_time(self, now_s: float, due_s: float) -> None:
        """Count the time since the last call, at most until a while after what was due (inf: nothing was)."""
        if self._last_s is not None:
            self.elapsed_s += min(now_s - self._last_s, max(due_s - self._last_s, 0.0) + JUMP_S)
        self._last_s = now_s

    def way(self, node: NodeEntry) -> PowerState:
        """Return the power state of a node."""
        way = self._ways.get(node.name)
        if way is None:
            way = self._ways[node.name] = PowerState(from_s=self.elapsed_s, sleep_asked_s=self.elapsed_s)
        return way

    def staying(self) -> frozenset[str]:
        """Return the names of the nodes that could not be evacuated and may not be retried yet."""
        return frozenset(name for name, way in self._ways.items() if self.elapsed_s < way.stays_until_s)

    def forget(self, name: str) -> None:
        """Drop the state of a node that was removed."""
        self._ways.pop(name, None)

    def later(self, failures: int) -> float:
        """Return when to retry after this many failures."""
        wait_s = self.settings.retry_s * 2.0 ** min(failures - 1, 30)
        return self.elapsed_s + min(self.settings.retry_max_s, wait_s)

    def ask(self, node: NodeEntry, operation: PowerOperation) -> float:
        """Ask the driver, unless it is busy with the node or it is too early; returns when to look again."""
        way = self.way(node)
        if way.power is not None:
            return math.inf
        if way.last is not operation:
            way.last, way.retry_s, way.failures = operation, 0.0, 0
        if self.elapsed_s < way.retry_s:
            return way.retry_s
        way.power = operation
        if operation is PowerOperation.WAKE:
            way.woke = True
        macs = node.inventory.mac_addresses if node.inventory is not None else ()
        self.unit_of_work.change_node(node)  # how far it is must be in the store before the driver is asked
        self.unit_of_work.stored.append(Power(node.name, operation, macs))
        return math.inf

    def done(self, node: NodeEntry, answer: PowerDone, now_s: float) -> bool:
        """Note a driver's answer; false when nobody waits for it."""
        way = self.way(node)
        if way.power is not answer.operation:
            return False
        way.power, way.detail = None, answer.detail[:DETAIL_MAX]
        way.failures += 1  # for the next time, should this have no effect
        if answer.ok:
            way.retry_s = self.elapsed_s + REPEAT_S * 2.0 ** min(way.failures - 1, 10)
        else:
            way.retry_s = self.later(way.failures)
            self.unit_of_work.emit(now_s, "power-failed", node.name, f"{answer.operation}: {way.detail}")
        return True

    def send_to_sleep(self, node: NodeEntry, now_s: float) -> None:
        """Ask the node's agent, or the driver where that does it."""
        way = self.way(node)
        self._requests += 1
        way.request = f"{self.unit_of_work.term}-sleep-{self._requests}"
        way.answered, way.sleep_asked_s = False, self.elapsed_s
        way.expires_s = now_s + self.settings.action_ttl_s
        if PowerOperation.SLEEP in self.power.does:
            way.retry_s = 0.0
            self.ask(node, PowerOperation.SLEEP)
            return
        message = GoToSleep(
            way.request, node.name, self.unit_of_work.term, node.boot_id, way.expires_s, self.power.sleep
        )
        self.unit_of_work.stored.append(Publish(topology.ACTIONS, node.name, message))

    def may_wake(self, now_s: float) -> bool:
        """Return whether one more node may be woken this minute, and count it if so."""
        return _one_more(self._wakes, self.power.wakes_per_minute, now_s)

    def may_sleep(self, now_s: float) -> bool:
        """Return whether one more node may be put to sleep this minute, and count it if so."""
        return _one_more(self._sleeps, self.power.sleeps_per_minute, now_s)


def _one_more(times: deque[float], most: int, now_s: float) -> bool:
    while times and times[0] <= now_s - MINUTE_S:
        times.popleft()
    if len(times) >= most:
        return False
    times.append(now_s)
    return True
