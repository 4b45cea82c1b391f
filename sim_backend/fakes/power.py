"""Power of the fake hosts: they fall asleep, are switched off and come up, each in its true time, or fail on request.

What a host does is known here and nowhere else; controllers see silence and reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from shared.base.errors import ContractViolation
from shared.ports.controller import PowerAnswer
from shared.values.nodes import PowerOperation, SleepMode
from shared.values.vms import HOLDING_STATES
from sim_backend.fakes.hypervisor import FakeCluster

SLEEP_LIMIT_S = 60.0  # a host that has not gone to sleep by then is said not to
DOES = frozenset({PowerOperation.FENCE, PowerOperation.WAKE})


class HostPower(StrEnum):
    """What a host is doing, in truth."""

    UP = "up"
    FALLING = "falling"  # going to sleep or off, and up until it is
    SUSPENDED = "suspended"
    OFF = "off"
    WAKING = "waking"


class Down(StrEnum):
    """How a host went down."""

    SUSPENDED = "suspended"  # its processes stand still
    OFF = "off"
    CUT = "cut"  # without having been told


class SleepFault(StrEnum):
    """What goes wrong when a host is to sleep."""

    REFUSED = "refused"
    HANGS = "hangs"


@dataclass(frozen=True, slots=True)
class PowerTimes:
    """True times in seconds: until a host is suspended, off, resumed, booted. Those of each host differ by a factor
    of its own, and each time by another, both exp(noise x a normal variate)."""

    suspend_s: float = 3.0
    off_s: float = 15.0
    resume_s: float = 8.0
    boot_s: float = 60.0
    noise: float = 0.2


@dataclass(slots=True)
class _WakeFault:
    """Failure of the next `times` wakes. `late_s`: delay of the wake (None: the host never wakes). `told`: the driver
    reports the failure."""

    times: float
    late_s: float | None = None
    told: bool = False


class FakePower:
    """`shared.ports.controller.PowerDriver` over a fake cluster, and what its hosts do by themselves.

    Power goes at `clock()`, or at the time the cluster is at; `later(at_s, call)` has something done then (None: it is
    done at once). `does` as a driver. `on_down(node, how)` and `on_up(node, boot_id, resumed)` are called when it has
    happened. `changes` lists (at_s, node, what), `asleep_with` (at_s, node, vm) each time a host went to sleep with a
    VM on it, which must never be.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        clock: Callable[[], float] | None = None,
        later: Callable[[float, Callable[[], None]], None] | None = None,
        times: PowerTimes | None = None,
        seed: int = 0,
        does: frozenset[PowerOperation] = DOES,
    ) -> None:
        self.cluster, self._clock, self._later = cluster, clock, later
        self.name, self.does = "fake", does
        self.times = times or PowerTimes()
        self.on_down: Callable[[str, Down], None] | None = None
        self.on_up: Callable[[str, str, bool], None] | None = None
        self.changes: list[tuple[float, str, HostPower]] = []
        self.asleep_with: list[tuple[float, str, str]] = []
        self.linked: dict[str, bool] = {}
        self.starts = 0
        self._seed = seed
        self._chance: dict[str, tuple[float, Random]] = {}
        self._states: dict[str, HostPower] = {}
        self._turn: dict[str, int] = {}
        self._asleep: set[str] = set()
        self._failing: dict[str, float] = {}
        self._wakes: dict[str, _WakeFault] = {}
        self._sleeps: dict[str, list[SleepFault]] = {}

    # --- the port -------------------------------------------------------------------------------------------------

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Carry out one operation at once, or begin it."""
        del mac_addresses
        if operation not in self.does:
            raise ContractViolation(f"{self.name} does not {operation}")
        if node not in self.cluster.hypervisors:
            return PowerAnswer(False, f"there is no host {node}")
        if operation is PowerOperation.FENCE:
            done = self.fence(node)
        elif operation is PowerOperation.WAKE:
            done = self.wake(node)
        elif operation is PowerOperation.SLEEP:
            return self._put_to_sleep(node)
        else:
            self.linked[node] = operation is PowerOperation.LINK
            done = True
        return PowerAnswer(done, "" if done else f"{operation} failed by the script")

    def state(self, node: str) -> HostPower:
        """Return the power state of a host. Raises KeyError when there is none."""
        state = self._states.get(node, HostPower.UP)
        if self.cluster.hypervisors[node].up:
            return state if state is HostPower.FALLING else HostPower.UP
        return state if state in (HostPower.SUSPENDED, HostPower.WAKING) else HostPower.OFF

    def sleeps(self, node: str) -> bool:
        """Return whether a host is down because it was put to sleep or switched off, or is waking up from there."""
        return node in self._asleep and not self.cluster.hypervisors[node].up

    # --- scripts --------------------------------------------------------------------------------------------------

    def fail_fence(self, node: str, times: float = math.inf) -> None:
        """Let the next `times` fences of a node fail (0: none any more)."""
        self._failing[node] = times

    def fail_wake(self, node: str, times: float = math.inf, told: bool = False) -> None:
        """Make the next `times` wakes of a node that is down fail. `told`: the driver reports the failure."""
        self._wakes[node] = _WakeFault(times, None, told)

    def wake_late(self, node: str, late_s: float, times: float = math.inf) -> None:
        """Let the next `times` wakes of a node that is down take longer by `late_s`."""
        self._wakes[node] = _WakeFault(times, late_s)

    def fail_sleep(self, node: str, how: SleepFault, times: int = 1) -> None:
        """Let the next `times` attempts to go to sleep fail."""
        self._sleeps[node] = [how] * times

    def mend(self, node: str) -> None:
        """Remove all scripted faults of a node."""
        for scripted in (self._failing, self._wakes, self._sleeps):
            scripted.pop(node, None)

    # --- what hosts do --------------------------------------------------------------------------------------------

    def fence(self, node: str) -> bool:
        """Cut the node's power: its guests are gone. False when scripted to fail or the node is unknown."""
        hypervisor = self.cluster.hypervisors.get(node)
        if hypervisor is None:
            return False
        if self._failing.get(node, 0) > 0:
            self._failing[node] -= 1
            return False
        self._goes_down(node, Down.CUT)
        return True

    def wake(self, node: str) -> bool:
        """Have a node that is down come up, after its time; false when it is unknown or scripted to be refused. What
        is sent to a host that is not down yet is lost."""
        if node not in self.cluster.hypervisors:
            return False
        state = self.state(node)
        if state not in (HostPower.SUSPENDED, HostPower.OFF):
            return True
        late_s = 0.0
        fault = self._wakes.get(node)
        if fault is not None and fault.times > 0:
            fault.times -= 1
            if fault.late_s is None:
                return not fault.told
            late_s = fault.late_s
        resumes = state is HostPower.SUSPENDED
        time_s = self.times.resume_s if resumes else self.times.boot_s
        turn = self._goes(node, HostPower.WAKING)
        self._after(late_s + time_s * self._factor(node), lambda: self._comes_up(node, turn, resumes))
        return True

    def sleep(self, node: str, mode: SleepMode, fails: Callable[[str], None]) -> None:
        """Put a host that is up to sleep. `fails(why)` is called if it does not go to sleep."""
        faults = self._sleeps.get(node)
        if self.state(node) is not HostPower.UP:
            return
        if faults:
            if faults.pop() is SleepFault.REFUSED:
                fails("refused by the script")
            else:
                self._after(SLEEP_LIMIT_S, lambda: fails(f"still awake after {SLEEP_LIMIT_S:g} s"))
            return
        suspends = mode is SleepMode.SUSPEND
        time_s = self.times.suspend_s if suspends else self.times.off_s
        turn = self._goes(node, HostPower.FALLING)
        how = Down.SUSPENDED if suspends else Down.OFF
        self._after(time_s * self._factor(node), lambda: self._goes_down(node, how) if self._is(node, turn) else None)

    def died(self, node: str) -> None:
        """Note that a host has stopped on its own, which ends its power operations."""
        self._asleep.discard(node)
        self._goes(node, HostPower.OFF)

    def returned(self, node: str) -> None:
        """Note that somebody has brought a host up again."""
        self._goes(node, HostPower.UP)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _put_to_sleep(self, node: str) -> PowerAnswer:
        """Put a host to sleep through the driver. A refusal is answered at once; a hang is visible only because the
        host keeps reporting."""
        why: list[str] = []
        self.sleep(node, SleepMode.OFF, why.append)
        return PowerAnswer(not why, "".join(why))

    def _now_s(self) -> float:
        return self.cluster.now_s if self._clock is None else self._clock()

    def _after(self, delay_s: float, call: Callable[[], None]) -> None:
        if self._later is None or delay_s <= 0.0:
            call()
        else:
            self._later(self._now_s() + delay_s, call)

    def _factor(self, node: str) -> float:
        """Return the factor by which this host takes longer than the others this time."""
        if node not in self._chance:
            chance = Random(f"{self._seed} {node}")
            self._chance[node] = (math.exp(self.times.noise * chance.gauss(0.0, 1.0)), chance)
        own, chance = self._chance[node]
        return own * math.exp(self.times.noise * chance.gauss(0.0, 1.0))

    def _goes(self, node: str, state: HostPower) -> int:
        """Set the power state of a host, which cancels the operation in progress. Return the number of the change."""
        self._states[node] = state
        self.changes.append((self._now_s(), node, state))
        self._turn[node] = turn = self._turn.get(node, 0) + 1
        return turn

    def _is(self, node: str, turn: int) -> bool:
        return self._turn.get(node) == turn

    def _goes_down(self, node: str, how: Down) -> None:
        now_s = self._now_s()
        hypervisor = self.cluster.hypervisors[node]
        self.cluster.catch_up(now_s)
        if how is not Down.CUT:
            live = [vm for vm, domain in hypervisor.domains.items() if domain.state in HOLDING_STATES]
            self.asleep_with += [(now_s, node, vm) for vm in live]
        hypervisor.host_dies(now_s)
        (self._asleep.discard if how is Down.CUT else self._asleep.add)(node)
        self._goes(node, HostPower.SUSPENDED if how is Down.SUSPENDED else HostPower.OFF)
        if self.on_down is not None:
            self.on_down(node, how)

    def _comes_up(self, node: str, turn: int, resumes: bool) -> None:
        if not self._is(node, turn):
            return
        hypervisor = self.cluster.hypervisors[node]
        self.starts += 1
        boot_id = hypervisor.boot_id if resumes else f"woken-{self.starts}"
        hypervisor.host_returns(boot_id)
        self._goes(node, HostPower.UP)
        if self.on_up is not None:
            self.on_up(node, boot_id, resumes)
